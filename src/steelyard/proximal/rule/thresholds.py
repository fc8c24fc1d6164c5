"""How sure scores are: a normal model of the scores of each class.

Mean and variance of the scores of a class follow from its statistics, so no row is looked at again. Where to
cut them is in :mod:`steelyard.cuts`.
"""

from __future__ import annotations

import numpy as np

from steelyard._types import FloatArray

__all__ = ["logistic_slope"]


def logistic_slope(positive: FloatArray, negative: FloatArray) -> FloatArray:
    """Log-odds gained per unit of score when both sides are normal with their mean variance."""
    gap = positive[:, 0] - negative[:, 0]
    variance = 0.5 * (positive[:, 1] + negative[:, 1])
    slope = np.divide(gap, variance, out=np.full_like(gap, np.inf), where=variance > 0.0)
    # Never quite flat, so that probabilities keep the order of the scores, and never a division by zero.
    return np.clip(slope, 1e-9, 1e9)
