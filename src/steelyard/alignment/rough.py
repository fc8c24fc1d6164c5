"""Machines that only judge: trained roughly, several at once, from where a similar one has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances

__all__ = ["Matrix", "Problem", "RoughSolver", "Solution"]

_TOLERANCE = 1e-2  # by so much a margin of 1 may be missed where scores are only compared
_SLACK = 3  # times as much by rows that were not looked at
_SPARE = 2  # rows to look at, for each that supports a similar machine


class Matrix:
    """A kernel matrix, and room for the one copy of it or of a part of it that training may need."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.diagonal = values.diagonal().copy()
        self._room = np.empty(0)

    def scaled(self, rows: Indices, factor: FloatArray | None) -> FloatArray:
        """Kernel values among some rows, times the factors of both; valid until the next call."""
        n_rows = len(self.diagonal)
        if factor is None and len(rows) == n_rows:
            return self.values
        if self._room.size < len(rows) ** 2:
            self._room = np.empty(0)  # let go first: never two copies at a time
            self._room = np.empty(len(rows) ** 2)
        part = self._room[: len(rows) ** 2].reshape(len(rows), len(rows))
        _native.scaled_part(
            self.values, np.ones(n_rows) if factor is None else factor, rows, part, num_threads()
        )
        return part

    def give_back(self) -> None:
        """Let the room go; the next one who needs it makes it anew."""
        self._room = np.empty(0)

    def weighted_sum(self, coefficients: FloatArray) -> FloatArray:
        """The matrix times a vector, of which only rows with a coefficient are read."""
        rows, result = np.flatnonzero(coefficients), np.empty(len(coefficients))
        _native.weighted_rows(self.values, rows, coefficients[rows], result, num_threads())
        return result


@dataclass(frozen=True)
class Problem:
    """Rows by their kernel matrix, with the side and the weight of each."""

    matrix: Matrix
    signs: FloatArray
    weights: FloatArray
    input_distances: InputDistances | None = None


@dataclass(frozen=True)
class Solution:
    """A trained machine in terms of all rows."""

    dual: FloatArray  # (n_rows,): signed multipliers, 0 for rows that do not count
    intercept: float
    scores: FloatArray  # (n_rows,): decision values of all rows, also those not trained on

    @property
    def n_support(self) -> tuple[int, int]:
        return int((self.dual > 0).sum()), int((self.dual < 0).sum())


class RoughSolver:
    """Trains one machine on each of several parts of the rows.

    Few rows support a machine, and those of a similar one tell which: only rows near the margin are looked
    at. Where a machine then finds others on the wrong side of their margin, these are taken in, and training
    goes on. So the solutions are those of all rows, up to a tolerance that scores can be compared with.
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
        for mine, rows in zip(self._bounds, parts, strict=True):
            mine[rows] = C * problem.weights[rows]
        self._dual = np.where(self._bounds > 0, similar.dual, 0.0)
        self._scores = np.tile(similar.scores, (len(parts), 1))

    def solve(self, factors: FloatArray) -> list[Solution]:
        """Train on the kernels that these factors make, one row for each machine."""
        problem, intercepts, likely = self._problem, np.empty(len(factors)), self._likely()
        _native.solve_roughly(
            problem.matrix.values,
            problem.signs,
            factors,
            self._bounds,
            likely,
            self._dual,
            self._scores,
            intercepts,
            self._tolerance,
            _SLACK * self._tolerance,
            min(num_threads(), _affordable(likely)),
        )
        return [
            Solution(dual.copy(), float(intercept), scores.copy())
            for dual, intercept, scores in zip(self._dual, intercepts, self._scores, strict=True)
        ]

    def _likely(self) -> NDArray[np.bool_]:
        """For each machine the rows that support it so far, and about as many with the smallest margins."""
        supports = self._dual != 0
        margins = np.where(self._bounds > 0, self._scores * self._problem.signs, np.inf)
        for mine, near in zip(supports, margins, strict=True):
            wanted = min(_SPARE * int(mine.sum()), len(near) - 1)
            mine |= near < np.partition(near, wanted)[wanted]
        return supports


def _affordable(likely: NDArray[np.bool_]) -> int:
    """How many machines may be trained at a time, so that together they keep no more than a kernel matrix.

    Each keeps, in single precision, the rows that it looks at, which may become twice as many.
    """
    n_rows = likely.shape[1]
    most = max(1, min(2 * int(likely.sum(axis=1).max()), n_rows))
    return max(1, 2 * n_rows**2 // most**2)
