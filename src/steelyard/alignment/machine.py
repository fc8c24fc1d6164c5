"""One side against the other: rounds of training, shifting and reshaping the kernel.

The rarer side has sign +1. How many rounds help, and how far to shift, is judged on rows held out: every
split runs a chain of rounds on its own part of the rows, all splits go through a round together, and their
held-out scores are pooled. Then one chain on all rows repeats the rounds that helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.svm import SVC

from steelyard.alignment.boundary import BoundaryBumps, boundary_shift, make_boundary_bumps, match_pairs
from steelyard.alignment.conformal import SupportBumps, make_support_bumps
from steelyard.alignment.holdout import best_shift, ranking_loss
from steelyard.alignment.view import FloatArray, Indices, InputDistances, Reading, View

__all__ = ["Chain", "Machine", "Problem", "Round", "Settings", "train_machine"]

Bumps = BoundaryBumps | SupportBumps
Split = tuple[Indices, Indices]


@dataclass(frozen=True)
class Settings:
    """How a machine is trained; see :class:`~steelyard.alignment.AlignedSVC`."""

    C: float
    alignment: str | None
    pairs: str
    shift: bool
    max_iter: int
    tol: float
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Problem:
    """Rows by their kernel matrix, with the side and the weight of each."""

    kernel: FloatArray
    signs: FloatArray
    weights: FloatArray
    input_distances: InputDistances | None = None


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
        Support rows of the rarer and of the more frequent side.
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


@dataclass(frozen=True)
class Solution:
    """A trained SVM in terms of all rows."""

    svc: SVC
    dual: FloatArray  # (n_rows,): signed multipliers, 0 for rows that do not count
    intercept: float

    @property
    def n_support(self) -> tuple[int, int]:
        return int((self.dual > 0).sum()), int((self.dual < 0).sum())


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
        kernel = self.problem.kernel
        return View(kernel, kernel.diagonal(), self.factor, self.factor, self.problem.input_distances)

    def train(self, C: float) -> Solution:
        """Train on the current kernel, the one copy of the matrix that is ever made."""
        rows, signs = self.rows, self.problem.signs
        whole = len(rows) == len(signs)
        current = self.problem.kernel.copy() if whole else self.problem.kernel[np.ix_(rows, rows)]
        current *= self.factor[rows]
        current *= self.factor[rows, None]
        svc = SVC(C=C, kernel="precomputed").fit(current, signs[rows], self.problem.weights[rows])
        dual = np.zeros(len(signs))
        dual[rows[svc.support_]] = svc.dual_coef_[0]
        return Solution(svc, dual, float(svc.intercept_[0]))

    def scores(self, solution: Solution) -> FloatArray:
        """Decision values of all rows, also those not trained on."""
        products = self.problem.kernel @ (solution.dual * self.factor)
        return np.asarray(self.factor * products + solution.intercept)

    def transform(self, solution: Solution, beta: float, settings: Settings) -> None:
        """Reshape the kernel around the boundary that this solution has found (equations 3 and 8)."""
        view, reading = self.view(), settings.reading
        rare, other = np.flatnonzero(solution.dual > 0), np.flatnonzero(solution.dual < 0)
        bumps: Bumps
        if settings.alignment == "act":
            bumps = make_support_bumps(view, rare, other, reading)
        else:
            effective = solution.dual * self.factor
            squared_norm = float(effective @ (self.problem.kernel @ effective))
            margin = 2.0 / np.sqrt(squared_norm) if squared_norm > 0 else np.inf
            pairs = match_pairs(view, rare, other, settings.pairs)
            bumps = make_boundary_bumps(view, pairs, beta, margin, reading)
        factor = bumps.factor(view)
        scale = _scale(factor[self.rows], view.self_similarity()[self.rows], reading.normalize)
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


def train_machine(
    problem: Problem, rows: Indices, splits: Sequence[Split], settings: Settings
) -> tuple[Machine, list[Round], SVC]:
    """Train on the given rows, judging by the splits of them."""
    tried, n_kept = _try_rounds(problem, splits, settings) if splits else ([], 0)
    chain = Chain(problem, rows)
    rounds = []
    solution = chain.train(settings.C)
    for number, trial in enumerate(tried):
        kept = number <= n_kept
        n_support = solution.n_support if kept else trial.n_support
        rounds.append(Round(trial.eta, (1.0 + trial.eta) / 2.0, n_support, trial.loss, kept))
        if number < n_kept:
            chain.transform(solution, (1.0 + trial.eta) / 2.0, settings)
            solution = chain.train(settings.C)
    if not tried:
        rounds.append(Round(None, None, solution.n_support, None))
    shift = tried[n_kept].shift if tried and settings.shift else 0.0
    return _compact(chain, solution, shift), rounds, solution.svc


@dataclass(frozen=True)
class _Trial:
    """One round as seen by the held-out rows."""

    eta: float
    loss: float
    shift: float
    n_support: tuple[int, int]


def _try_rounds(problem: Problem, splits: Sequence[Split], settings: Settings) -> tuple[list[_Trial], int]:
    """Rounds until the loss stops falling, and the number of those that helped."""
    chains = [Chain(problem, rows) for rows, _ in splits]
    signs = np.concatenate([problem.signs[held_out] for _, held_out in splits])
    trials: list[_Trial] = []
    n_kept = 0
    for number in range(settings.max_iter + 1):
        solutions = [chain.train(settings.C) for chain in chains]
        scores = np.concatenate(
            [c.scores(s)[out] for c, s, (_, out) in zip(chains, solutions, splits, strict=True)]
        )
        eta, loss = boundary_shift(scores, signs), ranking_loss(scores, signs)
        trials.append(_Trial(eta, loss, best_shift(scores, signs), solutions[0].n_support))
        if number and loss > trials[n_kept].loss - settings.tol:
            break
        n_kept = number
        if number < settings.max_iter:
            for chain, solution in zip(chains, solutions, strict=True):
                chain.transform(solution, (1.0 + eta) / 2.0, settings)
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
