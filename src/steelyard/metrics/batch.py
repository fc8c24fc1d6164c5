"""Measures of a batch of predicted labels, with the conventions of scikit-learn.

``pos_label=None`` means the minority class of ``y_true``, or the larger label if both classes are equally
frequent. Labels may be of any type. A measure whose denominator is zero is ``nan`` with an
:class:`~sklearn.exceptions.UndefinedMetricWarning`. For macro averages of a batch use scikit-learn, for
example ``precision_score(..., average="macro")``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import make_scorer as _sklearn_scorer

from steelyard._labels import LabelEncoder
from steelyard.exceptions import ParameterError
from steelyard.metrics import formulas
from steelyard.metrics._validation import (
    Label,
    Weights,
    encode,
    encode_pairs,
)
from steelyard.metrics.batch_scores import (
    average_precision_score,
    brier_score,
    expected_calibration_error,
    log_loss_score,
    pmauc_score,
    precision_at_k_score,
    recall_at_k_score,
    roc_auc_score,
)
from steelyard.params import Positive, check_value


def sensitivity_score(
    y_true: ArrayLike, y_pred: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the recall of the positive class: :math:`TP / (TP + FN)`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_pred : array-like of shape (n_samples,)
        Predicted labels.
    pos_label : label, optional
        The positive class, against all others. By default the rarer of two classes in ``y_true`` (the
        larger label if both are equally frequent); with more than two classes it must be given.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row.

    Returns
    -------
    float
        ``nan`` when no row is of the positive class.

    Examples
    --------
    >>> from steelyard.metrics import sensitivity_score
    >>> sensitivity_score(["ok", "ok", "ok", "bad", "bad"], ["ok", "bad", "ok", "bad", "ok"])
    0.5
    """
    return _score("sensitivity", y_true, y_pred, pos_label, sample_weight)


def specificity_score(
    y_true: ArrayLike, y_pred: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the joint recall of all other classes: :math:`TN / (TN + FP)`.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`.

    Returns
    -------
    float
        ``nan`` when every row is of the positive class.

    Examples
    --------
    >>> from steelyard.metrics import specificity_score
    >>> specificity_score([0, 0, 0, 0, 1], [0, 0, 0, 1, 1])
    0.75
    """
    return _score("specificity", y_true, y_pred, pos_label, sample_weight)


def g_mean_score(
    y_true: ArrayLike, y_pred: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the geometric mean of the class recalls.

    Parameters
    ----------
    y_true, y_pred, sample_weight
        As for :func:`sensitivity_score`.
    pos_label : label, optional
        With a label, the result is :math:`\sqrt{sensitivity \cdot specificity}` of that class against the
        rest. Without a label, it is the geometric mean over all classes. For two classes both are equal.

    Returns
    -------
    float
        ``nan`` when fewer than two classes have true rows.

    Notes
    -----
    .. math:: G = \Bigl(\prod_{c} \frac{hits_c}{n_c}\Bigr)^{1/K}

    :math:`K` is the number of classes with true rows, :math:`n_c` the number of true rows of class :math:`c`
    and :math:`hits_c` the number of them that were predicted correctly. A label that occurs only among the
    predictions has no recall and is left out (imbalanced-learn counts its recall as 0).

    Examples
    --------
    >>> from sklearn.metrics import make_scorer
    >>> from steelyard.metrics import g_mean_score
    >>> g_mean_score([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0])
    0.707...
    >>> g_mean_score(["a", "b", "c", "c"], ["a", "b", "c", "a"])
    0.793...
    >>> scorer = make_scorer(g_mean_score)
    """
    return _score("g_mean", y_true, y_pred, pos_label, sample_weight)


def relative_sensitivity_score(
    y_true: ArrayLike, y_pred: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    r"""Return sensitivity divided by specificity, which is 1 if both are equal.

    A value below 1 means that the positive class is recognised less often than the others.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`.

    Returns
    -------
    float
        ``nan`` when a class has no true rows or the specificity is 0.

    Examples
    --------
    >>> from steelyard.metrics import relative_sensitivity_score
    >>> relative_sensitivity_score([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0])
    0.5
    """
    return _score("relative_sensitivity", y_true, y_pred, pos_label, sample_weight)


def f_beta_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    beta: float = 1.0,
    pos_label: Label | None = None,
    sample_weight: Weights = None,
) -> float:
    r"""Return the weighted harmonic mean of precision and sensitivity of the positive class.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`.
    beta : float, default=1.0
        Weight of the sensitivity relative to the precision.

    Returns
    -------
    float
        ``nan`` when no row is positive and none was predicted as positive.

    Notes
    -----
    .. math:: F_\beta = (1 + \beta^2) \frac{P R}{\beta^2 P + R}

    :math:`P` is the precision and :math:`R` the sensitivity.

    Examples
    --------
    >>> from steelyard.metrics import f_beta_score
    >>> f_beta_score([0, 0, 0, 1, 1], [0, 0, 1, 1, 1], beta=2)
    0.909...
    """
    check_value("beta", beta, Positive(), "f_beta_score")
    return _score("f_beta", y_true, y_pred, pos_label, sample_weight, beta=beta)


def cohen_kappa_score(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None) -> float:
    r"""Return Cohen's kappa: the agreement of predictions and labels beyond chance, over all classes.

    Parameters
    ----------
    y_true, y_pred, sample_weight
        As for :func:`sensitivity_score`.

    Returns
    -------
    float
        At most 1; 0 for predictions that are independent of the labels. ``nan`` when all rows are of one
        class and were predicted as that class.

    Notes
    -----
    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e}

    :math:`p_o` is the accuracy and :math:`p_e = \sum_c P(y = c)\,P(\hat y = c)` (Cohen, 1960, *Educational
    and Psychological Measurement* 20:37-46).

    Examples
    --------
    >>> from steelyard.metrics import cohen_kappa_score
    >>> cohen_kappa_score([0, 0, 0, 1], [0, 0, 1, 1])
    0.5
    """
    return _score("cohen_kappa", y_true, y_pred, None, sample_weight)


def imbalance_ratio(y: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Return the number of rows of the largest class divided by that of the smallest class.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row.

    Returns
    -------
    float
        At least 1; ``nan`` when there are fewer than two classes.

    Examples
    --------
    >>> from steelyard.metrics import imbalance_ratio
    >>> imbalance_ratio(["ok"] * 99 + ["fraud"])
    99.0
    """
    return _score("imbalance_ratio", y, y, None, sample_weight)


def _score(
    measure: str,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    pos_label: Label | None,
    sample_weight: Weights,
    *,
    beta: float = 1.0,
) -> float:
    source = measure if measure == "imbalance_ratio" else f"{measure}_score"
    table = confusion_table(y_true, y_pred, sample_weight, source)
    value = table.measure(measure, pos_label, source, beta)
    return formulas.defined_or_warn(measure, value, stacklevel=4)


def confusion_table(
    y_true: ArrayLike, y_pred: ArrayLike, sample_weight: Weights, source: str
) -> formulas.ConfusionTable:
    encoder = LabelEncoder()
    true = encode(y_true, source, "y_true")
    rows, columns, weights = encode_pairs(encoder, true, y_pred, sample_weight, source)
    counts = np.zeros((len(encoder), len(encoder)))
    np.add.at(counts, (rows, columns), weights)
    return formulas.ConfusionTable.of_present(encoder.labels, counts)


# -- report of all measures ----------------------------------------------------------------------------


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
        name: table.measure(name, pos_label if name == "g_mean" else None, source)
        for name in formulas.ALL_CLASSES
    }
    positive = pos_label
    if pos_label is None and len(table.labels) == 2:
        positive = table.labels[table.positive_index(None, source) or 0]
    if positive is not None or len(table.labels) < 2:
        for name in formulas.ONE_VS_REST:
            values[name] = table.measure(name, positive, source, beta)
    if y_score is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            if np.ndim(y_score) == 1:
                options: dict[str, Any] = {"pos_label": pos_label, "sample_weight": sample_weight}
                values["roc_auc"] = roc_auc_score(y_true, y_score, **options)
                values["average_precision"] = average_precision_score(y_true, y_score, **options)
            else:
                values["pmauc"] = pmauc_score(y_true, y_score, sample_weight=sample_weight)
    undefined = [name for name, value in values.items() if math.isnan(value)]
    if undefined:
        message = f"imbalance_report: undefined and set to nan: {', '.join(undefined)}."
        warnings.warn(message, UndefinedMetricWarning, stacklevel=2)
    weights = dict(zip(table.labels, table.by_class.true.tolist(), strict=True))
    return ImbalanceReport(class_weights=weights, pos_label=positive, **values)


# -- scorers for scikit-learn's model selection -------------------------------------------------------

_LABELS: dict[str, Any] = {"response_method": "predict"}
_SCORES: dict[str, Any] = {"response_method": ("decision_function", "predict_proba")}
_LOSS: dict[str, Any] = {"response_method": "predict_proba", "greater_is_better": False}
_SCORERS = {
    "average_precision": (average_precision_score, _SCORES),
    "cohen_kappa": (cohen_kappa_score, _LABELS),
    "f_beta": (f_beta_score, _LABELS),
    "g_mean": (g_mean_score, _LABELS),
    "neg_brier": (brier_score, _LOSS),
    "neg_expected_calibration_error": (expected_calibration_error, _LOSS),
    "neg_log_loss": (log_loss_score, _LOSS),
    "pmauc": (pmauc_score, _SCORES),
    "precision_at_k": (precision_at_k_score, _SCORES),
    "recall_at_k": (recall_at_k_score, _SCORES),
    "relative_sensitivity": (relative_sensitivity_score, _LABELS),
    "roc_auc": (roc_auc_score, _SCORES),
    "sensitivity": (sensitivity_score, _LABELS),
    "specificity": (specificity_score, _LABELS),
}


def get_scorer_names() -> list[str]:
    """Return the names that :func:`get_scorer` accepts.

    Returns
    -------
    list of str
    """
    return sorted(_SCORERS)


def get_scorer(name: str) -> Any:
    """Return a scorer by name, for ``scoring=`` of scikit-learn.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.

    Returns
    -------
    callable
        A function of an estimator, rows and labels; the larger its value, the better.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from steelyard import ProximalSVC
    >>> from steelyard.metrics import get_scorer
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(300) < 0.2).astype(int)
    >>> X = rng.normal(size=(300, 2)) + 2.0 * y[:, None]
    >>> bool(cross_val_score(ProximalSVC(), X, y, scoring=get_scorer("g_mean")).mean() > 0.8)
    True
    """
    return make_scorer(name)


def make_scorer(name: str, **options: Any) -> Any:
    """Return a scorer by name, with options of its measure such as ``pos_label``, ``beta`` or ``k``.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.
    **options
        Keyword arguments of the measure.

    Returns
    -------
    callable
        A function of an estimator, rows and labels; the larger its value, the better.

    Examples
    --------
    >>> from steelyard.metrics import make_scorer
    >>> make_scorer("sensitivity", pos_label="fraud")
    make_scorer(sensitivity_score, response_method='predict', pos_label=fraud)
    """
    if name not in _SCORERS:
        raise ParameterError(
            f"name must be one of {', '.join(get_scorer_names())}; got {name!r}.", source="make_scorer"
        )
    measure, how = _SCORERS[name]
    return _sklearn_scorer(measure, **how, **options)
