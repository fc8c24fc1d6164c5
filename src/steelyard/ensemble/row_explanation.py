"""Contributions of the columns to the combined score of all experts.

The combined score is a sum over the experts, so its contributions are sums too. The calibration of an expert
is a function of one score: the contributions to this score are multiplied by the average slope of the
calibration between the score of the reference and that of the row, so that they add up to the calibrated
score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.expert_ensemble import ExpertEnsemble
from steelyard.ensemble.row_buffer import Block, last_rows
from steelyard.ensemble.row_input import has_feature_names
from steelyard.ensemble.score_buffer import align
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.snapshot import EnsembleSnapshot, ExpertWeights
from steelyard.ensemble.views import HashedTable, HashedView, TransformedRows
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution, explain_softmax, sampled_rows
from steelyard.explanation.neighbors import Change, RememberedRows
from steelyard.explanation.rows import RowExplanations

if TYPE_CHECKING:
    from steelyard.tables.schema import Schema

_RECENT_ROWS = 1000  # number of remembered rows used as background of explanations
_ROWS_OF_CLASS = 200  # minimum number of background rows per class, if there are that many


def attribution(
    ensemble: ExpertEnsemble,
    X: FloatArray,
    rows: FloatArray,
    wide: sp.csr_matrix | None,
    background: FloatArray | None,
) -> Attribution:
    """Return contributions of the columns of X to the scores of an ensemble.

    ``rows`` and ``wide`` are the rows X, converted to the input of the experts. The default background is
    recent rows.
    """
    snapshot, hashed = ensemble.snapshot, ensemble.input.hashed
    if isinstance(hashed, HashedTable):
        raise DataError(
            f"rows of tables with more than {SETTINGS.max_columns} columns cannot be explained.",
            source="StreamClassifier.explain",
            hint="select the columns that matter before learning",
        )
    others = sampled_rows(_recent_rows(ensemble).X if background is None else background)
    unhash = None if hashed is None else partial(unhashed, X=X, view=hashed)
    raw = snapshot.raw_scores(rows, wide)
    return explain_snapshot(snapshot, rows, others, raw, wide=wide, unhash=unhash)


def remembered_rows(ensemble: ExpertEnsemble, dense: Callable[[FloatArray], FloatArray]) -> RememberedRows:
    """Return the background rows of explanations; ``dense`` converts rows to the input of the experts."""
    recent, views = _recent_rows(ensemble), ensemble.views
    labels = np.array([*ensemble.labels, None], dtype=object)[:-1][recent.codes]

    def ranks(rows: FloatArray) -> FloatArray:
        return rows if views.ranks is None else TransformedRows(rows, views).ranks

    has_values = ensemble.input.hashed is None
    rows = recent.X if has_values else ranks(recent.X)
    return RememberedRows(rows, labels, recent.numbers, lambda X: ranks(dense(X)), has_values)


def _recent_rows(ensemble: ExpertEnsemble) -> Block:
    """Return the last rows, and the last rows of each class, in the row buffer."""
    rows = ensemble.rows
    numbers = last_rows(rows.numbers, rows.codes, _RECENT_ROWS, _ROWS_OF_CLASS, ensemble.window_start)
    recent = rows.at(numbers)
    return recent if len(recent) else rows.block


def explain_snapshot(
    snapshot: EnsembleSnapshot,
    X: FloatArray,
    background: FloatArray,
    raw: FloatArray,
    *,
    wide: sp.csr_matrix | None = None,
    unhash: Callable[[Attribution], Attribution] | None = None,
) -> Attribution:
    """Return contributions of columns to the scores returned by :meth:`EnsembleSnapshot.decide`.

    ``raw`` has the scores of all experts. If rows are hashed, ``wide`` has the original columns, and
    ``unhash`` divides the contributions of hashed columns among the original columns.
    """
    rows, others = TransformedRows(X, snapshot.views, wide), TransformedRows(background, snapshot.views)
    weights, n_planes = snapshot.weights, raw.shape[2]
    total = Attribution(np.zeros((*X.shape, n_planes)), np.zeros(n_planes))
    of_wide_rows: Any = 0.0  # contributions of original columns by experts that learn rows before hashing
    for expert in _answering(snapshot, raw):
        part = _expert_part(snapshot, expert, rows, others, raw[:, expert])
        if isinstance(weights, ExpertWeights):
            table = weights.tables[expert]
            interpolate: Any = partial(np.interp, xp=table[0], fp=table[1])
            part = transformed(part, raw[:, expert], interpolate, table)
        factor = 1.0 if weights is None else weights.weights[expert]
        if weights is not None and not isinstance(weights, ExpertWeights):
            factor /= weights.scales[expert]
        contributions = total.contributions
        rule = snapshot.rules[expert]
        if rule is not None and rule.uses_wide_rows:
            of_wide_rows = of_wide_rows + factor * part.contributions
        else:
            contributions = contributions + factor * part.contributions
        total = Attribution(contributions, total.base + factor * part.base)
    if unhash is not None:
        total = unhash(total)
        total = replace(total, contributions=total.contributions + of_wide_rows)
    if weights is None:
        return total
    if isinstance(weights, ExpertWeights):
        totals = weights.scores(raw)[:, None]
        decision_table = None if weights.is_promised else weights.decision_table
        decided = transformed(total.adjusted(totals), totals, weights.decisions, decision_table)
        return decided.adjusted(weights.decisions(totals))
    scaled = Attribution(
        weights.slope * total.contributions, weights.slope * (total.base - weights.thresholds)
    )
    return explain_softmax(scaled)


def _answering(snapshot: EnsembleSnapshot, raw: FloatArray) -> list[int]:
    """Return the indices of experts with nonzero weight; without weights, of the first that has scores."""
    known = [e for e, rule in enumerate(snapshot.rules) if rule is not None and not np.isnan(raw[:, e]).all()]
    if snapshot.weights is None:
        return known[:1]
    return [e for e in known if snapshot.weights.weights[e] != 0.0]


def _expert_part(
    snapshot: EnsembleSnapshot, expert: int, rows: TransformedRows, others: TransformedRows, raw: FloatArray
) -> Attribution:
    """Return contributions to the scores of one expert, aligned with the classes of the snapshot.

    A class that the expert does not know has the expert's lowest score, as in the weighted sum.
    """
    rule = snapshot.rules[expert]
    assert rule is not None
    part = rule.attribution(rows, others)
    contributions = align(part.contributions, rule.classes, snapshot.classes)
    base = align(part.base[None], rule.classes, snapshot.classes)[0]
    unknown = np.isnan(base)
    if unknown.any():
        lowest = np.nanargmin(raw, axis=1)
        contributions = np.where(
            unknown, contributions[np.arange(len(raw)), :, lowest][:, :, None], contributions
        )
        base = np.where(unknown, np.nanmin(base), base)
        raw = np.where(np.isnan(raw), np.nanmin(raw, axis=1, keepdims=True), raw)
    return Attribution(contributions, base).adjusted(raw)


def transformed(
    part: Attribution,
    scores: FloatArray,
    function: Callable[[FloatArray], FloatArray],
    table: tuple[FloatArray, FloatArray] | None = None,
) -> Attribution:
    """Return contributions to a function of one score, for two classes.

    ``table`` has the knots and values of the function, which is linear between two knots. Without a table the
    function is :func:`signed_scores`, apart from a constant.
    """
    base = function(part.base)
    change, changed = scores - part.base, function(scores) - base
    slope = np.divide(changed, change, out=np.zeros_like(change), where=change != 0.0)
    same = change[:, 0] == 0.0
    if same.any():  # the contributions cancel out, so the slope of the function is used
        slope[same] = (
            np.minimum(1.0, np.abs(base)) ** 2 if table is None else _slope_at(float(part.base[0]), *table)
        )
    return Attribution(part.contributions * slope[:, None, :], base)


def _slope_at(score: float, knots: FloatArray, values: FloatArray) -> float:
    if len(knots) < 2:
        return 0.0
    piece = int(np.clip(np.searchsorted(knots, score, side="right") - 1, 0, len(knots) - 2))
    width = float(knots[piece + 1] - knots[piece])
    return float(values[piece + 1] - values[piece]) / width if width > 0.0 else 0.0


def unhashed(part: Attribution, X: FloatArray, view: HashedView) -> Attribution:
    """Return contributions of the original columns of hashed rows.

    The contribution of a hashed column is divided among its original columns in proportion to the absolute
    values of the row, or evenly if all of these values are zero.
    """
    places: IntArray = view.sketch()[0]
    size = np.abs(X)
    total = np.zeros((len(X), view.n_columns))
    for row, line in enumerate(size):
        total[row] = np.bincount(places, line, minlength=view.n_columns)
    count = np.bincount(places, minlength=view.n_columns)[places]
    share = np.divide(
        size,
        total[:, places],
        out=np.broadcast_to(1.0 / count, size.shape).copy(),
        where=total[:, places] > 0.0,
    )
    return Attribution(part.contributions[:, places] * share[:, :, None], part.base)


def with_table_values(found: RowExplanations, schema: Schema, X: Any) -> RowExplanations:
    """Return an explanation with the values of the table X: categories, times and weekdays as texts.

    A change of a category is dropped if its new value is not the code of a known category.
    """
    columns = [schema.texts_of(place) for place in range(len(found.column_names))]
    if not any(columns):
        return found
    by_name = dict(zip(found.column_names, columns, strict=True))

    def decoded(rows: NDArray[Any]) -> NDArray[Any]:
        values = rows.astype(object)
        for place, texts in enumerate(columns[: rows.shape[-1]]):
            if texts is not None:
                values[..., place] = texts(rows[..., place])
        return values

    def decoded_change(change: Change) -> Change | None:
        values = {
            name: value if (texts := by_name[name]) is None else texts(np.array([value]))[0]
            for name, value in change.values.items()
        }
        return None if None in values.values() else replace(change, values=values)

    values = decoded(found.values)
    if schema.categorical and has_feature_names(X):
        for place, texts in schema.category_texts(X, "explain").items():
            values[:, place] = texts  # also the categories that were never learned
    return replace(
        found,
        values=values,
        nearest=[
            [near if near.values is None else replace(near, values=decoded(near.values)) for near in rows]
            for rows in found.nearest
        ],
        changes=[
            [known for change in rows if (known := decoded_change(change)) is not None]
            for rows in found.changes
        ],
    )
