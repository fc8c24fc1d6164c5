"""Importance of features for the scores of a model, and its history in a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard._types import FloatArray
from steelyard.base import BatchLearner
from steelyard.exceptions import SteelyardError
from steelyard.explanation.rows import mean_contributions
from steelyard.streams.chunks import Chunk
from steelyard.streams.predictions import is_ready, rows_for_model

_MAX_RECORDS = 32  # more records would dominate the cost of a stream, because each record explains rows
_EXPLAINED_ROWS = 16  # number of rows that are explained for each record, which takes tens of milliseconds
MAX_FEATURES = 4096
_REMEMBERED_ROWS = 200


def contributions(model: Any) -> FloatArray | None:
    """Return the change of each score when a feature increases by one standard deviation.

    This change is the weight of the feature times its standard deviation. It is known for linear learners
    with statistics, also inside a window wrapper; for other models the result is None.
    """
    learner = getattr(model, "estimator_", None) or model
    coef, statistics = getattr(learner, "coef_", None), getattr(learner, "statistics_", None)
    if coef is None or statistics is None:
        return None
    weights = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    spread = np.sqrt(np.maximum(np.asarray(statistics.mean_offset()[1], dtype=np.float64), 0.0))
    return weights * spread if weights.shape[1] == len(spread) else None


def strengths_of(model: Any, chunk: Chunk | None = None) -> FloatArray | None:
    """Return the strength (importance) of each feature for the scores of a model.

    The strength is the mean absolute contribution of the feature, as ``explain`` returns it, over the last
    rows of a chunk, by default over the last rows that the model stores. For linear learners with statistics
    of all rows, it is the root mean square, over the scores, of :func:`contributions`. The result is None if
    the model is not a learner of this package, or has no rows to explain.
    """
    values = contributions(model)
    if values is not None:
        return np.sqrt(np.mean(values**2, axis=0))
    is_learner = isinstance(model, BatchLearner) and hasattr(model, "decision_function")
    if not is_learner or model._sequence_kernel() is not None:
        return None
    if chunk is None:
        remembered = model._remembered_rows()
        rows = None if remembered is None or not remembered.has_values else remembered.X[-_REMEMBERED_ROWS:]
    elif not is_ready(model) or chunk.X.shape[1] > MAX_FEATURES:
        return None
    else:
        rows = rows_for_model(model, chunk.take(max(0, len(chunk) - _EXPLAINED_ROWS), len(chunk)))
    if rows is None or sp.issparse(rows) or not len(rows):
        return None
    try:
        return mean_contributions(model, rows, are_remembered=chunk is None)
    except SteelyardError:  # for example, all rows have been forgotten
        return None


def names_of_strengths(model: Any, n_features: int) -> list[str]:
    """Return the column names if the model reads tables itself, otherwise an empty list."""
    reads_tables = getattr(model, "_schema", None) is not None
    return model._explained_names(n_features) if reads_tables else []


class FeatureStrengths:
    """History of the feature strengths of a model in a stream, in bounded memory (see strengths_of)."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.names: list[str] = []  # names of the features
        self._strengths: list[FloatArray] = []
        self._step, self._n_calls = 1, 0

    def record(self, row: int, model: Any, chunk: Chunk | None) -> None:
        """Record the current strengths over a chunk; with too many records, every other one is removed."""
        self._n_calls += 1
        if chunk is None or self._n_calls % self._step or self.rows[-1:] == [row]:
            return
        values = strengths_of(model, chunk)
        if values is None or len(values) > MAX_FEATURES or not np.isfinite(values).all():
            return
        self.rows.append(row)
        self._strengths.append(values)
        self.names = names_of_strengths(model, len(values))
        if len(self.rows) > _MAX_RECORDS:
            self.rows, self._strengths = self.rows[1::2], self._strengths[1::2]
            self._step *= 2

    def strengths(self) -> FloatArray:
        """Return an array with one row per record. The strength of a feature is 0 before it was added."""
        width = max(map(len, self._strengths), default=0)
        lines = [np.pad(line, (0, width - len(line))) for line in self._strengths]
        return np.array(lines).reshape(len(lines), width)
