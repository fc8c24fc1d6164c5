"""Combination of the experts' scores for more than two classes.

Scores of one expert are compared across classes, so their ratios must not change: all scores of an expert are
divided by the same standard deviation. Experts are weighted by prior * exp(20 * mean recall) over recent
rows. The thresholds, one per class, are chosen for the largest mean recall of the weighted sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.scores import ScoreBuffer, with_new_experts
from steelyard.ensemble.settings import SETTINGS
from steelyard.thresholds import choose_threshold

_MIN_ROWS_OF_CLASS = 5  # with fewer rows, the threshold of a class stays 0
_NEWTON_STEPS = 30


@dataclass(frozen=True)
class MulticlassWeights:
    """Weight and scale of each expert, and one threshold per class."""

    classes: list[int]  # class codes, one per score
    recall: FloatArray  # mean over the classes of the recent recall of each expert; NaN if it is unknown
    weights: FloatArray  # weights of the experts, which sum to one
    scales: FloatArray  # divisor of each expert's scores
    # Number that is subtracted from the score of each class; the largest result is predicted.
    thresholds: FloatArray
    slope: float = 1.0  # factor of these results, whose softmax are the probabilities for equal class shares

    def scores(self, raw: FloatArray) -> FloatArray:
        """Return log-probabilities for equally frequent classes. The axes of ``raw``: row, expert, class."""
        scores = self.slope * (_total(raw, self.weights, self.scales) - self.thresholds)
        return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))

    def for_classes(self, classes: list[int]) -> MulticlassWeights:
        """Return the same weights for other classes. New classes have threshold 0."""
        if classes == self.classes:
            return self
        known = dict(zip(self.classes, self.thresholds.tolist(), strict=True))
        return replace(self, classes=classes, thresholds=np.array([known.get(code, 0.0) for code in classes]))

    def get_state(self) -> dict[str, Any]:
        """Return the weights as arrays and plain values."""
        numbers = {"classes": self.classes, "record": self.recall, "weights": self.weights}
        return {**numbers, "scales": self.scales, "cuts": self.thresholds, "slope": self.slope}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> MulticlassWeights:
        """Restore the weights from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        recall = with_new_experts(state["record"], n_experts, np.nan)
        weights = with_new_experts(state["weights"], n_experts, 0.0)
        scales = with_new_experts(state["scales"], n_experts, 1.0)
        thresholds, classes = np.asarray(state["cuts"], dtype=np.float64), list(state["classes"])
        if not recall.shape == weights.shape == scales.shape == (n_experts,):
            raise ValueError("corrupt weights: every field needs one entry per expert")
        if thresholds.shape != (len(classes),) or not all(isinstance(code, int) for code in classes):
            raise ValueError("corrupt weights: every class needs a code and a threshold")
        return cls(classes, recall, weights, scales, thresholds, float(state.get("slope", 1.0)))


def _total(raw: FloatArray, weights: FloatArray, scales: FloatArray) -> FloatArray:
    """Return weighted scores; a class unknown to an expert gets the lowest score of this expert."""
    total = np.zeros((len(raw), raw.shape[2]))
    for expert in np.flatnonzero(weights):
        scores = raw[:, expert]
        unknown = np.isnan(scores)
        if unknown.any():
            lowest = np.nan_to_num(np.fmin.reduce(scores, axis=1, keepdims=True), nan=0.0)
            scores = np.where(unknown, lowest, scores)
        total += scores * (weights[expert] / scales[expert])
    return total


def weigh_classes(buffer: ScoreBuffer, threshold: Any, priors: FloatArray) -> MulticlassWeights | None:
    """Return weights from recent scores, or None if fewer than two classes have enough rows."""
    places, raw = buffer.recent()
    counts = np.bincount(places, minlength=len(buffer.classes))
    if np.count_nonzero(counts >= _MIN_ROWS_OF_CLASS) < 2:
        return None
    recall = np.array([_mean_recall(raw[:, e], places, len(counts)) for e in range(buffer.n_experts)])
    recall[priors == 0.0] = np.nan
    if np.isnan(recall).all():
        return None
    scales = np.array([_spread(raw[:, e]) for e in range(buffer.n_experts)])
    weights = priors * np.exp(
        SETTINGS.recall_sharpness * (np.nan_to_num(recall, nan=-np.inf) - np.nanmax(recall))
    )
    weights[scales == 0.0] = 0.0
    if not weights.any():
        return None
    weights[weights < SETTINGS.min_relative_weight * weights.max()] = 0.0
    weights /= weights.sum()
    total = _total(raw, weights, scales)
    if threshold == "gmean":
        thresholds = _balancing_thresholds(total, places, counts)
    else:
        thresholds, shares = np.zeros(len(counts)), buffer.shares()
        for k in np.flatnonzero(counts >= _MIN_ROWS_OF_CLASS):
            own, others = total[places == k, k], total[places != k, k]
            thresholds[k] = choose_threshold(own, others, threshold, shares[k])
    slope = softmax_slope(total - thresholds, places)
    return MulticlassWeights(list(buffer.classes), recall, weights, scales, thresholds, slope)


def _mean_recall(scores: FloatArray, places: IntArray, n_classes: int) -> float:
    """Return the mean over classes of an expert's recall on the rows that it scored."""
    known = ~np.isnan(scores).all(axis=1)
    scored = np.bincount(places[known], minlength=n_classes)
    if np.count_nonzero(scored) < 2:
        return float("nan")
    predicted = np.where(np.isnan(scores[known]), -np.inf, scores[known]).argmax(axis=1)
    hits = np.bincount(places[known], predicted == places[known], minlength=n_classes)
    return float((hits[scored > 0] / scored[scored > 0]).mean())


def _spread(scores: FloatArray) -> float:
    known = scores[~np.isnan(scores)]
    return float(known.std()) if len(known) else 0.0


def _balancing_thresholds(total: FloatArray, places: IntArray, counts: IntArray) -> FloatArray:
    """Return thresholds that increase the mean recall, by coordinate ascent over the classes."""
    thresholds, rows = np.zeros(len(counts)), np.arange(len(total))
    hit_value = 1.0 / np.maximum(counts, 1)[places]
    for _ in range(SETTINGS.threshold_passes):
        for k in np.flatnonzero(counts >= _MIN_ROWS_OF_CLASS):
            others = total - thresholds
            others[:, k] = -np.inf
            rival = others.argmax(axis=1)
            # Class k is predicted if the margin exceeds its threshold.
            margin = total[:, k] - others[rows, rival]
            gain = np.where(places == k, hit_value, np.where(rival == places, -hit_value, 0.0))
            order = np.argsort(-margin)
            # Entry m of gains is the gain if the m rows with the largest margins are predicted as class k.
            gains = np.concatenate([[0.0], np.cumsum(gain[order])])
            if gains.max() <= gain[margin > thresholds[k]].sum() + 1e-12:
                continue
            falling = margin[order]
            between = np.concatenate(
                [[falling[0] + 1.0], 0.5 * (falling[1:] + falling[:-1]), [falling[-1] - 1.0]]
            )
            best = between[gains >= gains.max() - 1e-12]
            nearest = best[np.argmin(np.abs(best - thresholds[k]))]
            thresholds[k] += SETTINGS.threshold_step * (nearest - thresholds[k])
    return thresholds


def softmax_slope(scores: FloatArray, places: IntArray) -> float:
    """Return the factor of the scores that maximizes the likelihood of the labels, with balanced classes."""
    # As in Platt scaling, targets are less certain the fewer rows a class has, so that separated classes do
    # not give probability 1.
    counts = np.bincount(places, minlength=scores.shape[1])
    weights = (1.0 / np.maximum(counts, 1))[places]
    doubt = (1.0 / (counts + 2.0))[places]
    wanted = (1.0 - doubt) * scores[np.arange(len(places)), places] + doubt * scores.mean(axis=1)
    slope = 0.0
    for _ in range(_NEWTON_STEPS):
        powers = np.exp(slope * (scores - scores.max(axis=1, keepdims=True)))
        p = powers / powers.sum(axis=1, keepdims=True)
        mean = (p * scores).sum(axis=1)
        gradient = float(weights @ (mean - wanted))
        curvature = float(weights @ ((p * np.square(scores)).sum(axis=1) - np.square(mean)))
        if curvature <= 0.0:
            break
        step = gradient / curvature
        slope = max(0.0, slope - step)
        if abs(step) <= 1e-9 * (1.0 + slope):
            break
    return max(slope, 1e-3)
