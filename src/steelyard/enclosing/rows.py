"""State: the rows of one class, in an order that does not tell how they came."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.kernels.items import distinct

__all__ = ["ClassRows"]


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Distinct rows, each with the number of times it came.

    Rows stand in the order of a hash of their values, so the same rows give the same arrays in
    whatever order and portions they came, and every fourth row is as good as a random quarter.

    Attributes
    ----------
    X : ndarray of shape (n_distinct, n_features), or list of sequences
        The rows.
    weights : ndarray of shape (n_distinct,)
        How often each came; positive.
    """

    X: Any
    weights: FloatArray

    @classmethod
    def gather(cls, X: Any, weights: FloatArray) -> ClassRows:
        """Sort rows and add up the weights of equal ones; rows of weight 0 are left out."""
        if isinstance(X, list):
            return cls(*distinct(X, weights))
        X = X + 0.0  # -0.0 becomes 0.0: equal rows are then equal in every bit
        hashes = _native.row_hashes(X)
        order = np.argsort(hashes, kind="stable")
        order = order[weights[order] > 0.0]
        X, hashes = X[order], hashes[order]
        begins = np.ones(len(X), dtype=bool)
        begins[1:] = (hashes[1:] != hashes[:-1]) | (X[1:] != X[:-1]).any(axis=1)
        first = np.flatnonzero(begins)
        summed = np.add.reduceat(weights[order], first) if len(first) else np.empty(0)
        return cls(np.ascontiguousarray(X[first]), summed)

    def with_more(self, parts: list[tuple[Any, FloatArray]]) -> ClassRows:
        """Return these rows and more of them."""
        if not parts:
            return self
        rows, weights = zip((self.X, self.weights), *parts, strict=True)
        together: Any = [*chain.from_iterable(rows)] if isinstance(self.X, list) else np.concatenate(rows)
        return ClassRows.gather(together, np.concatenate(weights))

    @property
    def total(self) -> float:
        """Number of rows, repetitions counted."""
        return float(self.weights.sum())

    @property
    def mean(self) -> FloatArray:
        """The centre of mass."""
        return np.asarray(self.weights @ self.X / self.total)

    def variance(self) -> float:
        """Variance of all values together, as ``gamma="scale"`` asks for."""
        shares = self.weights / (self.total * self.X.shape[1])
        mean = shares @ self.X.sum(axis=1)
        return float(shares @ ((self.X - mean) ** 2).sum(axis=1))
