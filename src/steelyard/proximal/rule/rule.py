"""The rule of the proximal learners: how statistics become a decision function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._labels import all_forgotten_error
from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import ParameterError
from steelyard.params import class_factors
from steelyard.proximal.rule.leave_one_out import moments_left_out
from steelyard.proximal.rule.native_solver import solve_small
from steelyard.proximal.rule.planes import Planes
from steelyard.proximal.rule.selection import choose_C
from steelyard.proximal.rule.solver import (
    PlaneEquations,
    all_score_moments,
    auc_equations,
    margin_equations,
    solve,
    solve_path,
)
from steelyard.proximal.rule.system import System
from steelyard.proximal.rule.thresholds import logistic_slope
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.statistics import ClassStatistics
from steelyard.thresholds import normal_gmean_threshold

__all__ = ["Rule"]


@dataclass(frozen=True)
class Rule:
    """The parameters of :class:`~steelyard.ProximalSVC` that decide what becomes of the statistics."""

    C: float | str
    class_weight: Any
    standardize: bool
    objective: str
    threshold: str
    penalize_intercept: bool

    def planes(self, statistics: ClassStatistics, C: float, labels: list[Label] | None = None) -> Planes:
        """The planes of these statistics for a C; the caller may have the classes already."""
        planes = solve_small(self, statistics, labels or _labels(statistics), C)
        return self.reference_planes(statistics, C) if planes is None else planes

    def reference_planes(self, statistics: ClassStatistics, C: float) -> Planes:
        """The planes by the formulas as they are written; good for every case."""
        system = self._system(statistics)
        equations = self._equations(system)
        return self._finish(system, equations, solve(equations, C), C)

    def chosen_C(
        self, statistics: ClassStatistics, state: FoldedStatistics, folds: Sequence[int] | None = None
    ) -> float:
        """The C in use: the one given, or the best for these statistics by the folds they are the sum of.

        Parameters
        ----------
        statistics : ClassStatistics
            Of all rows of the folds.
        state : FoldedStatistics
            What has the folds.
        folds : sequence of int, optional
            Some of them; all by default.
        """
        if self.C != "auto":
            return float(self.C)
        folds = range(state.n_folds) if folds is None else folds
        if len(folds) == 1:
            raise ParameterError(
                'ProximalSVC: C="auto" needs statistics of folds, which are kept only if C is "auto" from '
                "the first rows on.",
                hint='set C="auto" before fit() or the first partial_fit()',
            )
        system = self._system(statistics)
        parts = ((state.part({fold}), state.part({*folds} - {fold})) for fold in folds)
        return choose_C(parts, system, self._equations(system), self._equations)

    def path(self, statistics: ClassStatistics, Cs: FloatArray) -> list[Planes]:
        """The planes for every C of a grid."""
        system = self._system(statistics)
        equations = self._equations(system)
        return [
            self._finish(system, equations, solutions, C)
            for solutions, C in zip(solve_path(equations, Cs), Cs, strict=True)
        ]

    def _system(self, statistics: ClassStatistics) -> System:
        return System(statistics, _labels(statistics), standardize=self.standardize)

    def _equations(self, system: System) -> PlaneEquations:
        regularizer = system.regularizer(
            standardize=self.standardize, penalize_intercept=self.penalize_intercept
        )
        if self.objective == "auc":
            return auc_equations(system, regularizer)
        return margin_equations(system, self.class_weight, regularizer)

    def _side_weights(self, system: System) -> FloatArray:
        """Weight of a row of the second of two classes, and of one of the first."""
        if self.objective == "auc":
            return 1.0 / system.counts[::-1]
        if self.class_weight == "balanced":
            return system.counts / system.n_rows
        return class_factors(self.class_weight, system.labels)[::-1]

    def _finish(self, system: System, equations: PlaneEquations, solutions: FloatArray, C: float) -> Planes:
        """Intercepts, thresholds and probabilities of planes in the coordinates of the statistics."""
        if not equations.has_intercept:
            solutions = np.column_stack([solutions, np.zeros(len(solutions))])
        scores = all_score_moments(system, equations.classes, solutions)
        positive, negative = scores[:, 0], scores[:, 1]
        if len(system.labels) == 1:
            cut = np.zeros(1)
        elif self.threshold == "gmean":
            left_out = moments_left_out(system, equations, scores, self._side_weights(system), C)
            cut = normal_gmean_threshold(left_out[:, 1], left_out[:, 0])
        elif equations.has_intercept:
            cut = np.zeros(len(solutions))
        else:
            cut = 0.5 * (positive[:, 0] + negative[:, 0])
        coef = system.raw(solutions)
        intercept = -(coef @ system.origin) - solutions[:, -1] - cut
        return Planes(coef, intercept, float(logistic_slope(positive, negative).mean()), C)


def _labels(statistics: ClassStatistics) -> list[Label]:
    labels = statistics.classes
    if not labels:
        raise all_forgotten_error("ProximalSVC")
    return labels
