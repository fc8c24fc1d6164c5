"""Formulas of measures that are computed from scores or probabilities of the positive class.

Inputs must be validated arrays. An undefined measure is nan.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

BoolArray = NDArray[np.bool_]


class Ranking(NamedTuple):
    """Ranking of rows: cumulative counts at each distinct score, highest score first.

    ``positives`` is the number of positive rows with at least this score, ``rows`` the number of all rows.
    """

    positives: FloatArray
    rows: FloatArray

    @classmethod
    def of(
        cls,
        is_positive: BoolArray,
        scores: FloatArray,
        weights: FloatArray | None = None,
        order: NDArray[np.intp] | None = None,
    ) -> Ranking:
        """Return the ranking of rows; ``order`` may pass a known decreasing order of the scores."""
        order = np.argsort(-scores, kind="stable") if order is None else order
        ordered = scores[order]
        last_of_ties = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)[
            : len(ordered)
        ]
        if weights is None:
            return cls(np.cumsum(is_positive[order], dtype=np.float64)[last_of_ties], last_of_ties + 1.0)
        weight = weights[order]
        return cls(np.cumsum(weight * is_positive[order])[last_of_ties], np.cumsum(weight)[last_of_ties])

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

    def hits_at(self, k: int) -> float:
        """Return the expected number of positive rows among the ``k`` highest scores.

        If several rows share the k-th score, ties are broken at random.
        """
        return float(np.interp(k, np.append(0.0, self.rows), np.append(0.0, self.positives)))

    def precision_at_k(self, k: int) -> float:
        """Return the share of positive rows among the ``k`` highest scores."""
        return self.hits_at(k) / min(k, self.rows[-1]) if len(self.rows) else math.nan

    def recall_at_k(self, k: int) -> float:
        """Return the share of the positive rows that are among the ``k`` highest scores."""
        return self.hits_at(k) / self.positives[-1] if len(self.rows) and self.positives[-1] else math.nan


def rankings_of_both_classes(is_positive: BoolArray, scores: FloatArray) -> tuple[Ranking, Ranking]:
    """Return the ranking for the positive class, and that for the negative class by negated scores."""
    order = np.argsort(-scores)  # the order of ties does not matter, so the sort need not be stable
    return Ranking.of(is_positive, scores, order=order), Ranking.of(~is_positive, scores, order=order[::-1])


def log_loss(true_class_probabilities: FloatArray) -> FloatArray:
    """Return the negative log-likelihood of each row. Probabilities are clipped at 2.2e-16."""
    losses: FloatArray = -np.log(np.clip(true_class_probabilities, np.finfo(np.float64).eps, 1.0))
    return losses


def brier(probabilities: FloatArray, is_class: NDArray[Any]) -> FloatArray:
    """Return the squared error of each row, summed over classes if there is one column per class."""
    squares: FloatArray = (probabilities - is_class) ** 2
    return squares if squares.ndim == 1 else squares.sum(axis=1)


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

    def update(
        self, probabilities: FloatArray, is_positive: BoolArray, weights: FloatArray | None = None
    ) -> ReliabilityBins:
        """Add rows to the bins."""
        n_bins = self.sums.shape[1]
        bins = np.searchsorted(np.linspace(0.0, 1.0, n_bins + 1)[1:-1], probabilities)
        weight = np.ones(len(bins)) if weights is None else weights
        for row, values in enumerate((weight, weight * probabilities, weight * is_positive)):
            self.sums[row] += np.bincount(bins, values, minlength=n_bins)
        return self

    def curve(self) -> ReliabilityCurve:
        """Return the reliability curve over all bins that have rows."""
        rows, probabilities, positives = self.sums[:, self.sums[0] > 0]
        return ReliabilityCurve(probabilities / rows, positives / rows, rows)

    def expected_calibration_error(self) -> float:
        """Return the mean difference between predicted and observed frequency, weighted by rows."""
        rows, probabilities, positives = self.sums
        return float(np.abs(probabilities - positives).sum() / rows.sum()) if rows.sum() else math.nan


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
