"""Distinct rows of one class, in an order that does not depend on the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.kernels.items import distinct


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Distinct rows with their total weights.

    Rows are sorted by a hash of their values. The arrays therefore do not depend on the order of arrival or
    on batch boundaries, and every fourth row is a pseudo-random sample of a quarter of the rows.
    """

    X: Any  # distinct rows, shape (n_distinct, n_features)
    # Total weight of each row. All weights are positive.
    weights: FloatArray

    @classmethod
    def gather(cls, X: Any, weights: FloatArray) -> ClassRows:
        """Return the sorted distinct rows with summed weights. Rows of weight 0 are dropped."""
        if isinstance(X, list):
            return cls(*distinct(X, weights))
        X = X + 0.0  # turns -0.0 into 0.0, so that equal rows are bitwise equal
        hashes = _native.row_hashes(X)
        order = np.argsort(hashes, kind="stable")
        order = order[weights[order] > 0.0]
        X, hashes = X[order], hashes[order]
        is_first = np.ones(len(X), dtype=bool)
        is_first[1:] = (hashes[1:] != hashes[:-1]) | (X[1:] != X[:-1]).any(axis=1)
        first = np.flatnonzero(is_first)
        summed = np.add.reduceat(weights[order], first) if len(first) else np.empty(0)
        return cls(np.ascontiguousarray(X[first]), summed)

    def with_more(self, batches: list[tuple[Any, FloatArray]]) -> ClassRows:
        """Return these rows together with the rows of the batches."""
        if not batches:
            return self
        rows, weights = zip((self.X, self.weights), *batches, strict=True)
        X: Any = [*chain.from_iterable(rows)] if isinstance(self.X, list) else np.concatenate(rows)
        return ClassRows.gather(X, np.concatenate(weights))

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @property
    def mean(self) -> FloatArray:
        """Weighted mean of the rows."""
        return np.asarray(self.weights @ self.X / self.total)

    def variance(self) -> float:
        """Return the variance of all values in all columns, as used by ``gamma="scale"``."""
        shares = self.weights / (self.total * self.X.shape[1])
        mean = shares @ self.X.sum(axis=1)
        return float(shares @ ((self.X - mean) ** 2).sum(axis=1))
