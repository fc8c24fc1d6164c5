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

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.proximal.state.moments import Moments
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["Regularizer", "System", "times"]

_EPS = float(np.finfo(np.float64).eps)


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

    Parameters
    ----------
    statistics : ClassStatistics
        What is known of the rows.
    """

    def __init__(self, statistics: ClassStatistics) -> None:
        self.statistics = statistics
        self.labels: list[Label] = statistics.classes
        self.origin = statistics._any_origin() if statistics.origin is not None else self._rows_mean()
        self._moments: list[Moments] = [statistics.moments(label) for label in self.labels]
        self._dense: dict[int, FloatArray] = {}
        self.counts = np.array([moments.count for moments in self._moments])
        self.sums = np.array([moments.sums(self.origin) for moments in self._moments])

    def _rows_mean(self) -> FloatArray:
        """While all classes are kept as rows there is no origin yet; their mean is the best one."""
        rows = np.concatenate([self.statistics.moments(label).rows for label in self.statistics.classes])
        return np.where((rows == rows[0]).all(axis=0), rows[0], rows.mean(axis=0))

    @property
    def n_features(self) -> int:
        return self.statistics.n_features

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
        squares = sum((m.squares(self.origin) for m in self._moments), np.zeros(self.n_features))
        variance = squares / self.n_rows - np.square(self.offset)
        # What rounding makes of a constant: differences near the resolution of the values themselves.
        resolution = 4.0 * _EPS * np.abs(self.origin + self.offset)
        noise = 64.0 * _EPS * np.square(self.offset) + np.square(resolution)
        return np.where(variance > noise, np.sqrt(np.maximum(variance, noise)), 1.0)

    def regularizer(self, *, standardize: bool, penalize_intercept: bool) -> Regularizer:
        scale = self.scale if standardize else np.ones(self.n_features)
        center = self.offset if standardize else -self.origin
        return Regularizer(scale, center if penalize_intercept else None)

    def matrix(self, index: int) -> FloatArray:
        """Lower triangle of ``E_c' E_c`` of one class."""
        if index not in self._dense:
            self._dense[index] = self._moments[index].folded(self.origin, num_threads())
        return self._dense[index]

    def factor(self, index: int) -> tuple[FloatArray, FloatArray] | None:
        """Rows ``E_c`` and their weights if the class is kept as few rows, None if as a matrix."""
        moments = self._moments[index]
        if moments.gram is not None:
            return None
        rows = np.column_stack([moments.rows - self.origin, np.full(moments.n_waiting, -1.0)])
        return rows, moments.weights

    def total(self, class_factors: FloatArray | None = None) -> FloatArray:
        """Lower triangle of the sum of all class matrices, each times its factor."""
        factors = np.ones(len(self.labels)) if class_factors is None else class_factors
        waiting = [i for i, moments in enumerate(self._moments) if moments.n_waiting]
        total = np.zeros((self.n_features + 1,) * 2)
        if waiting:
            rows = np.concatenate([self._moments[i].rows for i in waiting])
            weights = np.concatenate([factors[i] * self._moments[i].weights for i in waiting])
            codes = np.zeros(len(rows), dtype=np.int32)
            _native.add_class_grams(rows, codes, weights, self.origin, [total], num_threads())
        for factor, moments in zip(factors, self._moments, strict=True):
            if moments.gram is not None:
                total += moments.gram if factor == 1.0 else factor * moments.gram
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
