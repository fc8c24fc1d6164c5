"""How sure scores are: a normal model of the scores of each class.

Mean and variance of the scores of a class follow from its statistics, so no row is looked at again. Where to
cut them is in :mod:`steelyard.thresholds`.
"""

from __future__ import annotations

import numpy as np

from steelyard._types import FloatArray

__all__ = ["logistic_slope"]

_ROUNDING = 1e-12  # of means of scores


def logistic_slope(positive: FloatArray, negative: FloatArray) -> FloatArray:
    """Log-odds gained per unit of score when both sides are normal with their mean variance."""
    gap = positive[:, 0] - negative[:, 0]
    # Of a plane that says the same of all rows, as that of a class without weight, rounding is all there is.
    gap[np.abs(gap) <= _ROUNDING * np.maximum(np.abs(positive[:, 0]), np.abs(negative[:, 0]))] = 0.0
    variance = 0.5 * (positive[:, 1] + negative[:, 1])
    slope = np.divide(
        gap, variance, out=np.where(gap == 0.0, 0.0, np.inf), where=(variance > 0.0) & (gap != 0.0)
    )
    # Never quite flat, so that probabilities keep the order of the scores, and never a division by zero.
    return np.clip(slope, 1e-9, 1e9)
