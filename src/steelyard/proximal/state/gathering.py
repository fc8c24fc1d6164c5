"""Rows that wait for their feature map.

A map that the first rows settle needs enough of them: of a hundred rows of a stream half of the columns may
be constant, and a map settled by these would leave them out for good. So the first rows are kept as they came
until there are enough, and are mapped for good then. Meanwhile a map serves that some of them settle: the
first 1, 2, 4, ... of those there are, so that it changes rarely and is a matter of the rows alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard._labels import check_label_types, check_sortable
from steelyard._types import FloatArray
from steelyard._validation import MAX_QUANTIZED_FEATURE
from steelyard.base import Batch, Label
from steelyard.features import RandomFeatures
from steelyard.proximal.state.removal import never_learned

__all__ = ["Gathered"]

_ENOUGH = 1000  # rows that settle a map
_LONG = 4000  # rows after which a map is settled by those there are, however many have gone


@dataclass(frozen=True)
class Gathered:
    """The rows so far, in the order in which they came.

    Attributes
    ----------
    unsettled : RandomFeatures
        The map that is to be settled.
    X : ndarray or sparse matrix of shape (n_rows, n_features)
        The rows.
    labels : tuple
        Their labels.
    weights : ndarray of shape (n_rows,)
        Their weights.
    n_come : int
        Rows that have come, those forgotten since included.
    """

    unsettled: RandomFeatures
    X: Any
    labels: tuple[Label, ...]
    weights: FloatArray
    n_come: int

    @classmethod
    def start(cls, unsettled: RandomFeatures, n_features: int) -> Gathered:
        """No rows yet."""
        return cls(unsettled, np.empty((0, n_features)), (), np.empty(0), 0)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_enough(self) -> bool:
        """Whether the map can be settled for good."""
        return len(self) >= _ENOUGH or self.n_come >= _LONG

    @property
    def room(self) -> int:
        """How many more rows are gathered before there are enough."""
        return max(min(_ENOUGH - len(self), _LONG - self.n_come), 0)

    def settled(self) -> RandomFeatures:
        """The map as these rows settle it: for good if there are enough, else for the time being."""
        n = len(self) if self.is_enough else self.n_settling
        return self.unsettled.settled(self.X[:n])

    @property
    def n_settling(self) -> int:
        """Of how many rows the map for the time being is made: the largest power of two there is."""
        return 1 << (len(self).bit_length() - 1) if len(self) else 0

    def batch(self) -> Batch:
        """All rows, as they can be learned."""
        labels = sorted(set(self.labels))
        places = {label: place for place, label in enumerate(labels)}
        codes = np.array([places[label] for label in self.labels], dtype=np.int32)
        return Batch(self.X, labels, codes, self.weights)

    def with_rows(self, batch: Batch) -> Gathered:
        """These rows and then others."""
        n = batch.X.shape[0]
        weights = np.ones(n) if batch.weights is None else np.asarray(batch.weights, dtype=np.float64)
        X = batch.X
        if not sp.issparse(X):
            X = np.asarray(X, dtype=np.float64)
        if len(self):
            mixed = sp.issparse(X) != sp.issparse(self.X)
            both = (_dense(self.X), _dense(X)) if mixed else (self.X, X)
            X = sp.vstack(both, format="csr") if sp.issparse(both[0]) else np.concatenate(both)
        else:
            X = X.copy()
        labels = self.labels + tuple(batch.labels[code] for code in batch.codes)
        return replace(
            self, X=X, labels=labels, weights=np.concatenate([self.weights, weights]), n_come=self.n_come + n
        )

    def without(self, batch: Batch, source: str) -> Gathered:
        """These rows without others; refuses those that are not there."""
        places: defaultdict[tuple[Label, bytes], list[int]] = defaultdict(list)
        for place, (label, row) in enumerate(zip(self.labels, _dense(self.X), strict=True)):
            places[label, (row + 0.0).tobytes()].append(place)  # + 0.0 turns -0.0 into 0.0
        weights = self.weights.copy()
        leaving = np.ones(batch.X.shape[0]) if batch.weights is None else batch.weights.copy()
        for i, row in enumerate(_dense(batch.X)):
            label = batch.labels[batch.codes[i]]
            # From the newest back, which keeps what is left in the order in which it came.
            for place in reversed(places.get((label, (row + 0.0).tobytes()), [])):
                taken = min(leaving[i], weights[place])
                leaving[i] -= taken
                weights[place] -= taken
            if leaving[i] > 0.0:
                raise never_learned(source, label)
        stays = np.flatnonzero(weights > 0.0)
        labels = tuple(self.labels[place] for place in stays)
        return replace(self, X=self.X[stays], labels=labels, weights=weights[stays])

    def faded(self, factor: float) -> Gathered:
        """The same rows with other weights."""
        return replace(self, weights=self.weights * factor)

    def without_classes(self, lost: set[Label]) -> Gathered:
        """These rows without those of some classes."""
        stays = np.array([i for i, label in enumerate(self.labels) if label not in lost], dtype=np.intp)
        labels = tuple(self.labels[place] for place in stays)
        return replace(self, X=self.X[stays], labels=labels, weights=self.weights[stays])

    # -- files --------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        return {
            "unsettled": self.unsettled,
            "X": _dense(self.X),
            "labels": list(self.labels),
            "weights": self.weights,
            "n_come": self.n_come,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Gathered:
        """What such values describe; ValueError if they make no sense."""
        gathered = cls(
            state["unsettled"], state["X"], tuple(state["labels"]), state["weights"], int(state["n_come"])
        )
        n = len(gathered.labels)
        if gathered.X.ndim != 2 or len(gathered.X) != n or gathered.weights.shape != (n,):
            raise ValueError("gathered rows, labels and weights differ in number")
        # Not above the limit, so that numbers that are none are refused as well.
        if not (np.abs(gathered.X) <= MAX_QUANTIZED_FEATURE).all() or not np.isfinite(gathered.weights).all():
            raise ValueError("a gathered row has a value that no learner takes")
        check_label_types(gathered.labels, "a file")
        check_sortable(gathered.labels, "a file")
        return gathered


def _dense(X: Any) -> FloatArray:
    rows: FloatArray = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    return rows
