"""Report of all measures of a batch of predictions."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning

from steelyard.metrics import formulas
from steelyard.metrics._validation import Label, Weights
from steelyard.metrics.batch import confusion_table
from steelyard.metrics.batch_scores import average_precision_score, pmauc_score, roc_auc_score
from steelyard.params import Positive, check_value


@dataclass(frozen=True, slots=True)
class ImbalanceReport:
    """All measures of a batch of predictions.

    A measure is ``None`` if it does not apply, because there are no scores, or more than two classes and no
    ``pos_label``. A measure whose denominator is zero is ``nan``.

    Attributes
    ----------
    class_weights : dict
        Number of rows, or their total weight, of each true class.
    pos_label : label or None
        The positive class.
    imbalance_ratio, accuracy, cohen_kappa, g_mean, macro_precision, macro_recall, macro_f1 : float
        Measures over all classes.
    sensitivity, specificity, precision, relative_sensitivity, f_beta : float or None
        Measures of the positive class against the rest.
    roc_auc, average_precision, pmauc : float or None
        Measures of the scores.
    """

    class_weights: dict[Label, float]
    pos_label: Label | None
    imbalance_ratio: float
    accuracy: float
    cohen_kappa: float
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
    average_precision: float | None = None
    pmauc: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary."""
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
    sample_weight: Weights = None,
) -> ImbalanceReport:
    """Return all measures of a batch of predictions.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`. With more than two classes and no ``pos_label``, measures of a
        single class are ``None``.
    y_score : array-like of shape (n_samples,) or (n_samples, n_classes), optional
        A column of scores for ``pos_label`` (by default for the larger of two labels), or one column for
        each label of ``y_true`` in sorted order.
    beta : float, default=1.0
        Parameter of F-beta.

    Returns
    -------
    ImbalanceReport
        A single warning names all measures that are ``nan``.

    Examples
    --------
    >>> from steelyard.metrics import imbalance_report
    >>> print(imbalance_report([0, 0, 0, 1], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6]))
    imbalance_ratio      3.0000
    accuracy             0.7500
    cohen_kappa          0.5000
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
    average_precision    0.5000
    """
    source = "imbalance_report"
    check_value("beta", beta, Positive(), source)
    table = confusion_table(y_true, y_pred, sample_weight, source)
    values: dict[str, float] = {
        name: formulas.value_of(name, table, pos_label if name == "g_mean" else None, source)
        for name in formulas.ALL_CLASSES
    }
    positive = pos_label
    if pos_label is None and len(table.labels) == 2:
        positive = table.labels[formulas.positive_index(table, None, source) or 0]
    if positive is not None or len(table.labels) < 2:
        for name in formulas.ONE_VS_REST:
            options = {"beta": beta} if name == "f_beta" else {}
            values[name] = formulas.value_of(name, table, positive, source, **options)
    if y_score is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            if np.ndim(y_score) == 1:
                for name, score in (
                    ("roc_auc", roc_auc_score),
                    ("average_precision", average_precision_score),
                ):
                    values[name] = score(y_true, y_score, pos_label=pos_label, sample_weight=sample_weight)
            else:
                values["pmauc"] = pmauc_score(y_true, y_score, sample_weight=sample_weight)
    undefined = [name for name, value in values.items() if math.isnan(value)]
    if undefined:
        message = f"imbalance_report: undefined and set to nan: {', '.join(undefined)}."
        warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
    weights = dict(zip(table.labels, table.by_class.true.tolist(), strict=True))
    return ImbalanceReport(class_weights=weights, pos_label=positive, **values)
