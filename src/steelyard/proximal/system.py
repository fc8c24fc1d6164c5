"""Linear systems of the planes: class matrices as doubles, and the penalty.

All matrices are lower triangles in the coordinates of the statistics, ``e = [x - origin, -1]``.
A standardized row ``z`` is ``[z, -1] = e T`` with a matrix ``T``. Solving for ``e`` with the regularizer
``inv(T)' inv(T) / C`` is equivalent to solving for ``z`` with ``I / C``. So standardization only changes the
regularizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.proximal.statistics import ClassStatistics

_EPS = float(np.finfo(np.float64).eps)
# Minimum scale of a raw feature; a smaller scale would have no effect in floating-point arithmetic.
_MIN_RAW_SCALE = 2.0**-200
_MAX_CLASSES_WITHOUT_FACTORS = 30  # up to this number of classes, one matrix per plane is cheap


def symmetric(lower: FloatArray) -> FloatArray:
    """Return the full matrix of a lower triangle."""
    return lower + np.tril(lower, -1).T


def times(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the product of a symmetric matrix, given by its lower triangle, with a vector or columns."""
    # BLAS reads a row-major lower triangle as a column-major upper triangle, without a copy.
    if vectors.ndim == 1:
        product: FloatArray = blas.dsymv(1.0, lower.T, vectors, lower=0)
    else:
        product = blas.dsymm(1.0, lower.T, vectors, lower=0)
    return product


@dataclass(frozen=True)
class Regularizer:
    """Penalty on a plane ``[w; b]``: ``|scale * w|^2``, plus ``(b - center'w)^2`` if ``b`` is penalized."""

    scale: FloatArray  # standard deviations of the features; 1 / unit if they are not standardized
    center: FloatArray | None  # point relative to the origin, or None if the intercept ``b`` is not penalized

    def add_to(self, lower: FloatArray, factor: float) -> FloatArray:
        """Return ``lower + factor * penalty`` as a new lower triangle."""
        result = lower.copy()
        d = len(self.scale)
        if self.center is not None:
            result[:d, :d] += np.tril(np.outer(factor * self.center, self.center))
            result[d, :d] -= factor * self.center
            result[d, d] += factor
        result[np.arange(d), np.arange(d)] += factor * np.square(self.scale)
        return result

    def congruence(self) -> Any:
        """Return the sparse matrix ``T`` with ``T' penalty T = I``. The intercept must be penalized."""
        assert self.center is not None
        d = len(self.scale)
        places = np.arange(d + 1)
        values = np.concatenate([1.0 / self.scale, self.center / self.scale, [1.0]])
        rows = np.concatenate([places[:d], np.full(d + 1, d)])
        columns = np.concatenate([places[:d], places])
        return sp.csr_array((values, (rows, columns)), shape=(d + 1, d + 1))


class System:
    """Counts, sums and matrices of all classes in the coordinates ``(x - origin) / unit``, rounded correctly.

    Equal rows give bit-identical values, whatever the quantizer and the history. ``keys`` are the keys in
    ``statistics`` of each class, if only some of the rows are used.
    """

    def __init__(
        self,
        statistics: ClassStatistics,
        keys: Mapping[Label, Sequence[Label]] | None = None,
        *,
        standardize: bool = True,
    ) -> None:
        if keys is None:
            keys = {label: [label] for label in statistics.classes}
        self.labels: list[Label] = sorted(keys)
        self._view = statistics.view([keys[label] for label in self.labels])
        # A point near the mean of all rows; the coordinate of a constant feature is its value.
        self.origin: FloatArray = self._view.origin
        # A unit is 1 except for features of extreme size.
        self.unit: FloatArray = np.ldexp(1.0, self._view.units)
        self._scaling: FloatArray | None = None  # factor of each coordinate, or None if all factors are 1
        if not standardize and (self.unit < 1.0).any():
            # Units below 1 become 1, because tiny features are practically constant if they are not
            # standardized, and the inverse square of their unit would overflow.
            self._scaling = np.append(np.minimum(self.unit, 1.0), 1.0)
            self.unit = np.maximum(self.unit, 1.0)
        self._dense: dict[int, FloatArray] = {}
        self._factors: dict[int, FloatArray] = {}
        self.counts = np.array([self._view.count(k) for k in range(len(self.labels))])
        self.sums = np.array([self._view.sums(k) for k in range(len(self.labels))])
        if self._scaling is not None:
            self.sums *= self._scaling[:-1]

    def _scaled(self, lower: FloatArray) -> FloatArray:
        return lower if self._scaling is None else lower * np.outer(self._scaling, self._scaling)

    @property
    def n_features(self) -> int:
        return len(self.origin)

    @property
    def n_rows(self) -> float:
        return float(self.counts.sum())

    @cached_property
    def v(self) -> FloatArray:
        """Sum of the rows ``e`` of each class; the result has one row per class."""
        return np.column_stack([self.sums, -self.counts])

    @cached_property
    def offset(self) -> FloatArray:
        """Mean of all rows relative to the origin."""
        offset: FloatArray = self.sums.sum(axis=0) / self.n_rows
        return offset

    @cached_property
    def scale(self) -> FloatArray:
        """Standard deviations of the features; 1 where a feature is constant."""
        variance = self._view.variance
        # Deviations near the floating-point resolution of the values are rounding errors of constants.
        resolution = np.square(4.0 * _EPS * (self.origin / self.unit + self.offset))
        varies = (variance > 0.0) & (variance > resolution)
        return np.where(varies, np.sqrt(variance), 1.0)

    def regularizer(self, *, standardize: bool, penalize_intercept: bool) -> Regularizer:
        scale = self.scale if standardize else np.maximum(1.0 / self.unit, _MIN_RAW_SCALE)
        center = self.offset if standardize else -self.origin / self.unit
        return Regularizer(scale, center if penalize_intercept else None)

    def matrix(self, index: int) -> FloatArray:
        """Return the lower triangle of ``E_c' E_c`` of one class."""
        if index not in self._dense:
            self._dense[index] = self._scaled(self._view.matrix(index))
        return self._dense[index]

    def factor(self, index: int) -> FloatArray | None:
        """Return a few rows ``F`` with ``F' F = E_c' E_c``, computed from sums, or None if not faster."""
        many_classes = len(self.labels) > _MAX_CLASSES_WITHOUT_FACTORS
        if not many_classes or 3.0 * self.counts[index] >= self.n_features + 1:
            return None
        if index not in self._factors:
            rows = self._view.factor(index, np.append(self.scale, 1.0))
            self._factors[index] = rows if self._scaling is None else rows * self._scaling
        return self._factors[index]

    @cached_property
    def all_rows(self) -> FloatArray:
        """Lower triangle of ``E'E`` of all rows."""
        return self._scaled(self._view.total())

    def total(self, class_factors: FloatArray) -> FloatArray:
        """Return the lower triangle of the sum of all class matrices, each multiplied by its factor."""
        total = np.zeros((self.n_features + 1,) * 2)
        for index, factor in enumerate(class_factors):
            total += factor * self.matrix(index)
        return total

    def quadratics(self, index: int | None, vectors: FloatArray) -> FloatArray:
        """Return ``u' E_c' E_c u`` for each row ``u`` of ``vectors``, for one class or for all rows."""
        rows = None if index is None else self.factor(index)
        if rows is not None:
            result: FloatArray = np.ones(len(rows)) @ np.square(rows @ vectors.T)
            return result
        matrix = self.all_rows if index is None else self.matrix(index)
        return np.einsum("ij,ji->i", vectors, times(matrix, vectors.T))

    def raw(self, solutions: FloatArray) -> FloatArray:
        """Convert the normals of planes from the coordinates of the system to units of the raw features."""
        largest = np.finfo(np.float64).max  # limit of the coefficient of a subnormal feature
        with np.errstate(over="ignore"):
            normals: FloatArray = np.ascontiguousarray(solutions[:, : self.n_features]) / self.unit
        return np.clip(normals, -largest, largest, out=normals)
