"""One side against the other: rounds of training, shifting and reshaping the kernel.

The rarer side has sign +1. How many rounds help, and how far to shift, is judged on rows held out: every
split runs a chain of rounds on its own part of the rows, all splits go through a round together, and their
held-out scores are pooled. Then one chain on all rows repeats the rounds that helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.svm import SVC

from steelyard._types import FloatArray
from steelyard.alignment.boundary import (
    DEFAULT_COSTS,
    BoundaryBumps,
    Costs,
    boundary_shift,
    make_boundary_bumps,
    match_pairs,
)
from steelyard.alignment.conformal import SupportBumps, make_support_bumps
from steelyard.alignment.holdout import clearly_lower, ranking_losses
from steelyard.alignment.rough import Problem, RoughSolver, Solution
from steelyard.alignment.view import Indices, InputDistances, Reading, View
from steelyard.thresholds import smooth_gmean_threshold

__all__ = ["Chain", "Machine", "Round", "Settings", "best_shift", "silent_machine", "train_machine"]

Bumps = BoundaryBumps | SupportBumps
Split = tuple[Indices, Indices]

_TOLERANCE = 1e-3  # by so much LIBSVM may miss a margin of 1
_NEAR = 0.02  # rows so little inside of their margin may become support rows
_MOST = 0.7  # beyond this part of the rows it is not worth while to leave some out


@dataclass(frozen=True)
class Settings:
    """How a machine is trained; see :class:`~steelyard.alignment.AlignedSVC`."""

    C: float
    alignment: str | None
    pairs: str
    shift: bool
    max_iter: int
    tol: float
    early_stopping: bool = True
    costs: Costs = DEFAULT_COSTS
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Round:
    """What one round did.

    Attributes
    ----------
    eta : float
        Shift of the boundary towards the more frequent side by the paper's cost on held-out rows; None if
        none were held out.
    beta : float
        Where boundary points lie between their two rows: 1/2 in the middle, 1 on the frequent side.
    n_support : tuple of int
        Support rows of the rarer and of the more frequent side: those of the model for the rounds kept, those
        of the first split for one that was not.
    validation_loss : float
        Share of pairs of held-out rows, one of each side, in the wrong order (1 - AUC); None if none were
        held out.
    kept : bool
        Whether the model goes through this round; the last one tried is not if the loss did not fall.
    """

    eta: float | None
    beta: float | None
    n_support: tuple[int, int]
    validation_loss: float | None
    kept: bool = True


class Chain:
    """Rounds on some of the rows; the kernel of each is told by one factor a row."""

    def __init__(self, problem: Problem, rows: Indices) -> None:
        self.problem = problem
        self.rows = rows
        self.bumps: list[Bumps] = []
        self.factors = [np.ones(len(problem.signs))]  # before each round, and now

    @property
    def factor(self) -> FloatArray:
        return self.factors[-1]

    def view(self) -> View:
        matrix = self.problem.matrix
        return View(matrix.values, matrix.diagonal, self.factor, self.factor, self.problem.input_distances)

    def train(self, C: float, near: Solution | None = None) -> tuple[Solution, SVC]:
        """Train on the current kernel.

        A rough solution of the same problem tells which rows may support this one. Training takes these
        alone, then also those that it finds on the wrong side of their margin, until there are none: all
        others are then where they would be with no multiplier, and the solution is that of all rows.
        """
        working = self.rows if near is None else self._near_margin(near, near.dual != 0)
        while True:
            solution, svc = self._solve(working, C)
            if len(working) == len(self.rows):
                return solution, svc
            left_out = np.ones(len(self.factor), dtype=bool)
            left_out[working] = False
            margins = (solution.scores * self.problem.signs)[self.rows]
            if margins[left_out[self.rows]].min() >= 1.0 - _TOLERANCE:
                return solution, svc
            working = self._near_margin(solution, ~left_out)

    def train_again(self, C: float, before: Solution) -> tuple[Solution, SVC]:
        """Train on the current kernel, knowing a solution for the kernel of the round before."""
        solver = RoughSolver(self.problem, [self.rows], before, C, tolerance=_NEAR)
        return self.train(C, solver.solve(self.factor[None])[0])

    def _near_margin(self, solution: Solution, chosen: NDArray[np.bool_]) -> Indices:
        """Rows chosen or near the margin; all of them if that is hardly more or a side would be missing."""
        near = chosen | (solution.scores * self.problem.signs < 1.0 + _NEAR)
        working = self.rows[near[self.rows]]
        sides = self.problem.signs[working]
        few = len(working) <= _MOST * len(self.rows) and (sides > 0).any() and (sides < 0).any()
        return working if few else self.rows

    def _solve(self, rows: Indices, C: float) -> tuple[Solution, SVC]:
        matrix, factor = self.problem.matrix, self.factor
        current = matrix.scaled(rows, factor if self.bumps else None)
        with config_context(assume_finite=True):  # a pass over the matrix that was made before
            svc = SVC(C=C, kernel="precomputed", tol=_TOLERANCE)
            svc.fit(current, self.problem.signs[rows], self.problem.weights[rows])
        dual, intercept = np.zeros(len(factor)), float(svc.intercept_[0])
        dual[rows[svc.support_]] = svc.dual_coef_[0]
        if len(rows) < len(self.rows):
            _count_within(svc, np.searchsorted(self.rows, rows), len(self.rows))
        scores = factor * matrix.weighted_sum(dual * factor) + intercept
        return Solution(dual, intercept, scores), svc

    def transform(self, solution: Solution, beta: float, settings: Settings) -> None:
        """Reshape the kernel around the boundary that this solution has found (equations 3 and 8)."""
        view, reading = self.view(), settings.reading
        rare, other = np.flatnonzero(solution.dual > 0), np.flatnonzero(solution.dual < 0)
        bumps: Bumps
        if settings.alignment == "act":
            bumps = make_support_bumps(view, rare, other, reading)
        else:
            squared_norm = float(solution.dual @ (solution.scores - solution.intercept))
            margin = 2.0 / np.sqrt(squared_norm) if squared_norm > 0 else np.inf
            pairs = match_pairs(view, rare, other, settings.pairs)
            bumps = make_boundary_bumps(view, pairs, beta, margin, reading)
        factor = bumps.factor(view)
        scale = _scale(factor[self.rows], view.self_similarity()[self.rows], reading.normalize)
        self.bumps.append(replace(bumps, scale=scale))
        self.factors.append(self.factor * factor * scale)


def _count_within(svc: SVC, positions: Indices, n_rows: int) -> None:
    """Let an SVM that was trained on some rows speak of them by their positions among all."""
    svc.support_ = positions[svc.support_].astype(svc.support_.dtype)
    svc.shape_fit_ = (n_rows, n_rows)
    svc.n_features_in_ = n_rows


def _scale(factor: FloatArray, similarity: FloatArray, how: str | None) -> float:
    if how is None:
        return 1.0
    if how == "peak":
        return float(1.0 / factor.max())
    after = float((similarity * factor**2).sum())
    return float(np.sqrt(similarity.sum() / after)) if after > 0 else 1.0


@dataclass(frozen=True)
class Machine:
    """What was learned: how rows are carried through the rounds, and the SVM after the last one.

    Attributes
    ----------
    reference : ndarray of shape (n_reference,)
        Which of the rows learned are still needed. All positions and factors count within these.
    bumps : list
        One for each round kept.
    factors : list of ndarray of shape (n_reference,)
        Factors of the reference rows before each round and after the last.
    dual : ndarray of shape (n_reference,)
        Signed multipliers.
    intercept : float
        With the shift in it, if there is one.
    shift : float
        What was added to the SVM's own intercept.
    sign : float
        -1 if the side that is asked for is the more frequent one: answers are then turned round.
    """

    reference: Indices
    bumps: Sequence[Bumps]
    factors: Sequence[FloatArray]
    dual: FloatArray
    intercept: float
    shift: float
    sign: float = 1.0

    def factor(
        self, kernel: FloatArray, diagonal: FloatArray, distances: InputDistances | None = None
    ) -> FloatArray:
        """Product of the factors of all rounds, for rows with these kernel values to the reference rows."""
        result = np.ones(len(diagonal))
        for bumps, reference_factor in zip(self.bumps, self.factors[:-1], strict=True):
            result = result * bumps.factor(View(kernel, diagonal, result, reference_factor, distances))
        return result

    def scores(
        self, kernel: FloatArray, diagonal: FloatArray, distances: InputDistances | None = None
    ) -> FloatArray:
        """Decision values; positive for the side that is asked for."""
        products = kernel @ (self.dual * self.factors[-1])
        scores = self.factor(kernel, diagonal, distances) * products + self.intercept
        return np.asarray(self.sign * scores)


def silent_machine(rows: Indices, side: float) -> Machine:
    """The answer where only one side has rows that count: that side, everywhere."""
    return Machine(rows[:1], [], [np.ones(1)], np.zeros(1), float(side), 0.0)


def train_machine(
    problem: Problem, rows: Indices, splits: Sequence[Split], settings: Settings
) -> tuple[Machine, list[Round], SVC]:
    """Train on the given rows, judging by the splits of them."""
    chain = Chain(problem, rows)
    solution, svc = chain.train(settings.C)
    if not splits:
        return _compact(chain, solution, 0.0), [Round(None, None, solution.n_support, None)], svc
    trials, n_kept = _try_rounds(problem, splits, solution, settings)
    n_support = [solution.n_support]
    for trial in trials[:n_kept]:
        chain.transform(solution, trial.beta, settings)
        solution, svc = chain.train_again(settings.C, solution)
        n_support.append(solution.n_support)
    n_support += [trial.n_support for trial in trials[n_kept + 1 :]]
    rounds = [
        Round(trial.eta, trial.beta, support, trial.loss, number <= n_kept)
        for number, (trial, support) in enumerate(zip(trials, n_support, strict=True))
    ]
    shift = best_shift(*trials[n_kept].held_out) if settings.shift else 0.0
    return _compact(chain, solution, shift), rounds, svc


def best_shift(scores: FloatArray, signs: FloatArray) -> float:
    """What to add to scores so that cutting at 0 has the largest G-mean to be expected."""
    return -smooth_gmean_threshold(scores[signs < 0], scores[signs > 0])


@dataclass(frozen=True)
class _Trial:
    """One round as seen by the held-out rows."""

    eta: float
    losses: FloatArray  # of each held-out row of the rarer side
    held_out: tuple[FloatArray, FloatArray]  # scores and signs of all held-out rows
    n_support: tuple[int, int]  # of the first split

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    @property
    def beta(self) -> float:
        return (1.0 + self.eta) / 2.0


def _try_rounds(
    problem: Problem, splits: Sequence[Split], model: Solution, settings: Settings
) -> tuple[list[_Trial], int]:
    """Rounds until the loss stops falling, or all of them, and the number of those to keep."""
    problem.matrix.give_back()
    parts, held_out = zip(*splits, strict=True)
    chains = [Chain(problem, part) for part in parts]
    solver = RoughSolver(problem, parts, model, settings.C)
    signs = np.concatenate([problem.signs[out] for out in held_out])
    trials: list[_Trial] = []
    n_kept = 0
    for number in range(settings.max_iter + 1):
        solutions = solver.solve(np.array([chain.factor for chain in chains]))
        scores = np.concatenate([s.scores[out] for s, out in zip(solutions, held_out, strict=True)])
        eta, losses = boundary_shift(scores, signs, settings.costs), ranking_losses(scores, signs)
        trials.append(_Trial(eta, losses, (scores, signs), solutions[0].n_support))
        helped = clearly_lower(losses, trials[n_kept].losses, settings.tol)
        if number and settings.early_stopping and not helped:
            break
        n_kept = number
        if number < settings.max_iter:
            for chain, solution in zip(chains, solutions, strict=True):
                chain.transform(solution, trials[-1].beta, settings)
    return trials, n_kept


def _compact(chain: Chain, solution: Solution, shift: float) -> Machine:
    """Keep what prediction needs: support rows and the ends of boundary points."""
    needed = [np.flatnonzero(solution.dual)]
    for bumps in chain.bumps:
        needed += [bumps.rare, bumps.other] if isinstance(bumps, BoundaryBumps) else [bumps.centers]
    reference = np.unique(np.concatenate(needed))
    return Machine(
        reference,
        [_moved(bumps, reference) for bumps in chain.bumps],
        [factor[reference] for factor in chain.factors],
        solution.dual[reference],
        solution.intercept + shift,
        shift,
    )


def _moved(bumps: Bumps, reference: Indices) -> Bumps:
    def position(rows: Indices) -> Indices:
        return np.searchsorted(reference, rows)

    if isinstance(bumps, BoundaryBumps):
        return replace(bumps, rare=position(bumps.rare), other=position(bumps.other))
    return replace(bumps, centers=position(bumps.centers))
