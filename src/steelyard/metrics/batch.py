"""Measures of a batch of predicted labels, with the conventions of scikit-learn.

``pos_label=None`` means the minority class of ``y_true``, or the larger label if both classes are equally
frequent. Labels may be of any type. A measure whose denominator is zero is ``nan`` with an
:class:`~sklearn.exceptions.UndefinedMetricWarning`. For macro averages of a batch use scikit-learn, for
example ``precision_score(..., average="macro")``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steelyard._labels import LabelEncoder
from steelyard.metrics import formulas
from steelyard.metrics._validation import (
    Label,
    Weights,
    check_same_length,
    check_weights,
    encode,
    sort_labels,
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
    **options: float,
) -> float:
    source = measure if measure == "imbalance_ratio" else f"{measure}_score"
    table = confusion_table(y_true, y_pred, sample_weight, source)
    value = formulas.value_of(measure, table, pos_label, source, **options)
    return formulas.defined_or_warn(measure, value, stacklevel=4)


def confusion_table(
    y_true: ArrayLike, y_pred: ArrayLike, sample_weight: Weights, source: str
) -> formulas.ConfusionTable:
    true_labels, true = encode(y_true, source, "y_true")
    predicted_labels, predicted = encode(y_pred, source, "y_pred")
    check_same_length(len(true), len(predicted), source, "y_pred")
    weights = check_weights(sample_weight, len(true), source)
    encoder = LabelEncoder(sort_labels([*true_labels, *predicted_labels], source))
    counts = np.zeros((len(encoder), len(encoder)))
    rows, columns = encoder.numbers(true_labels)[true], encoder.numbers(predicted_labels)[predicted]
    np.add.at(counts, (rows, columns), 1.0 if weights is None else weights)
    return formulas.ConfusionTable.of_present(encoder.labels, counts)
