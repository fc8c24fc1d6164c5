"""Measures of a batch of scores or probabilities, with the conventions of scikit-learn.

``pos_label=None`` means the larger label, as in ``decision_function``. Labels may be of any type. A measure
whose denominator is zero is ``nan`` with an :class:`~sklearn.exceptions.UndefinedMetricWarning`.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._labels import LabelEncoder
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import formulas
from steelyard.metrics._validation import (
    Codes,
    Label,
    Weights,
    check_count,
    check_probabilities,
    check_same_length,
    check_scores,
    check_weights,
    encode,
    plain,
    plain_labels,
    sort_labels,
)
from steelyard.metrics.formulas import PROBABILITY_MEASURES, ReliabilityBins, ReliabilityCurve


def roc_auc_score(
    y_true: ArrayLike, y_score: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    """Return the area under the ROC curve of one class against all others.

    It is the probability that a positive row has a higher score than a negative row; ties count one half. The
    value equals that of scikit-learn; this function adds ``pos_label`` and labels of any type.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples,)
        Scores; the higher the score, the more likely the positive class.
    pos_label : label, optional
        The class to which the scores refer, against all others. By default the larger of two labels, as in
        ``decision_function``, whether it is rare or not.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row.

    Returns
    -------
    float
        ``nan`` when the rows are of fewer than two classes.

    Examples
    --------
    >>> from steelyard.metrics import roc_auc_score
    >>> roc_auc_score(["no", "no", "yes", "yes"], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    return _score("roc_auc", y_true, y_score, pos_label, sample_weight)


def average_precision_score(
    y_true: ArrayLike, y_score: ArrayLike, *, pos_label: Label | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the average precision, a summary of the precision-recall curve.

    For a rare positive class it shows differences that the ROC curve hides.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight
        As for :func:`roc_auc_score`.

    Returns
    -------
    float
        ``nan`` when no row is of the positive class.

    Notes
    -----
    .. math:: AP = \sum_n (R_n - R_{n-1}) P_n

    :math:`P_n` and :math:`R_n` are precision and recall at the n-th threshold (Manning, Raghavan and Schütze,
    2008, *Introduction to Information Retrieval*, chapter 8). The value equals that of scikit-learn.

    Examples
    --------
    >>> from steelyard.metrics import average_precision_score
    >>> average_precision_score(["no", "no", "yes", "yes"], [0.1, 0.4, 0.35, 0.8])
    0.833...
    """
    return _score("average_precision", y_true, y_score, pos_label, sample_weight)


def precision_at_k_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    k: int = 100,
    pos_label: Label | None = None,
    groups: ArrayLike | None = None,
) -> float:
    """Return the share of positive rows among the ``k`` rows with the highest scores.

    If several rows share the k-th highest score, each of them counts with its probability of being among the
    ``k`` rows when ties are broken at random.

    Parameters
    ----------
    y_true, y_score, pos_label
        As for :func:`roc_auc_score`.
    k : int, default=100
        Number of rows, for example the number of cases that can be examined in a day.
    groups : array-like of shape (n_samples,), optional
        Group of each row, for example its day; the result is the mean over the groups.

    Returns
    -------
    float
        With fewer than ``k`` rows, the share among all rows; ``nan`` if there are no rows.

    Examples
    --------
    >>> from steelyard.metrics import precision_at_k_score
    >>> precision_at_k_score([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.7], k=2)
    0.5
    >>> precision_at_k_score([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.7], k=1, groups=["mon", "mon", "tue", "tue"])
    0.5
    """
    return _score("precision_at_k", y_true, y_score, pos_label, groups=groups, k=k)


def recall_at_k_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    k: int = 100,
    pos_label: Label | None = None,
    groups: ArrayLike | None = None,
) -> float:
    """Return the share of all positive rows that are among the ``k`` rows with the highest scores.

    Parameters
    ----------
    y_true, y_score, k, pos_label, groups
        As for :func:`precision_at_k_score`; groups without a positive row are left out.

    Returns
    -------
    float
        ``nan`` when no row is of the positive class.

    Examples
    --------
    >>> from steelyard.metrics import recall_at_k_score
    >>> recall_at_k_score([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.7], k=1)
    0.5
    """
    return _score("recall_at_k", y_true, y_score, pos_label, groups=groups, k=k)


def pmauc_score(
    y_true: ArrayLike, y_score: ArrayLike, *, labels: ArrayLike | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the AUC of any number of classes: the mean over all pairs of classes.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        One column of scores per class; they need not be probabilities. For two classes, one score per row
        (of the larger label) is enough.
    labels : array-like of shape (n_classes,), optional
        The class of each column. By default the sorted labels of ``y_true``.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row.

    Returns
    -------
    float
        ``nan`` when the rows are of fewer than two classes.

    Notes
    -----
    .. math:: PMAUC = \frac{2}{K (K - 1)} \sum_{i < j} \frac{A(i \mid j) + A(j \mid i)}{2}

    :math:`A(i \mid j)` is the AUC of column :math:`i` over the rows of classes :math:`i` (positive) and
    :math:`j`. :math:`K` is the number of classes with rows; other classes are left out. For two classes whose
    columns add up to a constant, it equals the AUC. For probabilities, it equals scikit-learn's
    ``roc_auc_score(..., multi_class="ovo")``.

    Examples
    --------
    >>> from steelyard.metrics import pmauc_score
    >>> pmauc_score(["a", "b", "c"], [[2.0, 0.1, 0.3], [0.5, 1.0, 0.2], [0.1, 1.5, 1.4]])
    0.833...
    """
    columns, codes, scores, weights = _by_column(y_true, y_score, labels, sample_weight, "pmauc_score")
    if scores.ndim == 1:
        value = formulas.score_measure("roc_auc", codes == 1, scores, weights)
    else:
        aucs = formulas.one_vs_one_aucs(codes, scores, np.ones(len(codes)) if weights is None else weights)
        pairs = [(aucs[i, j] + aucs[j, i]) / 2 for i, j in combinations(range(len(columns)), 2)]
        value = _mean_defined(pairs)
    return formulas.defined_or_warn("pmauc", value)


# -- probabilities ----------------------------------------------------------------------------------


def log_loss_score(
    y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the log-loss (cross-entropy) of probabilities; the lower the better.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_proba : array-like of shape (n_samples,) or (n_samples, n_classes)
        Probability of the larger of two labels, or one column per class.
    labels : array-like of shape (n_classes,), optional
        The class of each column. By default the sorted labels of ``y_true``.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row.

    Returns
    -------
    float
        ``nan`` without rows.

    Notes
    -----
    .. math:: -\frac1n \sum_i \log p_{i, y_i}

    :math:`p_{i, y_i}` is the probability of the true class of row :math:`i`; values below 2.2e-16 are set to
    2.2e-16 (Good, 1952, *Journal of the Royal Statistical Society B* 14:107-114). The value equals that of
    scikit-learn.

    Examples
    --------
    >>> from steelyard.metrics import log_loss_score
    >>> log_loss_score(["no", "yes"], [0.2, 0.5])
    0.458...
    """
    return _loss("log_loss", y_true, y_proba, labels, sample_weight)


def brier_score(
    y_true: ArrayLike, y_proba: ArrayLike, *, labels: ArrayLike | None = None, sample_weight: Weights = None
) -> float:
    r"""Return the Brier score, the mean squared error of probabilities; the lower the better.

    Parameters
    ----------
    y_true, y_proba, labels, sample_weight
        As for :func:`log_loss_score`.

    Returns
    -------
    float
        ``nan`` without rows.

    Notes
    -----
    .. math:: \frac1n \sum_i (p_i - [y_i = 1])^2

    for two classes, where :math:`p_i` is the probability of class 1. For more classes, the squares are summed
    over the classes (Brier, 1950, *Monthly Weather Review* 78:1-3). The value equals that of scikit-learn.

    Examples
    --------
    >>> from steelyard.metrics import brier_score
    >>> round(brier_score(["no", "yes"], [0.2, 0.5]), 3)
    0.145
    """
    return _loss("brier", y_true, y_proba, labels, sample_weight)


def reliability_curve(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 10,
    pos_label: Label | None = None,
    sample_weight: Weights = None,
) -> ReliabilityCurve:
    """Return predicted and observed frequencies of the positive class, in bins of equal width.

    Parameters
    ----------
    y_true, pos_label, sample_weight
        As for :func:`roc_auc_score`.
    y_proba : array-like of shape (n_samples,)
        Probability of the positive class.
    n_bins : int, default=10
        Number of bins between 0 and 1; bins without rows are left out.

    Returns
    -------
    ReliabilityCurve
        A named tuple ``(mean_probability, positive_rate, n_rows)``.

    Notes
    -----
    The frequencies equal those of scikit-learn's ``calibration_curve`` (DeGroot and Fienberg, 1983, *The
    Statistician* 32:12-22).

    Examples
    --------
    >>> from steelyard.metrics import reliability_curve
    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8], n_bins=2)
    >>> curve.mean_probability.tolist(), curve.positive_rate.tolist()
    ([0.2, 0.7], [0.0, 1.0])
    """
    source = "reliability_curve"
    n_bins = check_count(n_bins, "n_bins", source)
    is_positive, probabilities, weights = _one_vs_rest(
        y_true, y_proba, pos_label, sample_weight, source, is_probability=True
    )
    return ReliabilityBins.of(probabilities, is_positive, weights=weights, n_bins=n_bins).curve()


def expected_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 10,
    pos_label: Label | None = None,
    sample_weight: Weights = None,
) -> float:
    r"""Return the expected calibration error of the positive class; 0 is perfect calibration.

    Parameters
    ----------
    y_true, y_proba, n_bins, pos_label, sample_weight
        As for :func:`reliability_curve`.

    Returns
    -------
    float
        ``nan`` without rows.

    Notes
    -----
    .. math:: ECE = \sum_b \frac{n_b}{n} \, \lvert \bar p_b - \bar y_b \rvert

    over the bins :math:`b` of the reliability curve. :math:`n_b` is the number of rows in a bin,
    :math:`\bar p_b` their mean probability and :math:`\bar y_b` their share of positive rows (Naeini, Cooper
    and Hauskrecht, 2015, AAAI).

    Examples
    --------
    >>> from steelyard.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8], n_bins=2), 3)
    0.25
    """
    return _score("expected_calibration_error", y_true, y_proba, pos_label, sample_weight, n_bins=n_bins)


def _score(
    measure: str,
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: Label | None,
    sample_weight: Weights = None,
    *,
    groups: ArrayLike | None = None,
    **options: int,
) -> float:
    """Return a measure of one class against all others, as the mean over the groups if there are groups."""
    source = measure if measure == "expected_calibration_error" else f"{measure}_score"
    counts = {name: check_count(value, name, source) for name, value in options.items()}
    is_positive, scores, weights = _one_vs_rest(
        y_true, y_score, pos_label, sample_weight, source, is_probability=measure in PROBABILITY_MEASURES
    )
    if groups is None:
        value = formulas.score_measure(measure, is_positive, scores, weights, **counts)
    else:
        names, codes = encode(groups, source, "groups")
        check_same_length(len(scores), len(codes), source, "groups")
        parts = [codes == code for code in range(len(names))]
        value = _mean_defined(
            [formulas.score_measure(measure, is_positive[p], scores[p], None, **counts) for p in parts]
        )
    return formulas.defined_or_warn(measure, value, stacklevel=4)


def _loss(
    measure: str, y_true: ArrayLike, y_proba: ArrayLike, labels: ArrayLike | None, sample_weight: Weights
) -> float:
    source = f"{measure}_score"
    _, codes, probabilities, weights = _by_column(y_true, y_proba, labels, sample_weight, source)
    check_probabilities(probabilities, source)
    value = formulas.mean_loss(measure, probabilities, codes, weights)
    return formulas.defined_or_warn(measure, value, stacklevel=4)


def _mean_defined(values: list[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _one_vs_rest(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: Label | None,
    sample_weight: Weights,
    source: str,
    *,
    is_probability: bool = False,
) -> tuple[NDArray[np.bool_], FloatArray, FloatArray | None]:
    """Return a mask of the positive rows, and the scores and the weights of all rows."""
    labels, codes = encode(y_true, source, "y_true")
    scores = check_scores(y_score, len(codes), 1, source)[:, 0]
    if pos_label is None and len(labels) > 2:
        raise ParameterError(
            f"y_true has {len(labels)} classes, so pos_label must say which one the scores are for; "
            "got None.",
            source=source,
            hint="pmauc_score takes one column of scores per class",
        )
    positive = sort_labels(labels, source)[-1:] if pos_label is None else [plain(pos_label)]
    is_positive = codes == (labels.index(positive[0]) if positive and positive[0] in labels else -1)
    if is_probability:
        check_probabilities(scores, source)
    return is_positive, scores, check_weights(sample_weight, len(scores), source)


def _by_column(
    y_true: ArrayLike,
    y_score: ArrayLike,
    labels: ArrayLike | None,
    sample_weight: Weights,
    source: str,
) -> tuple[list[Label], Codes, FloatArray, FloatArray | None]:
    """Return the class of each column, the column of each row's class, the scores and the weights."""
    present, codes = encode(y_true, source, "y_true")
    columns = sort_labels(present, source) if labels is None else plain_labels(labels)
    unknown = [label for label in present if label not in columns]
    if unknown:
        raise DataError(
            f"every label of y_true must be one of labels {columns}; got {unknown[0]!r}.", source=source
        )
    weights = check_weights(sample_weight, len(codes), source)
    is_flat = np.ndim(y_score) == 1 and len(columns) <= 2
    scores = check_scores(y_score, len(codes), 1 if is_flat else len(columns), source)
    codes = LabelEncoder(columns).numbers(present)[codes]
    return columns, codes, scores[:, 0] if is_flat else scores, weights
