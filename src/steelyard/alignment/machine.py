"""Training rounds for one binary problem: train an SVM, then transform the kernel near its boundary.

The rarer class has sign +1. The result is a :class:`Machine`, the model of one binary problem. Validation on
held-out rows determines the number of rounds and the shift. Every round is run on the training rows of each
split, and the held-out scores of all splits are pooled. Finally, the rounds that reduced the validation loss
are repeated on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.svm import SVC

from steelyard._types import FloatArray
from steelyard.alignment.boundary import boundary_shift, match_pairs
from steelyard.alignment.bumps import (
    Bumps,
    check_number,
    check_positions,
    make_boundary_bumps,
    make_support_bumps,
    restore_bumps,
    state_of_bumps,
)
from steelyard.alignment.rough import Problem, RoughSolver, Solution
from steelyard.alignment.view import Indices, InputDistances, Variant, View
from steelyard.thresholds import smooth_gmean_threshold

if TYPE_CHECKING:
    from steelyard.alignment.classifier import AlignedSVC

Split = tuple[Indices, Indices]

# Minimum number of held-out rows of the rarer class. Splits are added until this number is reached.
_MIN_RARE_ROWS = 60
_TOLERANCE = 1e-3  # stopping tolerance of LIBSVM: largest violation of a margin
_NEAR_MARGIN = 0.02  # rows that are outside the margin by less than this may become support rows
_MAX_WORKING_FRACTION = 0.7  # with a larger working set, training on all rows is as fast


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

    def view(self) -> View:
        matrix = self.problem.matrix
        return View(matrix.values, matrix.diagonal, self.factor, self.factor, self.problem.input_distances)

    def train(self, C: float, near: Solution | None = None) -> tuple[Solution, SVC]:
        """Train an SVM on the current kernel.

        With an approximate solution ``near``, training starts with the working set of rows near its margin.
        Rows outside the working set that violate their margin are added until there are none. All other rows
        then have multiplier 0, so the solution equals the solution on all rows.
        """
        working = self.rows if near is None else self._near_margin(near, near.dual != 0)
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

    def train_again(self, C: float, before: Solution) -> tuple[Solution, SVC]:
        """Train on the current kernel, starting from the solution of the previous round."""
        solver = RoughSolver(self.problem, [self.rows], before, C, tolerance=_NEAR_MARGIN)
        return self.train(C, solver.solve(self.factor[None])[0])

    def _near_margin(self, solution: Solution, included: NDArray[np.bool_]) -> Indices:
        """Return the working set: the included rows, and all rows near the margin.

        Return all rows instead if the working set has most of the rows, or only rows of one class.
        """
        near = included | (solution.scores * self.problem.signs < 1.0 + _NEAR_MARGIN)
        working = self.rows[near[self.rows]]
        signs = self.problem.signs[working]
        small = len(working) <= _MAX_WORKING_FRACTION * len(self.rows)
        return working if small and (signs > 0).any() and (signs < 0).any() else self.rows

    def _solve(self, rows: Indices, C: float) -> tuple[Solution, SVC]:
        matrix, factor = self.problem.matrix, self.factor
        current = matrix.scaled(rows, factor if self.bumps else None)
        with config_context(assume_finite=True):  # the matrix has already been validated
            svc = SVC(C=C, kernel="precomputed", tol=_TOLERANCE)
            svc.fit(current, self.problem.signs[rows], self.problem.weights[rows])
        dual, intercept = np.zeros(len(factor)), float(svc.intercept_[0])
        dual[rows[svc.support_]] = svc.dual_coef_[0]
        if len(rows) < len(self.rows):  # the indices of the SVM become indices of all training rows
            positions = np.searchsorted(self.rows, rows)
            svc.support_ = positions[svc.support_].astype(svc.support_.dtype)
            svc.n_features_in_, svc.shape_fit_ = len(self.rows), (len(self.rows), len(self.rows))
        scores = factor * matrix.weighted_sum(dual * factor) + intercept
        return Solution(dual, intercept, scores), svc

    def transform(self, solution: Solution, beta: float, parameters: AlignedSVC) -> None:
        """Transform the kernel near the decision boundary of a solution (equations 3 and 8 of the paper)."""
        view, variant = self.view(), Variant.from_parameter(parameters.variant)
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
    trials, n_kept = _try_rounds(problem, splits, solution, parameters)
    n_support = [solution.n_support]
    for trial in trials[:n_kept]:
        chain.transform(solution, trial.beta, parameters)
        solution, svc = chain.train_again(parameters.C, solution)
        n_support.append(solution.n_support)
    n_support += [trial.n_support for trial in trials[n_kept + 1 :]]
    rounds = [
        Round(trial.eta, trial.beta, support, trial.loss, number <= n_kept)
        for number, (trial, support) in enumerate(zip(trials, n_support, strict=True))
    ]
    shift = best_shift(*trials[n_kept].held_out) if parameters.shift else 0.0
    return _compact(chain, solution, shift), rounds, svc


def best_shift(scores: FloatArray, signs: FloatArray) -> float:
    """Return the score shift that maximizes the expected G-mean at threshold 0."""
    return -smooth_gmean_threshold(scores[signs < 0], scores[signs > 0])


@dataclass(frozen=True)
class _Trial:
    """Validation results of one round."""

    eta: float
    losses: FloatArray  # one loss per held-out row of the rarer class
    held_out: tuple[FloatArray, FloatArray]  # scores and signs of all held-out rows
    n_support: tuple[int, int]  # numbers of support rows of both classes in the first split

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    @property
    def beta(self) -> float:
        return (1.0 + self.eta) / 2.0


def _try_rounds(
    problem: Problem, splits: Sequence[Split], model: Solution, parameters: AlignedSVC
) -> tuple[list[_Trial], int]:
    """Run at most ``max_iter`` rounds and stop when the validation loss no longer decreases.

    Return the results of all rounds and the number of rounds to keep.
    """
    problem.matrix.release_buffer()
    parts, held_out = zip(*splits, strict=True)
    chains = [Chain(problem, part) for part in parts]
    solver = RoughSolver(problem, parts, model, parameters.C)
    signs = np.concatenate([problem.signs[out] for out in held_out])
    trials: list[_Trial] = []
    n_kept = 0
    for number in range(parameters.max_iter + 1):
        solutions = solver.solve(np.array([chain.factor for chain in chains]))
        scores = np.concatenate([s.scores[out] for s, out in zip(solutions, held_out, strict=True)])
        eta, losses = boundary_shift(scores, signs, parameters.class_costs), ranking_losses(scores, signs)
        trials.append(_Trial(eta, losses, (scores, signs), solutions[0].n_support))
        helped = clearly_lower(losses, trials[n_kept].losses, parameters.tol)
        if number and parameters.early_stopping and not helped:
            break
        n_kept = number
        if number < parameters.max_iter:
            for chain, solution in zip(chains, solutions, strict=True):
                chain.transform(solution, trials[-1].beta, parameters)
    return trials, n_kept


def _compact(chain: Chain, solution: Solution, shift: float) -> Machine:
    """Return a model with only the rows needed for prediction: support rows and centers of bumps."""
    needed = [np.flatnonzero(solution.dual)]
    for bumps in chain.bumps:
        needed += bumps.centers_in_reference()
    reference = np.unique(np.concatenate(needed))
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
