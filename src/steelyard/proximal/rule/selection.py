"""Choosing C from statistics of folds, without a second look at any row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.proximal.rule.solver import PlaneEquations, plane_classes, solve_path
from steelyard.proximal.rule.system import System
from steelyard.proximal.state.part import Part

__all__ = ["C_GRID", "Choice", "choose_C"]

C_GRID: FloatArray = np.logspace(-6.0, 8.0, 29)
_TIE = 1e-9  # losses that differ by less are equal, and the smaller C is taken


@dataclass(frozen=True)
class Choice:
    """A choice of C: what was chosen, by which rule, and from how many rows.

    Choosing costs far more than solving, and where C is best changes slowly. So a choice holds until the
    rows have doubled.
    """

    C: float
    rule: Any
    n_rows: float

    def holds(self, rule: Any, n_rows: float) -> bool:
        """Whether the same rule, for so many rows, takes this C."""
        return bool(rule == self.rule and self.n_rows <= n_rows < 2.0 * self.n_rows)

    def faded(self, factor: float) -> Choice:
        """The choice of rows that weigh less now: it holds until as much has come as is left of them."""
        return replace(self, n_rows=factor * self.n_rows)


def choose_C(
    parts: Iterable[tuple[Part, Part]],
    system: System,
    equations: PlaneEquations,
    make_equations: Callable[[System], PlaneEquations],
) -> float:
    """The C of the grid with the smallest squared error on rows left out.

    A fold counts for no more than it would if all its scores were zero: a row far away from all others (a
    sentinel such as 9999.9) can spoil its fold, but not decide.

    Parameters
    ----------
    parts : iterable of (Part, Part)
        Rows to test, and all others, to learn.
    system, equations : System, PlaneEquations
        Of all rows; they tell the weights and whether errors are counted by row or by pair.
    make_equations : callable
        Makes the equations of a training part.
    """
    losses = np.zeros(len(C_GRID))
    for tested, learned in parts:
        if tested.classes and learned.classes:
            test, part = System(tested), System(learned, standardize=system.standardize)
            paths = solve_path(make_equations(part), C_GRID)
            # A test row beyond all that was learned may have scores beyond all numbers: its fold is spoilt.
            with np.errstate(over="ignore", invalid="ignore"):
                losses += _loss(system, equations, part, paths, test)
    best = losses.min()
    return float(C_GRID[int(np.argmax(losses <= best + _TIE * abs(best)))])


def _loss(
    system: System, equations: PlaneEquations, part: System, paths: FloatArray, test: System
) -> FloatArray:
    """Squared error of the planes of a training part on a test part, for every C."""
    loss = np.zeros(len(paths))
    part_planes = {part.labels[index]: plane for plane, index in enumerate(plane_classes(len(part.labels)))}
    for index in equations.classes:
        label = system.labels[index]
        if label not in part_planes or (len(system.labels) > 2) != (len(part.labels) > 2):
            continue  # a class that stands in one fold only cannot be judged
        scores = _Scores(
            part, paths[:, part_planes[label]], test, label, has_intercept=equations.has_intercept
        )
        rest = system.n_rows - system.counts[index]
        if equations.has_intercept:
            share = system.counts[index] / system.n_rows
            loss += scores.squared_error(1.0 - share, share)
        elif rest > 0.0:
            loss += scores.pair_error() / (system.counts[index] * rest)
    return loss


class _Scores:
    """Counts, sums and sums of squares of the scores of test rows, of a class and of the rest."""

    def __init__(
        self, part: System, solutions: FloatArray, test: System, label: object, *, has_intercept: bool
    ) -> None:
        w = part.raw(solutions)
        b = solutions[:, -1] if has_intercept else np.zeros(len(solutions))
        # The same planes seen from the other origin.
        u = np.column_stack([w * test.unit, b - w @ (test.origin - part.origin)])
        own = [i for i, known in enumerate(test.labels) if known == label]
        self.counts = np.array([test.counts[own].sum(), test.n_rows - test.counts[own].sum()])
        total_sums, total_squares = u @ test.v.sum(axis=0), test.quadratics(None, u)
        sums = sum((u @ test.v[i] for i in own), np.zeros(len(u)))
        squares = sum((test.quadratics(i, u) for i in own), np.zeros(len(u)))
        self.sums = np.stack([sums, total_sums - sums])
        self.squares = np.stack([squares, total_squares - squares])

    def squared_error(self, positive_weight: float, negative_weight: float) -> FloatArray:
        errors = self.counts[:, None] + self.squares - 2.0 * np.array([[1.0], [-1.0]]) * self.sums
        weights = np.array([positive_weight, negative_weight])
        result: FloatArray = np.fmin(weights @ errors, weights @ self.counts)
        return result

    def pair_error(self) -> FloatArray:
        """Squared error summed over all pairs; zero without pairs."""
        if (self.counts <= 0.0).any():
            return np.zeros(self.sums.shape[1])
        means, squares = self.sums / self.counts[:, None], self.squares / self.counts[:, None]
        variances = squares - np.square(means)
        error: FloatArray = np.square(1.0 - means[0] + means[1]) + variances.sum(axis=0)
        return self.counts.prod() * np.fmin(error, 1.0)
