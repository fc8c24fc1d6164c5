"""Training rounds for one binary problem: train an SVM, then transform the kernel near its boundary.

The rarer class has sign +1. Validation on held-out rows determines the number of rounds and the shift: every
round is run on the training rows of each split, and the held-out scores of all splits are pooled. Then the
rounds that reduced the validation loss are repeated on all rows. The result is a :class:`Machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.svm import SVC

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.boundary import (
    Bumps,
    Indices,
    InputDistances,
    Variant,
    View,
    boundary_shift,
    check_number,
    check_positions,
    make_boundary_bumps,
    make_support_bumps,
    match_pairs,
    restore_bumps,
    state_of_bumps,
)
from steelyard.thresholds import smooth_gmean_threshold

if TYPE_CHECKING:
    from steelyard.alignment.classifier import AlignedSVC

Split = tuple[Indices, Indices]

# Minimum number of held-out rows of the rarer class. Splits are added until this number is reached.
_MIN_RARE_ROWS = 60
_TOLERANCE = 1e-3  # stopping tolerance of LIBSVM: largest violation of a margin
_NEAR_MARGIN = 0.02  # rows that are outside the margin by less than this may become support rows
_MAX_WORKING_FRACTION = 0.7  # with a larger working set, training on all rows is as fast
_ROUGH_TOLERANCE = 1e-2  # tolerance of the approximate solver, sufficient to compare scores
_OUTSIDE_FACTOR = 3  # multiple of the tolerance by which rows outside the working set may violate the margin
_NEAR_PER_SUPPORT = 2  # number of rows near the margin in the working set, for each support row


@dataclass(frozen=True)
class Round:
    """Result of one training round.

    Attributes
    ----------
    eta : float
        Boundary shift, towards the more frequent class, that has the lowest cost on held-out rows. It is None
        if there are no held-out rows.
    beta : float
        Position of boundary points between their two rows: 1/2 is the middle, 1 the row of the frequent
        class.
    n_support : tuple of int
        Numbers of support rows of the rarer and of the more frequent class. They are counted in the model
        trained on all rows if the round was kept, otherwise in the model of the first split.
    validation_loss : float
        Fraction of pairs of held-out rows in the wrong order (1 - AUC), or None if there are no held-out
        rows.
    kept : bool
        Whether the model includes this round. A round after which the loss did not fall is not included.
    """

    eta: float | None
    beta: float | None
    n_support: tuple[int, int]
    validation_loss: float | None
    kept: bool = True


@dataclass(frozen=True)
class Problem:
    """Binary SVM problem."""

    kernel: FloatArray  # kernel matrix of all rows, before the first round
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
        tolerance: float = _ROUGH_TOLERANCE,
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
            problem.kernel,
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
    """Return the number of SVMs that are trained in parallel with at most the memory of one kernel matrix."""
    # Each SVM stores the kernel matrix of its working set in float32. The size of a working set may double.
    n_rows = working_sets.shape[1]
    largest = max(1, min(2 * int(working_sets.sum(axis=1).max()), n_rows))
    return max(1, 2 * n_rows**2 // largest**2)


class Chain:
    """Training rounds on a subset of the rows. The transformed kernel is stored as one factor per row."""

    def __init__(self, problem: Problem, rows: Indices) -> None:
        self.problem = problem
        self.rows = rows
        self.bumps: list[Bumps] = []
        # Factors before each round and after the last round.
        self.factors = [np.ones(len(problem.signs))]

    @property
    def factor(self) -> FloatArray:
        return self.factors[-1]

    def train(self, C: float, before: Solution | None = None) -> tuple[Solution, SVC]:
        """Train an SVM on the current kernel, starting from the solution of the previous round if given.

        Training then starts with the working set of rows near the margin of an approximate solution. Rows
        outside the working set that violate their margin are added until there are none. All other rows then
        have multiplier 0, so the solution equals the solution on all rows.
        """
        working = self.rows
        if before is not None:
            solver = RoughSolver(self.problem, [self.rows], before, C, tolerance=_NEAR_MARGIN)
            [near] = solver.solve(self.factor[None])
            working = self._near_margin(near, near.dual != 0)
        while True:
            solution, svc = self._solve(working, C)
            if len(working) == len(self.rows):
                return solution, svc
            outside = np.ones(len(self.factor), dtype=bool)
            outside[working] = False
            margins = (solution.scores * self.problem.signs)[self.rows]
            if margins[outside[self.rows]].min() >= 1.0 - _TOLERANCE:
                return solution, svc
            working = self._near_margin(solution, ~outside)

    def _near_margin(self, solution: Solution, included: NDArray[np.bool_]) -> Indices:
        """Return the included rows and all rows near the margin, or all rows if that saves little."""
        near = included | (solution.scores * self.problem.signs < 1.0 + _NEAR_MARGIN)
        working = self.rows[near[self.rows]]
        signs = self.problem.signs[working]
        small = len(working) <= _MAX_WORKING_FRACTION * len(self.rows)
        return working if small and (signs > 0).any() and (signs < 0).any() else self.rows

    def _solve(self, rows: Indices, C: float) -> tuple[Solution, SVC]:
        problem, factor, n_threads = self.problem, self.factor, num_threads()
        current = problem.kernel
        if self.bumps or len(rows) < len(factor):
            current = np.empty((len(rows), len(rows)))
            _native.scaled_part(problem.kernel, factor, rows, current, n_threads)
        with config_context(assume_finite=True):  # the matrix has already been validated
            svc = SVC(C=C, kernel="precomputed", tol=_TOLERANCE)
            svc.fit(current, problem.signs[rows], problem.weights[rows])
        dual, intercept = np.zeros(len(factor)), float(svc.intercept_[0])
        dual[rows[svc.support_]] = svc.dual_coef_[0]
        if len(rows) < len(self.rows):  # the indices of the SVM become indices of all training rows
            positions = np.searchsorted(self.rows, rows)
            svc.support_ = positions[svc.support_].astype(svc.support_.dtype)
            svc.n_features_in_, svc.shape_fit_ = len(self.rows), (len(self.rows), len(self.rows))
        coefficients, products = dual * factor, np.empty(len(factor))
        support = np.flatnonzero(coefficients)
        _native.weighted_rows(problem.kernel, support, coefficients[support], products, n_threads)
        return Solution(dual, intercept, factor * products + intercept), svc

    def transform(self, solution: Solution, beta: float, parameters: AlignedSVC) -> None:
        """Transform the kernel near the decision boundary of a solution (equations 3 and 8 of the paper)."""
        kernel, variant = self.problem.kernel, Variant.from_parameter(parameters.variant)
        view = View(kernel, kernel.diagonal(), self.factor, self.factor, self.problem.input_distances)
        rare, other = np.flatnonzero(solution.dual > 0), np.flatnonzero(solution.dual < 0)
        bumps: Bumps
        if parameters.alignment == "act":
            bumps = make_support_bumps(view, rare, other, variant)
        else:
            squared_norm = float(solution.dual @ (solution.scores - solution.intercept))
            margin = 2.0 / np.sqrt(squared_norm) if squared_norm > 0 else np.inf
            pairs = match_pairs(view, rare, other, parameters.pairing)
            bumps = make_boundary_bumps(view, pairs, beta, margin, variant)
        factor = bumps.factor(view)
        scale = _scale(factor[self.rows], view.self_similarity()[self.rows], variant.normalize)
        self.bumps.append(replace(bumps, scale=scale))
        self.factors.append(self.factor * factor * scale)


def _scale(factor: FloatArray, similarity: FloatArray, how: str | None) -> float:
    if how is None:
        return 1.0
    if how == "peak":
        return float(1.0 / factor.max())
    after = float((similarity * factor**2).sum())
    return float(np.sqrt(similarity.sum() / after)) if after > 0 else 1.0


@dataclass(frozen=True)
class Machine:
    """Model of one binary problem: the kernel transformations, and the SVM trained after the last one."""

    # Indices of the training rows needed for prediction, to which the other indices and the factors refer.
    reference: Indices
    bumps: Sequence[Bumps]  # transformation of the kernel in each round that was kept
    # Factors of the reference rows before each round and after the last round, shape (n_reference,).
    factors: Sequence[FloatArray]
    dual: FloatArray  # signed dual coefficients of the reference rows, shape (n_reference,)
    intercept: float  # intercept of the SVM plus ``shift``
    shift: float  # shift added to the intercept of the SVM
    # 1, or -1 if the positive class of the problem is the more frequent class; scores are then negated.
    sign: float = 1.0

    def factor(
        self, kernel: FloatArray, diagonal: FloatArray, distances: InputDistances | None = None
    ) -> FloatArray:
        """Return the product of the conformal factors of all rounds for rows with the given kernel values."""
        result = np.ones(len(diagonal))
        for bumps, reference_factor in zip(self.bumps, self.factors[:-1], strict=True):
            result = result * bumps.factor(View(kernel, diagonal, result, reference_factor, distances))
        return result

    def scores(
        self, kernel: FloatArray, diagonal: FloatArray, distances: InputDistances | None = None
    ) -> FloatArray:
        """Return decision values, positive for the positive class of the problem."""
        products = kernel @ (self.dual * self.factors[-1])
        scores = self.factor(kernel, diagonal, distances) * products + self.intercept
        return np.asarray(self.sign * scores)

    def to_tree(self) -> dict[str, Any]:
        """Return the model as a tree of arrays and plain values for a model file."""
        bumps = [state_of_bumps(one) for one in self.bumps]
        return {**vars(self), "bumps": bumps, "factors": list(self.factors)}

    @classmethod
    def from_tree(cls, tree: dict[str, Any], n_reference: int) -> Machine:
        """Restore the model from the result of :meth:`to_tree`. Raise ValueError if it is not valid."""
        n_own = len(tree["reference"])
        machine = cls(**{**tree, "bumps": [restore_bumps(part, n_own) for part in tree["bumps"]]})
        check_positions(machine.reference, n_reference)
        arrays = [machine.dual, *machine.factors]
        if len(machine.factors) != len(machine.bumps) + 1 or any(
            array.shape != (n_own,) or array.dtype != np.float64 for array in arrays
        ):
            raise ValueError("the arrays of a binary model do not match in shape")
        for name in ("intercept", "shift", "sign"):
            check_number(getattr(machine, name), name)
        return machine


def train_machine(
    problem: Problem, rows: Indices, splits: Sequence[Split], parameters: AlignedSVC
) -> tuple[Machine, list[Round], SVC]:
    """Train the model of a binary problem on ``rows``. ``splits`` of these rows are used for validation."""
    chain = Chain(problem, rows)
    solution, svc = chain.train(parameters.C)
    if not splits:
        return _compact(chain, solution, 0.0), [Round(None, None, solution.n_support, None)], svc
    rounds, held_out = _try_rounds(problem, splits, solution, parameters)
    beta: Any = None  # position of the boundary points that the previous round found
    for number, tried in enumerate(rounds):
        if not tried.kept:
            break
        if number:
            chain.transform(solution, beta, parameters)
            solution, svc = chain.train(parameters.C, solution)
        rounds[number], beta = replace(tried, n_support=solution.n_support), tried.beta
    shift = best_shift(*held_out) if parameters.shift else 0.0
    return _compact(chain, solution, shift), rounds, svc


def best_shift(scores: FloatArray, signs: FloatArray) -> float:
    """Return the score shift that maximizes the expected G-mean at threshold 0."""
    return -smooth_gmean_threshold(scores[signs < 0], scores[signs > 0])


def _try_rounds(
    problem: Problem, splits: Sequence[Split], model: Solution, parameters: AlignedSVC
) -> tuple[list[Round], tuple[FloatArray, FloatArray]]:
    """Return the results of rounds, and the held-out scores and signs of the last round to keep."""
    parts, held_out = zip(*splits, strict=True)
    chains = [Chain(problem, part) for part in parts]
    solver = RoughSolver(problem, parts, model, parameters.C)
    signs = np.concatenate([problem.signs[out] for out in held_out])
    rounds: list[Round] = []
    lowest: FloatArray | None = None  # losses of the last round to keep
    for number in range(parameters.max_iter + 1):
        solutions = solver.solve(np.array([chain.factor for chain in chains]))
        scores = np.concatenate([s.scores[out] for s, out in zip(solutions, held_out, strict=True)])
        eta, losses = boundary_shift(scores, signs, parameters.class_costs), ranking_losses(scores, signs)
        keep = (
            lowest is None or not parameters.early_stopping or clearly_lower(losses, lowest, parameters.tol)
        )
        beta = (1.0 + eta) / 2.0
        rounds.append(Round(eta, beta, solutions[0].n_support, float(losses.mean()), keep))
        if not keep:
            break
        kept, lowest = scores, losses
        if number < parameters.max_iter:
            for chain, solution in zip(chains, solutions, strict=True):
                chain.transform(solution, beta, parameters)
    return rounds, (kept, signs)


def _compact(chain: Chain, solution: Solution, shift: float) -> Machine:
    """Return a model with only the rows needed for prediction: support rows and centers of bumps."""
    centers = [getattr(bumps, name) for bumps in chain.bumps for name in bumps.positions]
    reference = np.unique(np.concatenate([np.flatnonzero(solution.dual), *centers]))
    return Machine(
        reference,
        [bumps.renumbered(reference) for bumps in chain.bumps],
        [factor[reference] for factor in chain.factors],
        solution.dual[reference],
        solution.intercept + shift,
        shift,
    )


# -- validation on held-out rows ------------------------------------------------------------------------


def deal_splits(
    signs: FloatArray, rows: Indices, fraction: float, random: Any
) -> list[tuple[Indices, Indices]]:
    """Return stratified splits as pairs (training rows, held-out rows).

    The first split holds out ``fraction`` of ``rows``. If it holds out fewer than 60 rows of the rarer class,
    disjoint splits are added until 60 are held out. The list is empty if a class has only one row.
    """
    sides = [rows[signs[rows] == sign] for sign in (1.0, -1.0)]
    n_rare = min(map(len, sides))
    if n_rare < 2:
        return []
    n_folds = min(n_rare, max(2, round(min(1.0 / fraction, n_rare))))
    folds = np.full(len(signs), -1)
    for side in sides:
        shuffled = side if random is None else random.permutation(side)
        folds[shuffled] = np.arange(len(side)) % n_folds
    n_splits = min(n_folds, -(-_MIN_RARE_ROWS * n_folds // n_rare))
    return [(rows[folds[rows] != fold], rows[folds[rows] == fold]) for fold in range(n_splits)]


def ranking_losses(scores: FloatArray, signs: FloatArray) -> FloatArray:
    """Return the fraction of rows of the other class with a higher score, for each row of the rarer class.

    Ties count half. The mean of the result is the fraction of pairs in the wrong order, 1 - AUC.
    """
    rare, other = scores[signs > 0], np.sort(scores[signs < 0])
    higher = len(other) - np.searchsorted(other, rare, side="right")
    equal = np.searchsorted(other, rare, side="right") - np.searchsorted(other, rare, side="left")
    return np.asarray((higher + 0.5 * equal) / len(other))


def clearly_lower(losses: FloatArray, before: FloatArray, tol: float) -> bool:
    """Return whether the mean loss is lower than before, by at least ``tol`` and by its standard error."""
    fall = before - losses
    return bool(fall.mean() >= max(tol, fall.std() / np.sqrt(len(fall))) and fall.mean() > 0.0)
