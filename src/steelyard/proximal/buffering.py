"""Buffer of the first rows of a stream, which are kept until a feature map can be fitted to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard._labels import restored_labels
from steelyard._types import FloatArray
from steelyard.base import Batch, Label
from steelyard.features import RandomFeatures
from steelyard.proximal.quantizer import LARGEST_VALUE
from steelyard.proximal.statistics import never_learned

_MAP_ROWS = 1000  # number of rows to which the final feature map is fitted
_MAX_STREAM_ROWS = 4000  # number of arrived rows, including forgotten ones, at which the buffer is full


@dataclass(frozen=True)
class BufferedRows:
    """Immutable buffer of the first rows of a stream, in order of arrival.

    A fitted map never changes, and would ignore a column forever that is constant in its rows. So the final
    map is fitted when 1,000 rows are buffered. Until then, a preliminary map is fitted to the first 1, 2, 4,
    8, ... rows: it changes rarely, and depends on the rows only, not on the sizes of the batches.
    """

    unfitted_map: RandomFeatures
    X: Any  # array or sparse matrix
    labels: tuple[Label, ...]
    weights: FloatArray
    n_arrived: int  # number of rows that have arrived, including forgotten ones

    @classmethod
    def start(cls, unfitted_map: RandomFeatures, n_features: int) -> BufferedRows:
        """Return an empty buffer."""
        return cls(unfitted_map, np.empty((0, n_features)), (), np.empty(0), 0)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_full(self) -> bool:
        """Whether the buffer has enough rows to fit the final feature map."""
        return self.capacity == 0

    @property
    def capacity(self) -> int:
        """Number of rows that can be added until the buffer is full."""
        return max(min(_MAP_ROWS - len(self), _MAX_STREAM_ROWS - self.n_arrived), 0)

    @property
    def n_preliminary(self) -> int:
        """Number of rows for the preliminary feature map: the largest power of two up to ``len(self)``."""
        return 1 << (len(self).bit_length() - 1) if len(self) else 0

    def fitted_map(self) -> RandomFeatures:
        """Return the feature map fitted to the buffered rows; it is preliminary until the buffer is full."""
        if not len(self):
            return self.unfitted_map.fitted_on(np.zeros((1, self.X.shape[1])))
        return self.unfitted_map.fitted_on(self.X[: len(self) if self.is_full else self.n_preliminary])

    def batch(self) -> Batch:
        """Return all rows as a batch."""
        labels = sorted(set(self.labels))
        places = {label: place for place, label in enumerate(labels)}
        codes = np.array([places[label] for label in self.labels], dtype=np.int32)
        return Batch(self.X, labels, codes, self.weights)

    def with_rows(self, batch: Batch) -> BufferedRows:
        """Return the buffer with the rows of a batch appended."""
        n = batch.X.shape[0]
        weights = np.ones(n) if batch.weights is None else np.asarray(batch.weights, dtype=np.float64)
        if sp.issparse(batch.X) and (not len(self) or sp.issparse(self.X)):
            X = sp.vstack([self.X, batch.X], format="csr") if len(self) else batch.X.copy()
        else:
            X = np.concatenate([_dense(self.X), _dense(batch.X)])
        return replace(
            self,
            X=X,
            labels=self.labels + tuple(batch.labels[code] for code in batch.codes),
            weights=np.concatenate([self.weights, weights]),
            n_arrived=self.n_arrived + n,
        )

    def without_rows(self, batch: Batch, source: str) -> BufferedRows:
        """Return the buffer without the rows of a batch; raise DataError for rows that are not in it."""
        places: defaultdict[tuple[Label, bytes], list[int]] = defaultdict(list)
        for place, (label, row) in enumerate(zip(self.labels, _dense(self.X), strict=True)):
            places[label, (row + 0.0).tobytes()].append(place)  # adding 0.0 turns -0.0 into 0.0
        weights = self.weights.copy()
        to_remove = np.ones(batch.X.shape[0]) if batch.weights is None else batch.weights.copy()
        for i, row in enumerate(_dense(batch.X)):
            label = batch.labels[batch.codes[i]]
            # Of several equal rows the newest is removed, so the order of the other rows does not change.
            for place in reversed(places.get((label, (row + 0.0).tobytes()), [])):
                removed = min(to_remove[i], weights[place])
                to_remove[i] -= removed
                weights[place] -= removed
            if to_remove[i] > 0.0:
                raise never_learned(source, label)
        return replace(self, weights=weights)._select(np.flatnonzero(weights > 0.0))

    def decayed(self, factor: float, labels: list[Label]) -> BufferedRows:
        """Return a buffer with only the rows of the given classes, their weights multiplied by ``factor``."""
        known = set(labels)
        rows = np.array([i for i, label in enumerate(self.labels) if label in known], dtype=np.intp)
        return replace(self, weights=self.weights * factor)._select(rows)

    def _select(self, rows: Any) -> BufferedRows:
        labels = tuple(self.labels[row] for row in rows)
        return replace(self, X=self.X[rows], labels=labels, weights=self.weights[rows])

    def get_state(self) -> dict[str, Any]:
        """Return the buffer as arrays and plain values."""
        return {
            "unsettled": self.unfitted_map,
            "X": _dense(self.X),
            "labels": list(self.labels),
            "weights": self.weights,
            "n_come": self.n_arrived,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BufferedRows:
        """Restore a buffer from the result of :meth:`get_state`; raise ValueError for invalid values."""
        rows = state["X"], tuple(state["labels"]), state["weights"]
        buffer = cls(state["unsettled"], *rows, int(state["n_come"]))
        n = len(buffer.labels)
        if buffer.X.ndim != 2 or len(buffer.X) != n or buffer.weights.shape != (n,):
            raise ValueError("buffered rows, labels and weights differ in number")
        # The comparison is written as `not <=`, so that NaN is rejected too.
        if not (np.abs(buffer.X) <= LARGEST_VALUE).all() or not np.isfinite(buffer.weights).all():
            raise ValueError("a buffered row has a value that no learner accepts")
        restored_labels(buffer.labels)
        return buffer


def batch_rows(batch: Batch, rows: slice) -> Batch:
    """Return some rows of a batch."""
    weights = None if batch.weights is None else batch.weights[rows]
    return Batch(batch.X[rows], batch.labels, batch.codes[rows], weights)


def _dense(X: Any) -> FloatArray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
