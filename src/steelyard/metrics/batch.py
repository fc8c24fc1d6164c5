"""Imbalance measures of a whole set of answers, in scikit-learn's conventions.

``pos_label=None`` means the minority class of ``y_true`` (of two equally large classes the larger label; for
scores, whose direction matters, always the larger label). Labels may be of any type, and a measure whose
denominator is empty is ``nan`` with an :class:`~sklearn.exceptions.UndefinedMetricWarning`. Macro precision,
recall and F1 of a batch are scikit-learn's own: ``precision_score(..., average="macro")`` and its kin.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import roc_auc_score as _sklearn_roc_auc_score

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import formulas
from steelyard.metrics.labels import (
    Codes,
    Label,
    check_same_length,
    check_scores,
    check_weights,
    encode,
    plain,
    sort_labels,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "f_beta_score",
    "g_mean_score",
    "imbalance_ratio",
    "pmauc_score",
    "relative_sensitivity_score",
    "roc_auc_score",
    "sensitivity_score",
    "specificity_score",
]


def sensitivity_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    pos_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Share of the positive rows that were found: :math:`TP / (TP + FN)`.

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
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    pos_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Share of the other rows that were left alone: :math:`TN / (TN + FP)`.

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
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    pos_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Geometric mean of the class recalls.

    Parameters
    ----------
    y_true, y_pred, sample_weight
        As for :func:`sensitivity_score`.
    pos_label : label, optional
        With a label, :math:`\sqrt{sensitivity \cdot specificity}` of that class against the rest. Without,
        the mean over all classes, which for two classes is the same whichever is positive.

    Returns
    -------
    float
        ``nan`` when fewer than two classes have true rows.

    Notes
    -----
    .. math:: G = \Bigl(\prod_{c} \frac{hits_c}{n_c}\Bigr)^{1/K}

    over the :math:`K` classes that have true rows; a label that was only ever predicted has no recall
    and takes no part (imbalanced-learn counts its recall as 0).

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
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    pos_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Sensitivity over specificity; 1 when both classes are recognised equally well.

    Below 1 the positive class is the neglected one.

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
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Weighted harmonic mean of precision and sensitivity of the positive class.

    Parameters
    ----------
    y_true, y_pred, pos_label, sample_weight
        As for :func:`sensitivity_score`.
    beta : float, default=1.0
        How many times as much sensitivity counts as precision.

    Returns
    -------
    float
        ``nan`` when no row is positive and none was predicted to be.

    Notes
    -----
    .. math:: F_\beta = (1 + \beta^2) \frac{P R}{\beta^2 P + R}

    Examples
    --------
    >>> from steelyard.metrics import f_beta_score
    >>> f_beta_score([0, 0, 0, 1, 1], [0, 0, 1, 1, 1], beta=2)
    0.909...
    """
    formulas.check_beta(beta, "f_beta_score")
    return _score("f_beta", y_true, y_pred, pos_label, sample_weight, beta=beta)


def imbalance_ratio(y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Rows of the largest class for each row of the smallest.

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


def roc_auc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    pos_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Chance that a positive row scores higher than another one, ties as one half.

    The number is scikit-learn's; this adds ``pos_label`` and labels of any type.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples,)
        Scores that grow with the belief in the positive class.
    pos_label : label, optional
        The class that the scores speak for, against all others. By default the larger of two labels, as in
        ``decision_function``: which class is rare does not matter here.
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
    source = "roc_auc_score"
    labels, codes = encode(y_true, source, "y_true")
    scores = check_scores(y_score, len(codes), 1, source)[:, 0]
    weights = check_weights(sample_weight, len(codes), source)
    value = _auc(codes == _scored_code(labels, pos_label, source), scores, weights)
    if math.isnan(value):
        formulas.warn_undefined("roc_auc")
    return value


def pmauc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""AUC for any number of classes: the mean over all pairs of classes.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        One column of scores a class; they need not be probabilities. One score a row (for the larger
        label) is enough for two classes.
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
    :math:`j`. Only the :math:`K` classes with rows enter. For two classes whose columns add up to a
    constant it is the AUC, and for probabilities it is scikit-learn's
    ``roc_auc_score(..., multi_class="ovo")``.

    Examples
    --------
    >>> from steelyard.metrics import pmauc_score
    >>> pmauc_score(["a", "b", "c"], [[2.0, 0.1, 0.3], [0.5, 1.0, 0.2], [0.1, 1.5, 1.4]])
    0.833...
    """
    value = _pmauc(y_true, y_score, labels, sample_weight)
    if math.isnan(value):
        formulas.warn_undefined("pmauc")
    return value


def _score(
    measure: str,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    pos_label: Label | None,
    sample_weight: ArrayLike | None,
    **options: float,
) -> float:
    source = measure if measure == "imbalance_ratio" else f"{measure}_score"
    table = confusion_table(y_true, y_pred, sample_weight, source)
    value = formulas.value_of(measure, table, pos_label, source, **options)
    if math.isnan(value):
        formulas.warn_undefined(measure, stacklevel=4)
    return value


def confusion_table(
    y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None, source: str
) -> formulas.ConfusionTable:
    true_labels, true = encode(y_true, source, "y_true")
    predicted_labels, predicted = encode(y_pred, source, "y_pred")
    check_same_length(len(true), len(predicted), source, "y_pred")
    weights = check_weights(sample_weight, len(true), source)
    labels = sort_labels([*true_labels, *predicted_labels], source)
    counts = np.zeros((len(labels), len(labels)))
    rows = _positions(true_labels, labels)[true]
    columns = _positions(predicted_labels, labels)[predicted]
    np.add.at(counts, (rows, columns), 1.0 if weights is None else weights)
    return formulas.ConfusionTable.of_present(labels, counts)


def _positions(some: list[Label], labels: list[Label]) -> Codes:
    position = {label: k for k, label in enumerate(labels)}
    return np.array([position[label] for label in some], dtype=np.intp)


def _scored_code(labels: list[Label], pos_label: Label | None, source: str) -> int:
    """Number of the label that a single column of scores speaks for; -1 when no row has it."""
    if pos_label is not None:
        pos_label = plain(pos_label)
        return labels.index(pos_label) if pos_label in labels else -1
    if len(labels) > 2:
        raise ParameterError(
            f"y_true holds {len(labels)} classes, so pos_label must say which one the scores are for; "
            "got None.",
            source=source,
            hint="pmauc_score takes one column of scores a class",
        )
    return labels.index(sort_labels(labels, source)[-1]) if labels else -1


def _auc(
    is_positive: NDArray[np.bool_], scores: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> float:
    counted = np.ones(len(scores), dtype=bool) if weights is None else weights > 0
    if len(np.unique(is_positive[counted])) < 2:
        return math.nan
    return float(_sklearn_roc_auc_score(is_positive, scores, sample_weight=weights))


def _pmauc(
    y_true: ArrayLike, y_score: ArrayLike, labels: ArrayLike | None, sample_weight: ArrayLike | None
) -> float:
    source = "pmauc_score"
    present, codes = encode(y_true, source, "y_true")
    columns = (
        sort_labels(present, source) if labels is None else [plain(v) for v in np.asarray(labels).tolist()]
    )
    unknown = [label for label in present if label not in columns]
    if unknown:
        raise DataError(
            f"every label of y_true must be one of labels {columns}; got {unknown[0]!r}.", source=source
        )
    weights = check_weights(sample_weight, len(codes), source)
    codes = _positions(present, columns)[codes]
    if np.ndim(y_score) == 1 and len(columns) <= 2:
        scores = check_scores(y_score, len(codes), 1, source)
        return _auc(codes == 1, scores[:, 0], weights)
    scores = check_scores(y_score, len(codes), len(columns), source)

    over = _one_over_others(codes, scores, np.ones(len(codes)) if weights is None else weights)
    pairs = [(over[i, j] + over[j, i]) / 2 for i, j in combinations(range(len(columns)), 2)]
    defined = [value for value in pairs if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _one_over_others(codes: NDArray[Any], scores: FloatArray, weights: FloatArray) -> FloatArray:
    """The AUC of column i over the rows of classes i and j, for all i and j; nan where one has no rows.

    A column is sorted once for all its pairs: by bisection every row of another class learns how many rows of
    class i score above it, ties counting half.
    """
    n_classes = scores.shape[1]
    totals = np.bincount(codes, weights, minlength=n_classes)
    over = np.full((n_classes, n_classes), math.nan)
    others = totals > 0
    for one in np.flatnonzero(others).tolist():
        own = np.flatnonzero(codes == one)
        own = own[np.argsort(scores[own, one], kind="stable")]
        below = np.concatenate([[0.0], np.cumsum(weights[own])])
        left, right = (np.searchsorted(scores[own, one], scores[:, one], side) for side in ("left", "right"))
        beaten = below[-1] - (below[left] + below[right]) / 2
        wins = np.bincount(codes, beaten * weights, minlength=n_classes)
        over[one, others] = wins[others] / (totals[one] * totals[others])
    return over
