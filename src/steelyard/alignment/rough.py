"""Approximate SVM solver for validation, which trains several SVMs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances

_TOLERANCE = 1e-2  # largest margin violation at which the solver stops, sufficient to compare scores
_OUTSIDE_FACTOR = 3  # multiple of the tolerance by which rows outside the working set may violate the margin
_NEAR_PER_SUPPORT = 2  # number of rows near the margin in the working set, for each support row


class Matrix:
    """Kernel matrix with a reusable buffer for a scaled copy of the matrix or of a submatrix."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.diagonal = values.diagonal().copy()
        self._buffer = np.empty(0)

    def scaled(self, rows: Indices, factor: FloatArray | None) -> FloatArray:
        """Return the kernel matrix of some rows, scaled by factors.

        The next call may overwrite the result.
        """
        n_rows = len(self.diagonal)
        if factor is None and len(rows) == n_rows:
            return self.values
        if self._buffer.size < len(rows) ** 2:
            self.release_buffer()  # frees the old buffer first, so that only one is in memory
            self._buffer = np.empty(len(rows) ** 2)
        submatrix = self._buffer[: len(rows) ** 2].reshape(len(rows), len(rows))
        _native.scaled_part(
            self.values, np.ones(n_rows) if factor is None else factor, rows, submatrix, num_threads()
        )
        return submatrix

    def release_buffer(self) -> None:
        """Free the buffer. The next call of ``scaled`` allocates a new one."""
        self._buffer = np.empty(0)

    def weighted_sum(self, coefficients: FloatArray) -> FloatArray:
        """Return the matrix times a vector. Only rows with a nonzero coefficient are read."""
        rows, result = np.flatnonzero(coefficients), np.empty(len(coefficients))
        _native.weighted_rows(self.values, rows, coefficients[rows], result, num_threads())
        return result


@dataclass(frozen=True)
class Problem:
    """Binary SVM problem: kernel matrix, signs and weights of the rows."""

    matrix: Matrix
    signs: FloatArray
    weights: FloatArray
    input_distances: InputDistances | None = None


@dataclass(frozen=True)
class Solution:
    """Solution of an SVM, with one entry for each row of the problem."""

    dual: FloatArray  # signed multipliers of shape (n_rows,), 0 for rows that were not used in training
    intercept: float
    # Decision values of all rows, shape (n_rows,), including rows that were not used in training.
    scores: FloatArray

    @property
    def n_support(self) -> tuple[int, int]:
        return int((self.dual > 0).sum()), int((self.dual < 0).sum())


class RoughSolver:
    """Approximate solver that trains one SVM on each of several subsets of the rows.

    Training starts from the solution of a similar SVM, on its support rows and the rows near its margin. Rows
    outside the working set that violate their margin are added until there are none. The solutions therefore
    equal the solutions on all rows, up to a tolerance that is small enough to compare scores.
    """

    def __init__(
        self,
        problem: Problem,
        parts: Sequence[Indices],
        similar: Solution,
        C: float,
        tolerance: float = _TOLERANCE,
    ) -> None:
        self._problem = problem
        self._tolerance = tolerance
        self._bounds = np.zeros((len(parts), len(problem.signs)))
        for bounds, rows in zip(self._bounds, parts, strict=True):
            bounds[rows] = C * problem.weights[rows]
        self._dual = np.where(self._bounds > 0, similar.dual, 0.0)
        self._scores = np.tile(similar.scores, (len(parts), 1))

    def solve(self, factors: FloatArray) -> list[Solution]:
        """Train one SVM for each row of ``factors``, which scale the kernel."""
        problem, intercepts, working = self._problem, np.empty(len(factors)), self._working_sets()
        _native.solve_roughly(
            problem.matrix.values,
            problem.signs,
            factors,
            self._bounds,
            working,
            self._dual,
            self._scores,
            intercepts,
            self._tolerance,
            _OUTSIDE_FACTOR * self._tolerance,
            min(num_threads(), _max_parallel_machines(working)),
        )
        return [
            Solution(dual.copy(), float(intercept), scores.copy())
            for dual, intercept, scores in zip(self._dual, intercepts, self._scores, strict=True)
        ]

    def _working_sets(self) -> NDArray[np.bool_]:
        """Return the working set of each SVM: support rows and twice as many rows near the margin."""
        working_sets = self._dual != 0
        all_margins = np.where(self._bounds > 0, self._scores * self._problem.signs, np.inf)
        for working, margins in zip(working_sets, all_margins, strict=True):
            n_near = min(_NEAR_PER_SUPPORT * int(working.sum()), len(margins) - 1)
            working |= margins < np.partition(margins, n_near)[n_near]
        return working_sets


def _max_parallel_machines(working_sets: NDArray[np.bool_]) -> int:
    """Return the number of SVMs that are trained in parallel with at most the memory of one kernel matrix.

    Each SVM stores the kernel matrix of its working set in float32. The size of a working set may double.
    """
    n_rows = working_sets.shape[1]
    largest = max(1, min(2 * int(working_sets.sum(axis=1).max()), n_rows))
    return max(1, 2 * n_rows**2 // largest**2)
