"""Explanations of StreamClassifier: of the model, of drift, and of the predictions of rows.

The combined score is a sum over the experts, so its contributions are sums too. The calibration of an expert
is a function of one score: contributions to this score are multiplied by the average slope of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard._deprecation import renamed_attribute
from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.ensemble.expert_ensemble import ExpertEnsemble
from steelyard.ensemble.mixing import EnsembleSnapshot, ExpertWeights
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.online_threshold import RealisedRate, is_promise
from steelyard.ensemble.row_buffer import Block, last_rows
from steelyard.ensemble.scores import align
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import HashedTable, HashedView, TransformedRows, has_feature_names
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution, explain_softmax, sampled_rows
from steelyard.explanation.neighbors import Change, RememberedRows
from steelyard.explanation.rows import RowExplanations
from steelyard.proximal.drift_report import DriftReport, compare_moments
from steelyard.proximal.statistics import ClassMoments

if TYPE_CHECKING:
    from steelyard.tables.schema import Schema

_GOALS = {  # texts for two classes and for more; the texts of target rates are followed by the rate
    "gmean": ("largest G-mean", "largest mean recall"),
    "kappa": ("largest Cohen's kappa", "largest kappa of each class"),
    "f1": ("largest F1 score", "largest F1 of each class"),
    "alarms": ("share of alarms among the rows",),
    "alarms_per_day": ("alarms per day",),
    "recall": ("recall",),
    "precision": ("precision of at least",),
}
_MAX_TEXT_CLASSES = 12  # maximum number of classes in the text; the HTML table has all classes
_RECENT_ROWS = 1000  # number of remembered rows used as background of explanations
_ROWS_OF_CLASS = 200  # minimum number of background rows per class, if there are that many


@dataclass(frozen=True)
class ExpertRecord:
    """State of one expert.

    Attributes
    ----------
    name, description : str
        Name and kind of the expert.
    quality : float
        Recent quality of the expert alone: AUC for two classes, mean recall for more classes. NaN while the
        quality is unknown.
    weight : float
        Share of the expert in the combined score.
    n_rows : int
        Number of rows that the expert remembers.
    limits : str
        How the compute budget restricts the expert, or an empty text if it does not.
    """

    name: str
    description: str
    quality: float
    weight: float
    n_rows: int
    limits: str = ""

    words = renamed_attribute("description", "words")
    record = renamed_attribute("quality", "record")
    spared = renamed_attribute("limits", "spared")


@dataclass(frozen=True)
class ClassRecord:
    """Decision threshold of a class and its share among recent rows."""

    label: Label
    threshold: float | None
    share: float

    cut = renamed_attribute("threshold", "cut")


@dataclass(frozen=True)
class Explanation:
    """State of a :class:`~steelyard.StreamClassifier` when ``explain()`` was called.

    Attributes
    ----------
    n_rows : int
        Number of rows seen so far.
    threshold : str or dict
        Goal of the decision threshold.
    experts : list of ExpertRecord
        All experts.
    classes : list of ClassRecord
        One record for the positive class if there are two classes, otherwise one for each class.
    limits : dict of str to str
        Restrictions by the compute budget. The keys are names of experts and of learning steps.
    drifts : list of int
        Row numbers at which a drift was detected, in ascending order.
    promise : list of RealisedRate
        Observed rates of alarms, recall and precision with intervals; empty if the goal is not a rate.
    positive : label or None
        The positive class; None if there are not exactly two classes.
    """

    n_rows: int
    threshold: Any
    experts: list[ExpertRecord]
    classes: list[ClassRecord]
    limits: dict[str, str]
    drifts: list[int]
    promise: list[RealisedRate] = field(default_factory=list)
    positive: Label | None = None

    planes = renamed_attribute("classes", "planes")
    spared = renamed_attribute("limits", "spared")

    @property
    def leader(self) -> str:
        """Name of the expert with the largest weight, or an empty text before the experts have weights."""
        best = max(self.experts, key=lambda expert: expert.weight)
        return best.name if best.weight > 0.0 else ""

    def __str__(self) -> str:
        experts = [
            f"  {expert.name:<11} weight {expert.weight:.2f}  {self._measure} {_number(expert.quality):>5}  "
            f"{expert.n_rows} rows  {expert.description}"
            for expert in self._by_weight()
        ]
        word = "Class" if self.positive is None else "Positive class"
        is_binary = len(self.classes) < 2
        classes = [_class_line(record, word, is_binary) for record in self.classes[:_MAX_TEXT_CLASSES]]
        if len(self.classes) > _MAX_TEXT_CLASSES:
            classes.append(f"... and {len(self.classes) - _MAX_TEXT_CLASSES} more classes.")
        limits = [f"Schedule, {name}: {limit}." for name, limit in self.limits.items()]
        return "\n".join([*self._summary(), *map(str, self.promise), *experts, *classes, *limits])

    __repr__ = __str__

    @property
    def _measure(self) -> str:
        return "recent AUC" if len(self.classes) < 2 else "recent mean recall"

    def _summary(self) -> list[str]:
        goal = f"After {self.n_rows} rows; goal of the threshold: {_goal(self.threshold, len(self.classes))}."
        if self.leader:
            state = f"The expert with the largest weight is {self.leader!r}."
        else:
            state = "Too few rows were scored so far; the linear expert over all rows predicts alone."
        if self.drifts:
            rows = ", ".join(str(row) for row in self.drifts[-5:])
            state += f" Drift was detected at row {rows}."
        return [goal, state]

    def _by_weight(self) -> list[ExpertRecord]:
        return sorted(self.experts, key=lambda expert: -expert.weight)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(expert.name)}</td><td>{escape(expert.description)}</td><td>{expert.n_rows}</td>"
            f"<td>{_number(expert.quality)}</td><td>{expert.weight:.2f}</td><td>{escape(expert.limits)}</td></tr>"
            for expert in self._by_weight()
        )
        classes = "".join(
            f"<tr><td>{escape(str(record.label))}</td><td>{100 * record.share:.1f} %</td>"
            f"<td>{'none' if record.threshold is None else format(record.threshold, '.2f')}</td></tr>"
            for record in self.classes
        )
        text = " ".join([*self._summary(), *map(str, self.promise)])
        return (
            f"<p>{escape(text)}</p><table><thead><tr><th>expert</th><th>description</th>"
            f"<th>rows</th><th>{self._measure}</th><th>weight</th><th>restricted by budget</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><table><thead><tr><th>class</th><th>recent share</th>"
            f"<th>threshold</th></tr></thead><tbody>{classes}</tbody></table>"
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the weights of the experts as bars.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        ax.barh([expert.name for expert in self.experts], [expert.weight for expert in self.experts])
        for place, expert in enumerate(self.experts):
            text = f" {_number(expert.quality)}, {expert.n_rows} rows"
            ax.text(expert.weight, place, text, va="center")
        ax.set_xlim(0.0, 1.45)
        ax.invert_yaxis()
        ax.set_xlabel(f"weight (text: {self._measure}, rows remembered)")
        ax.set_title(f"experts after {self.n_rows} rows")
        return ax


def explain_ensemble(ensemble: ExpertEnsemble) -> Explanation:
    """Return the explanation of an ensemble."""
    snapshot, experts, stream = ensemble.snapshot, ensemble.experts, ensemble.stream()
    labels, weights, n = ensemble.labels_of(snapshot.classes), snapshot.weights, len(experts)
    thresholds: list[float | None] = [None] * len(labels)
    if weights is None:
        quality, shown = np.full(n, np.nan), np.zeros(n)
    elif isinstance(weights, MulticlassWeights):
        quality, shown, thresholds = weights.recall, weights.weights, weights.thresholds.tolist()
    else:
        # The score of the first class is the negative score of the second class.
        quality, shown, thresholds = weights.auc, weights.weights, [-weights.threshold, weights.threshold]
    records = []
    for expert, q, w in zip(experts, quality, shown, strict=True):
        limit = expert.limits(stream.budget)
        if limit is not None:
            weight = 0.0 if expert.rule is None else float(w)  # the rule may be lost since the last update
            name, description = expert.config.name, expert.config.description
            records.append(ExpertRecord(name, description, float(q), weight, expert.n_rows, limit))
    limits = {record.name: record.limits for record in records if record.limits}
    if not stream.budget.weighs_experts:
        limits["weights and thresholds"] = (
            f"disabled: {stream.budget.n_classes} classes are more than {SETTINGS.max_weighed_classes}"
        )
    shares, positive = ensemble.shares().tolist(), ensemble.find_positive()
    classes = [ClassRecord(*parts) for parts in zip(labels, thresholds, shares, strict=True)]
    if len(labels) == 2:
        classes = classes[:1] if positive == labels[0] else classes[1:]
    promise = ensemble.decision.online_threshold
    return Explanation(
        n_rows=ensemble.n_seen + ensemble.pending.n_rows,
        threshold=ensemble.params.threshold,
        experts=records,
        classes=classes,
        limits=limits,
        drifts=list(ensemble.drift.drifts),
        promise=[] if promise is None else promise.realised(),
        positive=positive,
    )


def labelled_report(ensemble: ExpertEnsemble, class_count: IntArray) -> DriftReport:
    """Compare the last labelled rows with earlier rows. With too few rows, no change is reported."""
    changes, has_gaps = ensemble.changes, ensemble.views.layout is not None
    _, names = ensemble.input.monitored(ensemble.rows.block.X[:0], has_gaps=has_gaps)
    report = changes.report(names)
    if report is not None:
        return report
    counts = class_count.astype(np.float64)
    shares = (counts / max(counts.sum(), 1.0)).tolist()
    both = {x: (share, share) for x, share in zip(ensemble.snapshot.labels.tolist(), shares, strict=True)}
    return DriftReport([], {}, [], both, (float(counts.sum()), 0.0), None, changes.event_list())


def unlabelled_report(ensemble: ExpertEnsemble, X: FloatArray) -> DriftReport:
    """Compare unlabelled rows and their scores with the rows in the row buffer."""
    snapshot, both = ensemble.snapshot, [ensemble.rows.block.X, X]
    has_gaps = ensemble.views.layout is not None
    (known, _), (new, names) = (ensemble.input.monitored(rows, has_gaps=has_gaps) for rows in both)
    names = names or [f"x{k}" for k in range(new.shape[1])]
    if len(snapshot.classes) == 2:
        scores = [snapshot.decide(snapshot.raw_scores(rows)) for rows in both]
        known, new = np.hstack([known, scores[0]]), np.hstack([new, scores[1]])
        names = [*names, "score"]
    before, after = (ClassMoments.of_rows(rows, np.zeros(len(rows), int), ["all"]) for rows in (known, new))
    return compare_moments(before, after, names)


def _goal(threshold: Any, n_classes: int) -> str:
    if isinstance(threshold, str):
        return _GOALS[threshold][0 if n_classes < 2 else 1]
    if is_promise(threshold):
        ((name, target),) = threshold.items()
        return f"{_GOALS[name][0]} {target:.4g}"
    return f"lowest cost, {threshold['miss']:g} for a miss and {threshold['alarm']:g} for a false alarm"


def _number(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.3f}"


def _class_line(record: ClassRecord, word: str, is_binary: bool) -> str:
    share = f"{word} {record.label!r}, recently {100 * record.share:.1f} % of the rows"
    if record.threshold is None:
        return f"{share}, has no threshold yet."
    if is_binary:
        rule = f"the weighted sum of log-odds is above {record.threshold:.2f} (decision_function above 0)"
        return f"{share}, is predicted if {rule}."
    return f"{share}, is predicted above a combined score of {record.threshold:.2f}."


# -- predictions of rows ------------------------------------------------------------------------------


def attribution(
    ensemble: ExpertEnsemble,
    X: FloatArray,
    rows: FloatArray,
    wide: sp.csr_matrix | None,
    background: FloatArray | None,
) -> Attribution:
    """Return contributions of the columns of X; ``rows`` and ``wide`` are X as the input of the experts."""
    snapshot, hashed = ensemble.snapshot, ensemble.input.hashed
    if isinstance(hashed, HashedTable):
        raise DataError(
            f"rows of tables with more than {SETTINGS.max_columns} columns cannot be explained.",
            source="StreamClassifier.explain",
            hint="select the columns that matter before learning",
        )
    others = sampled_rows(_recent_rows(ensemble).X if background is None else background)
    raw = snapshot.raw_scores(rows, wide)
    return explain_snapshot(snapshot, rows, others, raw, wide=wide, original=X, hashed=hashed)


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
    original: FloatArray | None = None,
    hashed: HashedView | None = None,
) -> Attribution:
    """Return contributions of columns to the scores returned by :meth:`EnsembleSnapshot.decide`.

    ``raw`` has the scores of all experts. If X is ``hashed``, ``original`` and ``wide`` are the rows before.
    """
    rows, others = TransformedRows(X, snapshot.views, wide), TransformedRows(background, snapshot.views)
    weights, n_planes = snapshot.weights, raw.shape[2]
    contributions, base = np.zeros((*X.shape, n_planes)), np.zeros(n_planes)
    of_wide_rows: Any = 0.0  # contributions of original columns by experts that learn rows before hashing
    known = [e for e, rule in enumerate(snapshot.rules) if rule is not None and not np.isnan(raw[:, e]).all()]
    for expert in known[:1] if weights is None else known:
        factor = 1.0 if weights is None else weights.weights[expert]
        if factor == 0.0:
            continue
        part = _expert_part(snapshot, expert, rows, others, raw[:, expert])
        if isinstance(weights, ExpertWeights):
            knots, values = weights.tables[expert]
            interpolate: Any = partial(np.interp, xp=knots, fp=values)
            part = transformed(part, raw[:, expert], interpolate, (knots, values))
        elif weights is not None:
            factor /= weights.scales[expert]
        rule = snapshot.rules[expert]
        if rule is not None and rule.uses_wide_rows:
            of_wide_rows = of_wide_rows + factor * part.contributions
        else:
            contributions = contributions + factor * part.contributions
        base = base + factor * part.base
    total = Attribution(contributions, base)
    if hashed is not None and original is not None:
        total = _unhashed(total, original, hashed)
        total = replace(total, contributions=total.contributions + of_wide_rows)
    if weights is None:
        return total
    if isinstance(weights, ExpertWeights):
        totals = weights.scores(raw)[:, None]
        decision_table = None if weights.is_promised else weights.decision_table
        decided = transformed(total.adjusted(totals), totals, weights.decisions, decision_table)
        return decided.adjusted(weights.decisions(totals))
    base = weights.slope * (total.base - weights.thresholds)
    return explain_softmax(Attribution(weights.slope * total.contributions, base))


def _expert_part(
    snapshot: EnsembleSnapshot, expert: int, rows: TransformedRows, others: TransformedRows, raw: FloatArray
) -> Attribution:
    """Return contributions to the scores of one expert, aligned with the classes of the snapshot."""
    rule = snapshot.rules[expert]
    assert rule is not None
    part = rule.attribution(rows, others)
    contributions = align(part.contributions, rule.classes, snapshot.classes)
    base = align(part.base[None], rule.classes, snapshot.classes)[0]
    unknown = np.isnan(base)
    if unknown.any():  # unknown classes have the lowest score, as in the weighted sum
        of_lowest = contributions[np.arange(len(raw)), :, np.nanargmin(raw, axis=1)]
        contributions = np.where(unknown, of_lowest[:, :, None], contributions)
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

    ``table`` has the knots and values of a piecewise linear function; None is for :func:`signed_scores`.
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


def _unhashed(part: Attribution, X: FloatArray, view: HashedView) -> Attribution:
    """Divide contributions of hashed columns among the original columns, in proportion to absolute values."""
    places: IntArray = view.sketch()[0]
    size, n_columns = np.abs(X), view.n_columns
    total = np.array([np.bincount(places, line, minlength=n_columns) for line in size])
    total = total.reshape(len(X), n_columns)[:, places]
    even = np.broadcast_to(1.0 / np.bincount(places, minlength=n_columns)[places], size.shape)
    share = np.divide(size, total, out=even.copy(), where=total > 0.0)
    return Attribution(part.contributions[:, places] * share[:, :, None], part.base)


def with_table_values(found: RowExplanations, schema: Schema, X: Any) -> RowExplanations:
    """Return an explanation with the values of the table X: categories, times and weekdays as texts."""
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
        # None is the text of a code that no category has.
        return None if None in values.values() else replace(change, values=values)

    values = decoded(found.values)
    if schema.categorical and has_feature_names(X):
        for place, texts in schema.category_texts(X, "explain").items():
            values[:, place] = texts  # texts of categories, including those that were never learned
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
