"""All imbalance measures of a set of answers at once."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from steelyard.metrics import formulas
from steelyard.metrics.batch import confusion_table, pmauc_score, roc_auc_score

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from steelyard.metrics.labels import Label

__all__ = ["ImbalanceReport", "imbalance_report"]


@dataclass(frozen=True, slots=True)
class ImbalanceReport:
    """All measures of one set of answers.

    ``None`` stands for what does not apply (no scores came, or more than two classes and no ``pos_label``),
    ``nan`` for what has an empty denominator.

    Attributes
    ----------
    class_weights : dict
        Rows (or their weights) of each true class.
    pos_label : label or None
        The class that counted as positive.
    imbalance_ratio, accuracy, g_mean, macro_precision, macro_recall, macro_f1 : float
        Measures over all classes.
    sensitivity, specificity, precision, relative_sensitivity, f_beta : float or None
        Measures of the positive class against the rest.
    roc_auc, pmauc : float or None
        Measures of the scores.
    """

    class_weights: dict[Label, float]
    pos_label: Label | None
    imbalance_ratio: float
    accuracy: float
    g_mean: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    sensitivity: float | None = None
    specificity: float | None = None
    precision: float | None = None
    relative_sensitivity: float | None = None
    f_beta: float | None = None
    roc_auc: float | None = None
    pmauc: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The report as a plain dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        rows = {name: value for name, value in asdict(self).items() if isinstance(value, float)}
        return "\n".join(f"{name:<21}{value:.4f}" for name, value in rows.items())


def imbalance_report(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_score: ArrayLike | None = None,
    *,
    pos_label: Label | None = None,
    beta: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> ImbalanceReport:
    """All measures at once.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`; with more than two classes and no ``pos_label`` the measures of a
        single class are left out.
    y_score : array-like of shape (n_samples,) or (n_samples, n_classes), optional
        A column of scores for ``pos_label`` (by default for the larger of two labels), or one column for
        each label of ``y_true`` in sorted order.
    beta : float, default=1.0
        For F-beta.

    Returns
    -------
    ImbalanceReport
        One warning names all measures that are ``nan``.

    Examples
    --------
    >>> from steelyard.metrics import imbalance_report
    >>> print(imbalance_report([0, 0, 0, 1], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6]))
    imbalance_ratio      3.0000
    accuracy             0.7500
    g_mean               0.8165
    macro_precision      0.7500
    macro_recall         0.8333
    macro_f1             0.7333
    sensitivity          1.0000
    specificity          0.6667
    precision            0.5000
    relative_sensitivity 1.5000
    f_beta               0.6667
    roc_auc              0.6667
    """
    source = "imbalance_report"
    formulas.check_beta(beta, source)
    table = confusion_table(y_true, y_pred, sample_weight, source)
    values: dict[str, float] = {
        name: formulas.value_of(name, table, pos_label if name == "g_mean" else None, source)
        for name in formulas.ALL_CLASSES
    }
    positive = pos_label
    if pos_label is None and len(table.labels) == 2:
        positive = table.labels[formulas.positive_index(table, None, source) or 0]
    if positive is not None or len(table.labels) < 2:
        for name in formulas.ONE_AGAINST_REST:
            options = {"beta": beta} if name == "f_beta" else {}
            values[name] = formulas.value_of(name, table, positive, source, **options)
    if y_score is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            if np.ndim(y_score) == 1:
                values["roc_auc"] = roc_auc_score(
                    y_true, y_score, pos_label=pos_label, sample_weight=sample_weight
                )
            else:
                values["pmauc"] = pmauc_score(y_true, y_score, sample_weight=sample_weight)
    undefined = [name for name, value in values.items() if math.isnan(value)]
    if undefined:
        message = f"imbalance_report: undefined and set to nan: {', '.join(undefined)}."
        warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
    weights = dict(zip(table.labels, table.true_counts.tolist(), strict=True))
    return ImbalanceReport(class_weights=weights, pos_label=positive, **values)
