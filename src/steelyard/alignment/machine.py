"""One side against the other: rounds of training, shifting and reshaping the kernel.

The rarer side has sign +1. How many rounds help, and how far to shift, is judged on rows held out: every
split runs a chain of rounds on its own part of the rows, all splits go through a round together, and their
held-out scores are pooled. Then one chain on all rows repeats the rounds that helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn import config_context
from sklearn.svm import SVC

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.alignment.boundary import BoundaryBumps, boundary_shift, make_boundary_bumps, match_pairs
from steelyard.alignment.conformal import SupportBumps, make_support_bumps
from steelyard.alignment.holdout import best_shift, clearly_lower, ranking_losses
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


class Matrix:
    """A kernel matrix, and the one copy of it that training needs, made once and used again and again."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.diagonal = values.diagonal().copy()
        self._copy: FloatArray | None = None

    def scaled(self, rows: Indices, factor: FloatArray | None) -> FloatArray:
        """Kernel values among some rows, times the factors of both; valid until the next call."""
        n_rows = len(self.diagonal)
        if factor is None and len(rows) == n_rows:
            return self.values
        if self._copy is None:
            self._copy = np.empty(n_rows**2)
        part = self._copy[: len(rows) ** 2].reshape(len(rows), len(rows))
        _native.scaled_part(
            self.values, np.ones(n_rows) if factor is None else factor, rows, part, num_threads()
        )
        return part


@dataclass(frozen=True)
class Problem:
    """Rows by their kernel matrix, with the side and the weight of each."""

    matrix: Matrix
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
        Support rows of the rarer and of the more frequent side; for the last round kept those of the model,
        for the others those of the first split.
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
        matrix = self.problem.matrix
        return View(matrix.values, matrix.diagonal, self.factor, self.factor, self.problem.input_distances)

    def train(self, C: float) -> Solution:
        """Train on the current kernel."""
        rows, signs = self.rows, self.problem.signs
        current = self.problem.matrix.scaled(rows, self.factor if self.bumps else None)
        with config_context(assume_finite=True):  # a pass over the matrix that was made before
            svc = SVC(C=C, kernel="precomputed").fit(current, signs[rows], self.problem.weights[rows])
        dual = np.zeros(len(signs))
        dual[rows[svc.support_]] = svc.dual_coef_[0]
        return Solution(svc, dual, float(svc.intercept_[0]))

    def scores(self, solution: Solution) -> FloatArray:
        """Decision values of all rows, also those not trained on."""
        products = self.problem.matrix.values @ (solution.dual * self.factor)
        return np.asarray(self.factor * products + solution.intercept)

    def transform(self, solution: Solution, scores: FloatArray, beta: float, settings: Settings) -> None:
        """Reshape the kernel around the boundary that this solution has found (equations 3 and 8)."""
        view, reading = self.view(), settings.reading
        rare, other = np.flatnonzero(solution.dual > 0), np.flatnonzero(solution.dual < 0)
        bumps: Bumps
        if settings.alignment == "act":
            bumps = make_support_bumps(view, rare, other, reading)
        else:
            squared_norm = float(solution.dual @ (scores - solution.intercept))
            margin = 2.0 / np.sqrt(squared_norm) if squared_norm > 0 else np.inf
            pairs = match_pairs(view, rare, other, settings.pairs)
            bumps = make_boundary_bumps(view, pairs, beta, margin, reading)
        factor = bumps.factor(view)
        scale = _scale(factor[self.rows], view.self_similarity()[self.rows], reading.normalize)
        self.bumps.append(replace(bumps, scale=scale))
        self.factors.append(self.factor * factor * scale)

    def go_on_from(self, other: Chain, n_rounds: int) -> None:
        """Take over the first rounds of another chain."""
        self.bumps, self.factors = other.bumps[:n_rounds], other.factors[: n_rounds + 1]


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
    if not splits:
        chain = Chain(problem, rows)
        solution = chain.train(settings.C)
        return _compact(chain, solution, 0.0), [Round(None, None, solution.n_support, None)], solution.svc
    chains = [Chain(problem, part) for part, _ in splits]
    trials, n_kept = _try_rounds(chains, [held_out for _, held_out in splits], settings)
    chain = Chain(problem, rows)
    if len(chains) == 1:
        # One split has nearly all rows: its boundary is as good as that of all, and has been judged itself.
        chain.go_on_from(chains[0], n_kept)
    else:
        for trial in trials[:n_kept]:
            solution = chain.train(settings.C)
            chain.transform(solution, chain.scores(solution), trial.beta, settings)
    solution = chain.train(settings.C)
    rounds = [Round(t.eta, t.beta, t.n_support, t.loss, n <= n_kept) for n, t in enumerate(trials)]
    rounds[n_kept] = replace(rounds[n_kept], n_support=solution.n_support)
    shift = trials[n_kept].shift if settings.shift else 0.0
    return _compact(chain, solution, shift), rounds, solution.svc


@dataclass(frozen=True)
class _Trial:
    """One round as seen by the held-out rows."""

    eta: float
    losses: FloatArray  # of each held-out row of the rarer side
    shift: float
    n_support: tuple[int, int]

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    @property
    def beta(self) -> float:
        return (1.0 + self.eta) / 2.0


def _try_rounds(
    chains: Sequence[Chain], held_out: Sequence[Indices], settings: Settings
) -> tuple[list[_Trial], int]:
    """Rounds until the loss stops falling, and the number of those that helped."""
    signs = np.concatenate([c.problem.signs[out] for c, out in zip(chains, held_out, strict=True)])
    trials: list[_Trial] = []
    n_kept = 0
    for number in range(settings.max_iter + 1):
        solutions = [chain.train(settings.C) for chain in chains]
        all_scores = [chain.scores(solution) for chain, solution in zip(chains, solutions, strict=True)]
        scores = np.concatenate([own[out] for own, out in zip(all_scores, held_out, strict=True)])
        eta, losses = boundary_shift(scores, signs), ranking_losses(scores, signs)
        trials.append(_Trial(eta, losses, best_shift(scores, signs), solutions[0].n_support))
        if number and not clearly_lower(losses, trials[n_kept].losses, settings.tol):
            break
        n_kept = number
        if number < settings.max_iter:
            for chain, solution, own in zip(chains, solutions, all_scores, strict=True):
                chain.transform(solution, own, trials[-1].beta, settings)
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
