"""Where to cut scores into labels so that the G-mean is largest.

The G-mean is the geometric mean of both hit rates. All three functions are given the negative side first and
return a cut: scores above it are called positive. They differ in what is known of the scores: the scores
themselves (:func:`gmean_cut`), the same where they are few and chance is to be smoothed away
(:func:`smooth_gmean_cut`), or only their mean and variance (:func:`normal_gmean_cut`).
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from steelyard import _native
from steelyard._types import FloatArray

__all__ = ["gmean_cut", "normal_gmean_cut", "smooth_gmean_cut"]

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
