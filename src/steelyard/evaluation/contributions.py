"""Which features carry a model, and how that moved along a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray

__all__ = ["ContributionTrack", "contributions"]

_MAX_SNAPSHOTS = 64
_MAX_FEATURES = 4096


def contributions(model: Any) -> FloatArray | None:
    """How far one standard deviation of each feature moves each plane's score: weight times deviation.

    Parameters
    ----------
    model : learner
        A learner with planes and statistics, a window around one, or a committee with one.

    Returns
    -------
    ndarray of shape (n_planes, n_features) or None
        None where the model has no planes over its features.
    """
    learner = getattr(model, "estimator_", None) or getattr(model, "linear_", None) or model
    coef, statistics = getattr(learner, "coef_", None), getattr(learner, "statistics_", None)
    if coef is None or statistics is None:
        return None
    weights = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    spread = np.sqrt(np.maximum(np.asarray(statistics.mean_offset()[1], dtype=np.float64), 0.0))
    return weights * spread if weights.shape[1] == len(spread) else None


class ContributionTrack:
    """The strengths of a model's features at some rows of a stream, in bounded memory.

    The strength of a feature is the root of the mean square of its contributions to all planes.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._strengths: list[FloatArray] = []
        self._step, self._n_offered = 1, 0

    def take(self, row: int, model: Any) -> None:
        """Keep the strengths as they are at this row; with too many rows kept, every other one is let go."""
        self._n_offered += 1
        if self._n_offered % self._step or self.rows[-1:] == [row]:
            return
        moved = contributions(model)
        if moved is None or moved.shape[1] > _MAX_FEATURES or not np.isfinite(moved).all():
            return
        self.rows.append(row)
        self._strengths.append(np.sqrt(np.mean(moved**2, axis=0)))
        if len(self.rows) > _MAX_SNAPSHOTS:
            self.rows, self._strengths = self.rows[1::2], self._strengths[1::2]
            self._step *= 2

    def strengths(self) -> FloatArray:
        """One line for each row that was kept; a feature that came later has been 0 before."""
        width = max(map(len, self._strengths), default=0)
        lines = [np.pad(line, (0, width - len(line))) for line in self._strengths]
        return np.array(lines).reshape(len(lines), width)
