"""Formulas of all measures that are computed from confusion counts.

Batch functions, streaming metrics and prequential evaluation use these formulas. Counts may have leading
axes, so one call can evaluate a single confusion matrix, a thousand windows or a thousand bootstrap samples.
A measure whose denominator is zero is nan.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from steelyard._labels import positive_class
from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError
from steelyard.metrics._validation import Label, plain


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Numbers of correct, true and predicted rows of each class, as arrays of shape (..., n_classes)."""

    hits: FloatArray
    true: FloatArray
    predicted: FloatArray

    def one_vs_rest(self, positive: int) -> BinaryCounts:
        """Return the counts of one class against all others."""
        tp, n_positive, n_predicted = (part[..., positive] for part in (self.hits, self.true, self.predicted))
        fp = n_predicted - tp
        return BinaryCounts(tp, n_positive - tp, fp, self.true.sum(axis=-1) - n_positive - fp)


@dataclass(frozen=True, slots=True)
class BinaryCounts:
    """Numbers of true positives, false negatives, false positives and true negatives."""

    tp: Any
    fn: Any
    fp: Any
    tn: Any


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


def ratio(numerator: Any, denominator: Any) -> Any:
    """Return numerator / denominator, or nan if the denominator is not positive."""
    numerator, denominator = np.asarray(numerator, dtype=np.float64), np.asarray(denominator)
    out = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


# -- one class against the rest ---------------------------------------------------------------------


def sensitivity(c: BinaryCounts) -> Any:
    return ratio(c.tp, c.tp + c.fn)


def specificity(c: BinaryCounts) -> Any:
    return ratio(c.tn, c.tn + c.fp)


def precision(c: BinaryCounts) -> Any:
    return ratio(c.tp, c.tp + c.fp)


def relative_sensitivity(c: BinaryCounts) -> Any:
    return ratio(sensitivity(c), specificity(c))


def g_mean(c: BinaryCounts) -> Any:
    return np.sqrt(sensitivity(c) * specificity(c))


def f_beta(c: BinaryCounts, beta: float = 1.0) -> Any:
    # The F-measure (1 + beta^2) P R / (beta^2 P + R) of precision P and recall R is computed from counts.
    # Computed from P and R, the measure would be nan instead of 0 if there are no true positives.
    hits = (1.0 + beta**2) * c.tp
    return ratio(hits, hits + beta**2 * c.fn + c.fp)


# -- measures with equal weight for all classes (classes without true rows are left out) -------------


def recalls(c: ClassCounts) -> Any:
    """Return the recall of each class, or nan for a class without true rows."""
    return ratio(c.hits, c.true)


def precisions(c: ClassCounts) -> Any:
    """Return the precision of each class, or nan for a class that was never predicted."""
    return ratio(c.hits, c.predicted)


def f1_scores(c: ClassCounts) -> Any:
    """Return the F1 score of each class, or nan for a class with neither true nor predicted rows."""
    return ratio(2 * c.hits, c.true + c.predicted)


def _mean_of_true_classes(values: Any, c: ClassCounts) -> Any:
    present = c.true > 0
    return ratio(np.where(present, values, 0.0).sum(axis=-1), present.sum(axis=-1))


def macro_recall(c: ClassCounts) -> Any:
    return _mean_of_true_classes(recalls(c), c)


def macro_precision(c: ClassCounts) -> Any:
    return _mean_of_true_classes(precisions(c), c)


def macro_f1(c: ClassCounts) -> Any:
    return _mean_of_true_classes(f1_scores(c), c)


def multiclass_g_mean(c: ClassCounts) -> Any:
    with np.errstate(divide="ignore"):  # a recall of 0 makes the product 0
        mean_log = _mean_of_true_classes(np.log(recalls(c)), c)
    return np.where((c.true > 0).sum(axis=-1) > 1, np.exp(mean_log), np.nan)


def accuracy(c: ClassCounts) -> Any:
    return ratio(c.hits.sum(axis=-1), c.true.sum(axis=-1))


def cohen_kappa(c: ClassCounts) -> Any:
    # Cohen's kappa is (p_o - p_e) / (1 - p_e) with accuracy p_o and chance accuracy p_e (Cohen, 1960).
    # Both numerator and denominator of kappa are multiplied by the squared number of rows.
    n = c.true.sum(axis=-1)
    by_chance = (c.true * c.predicted).sum(axis=-1)
    return ratio(n * c.hits.sum(axis=-1) - by_chance, n * n - by_chance)


def imbalance(c: ClassCounts) -> Any:
    smallest = np.where(c.true > 0, c.true, np.inf).min(axis=-1, initial=np.inf)
    two = (c.true > 0).sum(axis=-1) > 1
    return ratio(np.where(two, c.true.max(axis=-1, initial=0.0), np.nan), smallest)


ONE_VS_REST: Mapping[str, Callable[..., Any]] = {
    "sensitivity": sensitivity,
    "specificity": specificity,
    "precision": precision,
    "relative_sensitivity": relative_sensitivity,
    "g_mean": g_mean,
    "f_beta": f_beta,
}
ALL_CLASSES: Mapping[str, Callable[[ClassCounts], Any]] = {
    "g_mean": multiclass_g_mean,
    "accuracy": accuracy,
    "cohen_kappa": cohen_kappa,
    "imbalance_ratio": imbalance,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "macro_f1": macro_f1,
}
MEASURES = sorted({*ONE_VS_REST, *ALL_CLASSES})

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


def positive_index(table: ConfusionTable, pos_label: Label | None, source: str) -> int | None:
    """Return the index of the positive label, or None if no row has it."""
    if pos_label is not None:
        pos_label = plain(pos_label)
        return table.labels.index(pos_label) if pos_label in table.labels else None
    if len(table.labels) > 2:
        raise ParameterError(
            f"the rows have {len(table.labels)} classes, so pos_label must say which one is "
            "positive against the rest; got None.",
            source=source,
            hint="g_mean, accuracy and the macro means cover all classes at once",
        )
    positive = positive_class(dict(zip(table.labels, table.counts.sum(axis=1).tolist(), strict=True)))
    return None if positive is None else table.labels.index(positive)  # None if there is only one class


def value_of(
    measure: str, table: ConfusionTable, pos_label: Label | None, source: str, **options: float
) -> float:
    """Return a measure of a confusion table, or nan if its denominator is zero."""
    if measure in ALL_CLASSES and (pos_label is None or measure not in ONE_VS_REST):
        return float(ALL_CLASSES[measure](table.by_class))
    counts = table.one_vs_rest(positive_index(table, pos_label, source))
    return float(ONE_VS_REST[measure](counts, **options))
