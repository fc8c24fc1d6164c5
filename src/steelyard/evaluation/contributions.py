"""Contributions of the features to the scores of a linear model, and their history along a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray

__all__ = ["FeatureStrengths", "contributions"]

_MAX_SNAPSHOTS = 64
_MAX_FEATURES = 4096


def contributions(model: Any) -> FloatArray | None:
    """Return the change of each score per standard deviation of each feature.

    It is the weight of the feature times its standard deviation.

    Parameters
    ----------
    model : learner
        A linear learner with statistics, or a window wrapper or ensemble that contains such a learner.

    Returns
    -------
    ndarray of shape (n_planes, n_features) or None
        None if the model has no linear scores.
    """
    learner = getattr(model, "estimator_", None) or getattr(model, "linear_", None) or model
    coef, statistics = getattr(learner, "coef_", None), getattr(learner, "statistics_", None)
    if coef is None or statistics is None:
        return None
    weights = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    spread = np.sqrt(np.maximum(np.asarray(statistics.mean_offset()[1], dtype=np.float64), 0.0))
    return weights * spread if weights.shape[1] == len(spread) else None


class FeatureStrengths:
    """History of the feature strengths of a model along a stream, in bounded memory.

    The strength of a feature is the root mean square of its contributions to all scores.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._strengths: list[FloatArray] = []
        self._step, self._n_calls = 1, 0

    def record(self, row: int, model: Any) -> None:
        """Record the current strengths; with too many records, every other one is removed."""
        self._n_calls += 1
        if self._n_calls % self._step or self.rows[-1:] == [row]:
            return
        values = contributions(model)
        if values is None or values.shape[1] > _MAX_FEATURES or not np.isfinite(values).all():
            return
        self.rows.append(row)
        self._strengths.append(np.sqrt(np.mean(values**2, axis=0)))
        if len(self.rows) > _MAX_SNAPSHOTS:
            self.rows, self._strengths = self.rows[1::2], self._strengths[1::2]
            self._step *= 2

    def strengths(self) -> FloatArray:
        """Return one line per recorded row; the strength of a feature is 0 before the feature was added."""
        width = max(map(len, self._strengths), default=0)
        lines = [np.pad(line, (0, width - len(line))) for line in self._strengths]
        return np.array(lines).reshape(len(lines), width)
