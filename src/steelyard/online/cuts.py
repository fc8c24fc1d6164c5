"""Where to cut scores into labels."""

from __future__ import annotations

import numpy as np

from steelyard._types import FloatArray

__all__ = ["gmean_cut"]


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
