"""Where to cut the scores, and how sure they are: a normal model of the scores of each class.

Mean and variance of the scores of a class follow from its statistics, so no row is looked at again.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from steelyard._types import FloatArray

__all__ = ["gmean_cut", "logistic_slope"]


def gmean_cut(positive: FloatArray, negative: FloatArray) -> FloatArray:
    """The cut that maximises the product of the hit rates of two normal score distributions.

    Parameters
    ----------
    positive, negative : ndarray of shape (n_planes, 2)
        Mean and variance of the scores of both sides.

    Returns
    -------
    ndarray of shape (n_planes,)
        Scores above the cut are called positive. Where the positive mean is not the larger one, the
        middle of the means.

    Notes
    -----
    The logarithm of the product, log Phi((m+ - t) / s+) + log Phi((t - m-) / s-), is concave in t, so
    halving an interval on the sign of its slope finds the one maximum.
    """
    gap = positive[:, 0] - negative[:, 0]
    # Classes without spread would make the slope infinite; a millionth of the gap is as good as none.
    floor = np.maximum(1e-6 * np.abs(gap), np.finfo(np.float64).tiny ** 0.5)
    spread_pos = np.maximum(np.sqrt(positive[:, 1]), floor)
    spread_neg = np.maximum(np.sqrt(negative[:, 1]), floor)
    reach = 10.0 * np.maximum(spread_pos, spread_neg)
    low = np.minimum(positive[:, 0], negative[:, 0]) - reach
    high = np.maximum(positive[:, 0], negative[:, 0]) + reach
    for _ in range(80):
        middle = 0.5 * (low + high)
        rising = (
            _hazard((middle - negative[:, 0]) / spread_neg) / spread_neg
            > _hazard((positive[:, 0] - middle) / spread_pos) / spread_pos
        )
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.where(gap > 0.0, 0.5 * (low + high), 0.5 * (positive[:, 0] + negative[:, 0]))


def _hazard(x: FloatArray) -> FloatArray:
    """phi(x) / Phi(x) without underflow."""
    result: FloatArray = np.exp(-0.5 * np.square(x) - log_ndtr(x)) / np.sqrt(2.0 * np.pi)
    return result


def logistic_slope(positive: FloatArray, negative: FloatArray) -> FloatArray:
    """Log-odds gained per unit of score when both sides are normal with their mean variance."""
    gap = positive[:, 0] - negative[:, 0]
    variance = 0.5 * (positive[:, 1] + negative[:, 1])
    slope = np.divide(gap, variance, out=np.full_like(gap, np.inf), where=variance > 0.0)
    # Never quite flat, so that probabilities keep the order of the scores, and never a division by zero.
    return np.clip(slope, 1e-9, 1e9)
