"""From statistics to the linear systems whose solutions are the planes.

All matrices here are lower triangles in the coordinates of the statistics, ``e = [x - origin, -1]``.
Standardising the rows is the congruence ``[z, -1] = e T``, and a solution for ``e`` under the
regulariser ``inv(T)' inv(T) / C`` is the solution for ``z`` under ``I / C``. So the data stay as they
are and only the regulariser changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.proximal.state.part import Part
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["Regularizer", "System", "symmetric", "times"]

_EPS = float(np.finfo(np.float64).eps)
_LEAST_SCALE = 2.0**-200  # of raw features: beyond their size a penalty is none, as far as numbers tell
_MANY_CLASSES = 30  # with fewer, a matrix for each plane costs little


def symmetric(lower: FloatArray) -> FloatArray:
    """The full matrix of a lower triangle."""
    return lower + np.tril(lower, -1).T


def times(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Product of a symmetric matrix, given by its lower triangle, with one vector or with columns."""
    # The transpose of a row-major lower triangle is a column-major upper one, which BLAS takes as it is.
    if vectors.ndim == 1:
        product: FloatArray = blas.dsymv(1.0, lower.T, vectors, lower=0)
    else:
        product = blas.dsymm(1.0, lower.T, vectors, lower=0)
    return product


@dataclass(frozen=True)
class Regularizer:
    """The penalty on a plane ``[w; b]``: ``|scale * w|^2``, plus ``(b - center'w)^2`` if penalised.

    Attributes
    ----------
    scale : ndarray of shape (n_features,)
        Standard deviations of the features, or ones.
    center : ndarray of shape (n_features,) or None
        Where the intercept is measured, relative to the origin; None leaves it free.
    """

    scale: FloatArray
    center: FloatArray | None

    def add_to(self, lower: FloatArray, factor: float) -> FloatArray:
        """``lower + factor * penalty`` as a new lower triangle."""
        result = lower.copy()
        d = len(self.scale)
        if self.center is not None:
            result[:d, :d] += np.tril(np.outer(factor * self.center, self.center))
            result[d, :d] -= factor * self.center
            result[d, d] += factor
        result[np.arange(d), np.arange(d)] += factor * np.square(self.scale)
        return result

    def congruence(self) -> Any:
        """The matrix ``T`` with ``T' penalty T = I``, a sparse one; only for a penalised intercept."""
        assert self.center is not None
        d = len(self.scale)
        places = np.arange(d + 1)
        values = np.concatenate([1.0 / self.scale, self.center / self.scale, [1.0]])
        rows = np.concatenate([places[:d], np.full(d + 1, d)])
        columns = np.concatenate([places[:d], places])
        return sp.csr_array((values, (rows, columns)), shape=(d + 1, d + 1))


class System:
    """Counts, sums and matrices of all classes, relative to one origin.

    Everything is a function of the exact sums alone, rounded once: equal statistics give equal bits, on
    whatever grid and after whatever history.

    Parameters
    ----------
    statistics : ClassStatistics or Part
        What is known of the rows.
    labels : list, optional
        The classes of the statistics, where the caller has them.
    standardize : bool
        Whether the planes are those of standardised features. Of others only large units are kept: tiny
        features are as good as constant then, and one over the square of their unit would be infinite.

    Attributes
    ----------
    origin : ndarray of shape (n_features,)
        A point near the mean of all rows; the very value of a feature that is constant.
    unit : ndarray of shape (n_features,)
        Coordinates are ``z = (x - origin) / unit``; 1 but for features of extreme size.
    """

    def __init__(
        self,
        statistics: ClassStatistics | Part,
        labels: list[Label] | None = None,
        *,
        standardize: bool = True,
    ) -> None:
        self.labels: list[Label] = statistics.classes if labels is None else labels
        self._view = statistics.view(self.labels)
        self.origin: FloatArray = self._view.origin
        self.unit: FloatArray = np.ldexp(1.0, self._view.units)
        self.standardize = standardize
        self._smaller = None if standardize else self._keep_large_units()
        self._dense: dict[int, FloatArray] = {}
        self._factors: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.counts = np.array([self._view.count(k) for k in range(len(self.labels))])
        self.sums = np.array([self._view.sums(k) for k in range(len(self.labels))])
        if self._smaller is not None:
            self.sums *= self._smaller[:-1]

    def _keep_large_units(self) -> FloatArray | None:
        """What coordinates are multiplied by; None where that is 1 for all."""
        if (self.unit >= 1.0).all():
            return None
        smaller = np.append(np.minimum(self.unit, 1.0), 1.0)
        self.unit = np.maximum(self.unit, 1.0)
        return smaller

    def _made_smaller(self, lower: FloatArray) -> FloatArray:
        return lower if self._smaller is None else lower * np.outer(self._smaller, self._smaller)

    @property
    def n_features(self) -> int:
        return len(self.origin)

    @property
    def n_rows(self) -> float:
        return float(self.counts.sum())

    @cached_property
    def v(self) -> FloatArray:
        """``E_c' 1`` of every class, one a row."""
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
        # Differences near the resolution of the values themselves are those of one constant, computed twice.
        resolution = np.square(4.0 * _EPS * (self.origin / self.unit + self.offset))
        varies = (variance > 0.0) & (variance > resolution)
        return np.where(varies, np.sqrt(variance), 1.0)

    def regularizer(self, *, standardize: bool, penalize_intercept: bool) -> Regularizer:
        scale = self.scale if standardize else np.maximum(1.0 / self.unit, _LEAST_SCALE)
        center = self.offset if standardize else -self.origin / self.unit
        return Regularizer(scale, center if penalize_intercept else None)

    def matrix(self, index: int) -> FloatArray:
        """Lower triangle of ``E_c' E_c`` of one class."""
        if index not in self._dense:
            self._dense[index] = self._made_smaller(self._view.matrix(index))
        return self._dense[index]

    def factor(self, index: int) -> tuple[FloatArray, FloatArray] | None:
        """Few rows ``F`` with ``F' F = E_c' E_c``, and their weights, 1; None where it does not pay.

        They follow from the matrix, so a class that has lost its rows and one that never had more are alike.
        """
        if len(self.labels) <= _MANY_CLASSES or 3.0 * self.counts[index] >= self.n_features + 1:
            return None
        if index not in self._factors:
            rows = self._view.factor(index, np.append(self.scale, 1.0))
            self._factors[index] = rows if self._smaller is None else rows * self._smaller, np.ones(len(rows))
        return self._factors[index]

    def total(self, class_factors: FloatArray | None = None) -> FloatArray:
        """Lower triangle of the sum of all class matrices, each times its factor."""
        if class_factors is None:
            return self._made_smaller(self._view.total())
        total = np.zeros((self.n_features + 1,) * 2)
        for index, factor in enumerate(class_factors):
            total += factor * self.matrix(index)
        return total

    def quadratics(self, index: int | None, vectors: FloatArray) -> FloatArray:
        """``u' E_c' E_c u`` of one class, or of all rows, for each row ``u`` of ``vectors``."""
        factor = None if index is None else self.factor(index)
        if factor is not None:
            rows, weights = factor
            result: FloatArray = weights @ np.square(rows @ vectors.T)
            return result
        matrix = self.all_rows if index is None else self.matrix(index)
        return np.einsum("ij,ji->i", vectors, times(matrix, vectors.T))

    @cached_property
    def all_rows(self) -> FloatArray:
        """Lower triangle of ``E'E`` of all rows."""
        return self.total()

    def raw(self, solutions: FloatArray) -> FloatArray:
        """Normals in units of the raw features, of planes in the coordinates of the system.

        A feature below the smallest normal double may want a weight beyond the largest one; with the largest
        one it hardly tells.
        """
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            normals: FloatArray = np.ascontiguousarray(solutions[:, : self.n_features]) / self.unit
        return np.clip(normals, -largest, largest, out=normals)
