"""Decision thresholds that maximize the G-mean (the geometric mean of both recalls) or another goal.

The G-mean functions take the scores of the negative class first and return a threshold: scores above it are
predicted positive. They differ in their input: the scores themselves (:func:`gmean_threshold`), a few scores
whose distributions are smoothed first (:func:`smooth_gmean_threshold`), or means and variances of normal
distributions (:func:`normal_gmean_threshold`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from steelyard import _native
from steelyard._deprecation import former_names
from steelyard._types import FloatArray
from steelyard.params import Constraint, NonNegative, Positive

__all__ = [
    "ThresholdChoice",
    "alarm_indices",
    "choose_threshold",
    "gmean_threshold",
    "mirrored_threshold",
    "normal_gmean_threshold",
    "signed_scores",
    "smooth_gmean_threshold",
    "unsigned_scores",
]

_TARGET_RATES = ("alarms", "alarms_per_day", "recall", "precision")
_ROUNDING = 1e-12  # tolerance for comparing shares
_MAX_SMOOTHED_SCORES = 256  # if a class has more scores, they are replaced by this many quantiles
_GRID_THRESHOLDS = 65  # number of thresholds in each grid search


def gmean_threshold(negative: FloatArray, positive: FloatArray) -> float:
    """Return the threshold with the largest G-mean on the given scores.

    The threshold is halfway between two neighbouring scores. Of equally good thresholds, the one nearest to
    zero is returned. If a class has no scores, the threshold is zero.

    >>> gmean_threshold(np.array([-2.0, -1.0, 0.5]), np.array([0.25, 1.0]))
    -0.375
    """
    if not len(negative) or not len(positive):
        return 0.0
    scores = np.unique(np.concatenate([negative, positive]))
    # A threshold outside the range of the scores makes one recall zero, so only midpoints are candidates.
    thresholds = 0.5 * (scores[1:] + scores[:-1]) if len(scores) > 1 else scores
    specificity = np.searchsorted(np.sort(negative), thresholds, side="right") / len(negative)
    sensitivity = 1.0 - np.searchsorted(np.sort(positive), thresholds, side="right") / len(positive)
    quality = specificity * sensitivity
    best = thresholds[quality >= quality.max() * (1.0 - 1e-12)]
    return float(best[np.argmin(np.abs(best))])


def smooth_gmean_threshold(negative: FloatArray, positive: FloatArray) -> float:
    """Return the threshold with the largest expected G-mean, estimated from a few scores.

    The threshold that is best for a small sample has a large variance, so the distribution of each class is
    first smoothed with a Gaussian kernel density estimate. Of equally good thresholds, the middle one is
    returned. If all scores are equal, the threshold is zero.

    >>> round(smooth_gmean_threshold(np.array([-1.0, -1.0]), np.array([3.0])), 6)
    1.0
    """
    low = float(min(negative.min(), positive.min()))
    high = float(max(negative.max(), positive.max()))
    if low == high:
        return 0.0
    min_width = 1e-9 * (high - low)
    width_neg, width_pos = (max(_bandwidth(scores), min_width) for scores in (negative, positive))
    negative, positive = _quantiles_if_many(negative), _quantiles_if_many(positive)
    for _ in range(2):  # first a coarse grid, then a fine grid
        thresholds = np.linspace(low, high, _GRID_THRESHOLDS)
        sensitivity = ndtr((positive - thresholds[:, None]) / width_pos).mean(axis=1)
        specificity = ndtr((thresholds[:, None] - negative) / width_neg).mean(axis=1)
        product = sensitivity * specificity
        best = np.flatnonzero(product >= product.max() - 1e-12)
        low, high = thresholds[max(best[0] - 1, 0)], thresholds[min(best[-1] + 1, _GRID_THRESHOLDS - 1)]
    return float(thresholds[best].mean())


def _bandwidth(scores: FloatArray) -> float:
    """Return the bandwidth of the kernel density estimate by the normal reference rule."""
    lower, upper = np.quantile(scores, (0.25, 0.75))
    spread = float(scores.std())
    # The interquartile range / 1.349 is robust to outliers and is the standard deviation of normal scores.
    robust = float(upper - lower) / 1.349
    return float(1.06 * (min(spread, robust) or spread) * len(scores) ** -0.2)


def _quantiles_if_many(scores: FloatArray) -> FloatArray:
    """Return the scores, or evenly spaced quantiles if there are many scores."""
    if len(scores) <= _MAX_SMOOTHED_SCORES:
        return scores
    return np.asarray(np.quantile(scores, (np.arange(_MAX_SMOOTHED_SCORES) + 0.5) / _MAX_SMOOTHED_SCORES))


def normal_gmean_threshold(negative: FloatArray, positive: FloatArray) -> FloatArray:
    """Return the thresholds that maximize the G-mean of two normal score distributions.

    Parameters
    ----------
    negative, positive : ndarray of shape (n_functions, 2)
        Mean and variance of the scores of both classes, one row per decision function.

    Returns
    -------
    ndarray of shape (n_functions,)
        The thresholds. If the mean of the positive class is not larger, the threshold is the midpoint of the
        two means.

    Notes
    -----
    With means m+ and m- and standard deviations s+ and s-, the logarithm of the product of both recalls at a
    threshold t is log Phi((m+ - t) / s+) + log Phi((t - m-) / s-). It is concave in t and has one maximum.
    A zero standard deviation is replaced by a millionth of the difference of the means.

    >>> normal_gmean_threshold(np.array([[-1.0, 1.0]]), np.array([[3.0, 1.0]]))
    array([1.])
    """
    thresholds = np.empty(len(negative))
    _native.normal_gmean_thresholds(
        np.ascontiguousarray(negative, dtype=np.float64),
        np.ascontiguousarray(positive, dtype=np.float64),
        thresholds,
    )
    return thresholds


# -- predicted class for a threshold -----------------------------------------------------------------


def alarm_indices(alarms: NDArray[np.bool_], *, is_mirrored: bool = False) -> NDArray[np.intp]:
    """Return the index of each predicted class. With ``is_mirrored`` the first class is the positive one."""
    return np.where(alarms, 0, 1) if is_mirrored else np.where(alarms, 1, 0)


def signed_scores(scores: FloatArray, is_second: Any) -> FloatArray:
    """Return scores that are positive for rows of the second class and negative for the others.

    The scores of both groups keep their order and depend on nothing else, so scores of different times can be
    compared although the threshold moves. Scores of at least 1 with the sign of their group do not change.
    The others are compressed: those of the second class to between 0 and 1, those of the first class to
    between -1 and 0.

    >>> signed_scores(np.array([3.0, 0.0, -2.0, 3.0, -2.0]), np.array([True, True, True, False, False]))
    array([ 3.  ,  0.5 ,  0.25, -0.2 , -2.  ])
    """
    size = np.where(is_second, scores, -scores)
    size = np.maximum(size, 1.0 / (2.0 - np.minimum(size, 1.0)))  # the two are equal at 1
    return np.where(is_second, size, -size)


def unsigned_scores(signed: FloatArray) -> FloatArray:
    """Return the scores that :func:`signed_scores` has converted."""
    size = np.abs(signed)
    return np.sign(signed) * np.where(size >= 1.0, size, 2.0 - 1.0 / np.minimum(size, 1.0))


# -- thresholds from recent out-of-sample scores ----------------------------------------------------------


def ThresholdChoice() -> Constraint:
    """Constraint on the parameter ``threshold``: a measure, costs of both errors, or a target rate."""
    return Constraint(
        '"gmean", "kappa", "f1", costs such as {"miss": 20, "alarm": 1} (positive, finite numbers), or a '
        'target rate: {"alarms": 0.01} (a share of the rows from 0 to below 1), {"alarms_per_day": 100} '
        '(a positive number), {"recall": 0.95} or {"precision": 0.9} (shares between 0 and 1)',
        _is_choice,
    )


def _is_choice(value: object) -> bool:
    if isinstance(value, str):
        return value in _MEASURES
    if not isinstance(value, Mapping):
        return False
    if set(value) == {"miss", "alarm"}:
        return all(map(Positive().accepts, value.values()))
    if len(value) != 1:
        return False
    ((name, number),) = value.items()
    if name == "alarms":
        return NonNegative().accepts(number) and number < 1.0
    return name in _TARGET_RATES and Positive().accepts(number) and (name == "alarms_per_day" or number < 1.0)


def choose_threshold(positive: FloatArray, negative: FloatArray, threshold: Any, share: float) -> float:
    """Return the threshold that is best on recent rows. Rows with higher scores are predicted positive.

    Parameters
    ----------
    positive, negative : ndarray
        Out-of-sample scores of recent rows of both classes, at least one of each.
    threshold : "gmean", "kappa", "f1", mapping, or object with a method ``choose``
        The goal, as :func:`ThresholdChoice` accepts it, except alarms per day; or an online threshold with
        the method ``choose(positive, negative, share)``.
    share : float
        Share of positives among recent rows. All goals except "gmean" depend on it.

    Returns
    -------
    float
        The midpoint of two neighbouring scores.
    """
    if hasattr(threshold, "choose"):
        return float(threshold.choose(positive, negative, share))
    thresholds, misses, alarms = _native.error_rates(positive, negative)
    if isinstance(threshold, str):
        quality = _MEASURES[threshold](misses, alarms, share)
    elif "alarms" in threshold:
        raised = share * (1.0 - misses) + (1.0 - share) * alarms
        # The largest number of alarms within the limit is best.
        quality = np.where(raised <= threshold["alarms"], raised, -1.0)
    elif "recall" in threshold:
        quality = np.where(1.0 - misses >= threshold["recall"] - _ROUNDING, 1.0 - alarms, -1.0)
    elif "precision" in threshold:
        found, false = share * (1.0 - misses), (1.0 - share) * alarms
        is_precise = found >= (threshold["precision"] - _ROUNDING) * (found + false)
        quality = np.where(is_precise, found, -1.0)
    else:
        quality = -threshold["miss"] * share * misses - threshold["alarm"] * (1.0 - share) * alarms
    return float(thresholds[int(np.argmax(quality))])


def mirrored_threshold(second: FloatArray, first: FloatArray, threshold: Any, share: float) -> float:
    """Return the best threshold for scores that are low for the positive class.

    ``first`` contains scores of the positive class, ``second`` scores of the negative class, and ``share`` is
    the share of the negative class. Rows with scores up to the threshold are predicted positive.
    """
    best = choose_threshold(-first, -second, threshold, 1.0 - share)
    return float(np.nextafter(-best, -np.inf))  # a score of exactly -best belongs to the other class


def _f1(misses: FloatArray, alarms: FloatArray, share: float) -> FloatArray:
    found = share * (1.0 - misses)
    return 2.0 * found / (share + found + (1.0 - share) * alarms)


def _kappa(misses: FloatArray, alarms: FloatArray, share: float) -> FloatArray:
    found, false = share * (1.0 - misses), (1.0 - share) * alarms
    agreement = found + (1.0 - share) - false
    by_chance = share * (found + false) + (1.0 - share) * (1.0 - found - false)
    return (agreement - by_chance) / np.maximum(1.0 - by_chance, 1e-12)


_MEASURES: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "gmean": lambda misses, alarms, _: (1.0 - misses) * (1.0 - alarms),  # the squared G-mean
    "f1": _f1,
    "kappa": _kappa,
}

__getattr__ = former_names(
    __name__,
    gmean_cut="gmean_threshold",
    normal_gmean_cut="normal_gmean_threshold",
    smooth_gmean_cut="smooth_gmean_threshold",
)
