"""Where to cut scores into labels so that the G-mean is largest.

The G-mean is the geometric mean of both hit rates. All three functions are given the negative side first and
return a cut: scores above it are called positive. They differ in what is known of the scores: the scores
themselves (:func:`gmean_cut`), the same where they are few and chance is to be smoothed away
(:func:`smooth_gmean_cut`), or only their mean and variance (:func:`normal_gmean_cut`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.params import NonNegative, Positive

__all__ = ["ThresholdChoice", "choose_threshold", "gmean_cut", "normal_gmean_cut", "smooth_gmean_cut"]

_MOST = 256  # scores that stand for a side when it is smoothed
_CUTS = 65  # tried at a time


def gmean_cut(negative: FloatArray, positive: FloatArray) -> float:
    """The cut with the largest geometric mean of both hit rates on the scores given.

    It lies halfway between two neighbouring scores; of several that are equally good it is the one nearest
    to zero, and zero itself where a side has no scores.

    >>> gmean_cut(np.array([-2.0, -1.0, 0.5]), np.array([0.25, 1.0]))
    -0.375
    """
    if not len(negative) or not len(positive):
        return 0.0
    scores = np.unique(np.concatenate([negative, positive]))
    # Outside the scores one hit rate is zero; a single score has no inside.
    cuts = 0.5 * (scores[1:] + scores[:-1]) if len(scores) > 1 else scores
    specificity = np.searchsorted(np.sort(negative), cuts, side="right") / len(negative)
    sensitivity = 1.0 - np.searchsorted(np.sort(positive), cuts, side="right") / len(positive)
    quality = specificity * sensitivity
    best = cuts[quality >= quality.max() * (1.0 - 1e-12)]
    return float(best[np.argmin(np.abs(best))])


def smooth_gmean_cut(negative: FloatArray, positive: FloatArray) -> float:
    """The cut with the largest G-mean to be expected, from few scores.

    Where the few scores at hand have their largest G-mean is much of chance, so each side is smoothed first:
    a Gaussian bump stands on every score. Of equally good cuts it is the one in the middle; zero if all
    scores are equal.

    >>> round(smooth_gmean_cut(np.array([-1.0, -1.0]), np.array([3.0])), 6)
    1.0
    """
    low = float(min(negative.min(), positive.min()))
    high = float(max(negative.max(), positive.max()))
    if low == high:
        return 0.0
    least = 1e-9 * (high - low)
    width_neg, width_pos = (max(_bump_width(side), least) for side in (negative, positive))
    negative, positive = _representatives(negative), _representatives(positive)
    for _ in range(2):  # coarse, then fine
        cuts = np.linspace(low, high, _CUTS)
        sensitivity = ndtr((positive - cuts[:, None]) / width_pos).mean(axis=1)
        specificity = ndtr((cuts[:, None] - negative) / width_neg).mean(axis=1)
        product = sensitivity * specificity
        best = np.flatnonzero(product >= product.max() - 1e-12)
        low, high = cuts[max(best[0] - 1, 0)], cuts[min(best[-1] + 1, _CUTS - 1)]
    return float(cuts[best].mean())


def _bump_width(scores: FloatArray) -> float:
    """Standard deviation of the bumps, by the rule of thumb for scores that are about normal."""
    lower, upper = np.quantile(scores, (0.25, 0.75))
    spread = float(scores.std())
    robust = float(upper - lower) / 1.349  # the same for a normal distribution, and blind to outliers
    return float(1.06 * (min(spread, robust) or spread) * len(scores) ** -0.2)


def _representatives(scores: FloatArray) -> FloatArray:
    """The scores, or evenly spaced quantiles if there are many."""
    if len(scores) <= _MOST:
        return scores
    return np.asarray(np.quantile(scores, (np.arange(_MOST) + 0.5) / _MOST))


def normal_gmean_cut(negative: FloatArray, positive: FloatArray) -> FloatArray:
    """The cut that maximises the product of the hit rates of two normal score distributions.

    Parameters
    ----------
    negative, positive : ndarray of shape (n_planes, 2)
        Mean and variance of the scores of both sides.

    Returns
    -------
    ndarray of shape (n_planes,)
        One cut a plane. Where the positive mean is not the larger one, the middle of the means.

    Notes
    -----
    The logarithm of the product, log Phi((m+ - t) / s+) + log Phi((t - m-) / s-), is concave in t and has one
    maximum. A side without spread is given a millionth of the gap between the means.

    >>> normal_gmean_cut(np.array([[-1.0, 1.0]]), np.array([[3.0, 1.0]]))
    array([1.])
    """
    cuts = np.empty(len(negative))
    _native.normal_gmean_cuts(
        np.ascontiguousarray(negative, dtype=np.float64),
        np.ascontiguousarray(positive, dtype=np.float64),
        cuts,
    )
    return cuts


# -- thresholds from recent out-of-sample scores ----------------------------------------------------------


class ThresholdChoice:
    """Constraint of ``threshold=``: a measure, costs of both kinds of error, or a budget of alarms."""

    description = (
        '"gmean", "kappa", "f1", prices such as {"miss": 20, "alarm": 1} (positive, finite numbers), or a '
        'budget such as {"alarms": 0.01} (a share of the rows between 0 and 1)'
    )

    def accepts(self, value: object) -> bool:
        if isinstance(value, str):
            return value in _MEASURES
        if not isinstance(value, Mapping):
            return False
        if set(value) == {"miss", "alarm"}:
            return all(Positive().accepts(price) for price in value.values())
        return set(value) == {"alarms"} and NonNegative().accepts(value["alarms"]) and value["alarms"] < 1.0


def choose_threshold(positive: FloatArray, negative: FloatArray, threshold: Any, share: float) -> float:
    """Return the threshold that is best on recent rows; rows above it are predicted positive.

    Parameters
    ----------
    positive, negative : ndarray
        Out-of-sample scores of recent rows of both classes, at least one of each.
    threshold : "gmean", "kappa", "f1" or mapping
        The goal, as :class:`ThresholdChoice` accepts it.
    share : float
        Share of positives among recent rows. All goals but "gmean" depend on it.

    Returns
    -------
    float
        The middle between two neighbouring scores.
    """
    thresholds, misses, alarms = _error_rates(positive, negative)
    if isinstance(threshold, str):
        quality = _MEASURES[threshold](misses, alarms, share)
    elif "alarms" in threshold:
        raised = share * (1.0 - misses) + (1.0 - share) * alarms
        quality = np.where(raised <= threshold["alarms"], raised, -1.0)  # the most alarms that are allowed
    else:
        quality = -threshold["miss"] * share * misses - threshold["alarm"] * (1.0 - share) * alarms
    return float(thresholds[int(np.argmax(quality))])


def _error_rates(positive: FloatArray, negative: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return all thresholds between two different scores, ascending, with miss rate and false alarm rate."""
    scores = np.concatenate([positive, negative])
    order = np.argsort(scores, kind="stable")
    scores, is_positive = scores[order], (order < len(positive)).astype(np.float64)
    last = np.flatnonzero(np.append(np.diff(scores) > 0.0, True))  # end of every run of equal scores
    missed = np.cumsum(is_positive)[last] / len(positive)
    quiet = np.cumsum(1.0 - is_positive)[last] / len(negative)
    values = scores[last]
    # One threshold is below all scores, the last one equals the highest score.
    middles = 0.5 * (values + np.append(values[1:], values[-1]))
    thresholds = np.append(np.nextafter(values[0], -np.inf), middles)
    return thresholds, np.append(0.0, missed), np.append(1.0, 1.0 - quiet).clip(min=0.0)


def _squared_gmean(misses: FloatArray, alarms: FloatArray, share: float) -> FloatArray:  # noqa: ARG001
    return (1.0 - misses) * (1.0 - alarms)


def _f1(misses: FloatArray, alarms: FloatArray, share: float) -> FloatArray:
    found = share * (1.0 - misses)
    return 2.0 * found / (share + found + (1.0 - share) * alarms)


def _kappa(misses: FloatArray, alarms: FloatArray, share: float) -> FloatArray:
    found, false = share * (1.0 - misses), (1.0 - share) * alarms
    agreement = found + (1.0 - share) - false
    by_chance = share * (found + false) + (1.0 - share) * (1.0 - found - false)
    return (agreement - by_chance) / np.maximum(1.0 - by_chance, 1e-12)


_MEASURES = {"gmean": _squared_gmean, "f1": _f1, "kappa": _kappa}
