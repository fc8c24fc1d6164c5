"""From the experts' scores to one answer: normal scores, weights by recent record, and the cut.

An expert's score means little by itself. Ranked among its recent out-of-sample scores, both sides counted
alike, and mapped by the inverse normal, it says how unusual it is; such scores of different experts can be
averaged. The weights follow from how well each expert has ranked recent rows (AUC), and the cut from what
the average would have been for these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from steelyard._types import FloatArray
from steelyard.committee.cuts import choose_cut
from steelyard.committee.evidence import Evidence, Sides, align
from steelyard.committee.rules import Rows, Rule, Views

__all__ = ["Judgement", "Panel", "judge", "judgements"]

_ENOUGH = 5  # rows of each side below which nothing is judged
_SHARPNESS = 30.0  # an expert whose AUC is 0.033 better weighs e times as much
_REMEMBERED = 5000  # rows at most whose scores are kept for the moment
_BEYOND = 0.5  # normal scores by which a score beyond all known ones, by their whole range, is higher


@dataclass(frozen=True)
class Judgement:
    """What recent rows say about a plane.

    Attributes
    ----------
    tables : list of (ndarray, ndarray)
        For each expert its scores at some knots, and the normal scores there.
    auc : ndarray of shape (n_experts,)
        Recent AUC of each expert; NaN where it has none.
    weights : ndarray of shape (n_experts,)
        They sum to one.
    cut : float
        Rows above it are positive.
    """

    tables: list[tuple[FloatArray, FloatArray]]
    auc: FloatArray
    weights: FloatArray
    cut: float

    def scores(self, raw: FloatArray) -> FloatArray:
        """Weighted normal scores of rows, before the cut; ``raw`` has a column an expert."""
        total = np.zeros(len(raw))
        for expert in np.flatnonzero(self.weights):
            column = raw[:, expert]
            z = np.interp(column, *self.tables[expert])
            total += self.weights[expert] * np.where(np.isnan(column), 0.0, z)
        return total

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        return {
            "tables": [list(table) for table in self.tables],
            "auc": self.auc,
            "weights": self.weights,
            "cut": self.cut,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> Judgement:
        """What such values describe; ValueError if they make no sense."""
        tables = [(np.asarray(knots), np.asarray(z)) for knots, z in state["tables"]]
        auc, weights = np.asarray(state["auc"]), np.asarray(state["weights"])
        if not len(tables) == len(auc) == len(weights) == n_experts:
            raise ValueError("there must be one of everything for each expert")
        return cls(tables, auc, weights, float(state["cut"]))


def judge(sides: Sides, threshold: Any, priors: FloatArray) -> Judgement | None:
    """What recent rows say about a plane; None if there are too few."""
    if min(len(sides.positive), len(sides.negative)) < _ENOUGH:
        return None
    n_experts = sides.positive.shape[1]
    tables, auc = [], np.full(n_experts, np.nan)
    for expert in range(n_experts):
        positive, negative = (_known(side[:, expert]) for side in (sides.positive, sides.negative))
        if min(len(positive), len(negative)) < _ENOUGH:
            tables.append((np.zeros(1), np.zeros(1)))
            continue
        table, auc[expert] = _table(positive, negative)
        tables.append(table)
    if np.isnan(auc).all():
        return None
    judgement = Judgement(tables, auc, _weights(auc, priors), 0.0)
    positive, negative = judgement.scores(sides.positive), judgement.scores(sides.negative)
    cut = choose_cut(positive, negative, threshold, sides.share)
    return Judgement(tables, auc, judgement.weights, cut)


def _known(scores: FloatArray) -> FloatArray:
    return scores[~np.isnan(scores)]


def _weights(auc: FloatArray, priors: FloatArray) -> FloatArray:
    """Weights that favour a good record; who does worse than chance has none, unless all do."""
    best = np.nanmax(auc)
    weights = priors * np.exp(_SHARPNESS * (np.nan_to_num(auc, nan=-np.inf) - best))
    if best > 0.5:
        weights[~(auc > 0.5)] = 0.0
    weights[weights < 0.01 * weights.max()] = 0.0
    weights /= weights.sum()
    return np.asarray(weights)


def _table(positive: FloatArray, negative: FloatArray) -> tuple[tuple[FloatArray, FloatArray], float]:
    """Normal scores at the scores that came, and the AUC of positives against negatives."""
    n = len(positive)
    ranks = rankdata(np.concatenate([positive, negative]))
    auc = float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(negative)))
    positive, negative = np.sort(positive), np.sort(negative)
    knots = np.unique(np.concatenate([positive, negative]))
    level = sum(
        side.searchsorted(knots, end) / (4.0 * len(side))
        for side in (positive, negative)
        for end in ("left", "right")
    )
    least = 0.5 / (len(positive) + len(negative))
    z = ndtri(np.clip(level, least, 1.0 - least))
    if len(knots) > 1:
        width = knots[-1] - knots[0]
        knots = np.concatenate([[knots[0] - width], knots, [knots[-1] + width]])
        z = np.concatenate([[z[0] - _BEYOND], z, [z[-1] + _BEYOND]])
    return (knots, z), auc


class LastAsked:
    """The last rows that were scored, and the scores: who predicts rows and then learns them pays once."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[FloatArray, FloatArray] | None = None

    def keep(self, X: FloatArray, scores: FloatArray) -> None:
        """Remember the scores of a few rows."""
        if len(X) <= _REMEMBERED:
            self._kept = X.copy(), scores  # the caller's array may change

    def scores_of(self, X: FloatArray) -> FloatArray | None:
        """Their scores, if these rows were asked for last."""
        kept = self._kept
        return kept[1] if kept is not None and np.array_equal(kept[0], X) else None

    def __reduce__(self) -> tuple[type[LastAsked], tuple[()]]:
        return LastAsked, ()


@dataclass(frozen=True)
class Panel:
    """All that is needed to answer, at one moment; it never changes.

    Attributes
    ----------
    classes : list of int
        Class numbers in the order of their labels.
    rules : list of Rule or None
        What each expert answers with.
    judgements : list of Judgement or None
        One for each plane.
    views : Views
        How experts see rows.
    """

    classes: list[int]
    rules: list[Rule | None]
    judgements: list[Judgement | None]
    views: Views
    asked: LastAsked = field(default_factory=LastAsked, repr=False, compare=False)

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Scores of every expert: (n_rows, n_experts, n_planes); NaN where one has none."""
        known = self.asked.scores_of(X)
        if known is None:
            known = self._raw_scores(Rows(X, self.views))
            self.asked.keep(X, known)
        return known

    def _raw_scores(self, rows: Rows) -> FloatArray:
        n_planes = len(self.judgements)
        scores = np.full((len(rows), len(self.rules), n_planes), np.nan)
        for number, rule in enumerate(self.rules):
            if rule is not None:
                scores[:, number] = align(rule.scores(rows), rule.classes, self.classes)
        return scores

    def decide(self, raw: FloatArray) -> FloatArray:
        """One score a plane, positive above the cut."""
        out = np.zeros((len(raw), len(self.judgements)))
        for plane, judgement in enumerate(self.judgements):
            if (
                judgement is None
            ):  # nothing is known about the experts yet: the first that has a score answers
                known = ~np.isnan(raw[:, :, plane]).all(axis=0) if len(raw) else np.zeros(0, dtype=bool)
                if known.any():
                    out[:, plane] = np.nan_to_num(raw[:, int(np.argmax(known)), plane])
            else:
                out[:, plane] = judgement.scores(raw[:, :, plane]) - judgement.cut
        return out


def judgements(evidence: Evidence, threshold: Any, priors: FloatArray) -> list[Judgement | None]:
    """What recent rows say about every plane."""
    if len(evidence.classes) < 2:
        return [None]
    return [judge(sides, threshold, priors) for sides in evidence.sides()]
