"""More than two classes: how experts are weighed against each other, and one cut a class.

Scores of one expert are compared across classes, so they must keep their distances: every expert's scores
are divided by one number, their spread over all planes. Experts weigh by how well they would have told recent
rows apart on their own (the mean over classes of the hit rates), and the cuts are moved, class by class, to
where the committee's own mean is best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.cuts import choose_cut
from steelyard.ensemble.evidence import Evidence, with_newcomers
from steelyard.ensemble.rules import distinct_codes

__all__ = ["ManyJudgement", "judge_many"]

_ENOUGH = 5  # rows of a class below which its cut stays where it is
_SHARPNESS = 20.0  # an expert whose mean hit rate is 0.05 better weighs e times as much
_PASSES = 2  # over all classes, when cuts are moved
_STEP = 0.5  # of the way to the cut that is best on recent rows: these are few


@dataclass(frozen=True)
class ManyJudgement:
    """What recent rows say about the planes of more than two classes.

    Attributes
    ----------
    classes : list of int
        Class numbers, one a plane.
    record : ndarray of shape (n_experts,)
        Mean over classes of each expert's recent hit rates; NaN where it has none.
    weights : ndarray of shape (n_experts,)
        They sum to one.
    scales : ndarray of shape (n_experts,)
        What each expert's scores are divided by.
    cuts : ndarray of shape (n_classes,)
        What is taken off the scores of each plane; the largest wins.
    """

    classes: list[int]
    record: FloatArray
    weights: FloatArray
    scales: FloatArray
    cuts: FloatArray

    def scores(self, raw: FloatArray) -> FloatArray:
        """One score a plane, after the cuts; ``raw`` is (n_rows, n_experts, n_planes)."""
        return _total(raw, self.weights, self.scales) - self.cuts

    def for_classes(self, classes: list[int]) -> ManyJudgement:
        """The same for other classes; a new one has no cut yet."""
        if classes == self.classes:
            return self
        known = dict(zip(self.classes, self.cuts.tolist(), strict=True))
        cuts = np.array([known.get(number, 0.0) for number in classes])
        return ManyJudgement(classes, self.record, self.weights, self.scales, cuts)

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        return {
            "classes": self.classes,
            "record": self.record,
            "weights": self.weights,
            "scales": self.scales,
            "cuts": self.cuts,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> ManyJudgement:
        """What such values describe; ValueError if they make no sense."""
        record = with_newcomers(state["record"], n_experts, np.nan)
        weights = with_newcomers(state["weights"], n_experts, 0.0)
        scales = with_newcomers(state["scales"], n_experts, 1.0)
        cuts = np.asarray(state["cuts"], dtype=np.float64)
        if not record.shape == weights.shape == scales.shape == (n_experts,):
            raise ValueError("there must be one of everything for each expert")
        if cuts.shape != (len(state["classes"]),):
            raise ValueError("there must be one cut for each class")
        return cls(distinct_codes(state["classes"]), record, weights, scales, cuts)


def _total(raw: FloatArray, weights: FloatArray, scales: FloatArray) -> FloatArray:
    """Weighted scores of rows; a class that an expert does not know yet is its least likely one."""
    total = np.zeros((len(raw), raw.shape[2]))
    for expert in np.flatnonzero(weights):
        scores = raw[:, expert]
        unknown = np.isnan(scores)
        if unknown.any():
            least = np.nan_to_num(np.fmin.reduce(scores, axis=1, keepdims=True), nan=0.0)
            scores = np.where(unknown, least, scores)
        total += scores * (weights[expert] / scales[expert])
    return total


def judge_many(evidence: Evidence, threshold: Any, priors: FloatArray) -> ManyJudgement | None:
    """What recent rows say about all planes; None if there are too few of every class but one."""
    places, raw = evidence.recent()
    n_of = np.bincount(places, minlength=len(evidence.classes))
    if np.count_nonzero(n_of >= _ENOUGH) < 2:
        return None
    record = np.array([_mean_hit_rate(raw[:, e], places, n_of) for e in range(evidence.n_experts)])
    if np.isnan(record).all():
        return None
    scales = np.array([_spread(raw[:, e]) for e in range(evidence.n_experts)])
    weights = priors * np.exp(_SHARPNESS * (np.nan_to_num(record, nan=-np.inf) - np.nanmax(record)))
    weights[scales == 0.0] = 0.0
    if not weights.any():
        return None
    weights[weights < 0.01 * weights.max()] = 0.0
    weights /= weights.sum()
    total = _total(raw, weights, scales)
    if threshold == "gmean":
        cuts = _balancing_cuts(total, places, n_of)
    else:
        cuts = np.array(
            [
                choose_cut(total[places == k, k], total[places != k, k], threshold, share)
                if n_of[k] >= _ENOUGH
                else 0.0
                for k, share in enumerate(evidence.shares())
            ]
        )
    return ManyJudgement(list(evidence.classes), record, weights, scales, cuts)


def _mean_hit_rate(scores: FloatArray, places: IntArray, n_of: IntArray) -> float:
    """Of an expert alone, over the rows that it scored; NaN if they are of one class at most."""
    known = ~np.isnan(scores).all(axis=1)
    scored = np.bincount(places[known], minlength=len(n_of))
    if np.count_nonzero(scored) < 2:
        return float("nan")
    answers = np.where(np.isnan(scores[known]), -np.inf, scores[known]).argmax(axis=1)
    hits = np.bincount(places[known], answers == places[known], minlength=len(n_of))
    return float((hits[scored > 0] / scored[scored > 0]).mean())


def _spread(scores: FloatArray) -> float:
    known = scores[~np.isnan(scores)]
    return float(known.std()) if len(known) else 0.0


def _balancing_cuts(total: FloatArray, places: IntArray, n_of: IntArray) -> FloatArray:
    """Cuts under which the mean over classes of the hit rates is large."""
    cuts, rows = np.zeros(len(n_of)), np.arange(len(total))
    worth = 1.0 / np.maximum(n_of, 1)[places]  # of a hit
    for _ in range(_PASSES):
        for k in np.flatnonzero(n_of >= _ENOUGH):
            others = total - cuts
            others[:, k] = -np.inf
            rival = others.argmax(axis=1)
            margin = total[:, k] - others[rows, rival]  # the row is answered k if it exceeds the cut
            mine = places == k
            gain = np.where(mine, worth, np.where(rival == places, -worth, 0.0))
            order = np.argsort(-margin)
            gains = np.concatenate([[0.0], np.cumsum(gain[order])])  # with so many rows answered k
            if gains.max() <= gain[margin > cuts[k]].sum() + 1e-12:
                continue
            falling = margin[order]
            between = np.concatenate(
                [[falling[0] + 1.0], 0.5 * (falling[1:] + falling[:-1]), [falling[-1] - 1.0]]
            )
            best = between[gains >= gains.max() - 1e-12]
            cuts[k] += _STEP * (best[np.argmin(np.abs(best - cuts[k]))] - cuts[k])
    return cuts
