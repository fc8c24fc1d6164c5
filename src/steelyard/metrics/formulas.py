"""Formulas of all measures, for batch functions, streaming metrics and prequential evaluation.

Inputs must be validated. Counts may have leading axes, so one call can evaluate a single confusion matrix, a
thousand windows or a thousand bootstrap samples. A measure whose denominator is zero is nan.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from steelyard._labels import positive_class
from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError
from steelyard.metrics._validation import Label, plain

BoolArray = NDArray[np.bool_]


def ratio(numerator: Any, denominator: Any) -> Any:
    """Return numerator / denominator, or nan if the denominator is not positive."""
    numerator, denominator = np.asarray(numerator, dtype=np.float64), np.asarray(denominator)
    out = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


@dataclass(frozen=True, slots=True)
class BinaryCounts:
    """True positives, false negatives, false positives, true negatives, and measures of one class."""

    tp: Any
    fn: Any
    fp: Any
    tn: Any

    def sensitivity(self) -> Any:
        return ratio(self.tp, self.tp + self.fn)

    def specificity(self) -> Any:
        return ratio(self.tn, self.tn + self.fp)

    def precision(self) -> Any:
        return ratio(self.tp, self.tp + self.fp)

    def relative_sensitivity(self) -> Any:
        return ratio(self.sensitivity(), self.specificity())

    def g_mean(self) -> Any:
        return np.sqrt(self.sensitivity() * self.specificity())

    def f_beta(self, beta: float = 1.0) -> Any:
        # The F-measure (1 + beta^2) P R / (beta^2 P + R) of precision P and recall R is computed from counts.
        # Computed from P and R, the measure would be nan instead of 0 if there are no true positives.
        hits = (1.0 + beta**2) * self.tp
        return ratio(hits, hits + beta**2 * self.fn + self.fp)


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Numbers of correct, true and predicted rows of each class, and measures of all classes.

    The arrays have the shape (..., n_classes). In the macro measures and the G-mean, all classes with true
    rows have the same weight, and other classes are left out.
    """

    hits: FloatArray
    true: FloatArray
    predicted: FloatArray

    def one_vs_rest(self, positive: int) -> BinaryCounts:
        """Return the counts of one class against all others."""
        tp, n_positive, n_predicted = (part[..., positive] for part in (self.hits, self.true, self.predicted))
        fp = n_predicted - tp
        return BinaryCounts(tp, n_positive - tp, fp, self.true.sum(axis=-1) - n_positive - fp)

    def recalls(self) -> Any:
        """Return the recall of each class, or nan for a class without true rows."""
        return ratio(self.hits, self.true)

    def precisions(self) -> Any:
        """Return the precision of each class, or nan for a class that was never predicted."""
        return ratio(self.hits, self.predicted)

    def f1_scores(self) -> Any:
        """Return the F1 score of each class, or nan for a class with neither true nor predicted rows."""
        return ratio(2 * self.hits, self.true + self.predicted)

    def _mean(self, values: Any) -> Any:
        """Return the mean of the values of the classes with true rows."""
        present = self.true > 0
        return ratio(np.where(present, values, 0.0).sum(axis=-1), present.sum(axis=-1))

    def macro_recall(self) -> Any:
        return self._mean(self.recalls())

    def macro_precision(self) -> Any:
        return self._mean(self.precisions())

    def macro_f1(self) -> Any:
        return self._mean(self.f1_scores())

    def g_mean(self) -> Any:
        with np.errstate(divide="ignore"):  # a recall of 0 makes the product 0
            mean_log = self._mean(np.log(self.recalls()))
        return np.where((self.true > 0).sum(axis=-1) > 1, np.exp(mean_log), np.nan)

    def accuracy(self) -> Any:
        return ratio(self.hits.sum(axis=-1), self.true.sum(axis=-1))

    def cohen_kappa(self) -> Any:
        # Cohen's kappa is (p_o - p_e) / (1 - p_e) with accuracy p_o and chance accuracy p_e (Cohen, 1960).
        # Both numerator and denominator of kappa are multiplied by the squared number of rows.
        n = self.true.sum(axis=-1)
        by_chance = (self.true * self.predicted).sum(axis=-1)
        return ratio(n * self.hits.sum(axis=-1) - by_chance, n * n - by_chance)

    def imbalance_ratio(self) -> Any:
        smallest = np.where(self.true > 0, self.true, np.inf).min(axis=-1, initial=np.inf)
        has_two = (self.true > 0).sum(axis=-1) > 1
        return ratio(np.where(has_two, self.true.max(axis=-1, initial=0.0), np.nan), smallest)


# Names of the measures of one class against the others (methods of BinaryCounts) and of all classes
# (methods of ClassCounts).
ONE_VS_REST = ("sensitivity", "specificity", "precision", "relative_sensitivity", "g_mean", "f_beta")
ALL_CLASSES = (
    "g_mean", "accuracy", "cohen_kappa", "imbalance_ratio", "macro_precision", "macro_recall", "macro_f1",
)  # fmt: skip
MEASURES = sorted({*ONE_VS_REST, *ALL_CLASSES})


@dataclass(frozen=True, slots=True)
class ConfusionTable:
    """Number of rows, or their total weight, by true and predicted label."""

    labels: list[Label]  # sorted
    counts: NDArray[Any]  # shape (n_labels, n_labels), indexed by true and predicted label

    @classmethod
    def of_present(cls, labels: list[Label], counts: NDArray[Any]) -> ConfusionTable:
        """Return the table with only the labels that occur, in sorted order."""
        used = counts.any(axis=0) | counts.any(axis=1)
        order = sorted(np.flatnonzero(used).tolist(), key=labels.__getitem__)
        return cls([labels[k] for k in order], counts[np.ix_(order, order)])

    @property
    def by_class(self) -> ClassCounts:
        """Numbers of correct, true and predicted rows of each class."""
        return ClassCounts(self.counts.diagonal(), self.counts.sum(axis=1), self.counts.sum(axis=0))

    def one_vs_rest(self, positive: int | None) -> BinaryCounts:
        """Return the counts of one class against all others, where None means a class without rows.

        Cells are only added, never subtracted, so a count of zero is exact even if rows have weights.
        """
        counts = self.counts
        if positive is None:
            return BinaryCounts(0.0, 0.0, 0.0, counts.sum())
        rest = np.arange(len(counts)) != positive
        return BinaryCounts(
            counts[positive, positive],
            counts[positive, rest].sum(),
            counts[rest, positive].sum(),
            counts[np.ix_(rest, rest)].sum(),
        )

    def positive_index(self, pos_label: Label | None, source: str) -> int | None:
        """Return the index of the positive label, or None if no row has it."""
        if pos_label is not None:
            pos_label = plain(pos_label)
            return self.labels.index(pos_label) if pos_label in self.labels else None
        if len(self.labels) > 2:
            raise ParameterError(
                f"the rows have {len(self.labels)} classes, so pos_label must say which one is "
                "positive against the rest; got None.",
                source=source,
                hint="g_mean, accuracy and the macro means cover all classes at once",
            )
        positive = positive_class(dict(zip(self.labels, self.counts.sum(axis=1).tolist(), strict=True)))
        return None if positive is None else self.labels.index(positive)  # None if there is only one class

    def measure(self, name: str, pos_label: Label | None, source: str, beta: float = 1.0) -> float:
        """Return a measure by name, or nan if its denominator is zero."""
        if name in ALL_CLASSES and (pos_label is None or name not in ONE_VS_REST):
            return float(getattr(self.by_class, name)())
        counts = self.one_vs_rest(self.positive_index(pos_label, source))
        return float(counts.f_beta(beta) if name == "f_beta" else getattr(counts, name)())


_NO_ROWS = "there are no rows"
_ONE_CLASS = "there are true rows of fewer than two classes"
_NO_POSITIVE = "there is no true row of the positive class"
WHY_UNDEFINED: Mapping[str, str] = {
    "sensitivity": _NO_POSITIVE,
    "specificity": "there is no true row outside the positive class",
    "precision": "no row was predicted positive",
    "relative_sensitivity": "the sensitivity or the specificity is undefined, or the specificity is 0",
    "g_mean": _ONE_CLASS,
    "f_beta": "no row is of the positive class or was predicted to be",
    "accuracy": _NO_ROWS,
    "cohen_kappa": "all rows are of one class and were predicted as that class, or there are no rows",
    "imbalance_ratio": _ONE_CLASS,
    "macro_precision": "a class was never predicted, or there are no rows",
    "macro_recall": _NO_ROWS,
    "macro_f1": _NO_ROWS,
    "roc_auc": "the rows are of fewer than two classes",
    "pmauc": "the rows are of fewer than two classes",
    "average_precision": _NO_POSITIVE,
    "precision_at_k": _NO_ROWS,
    "recall_at_k": _NO_POSITIVE,
    "log_loss": _NO_ROWS,
    "brier": _NO_ROWS,
    "expected_calibration_error": _NO_ROWS,
}


def defined_or_warn(measure: str, value: float, stacklevel: int = 3) -> float:
    """Return the value; warn if it is nan."""
    if math.isnan(value):
        warnings.warn(
            f"{measure} is undefined and set to nan: {WHY_UNDEFINED[measure]}.",
            UndefinedMetricWarning,
            stacklevel=stacklevel,
        )
    return value


# -- scores and probabilities ------------------------------------------------------------------------

PROBABILITY_MEASURES = ("log_loss", "brier", "expected_calibration_error")


def score_measure(
    measure: str,
    is_positive: BoolArray,
    scores: FloatArray,
    weights: FloatArray | None = None,
    *,
    k: int = 100,
    n_bins: int = 10,
) -> float:
    """Return a measure of the scores or probabilities of the positive class, by its name."""
    if measure == "expected_calibration_error":
        return ReliabilityBins.of(scores, is_positive, weights=weights, n_bins=n_bins).measures()[measure]
    if measure in PROBABILITY_MEASURES:
        return mean_loss(measure, scores, is_positive, weights)
    return ranking_measures(is_positive, scores, weights, k=k, only=measure)[measure][0]


def ranking_measures(
    is_positive: BoolArray,
    scores: FloatArray,
    weights: FloatArray | None = None,
    *,
    k: int = 100,
    only: str | None = None,
) -> dict[str, tuple[float, float]]:
    r"""Return AUC, average precision, precision and recall at k, each for both classes.

    The second value is that of the other class by negated scores, which is exact without weights. The AUC is
    the share of correctly ordered (positive, negative) pairs, where ties count one half. The average
    precision is :math:`\sum_n (R_n - R_{n-1}) P_n` with precision and recall at the n-th highest threshold.
    If several rows share the k-th score, the measures at k are expectations with ties broken at random.
    With the name of ``only`` one measure, just its first value is computed.
    """
    names = ("roc_auc", "average_precision", "precision_at_k", "recall_at_k")
    if not len(scores) or (weights is not None and not weights.any()):
        return dict.fromkeys(names, (math.nan, math.nan))
    # The order of ties changes only the rounding errors of weighted sums.
    order = np.argsort(-scores, kind=None if weights is None else "stable")
    ordered = scores[order]
    last_of_ties = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    # Number of positive rows, and of all rows, with at least each distinct score, highest score first.
    if weights is None:
        positives = np.cumsum(is_positive[order], dtype=np.float64)[last_of_ties]
        rows = last_of_ties + 1.0
    else:
        weight = weights[order]
        positives = np.cumsum(weight * is_positive[order])[last_of_ties]
        rows = np.cumsum(weight)[last_of_ties]
    del order, ordered, last_of_ties  # later arrays reuse their memory, which is much faster for many rows
    wanted = {*names} if only is None else {only}
    values = {name: [math.nan, math.nan] for name in names}
    sides = [(positives, rows)]
    if "roc_auc" in wanted:
        negatives = rows - positives
        if positives[-1] and negatives[-1]:
            # Twice the area under the ROC curve, which is a sum of trapezoids, in pairs of rows.
            area = positives[0] * negatives[0]
            area += (positives[1:] + positives[:-1]) @ (negatives[1:] - negatives[:-1])
            values["roc_auc"] = [float(area / (2 * positives[-1] * negatives[-1]))] * 2
        if only is None:
            other = [part[-1:] - np.append(0.0, part)[-2::-1] for part in (negatives, rows)]
            sides.append((other[0], other[1]))
    for side, (found, n_rows) in enumerate(sides):
        total = float(found[-1])
        if "average_precision" in wanted and total > 0:
            precisions = np.divide(found, n_rows, out=np.zeros_like(n_rows), where=n_rows > 0)
            steps = np.ediff1d(found, to_begin=found[:1])
            values["average_precision"][side] = float((steps * precisions).sum() / total)
        if wanted & {"precision_at_k", "recall_at_k"}:
            hits = float(np.interp(k, np.append(0.0, n_rows), np.append(0.0, found)))
            values["precision_at_k"][side] = hits / min(k, float(n_rows[-1]))
            values["recall_at_k"][side] = hits / total if total else math.nan
    return {name: (first, second) for name, (first, second) in values.items()}


def row_losses(
    probabilities: FloatArray, codes: NDArray[Any], scored_class: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Return the log-loss and the Brier score of each row from one column of probabilities per class.

    For the log-loss, the probability of the true class is clipped at 2.2e-16. The Brier score of two classes
    is the squared error of ``scored_class``; for more classes, the squared errors are summed.
    """
    of_true_class = probabilities[np.arange(len(codes)), codes]
    log_losses = -np.log(np.clip(of_true_class, np.finfo(np.float64).eps, 1.0))
    errors = (probabilities - (codes[:, None] == np.arange(probabilities.shape[1]))) ** 2
    return log_losses, errors[:, scored_class] if errors.shape[1] == 2 else errors.sum(axis=1)


def mean_loss(
    measure: str, probabilities: FloatArray, codes: NDArray[Any], weights: FloatArray | None
) -> float:
    """Return the weighted mean of ``log_loss`` or ``brier``, or nan if the total weight is zero.

    Probabilities are those of class 1, or one column per class.
    """
    if not len(codes) or (weights is not None and not weights.any()):
        return math.nan
    if probabilities.ndim == 1:
        probabilities = np.column_stack([1.0 - probabilities, probabilities])
    log_losses, briers = row_losses(probabilities, codes.astype(np.intp, copy=False))
    return float(np.average(log_losses if measure == "log_loss" else briers, weights=weights))


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


class ReliabilityBins(NamedTuple):
    """Sums in bins of equal width between 0 and 1, each of which includes its upper edge."""

    sums: FloatArray  # number of rows, probabilities and positive rows, shape (3, n_bins)
    losses: FloatArray  # log-losses and Brier scores over all bins, or empty if they are unknown

    @classmethod
    def of(
        cls,
        probabilities: FloatArray,
        is_positive: NDArray[Any],
        *losses: FloatArray,
        weights: FloatArray | None = None,
        n_bins: int = 10,
    ) -> Self:
        """Return the sums of the rows whose probability is not nan."""
        known = ~np.isnan(probabilities)
        bins = np.searchsorted(np.linspace(0.0, 1.0, n_bins + 1)[1:-1], probabilities[known])
        weight = np.ones(len(known)) if weights is None else weights
        parts = (weight, weight * probabilities, weight * is_positive)
        sums = np.array([np.bincount(bins, part[known], minlength=n_bins) for part in parts])
        return cls(sums, np.array([loss[known].sum() for loss in losses]))

    def curve(self) -> ReliabilityCurve:
        """Return the reliability curve over all bins that have rows."""
        rows, probabilities, positives = self.sums[:, self.sums[0] > 0]
        return ReliabilityCurve(probabilities / rows, positives / rows, rows)

    def measures(self) -> dict[str, float]:
        """Return the expected calibration error and the mean losses; they are nan without rows.

        The calibration error is the absolute difference between mean probability and observed frequency in
        each bin, averaged with the numbers of rows.
        """
        rows, probabilities, positives = self.sums
        sums = (np.abs(probabilities - positives).sum(), *self.losses)
        names, total = ("expected_calibration_error", "log_loss", "brier"), rows.sum()
        return {
            name: float(value / total) if total else math.nan
            for name, value in zip(names, sums, strict=False)
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


# -- confidence intervals ----------------------------------------------------------------------------

_EXPONENTS = np.geomspace(0.004, 4.0, 16)  # values of |a| in the formula, used with both signs
_GRID_RATES, _REFINEMENTS = 33, 6


def rate_interval(n_events: int, n_rows: int, level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of a rate that holds simultaneously at all times.

    Parameters
    ----------
    n_events, n_rows : int
        Number of events and number of rows so far.
    level : float, default=0.95
        Probability that the intervals after 1, 2, 3, ... rows all contain the mean rate up to that row.

    Returns
    -------
    tuple (low, high)

    Notes
    -----
    The interval may be computed after every row. If the rate drifts, the interval is for its mean so far.

    Let x_1, x_2, ... be 0 or 1 with conditional means m_i given the past. Let S_n be the sum of x_1, ..., x_n
    and M_n the mean of m_1, ..., m_n. For every fixed number a, exp(a S_n) / prod(1 + m_i (e^a - 1)) is a
    martingale that starts at 1. The logarithm of 1 + m (e^a - 1) is concave in m, so the process does not
    become larger if all m_i are replaced by M_n. By Ville's inequality, the average of these processes over
    several values of a exceeds 1 / error at any time with probability at most ``error``. The interval
    contains all rates that, in place of M_n, keep this average below 1 / error.

    References: Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", Annals of Statistics 49 (2021); Waudby-Smith, Ramdas, "Estimating means of bounded random
    variables by betting", JRSS B 86 (2024).

    Examples
    --------
    >>> low, high = rate_interval(100, 10_000)
    >>> 0.005 < low < 0.01 < high < 0.016
    True
    >>> rate_interval(0, 0)
    (0.0, 1.0)
    """
    if n_rows <= 0:
        return 0.0, 1.0
    limit = np.log(2.0 / (1.0 - level)) + np.log(len(_EXPONENTS))

    def bound(outside: float, sign: float) -> float:
        inside, a = n_events / n_rows, sign * _EXPONENTS
        for _ in range(_REFINEMENTS):
            rates = np.linspace(inside, outside, _GRID_RATES)
            with np.errstate(divide="ignore"):
                logs = a * n_events - n_rows * np.log1p(rates[:, None] * np.expm1(a))
            highest = logs.max(axis=1)
            wealth = highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))
            # From the observed rate outwards, the logarithm of the average process (wealth) increases.
            first = min(int(np.count_nonzero(wealth < limit)), _GRID_RATES - 1)
            inside, outside = float(rates[max(first - 1, 0)]), float(rates[first])
        return outside

    return bound(0.0, 1.0), bound(1.0, -1.0)
