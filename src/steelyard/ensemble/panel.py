"""From the experts' scores to one answer: normal scores, weights by recent record, and the cut.

An expert's score means little by itself. Ranked among its recent out-of-sample scores, both sides counted
alike, and mapped by the inverse normal, it says how unusual it is; such scores of different experts can be
averaged. The weights follow from how well each expert has ranked recent rows (AUC), and the cut from what
the average would have been for these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from steelyard import _native
from steelyard._labels import winners
from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.cuts import choose_cut
from steelyard.ensemble.evidence import Evidence, Sides, align, n_planes, with_newcomers
from steelyard.ensemble.multiclass import ManyJudgement, judge_many
from steelyard.ensemble.rules import LabelRule, Rows, Rule, Views

__all__ = ["Judgement", "Panel", "judge", "judge_evidence"]

_ENOUGH = 5  # rows of each side below which nothing is judged
_SHARPNESS = 30.0  # an expert whose AUC is 0.033 better weighs e times as much
_MANY = 2000  # rows from which to score them on several threads pays
_REMEMBERED = 5000  # rows at most whose scores are kept for the moment
_TRUSTED = 0.5  # of the cut with the largest G-mean on recent rows: which it is, is much of chance
_BEYOND = 0.5  # normal scores by which a score beyond all known ones, by their whole range, is higher


@dataclass(frozen=True)
class Judgement:
    """What recent rows say about the plane of two classes.

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
    _tables_in_a_row: tuple[FloatArray, FloatArray, IntArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        knots, z = (np.concatenate(parts) for parts in zip(*self.tables, strict=True))
        starts = np.cumsum([0, *(len(table[0]) for table in self.tables)])
        object.__setattr__(self, "_tables_in_a_row", (knots, z, starts))

    def scores(self, raw: FloatArray) -> FloatArray:
        """Weighted normal scores of rows, before the cut; ``raw`` has a column an expert."""
        return _native.weigh_lookups(raw, *self._tables_in_a_row, self.weights)

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
        tables = [(np.array(knots, np.float64), np.array(z, np.float64)) for knots, z in state["tables"]]
        tables += [(np.zeros(1), np.zeros(1))] * (n_experts - len(tables))
        auc = with_newcomers(state["auc"], n_experts, np.nan)
        weights = with_newcomers(state["weights"], n_experts, 0.0)
        if not len(tables) == len(auc) == len(weights) == n_experts:
            raise ValueError("there must be one of everything for each expert")
        if any(knots.ndim != 1 or not len(knots) or knots.shape != z.shape for knots, z in tables):
            raise ValueError("a table must have one normal score at each of its scores")
        return cls(tables, auc, weights, float(state["cut"]))


def judge(sides: Sides, threshold: Any, priors: FloatArray) -> Judgement | None:
    """What recent rows say about a plane; None if there are too few."""
    n_positive = len(sides.positive)
    if min(n_positive, len(sides.negative)) < _ENOUGH:
        return None
    # All experts at once, one line each: a stream of single rows is judged often.
    scores = np.concatenate([sides.positive, sides.negative]).T
    known = ~np.isnan(scores)
    n_known = np.stack([known[:, :n_positive].sum(axis=1), known[:, n_positive:].sum(axis=1)])
    heard = np.flatnonzero(n_known.min(axis=0) >= _ENOUGH)
    if not len(heard):
        return None
    records = _Records.of(scores[heard], n_positive, n_known[:, heard])
    nobody = np.zeros(1)
    tables, auc = [(nobody, nobody)] * len(scores), np.full(len(scores), np.nan)
    for line, expert in enumerate(heard):
        tables[expert] = records.table(line)
    auc[heard] = records.auc
    weights = _weights(auc, priors)
    total = weights[heard] @ records.by_row
    cut = choose_cut(total[:n_positive], total[n_positive:], threshold, sides.share)
    if threshold == "gmean":
        cut *= _TRUSTED  # normal scores count both sides alike, so at 0 these are about level
    return Judgement(tables, auc, weights, cut)


def _weights(auc: FloatArray, priors: FloatArray) -> FloatArray:
    """Weights that favour a good record; who does worse than chance has none, unless all do."""
    best = np.nanmax(auc)
    weights = priors * np.exp(_SHARPNESS * (np.nan_to_num(auc, nan=-np.inf) - best))
    if best > 0.5:
        weights[~(auc > 0.5)] = 0.0
    weights[weights < 0.01 * weights.max()] = 0.0
    weights /= weights.sum()
    return np.asarray(weights)


@dataclass(frozen=True)
class _Records:
    """How experts ranked the same rows, one line an expert."""

    sorted: FloatArray  # their scores, rising; unknown ones (NaN) are last
    z: FloatArray  # the normal scores of these
    by_row: FloatArray  # the same in the order of the rows; 0 where a score is unknown
    n_known: IntArray  # scores that are known
    auc: FloatArray  # of positives against negatives

    @classmethod
    def of(cls, scores: FloatArray, n_positive: int, n_known: IntArray) -> _Records:
        """``n_known`` has the known scores of positives, then of negatives."""
        order = np.argsort(scores, axis=1)
        ranked, known = np.take_along_axis(scores, order, axis=1), n_known.sum(axis=0)
        level, in_order = _native.rank_levels(ranked, order, known, n_positive)
        least = (0.5 / known)[:, None]
        z = ndtri(np.clip(level, least, 1.0 - least))  # 0 where a score is unknown
        by_row = np.empty_like(z)
        np.put_along_axis(by_row, order, z, axis=1)
        return cls(ranked, z, by_row, known, in_order / (2.0 * n_known[0] * n_known[1]))

    def table(self, line: int) -> tuple[FloatArray, FloatArray]:
        """Scores of an expert that came, and the normal scores there; a little beyond both ends."""
        n = self.n_known[line]
        knots, z = self.sorted[line, :n], self.z[line, :n]
        width = knots[-1] - knots[0]
        if width <= 0.0:
            return knots[:1], z[:1]
        return (
            np.concatenate([[knots[0] - width], knots, [knots[-1] + width]]),
            np.concatenate([[z[0] - _BEYOND], z, [z[-1] + _BEYOND]]),
        )


class LastAsked:
    """The last rows that were scored, and the scores: who predicts rows and then learns them pays once."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[Rows, FloatArray] | None = None

    def keep(self, rows: Rows, scores: FloatArray) -> None:
        """Remember the scores of a few rows."""
        if len(rows) <= _REMEMBERED:
            self._kept = rows.of_its_own(), scores

    def find(self, X: FloatArray) -> tuple[Rows, FloatArray] | None:
        """These rows and their scores, if they were asked for last."""
        kept = self._kept
        if kept is None or kept[0].X.shape != X.shape:
            return None
        known = kept[0].X
        # A stream of single rows pays for every call.
        same = known.tobytes() == X.tobytes() if len(X) == 1 else np.array_equal(known, X)
        return kept if same else None

    def __reduce__(self) -> tuple[type[LastAsked], tuple[()]]:
        return LastAsked, ()


class SingleRows:
    """Scores of single rows, by all experts in one native call: such a stream pays for every call.

    Panels whose rules differ in those that follow labels alone may share it.
    """

    __slots__ = ("_experts",)

    def __init__(self) -> None:
        self._experts: list[_native.RowExperts | None] = []  # made for the first row

    def scored(self, panel: Panel, X: FloatArray) -> tuple[Rows, FloatArray] | None:
        """What :meth:`Panel.raw_scores` gives for a single row; None where each expert must be asked."""
        if not self._experts:
            self._experts.append(_joined(panel, X.shape[1]))
        experts = self._experts[0]
        if experts is None:
            return None
        scores, ranks = experts.scores(X)
        for number, rule in enumerate(panel.rules):
            if isinstance(rule, LabelRule) and rule.classes == panel.classes:
                scores[0, number, 0] = rule.share_of_second()
        return Rows(X, panel.views, ranks), scores

    def __reduce__(self) -> tuple[type[SingleRows], tuple[()]]:
        return SingleRows, ()


def _joined(panel: Panel, n_features: int) -> _native.RowExperts | None:
    """The experts of a single plane, if they can score rows together."""
    if len(panel.classes) != 2:
        return None
    experts = panel.views.row_experts(len(panel.rules), n_features)
    for number, rule in enumerate(panel.rules):
        if rule is None or isinstance(rule, LabelRule):
            continue
        if rule.classes != panel.classes or not rule.join(experts, number):
            return None
    return experts


@dataclass(frozen=True)
class Panel:
    """All that is needed to answer, at one moment; it never changes.

    Attributes
    ----------
    classes : list of int
        Class numbers in the order of their labels.
    rules : list of Rule or None
        What each expert answers with.
    judgement : Judgement, ManyJudgement or None
        What recent rows say about the experts; None while they are too few.
    views : Views
        How experts see rows.
    """

    classes: list[int]
    rules: list[Rule | None]
    judgement: Judgement | ManyJudgement | None
    views: Views
    asked: LastAsked = field(default_factory=LastAsked, repr=False, compare=False)
    single: SingleRows = field(default_factory=SingleRows, repr=False, compare=False)

    def raw_scores(self, X: FloatArray) -> tuple[Rows, FloatArray]:
        """Scores of every expert: (n_rows, n_experts, n_planes), NaN where one has none; and the rows."""
        known = self.asked.find(X)
        if known is None:
            known = self.single.scored(self, X) if len(X) == 1 else None
            if known is None:
                rows = Rows(X, self.views)
                with nullcontext() if len(rows) > _MANY else one_thread():
                    known = rows, self._raw_scores(rows)
            self.asked.keep(*known)
        return known

    def following(self, codes: list[int]) -> Panel:
        """The same after some more labels, the newest last, which only rules of labels follow."""
        rules = [rule.after(codes) if isinstance(rule, LabelRule) else rule for rule in self.rules]
        return Panel(self.classes, rules, self.judgement, self.views, single=self.single)

    def _raw_scores(self, rows: Rows) -> FloatArray:
        scores = np.full((len(rows), len(self.rules), n_planes(len(self.classes))), np.nan)
        for number, rule in enumerate(self.rules):
            if rule is not None:
                scores[:, number] = align(rule.scores(rows), rule.classes, self.classes)
        return scores

    def judged_for(self, classes: list[int]) -> Judgement | ManyJudgement | None:
        """What is known about the planes of these classes."""
        judgement = self.judgement
        if classes == self.classes or judgement is None:
            return judgement
        if isinstance(judgement, ManyJudgement) and len(classes) > 2:
            return judgement.for_classes(classes)
        return None

    def decide(self, raw: FloatArray) -> FloatArray:
        """One score a plane, positive above the cut."""
        judgement = self.judgement
        if isinstance(judgement, Judgement):
            return (judgement.scores(raw[:, :, 0]) - judgement.cut)[:, None]
        out = _first_known(raw) if judgement is None else judgement.scores(raw)
        unknown = np.isnan(raw).all(axis=1)
        if unknown.any():  # nobody knows these classes yet: they come last
            least = np.where(unknown, 0.0, out).min(axis=1, keepdims=True)
            out = np.where(unknown, least - 1.0 if out.shape[1] > 1 else 0.0, out)
        return out

    def answers(self, raw: FloatArray) -> IntArray:
        """Numbers of the classes that are answered."""
        return np.array(self.classes, dtype=np.int64)[winners(self.decide(raw), len(self.classes))]


def _first_known(raw: FloatArray) -> FloatArray:
    """Scores of the first expert that has any: nothing is known about the experts yet."""
    out = raw[:, 0]
    for expert in range(1, raw.shape[1]):
        if not np.isnan(out).any():
            break
        out = np.where(np.isnan(out).all(axis=0), raw[:, expert], out)
    return out


def judge_evidence(
    evidence: Evidence, threshold: Any, priors: FloatArray
) -> Judgement | ManyJudgement | None:
    """What recent rows say about every plane."""
    if len(evidence.classes) < 2:
        return None
    if len(evidence.classes) > 2:
        return judge_many(evidence, threshold, priors)
    (sides,) = evidence.sides()
    return judge(sides, threshold, priors)
