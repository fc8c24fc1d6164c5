"""Formulas of measures that are computed from scores or probabilities of the positive class.

Inputs must be validated arrays. An undefined measure is nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

BoolArray = NDArray[np.bool_]

PROBABILITY_MEASURES = ("log_loss", "brier", "expected_calibration_error")


class Ranking(NamedTuple):
    """Ranking of rows: cumulative counts at each distinct score, highest score first.

    ``positives`` is the number of positive rows with at least this score, ``rows`` the number of all rows.
    """

    positives: FloatArray
    rows: FloatArray

    @classmethod
    def of(cls, is_positive: BoolArray, scores: FloatArray, weights: FloatArray | None = None) -> Ranking:
        """Return the ranking of rows."""
        # The order of ties changes only the rounding errors of weighted sums.
        order = np.argsort(-scores, kind=None if weights is None else "stable")
        ordered = scores[order]
        last_of_ties = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)[
            : len(ordered)
        ]
        if weights is None:
            return cls(np.cumsum(is_positive[order], dtype=np.float64)[last_of_ties], last_of_ties + 1.0)
        weight = weights[order]
        return cls(np.cumsum(weight * is_positive[order])[last_of_ties], np.cumsum(weight)[last_of_ties])

    def of_other_class(self) -> Ranking:
        """Return the ranking for the negative class by negated scores; it is exact without weights."""
        negatives = self.rows - self.positives
        return Ranking(*(part[-1:] - np.append(0.0, part)[-2::-1] for part in (negatives, self.rows)))

    def auc(self) -> float:
        """Return the share of correctly ordered (positive, negative) pairs; ties count one half."""
        positives, negatives = self.positives, self.rows - self.positives
        if not len(positives) or not positives[-1] or not negatives[-1]:
            return math.nan
        # Twice the area under the ROC curve, which is a sum of trapezoids, in pairs of rows.
        area = positives[0] * negatives[0]
        area += (positives[1:] + positives[:-1]) @ (negatives[1:] - negatives[:-1])
        return float(area / (2 * positives[-1] * negatives[-1]))

    def average_precision(self) -> float:
        r"""Return the average precision :math:`\sum_n (R_n - R_{n-1}) P_n`.

        :math:`P_n` and :math:`R_n` are precision and recall at the n-th highest threshold.
        """
        positives, rows = self
        if not len(positives) or positives[-1] <= 0:
            return math.nan
        precisions = np.divide(positives, rows, out=np.zeros_like(rows), where=rows > 0)
        found = positives.copy()
        found[1:] -= positives[:-1]
        return float((found * precisions).sum() / positives[-1])

    def at_k(self, k: int) -> tuple[float, float]:
        """Return precision and recall of the ``k`` highest scores.

        If several rows share the k-th score, the values are expectations with ties broken at random.
        """
        if not len(self.rows):
            return math.nan, math.nan
        hits = float(np.interp(k, np.append(0.0, self.rows), np.append(0.0, self.positives)))
        n_rows, n_positive = float(self.rows[-1]), float(self.positives[-1])
        return hits / min(k, n_rows), hits / n_positive if n_positive else math.nan


def log_loss(true_class_probabilities: FloatArray) -> FloatArray:
    """Return the negative log-likelihood of each row. Probabilities are clipped at 2.2e-16."""
    losses: FloatArray = -np.log(np.clip(true_class_probabilities, np.finfo(np.float64).eps, 1.0))
    return losses


def brier(probabilities: FloatArray, is_class: NDArray[Any]) -> FloatArray:
    """Return the squared error of each row, summed over classes if there is one column per class."""
    squares: FloatArray = (probabilities - is_class) ** 2
    return squares if squares.ndim == 1 else squares.sum(axis=1)


def mean(values: FloatArray, weights: FloatArray | None) -> float:
    """Return the weighted mean of the rows, or nan if their total weight is zero."""
    if not len(values) or (weights is not None and not weights.any()):
        return math.nan
    return float(np.average(values, weights=weights))


def value_of(
    measure: str,
    is_positive: BoolArray,
    scores: FloatArray,
    weights: FloatArray | None = None,
    *,
    k: int = 100,
    n_bins: int = 10,
) -> float:
    """Return a measure of the scores or probabilities of the positive class, by its name."""
    if measure == "log_loss":
        return mean(log_loss(np.where(is_positive, scores, 1.0 - scores)), weights)
    if measure == "brier":
        return mean(brier(scores, is_positive), weights)
    if measure == "expected_calibration_error":
        return ReliabilityBins(n_bins).update(scores, is_positive, weights).measures()[measure]
    ranking = Ranking.of(is_positive, scores, weights)
    if measure == "roc_auc":
        return ranking.auc()
    if measure == "average_precision":
        return ranking.average_precision()
    return ranking.at_k(k)[0 if measure == "precision_at_k" else 1]


class ReliabilityCurve(NamedTuple):
    """Predicted and observed frequency of the positive class, by bins of the predicted probability.

    Attributes
    ----------
    mean_probability : ndarray of shape (n_used_bins,)
        Mean of the predicted probabilities in each bin that has rows.
    positive_rate : ndarray of shape (n_used_bins,)
        Share of positive rows in the bin.
    n_rows : ndarray of shape (n_used_bins,)
        Number of rows, or their total weight, in the bin.
    """

    mean_probability: FloatArray
    positive_rate: FloatArray
    n_rows: FloatArray


class ReliabilityBins:
    """Sums of rows, probabilities and positive rows in bins of equal width between 0 and 1.

    A bin includes its upper edge. The sums are updated incrementally, so no rows of a stream are stored.
    """

    def __init__(self, n_bins: int = 10) -> None:
        # Number of rows, sum of probabilities and number of positive rows of each bin.
        self.sums = np.zeros((3, n_bins))
        self._losses = np.zeros(2)  # sums of log-losses and Brier scores

    def update(
        self,
        probabilities: FloatArray,
        is_positive: NDArray[Any],
        weights: FloatArray | None = None,
        losses: Sequence[FloatArray] = (),
    ) -> ReliabilityBins:
        """Add the rows whose probability is not nan; ``losses`` are their log-losses and Brier scores."""
        known = ~np.isnan(probabilities)
        n_bins = self.sums.shape[1]
        bins = np.searchsorted(np.linspace(0.0, 1.0, n_bins + 1)[1:-1], probabilities[known])
        weight = np.ones(len(known)) if weights is None else weights
        for row, values in enumerate((weight, weight * probabilities, weight * is_positive)):
            self.sums[row] += np.bincount(bins, values[known], minlength=n_bins)
        if losses:
            self._losses += [loss[known].sum() for loss in losses]
        return self

    def curve(self) -> ReliabilityCurve:
        """Return the reliability curve over all bins that have rows."""
        rows, probabilities, positives = self.sums[:, self.sums[0] > 0]
        return ReliabilityCurve(probabilities / rows, positives / rows, rows)

    def measures(self) -> dict[str, float]:
        """Return log-loss, Brier score and expected calibration error; they are nan without rows.

        The calibration error is the absolute difference between mean probability and observed frequency in
        each bin, averaged with the numbers of rows. The other two are known only if all updates had losses.
        """
        rows, probabilities, positives = self.sums
        sums = (*self._losses, np.abs(probabilities - positives).sum())
        total = rows.sum()
        return {
            name: float(value / total) if total else math.nan
            for name, value in zip(PROBABILITY_MEASURES, sums, strict=True)
        }


def one_vs_one_aucs(codes: NDArray[Any], scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Return a matrix with the AUC of every ordered pair of classes. It is nan if a class has no rows.

    Entry [i, j] is the AUC of score column i over the rows of classes i and j. Each column is sorted once for
    all its pairs. For every row of another class, a binary search counts the rows of class i with higher
    scores; ties count one half.
    """
    n_classes = scores.shape[1]
    totals = np.bincount(codes, weights, minlength=n_classes)
    aucs = np.full((n_classes, n_classes), math.nan)
    present = totals > 0
    for one in np.flatnonzero(present).tolist():
        own = np.flatnonzero(codes == one)
        own = own[np.argsort(scores[own, one], kind="stable")]
        below = np.concatenate([[0.0], np.cumsum(weights[own])])
        left, right = (np.searchsorted(scores[own, one], scores[:, one], side) for side in ("left", "right"))
        beaten = below[-1] - (below[left] + below[right]) / 2
        wins = np.bincount(codes, beaten * weights, minlength=n_classes)
        aucs[one, present] = wins[present] / (totals[one] * totals[present])
    return aucs
