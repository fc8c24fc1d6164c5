"""Every measure that a confusion table gives, once: the batch and the streaming forms both ask here."""

from __future__ import annotations

import math
import numbers
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from steelyard.exceptions import ParameterError
from steelyard.metrics.labels import Label, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ConfusionTable:
    """Rows counted by true and predicted label."""

    labels: list[Label]  # in order
    counts: NDArray[np.float64]  # (n_labels, n_labels): [true, predicted]

    @classmethod
    def of_present(cls, labels: list[Label], counts: NDArray[np.float64]) -> ConfusionTable:
        """The table without labels that no counted row has, true or predicted, in sorted order."""
        used = counts.any(axis=0) | counts.any(axis=1)
        order = sorted(np.flatnonzero(used).tolist(), key=labels.__getitem__)
        return cls([labels[k] for k in order], counts[np.ix_(order, order)])

    @property
    def true_counts(self) -> NDArray[np.float64]:
        return np.asarray(self.counts.sum(axis=1))

    @property
    def hits(self) -> NDArray[np.float64]:
        return self.counts.diagonal()


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One class, the positive one, against the rest."""

    true_positive: float
    false_negative: float
    false_positive: float
    true_negative: float

    @classmethod
    def of(cls, table: ConfusionTable, positive: int | None) -> Outcomes:
        """With ``positive=None`` no row is of the positive class or was taken for it."""
        counts = table.counts
        if positive is None:
            return cls(0.0, 0.0, 0.0, float(counts.sum()))
        return cls(
            float(counts[positive, positive]),
            float(np.delete(counts[positive], positive).sum()),
            float(np.delete(counts[:, positive], positive).sum()),
            float(np.delete(np.delete(counts, positive, axis=0), positive, axis=1).sum()),
        )


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else math.nan


# One class against the rest.


def sensitivity(o: Outcomes) -> float:
    return ratio(o.true_positive, o.true_positive + o.false_negative)


def specificity(o: Outcomes) -> float:
    return ratio(o.true_negative, o.true_negative + o.false_positive)


def precision(o: Outcomes) -> float:
    return ratio(o.true_positive, o.true_positive + o.false_positive)


def relative_sensitivity(o: Outcomes) -> float:
    return ratio(sensitivity(o), specificity(o))


def g_mean(o: Outcomes) -> float:
    return math.sqrt(sensitivity(o) * specificity(o))


def f_beta(o: Outcomes, beta: float = 1.0) -> float:
    # (1 + b^2) P R / (b^2 P + R), multiplied out: stays defined where nothing was hit.
    hits = (1.0 + beta**2) * o.true_positive
    return ratio(hits, hits + beta**2 * o.false_negative + o.false_positive)


# All classes alike. A class without a true row has no recall and takes no part.


def recalls(table: ConfusionTable) -> NDArray[np.float64]:
    """Recall of each class, nan for a class without a true row."""
    true = table.true_counts
    values = np.full(len(true), math.nan)
    np.divide(table.hits, true, out=values, where=true > 0)
    return values


def _recalls_of_true_classes(table: ConfusionTable) -> NDArray[np.float64]:
    values = recalls(table)
    return values[~np.isnan(values)]


def multiclass_g_mean(table: ConfusionTable) -> float:
    values = _recalls_of_true_classes(table)
    if len(values) < 2:
        return math.nan
    return 0.0 if (values == 0).any() else math.exp(float(np.log(values).mean()))


def accuracy(table: ConfusionTable) -> float:
    return ratio(float(table.hits.sum()), float(table.counts.sum()))


def imbalance(table: ConfusionTable) -> float:
    present = table.true_counts[table.true_counts > 0]
    return ratio(float(present.max()), float(present.min())) if len(present) > 1 else math.nan


def macro_recall(table: ConfusionTable) -> float:
    values = _recalls_of_true_classes(table)
    return float(values.mean()) if len(values) else math.nan


def macro_precision(table: ConfusionTable) -> float:
    return _mean_over_true_classes(table, precision)


def macro_f1(table: ConfusionTable) -> float:
    return _mean_over_true_classes(table, f_beta)


def _mean_over_true_classes(table: ConfusionTable, rule: Callable[[Outcomes], float]) -> float:
    classes = np.flatnonzero(table.true_counts)
    values = [rule(Outcomes.of(table, int(k))) for k in classes]
    return float(np.mean(values)) if values else math.nan


ONE_AGAINST_REST: Mapping[str, Callable[..., float]] = {
    "sensitivity": sensitivity,
    "specificity": specificity,
    "precision": precision,
    "relative_sensitivity": relative_sensitivity,
    "g_mean": g_mean,
    "f_beta": f_beta,
}
ALL_CLASSES: Mapping[str, Callable[[ConfusionTable], float]] = {
    "g_mean": multiclass_g_mean,
    "accuracy": accuracy,
    "imbalance_ratio": imbalance,
    "macro_precision": macro_precision,
    "macro_recall": macro_recall,
    "macro_f1": macro_f1,
}
MEASURES = sorted({*ONE_AGAINST_REST, *ALL_CLASSES})

WHY_UNDEFINED: Mapping[str, str] = {
    "sensitivity": "there is no true row of the positive class",
    "specificity": "there is no true row outside the positive class",
    "precision": "no row was predicted positive",
    "relative_sensitivity": "the sensitivity has no rows to count, or the specificity has none or is 0",
    "g_mean": "there are true rows of fewer than two classes",
    "f_beta": "no row is of the positive class or was predicted to be",
    "accuracy": "there are no rows",
    "imbalance_ratio": "there are true rows of fewer than two classes",
    "macro_precision": "a class was never predicted, or there are no rows",
    "macro_recall": "there are no rows",
    "macro_f1": "there are no rows",
    "roc_auc": "the rows are of fewer than two classes",
    "pmauc": "the rows are of fewer than two classes",
}


def check_beta(beta: float, source: str) -> None:
    if not (isinstance(beta, numbers.Real) and math.isfinite(beta) and beta > 0):
        raise ParameterError(f"beta must be a positive, finite number; got {beta!r}.", source=source)


def warn_undefined(measure: str, stacklevel: int = 3) -> None:
    warnings.warn(
        f"{measure} is undefined and set to nan: {WHY_UNDEFINED[measure]}.",
        UndefinedMetricWarning,
        stacklevel=stacklevel,
    )


def positive_index(table: ConfusionTable, pos_label: Label | None, source: str) -> int | None:
    """Which label is the positive one; None when no counted row has it."""
    if pos_label is not None:
        pos_label = plain(pos_label)
        return table.labels.index(pos_label) if pos_label in table.labels else None
    if len(table.labels) > 2:
        raise ParameterError(
            f"the rows are of {len(table.labels)} classes, so pos_label must say which one is "
            "positive against the rest; got None.",
            source=source,
            hint="g_mean, accuracy and the macro means cover all classes at once",
        )
    rarer = rarer_of_two(dict(zip(table.labels, table.true_counts.tolist(), strict=True)))
    return None if rarer is None else table.labels.index(rarer)  # of one class the rarer is not there


def rarer_of_two(counts: Mapping[Label, float]) -> Label | None:
    """The positive class where nobody has named one: the rarer of two, of equals the larger label.

    None where there are more classes, which then count alike, or fewer.
    """
    if len(counts) != 2:
        return None
    first, second = sorted(counts)
    return second if counts[second] <= counts[first] else first


def value_of(
    measure: str, table: ConfusionTable, pos_label: Label | None, source: str, **options: float
) -> float:
    """The measure, or nan where its denominator is empty."""
    if measure in ALL_CLASSES and (pos_label is None or measure not in ONE_AGAINST_REST):
        return ALL_CLASSES[measure](table)
    outcomes = Outcomes.of(table, positive_index(table, pos_label, source))
    return ONE_AGAINST_REST[measure](outcomes, **options)
