"""One side against the other: rounds of training, shifting and reshaping the kernel.

The rarer side has sign +1. How many rounds help, and how far to shift, is judged on rows held out: every
split runs a chain of rounds on its own part of the rows, all splits go through a round together, and their
held-out scores are pooled. Then one chain on all rows repeats the rounds that helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

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

_TOLERANCE = 1e-3  # by so much LIBSVM may miss a margin of 1
_ROUGH = 2e-2  # the same where scores are only compared
_NEAR = 0.05  # rows so little inside of their margin may become support rows
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
    reading: Reading = field(default_factory=Reading)


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
    scores: FloatArray  # (n_rows,): decision values of all rows, also those not trained on

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

    def train(self, C: float, near: Solution | None = None) -> Solution:
        """Train on the current kernel.

        A solution of the same kernel and of most of these rows tells which rows may support this one.
        Training takes these alone, then also those that it finds on the wrong side of their margin, until
        there are none: all others are then where they would be with no multiplier, and the solution is that
        of all rows.
        """
        working = self.rows if near is None else self._likely(near)
        while True:
            solution = self._solve(working, self._current(working), C)
            if len(working) == len(self.rows):
                return solution
            margins = solution.scores * self.problem.signs
            margins[working] = np.inf
            if margins[self.rows].min() >= 1.0 - _TOLERANCE:
                return solution
            working = self._unless_most(np.union1d(working, self.rows[margins[self.rows] < 1.0 + _NEAR]))

    def judge(self, C: float) -> Solution:
        """Train on the current kernel as well as it takes to compare scores of other rows."""
        matrix, rows = self.problem.matrix, self.rows
        if self.bumps or len(rows) == len(matrix.diagonal):
            return self._solve(rows, self._current(rows), C, _ROUGH)
        # Rows without weight are left out by LIBSVM: before the first round nothing has to be copied.
        weights = np.zeros(len(matrix.diagonal))
        weights[rows] = self.problem.weights[rows]
        svc = _fit(matrix.values, self.problem.signs, weights, C, _ROUGH)
        return self._solution(svc, _support_among_all(svc, rows))

    def _likely(self, near: Solution) -> Indices:
        """Twice as many rows as supported the near solution, those with the smallest margins."""
        margins = near.scores * self.problem.signs
        margins[near.dual != 0] = -np.inf
        wanted = 2 * int((near.dual != 0).sum())
        if wanted >= len(self.rows):
            return self.rows
        smallest = np.argpartition(margins[self.rows], wanted)[:wanted]
        return self._unless_most(np.sort(self.rows[smallest]))

    def _unless_most(self, working: Indices) -> Indices:
        """Some of the rows to train on, or all of them if that is hardly more or a side would be missing."""
        sides = self.problem.signs[working]
        few = len(working) <= _MOST * len(self.rows) and (sides > 0).any() and (sides < 0).any()
        return working if few else self.rows

    def _current(self, rows: Indices) -> FloatArray:
        return self.problem.matrix.scaled(rows, self.factor if self.bumps else None)

    def _solve(self, rows: Indices, current: FloatArray, C: float, tol: float = _TOLERANCE) -> Solution:
        svc = _fit(current, self.problem.signs[rows], self.problem.weights[rows], C, tol)
        support = rows[svc.support_]
        if len(rows) < len(self.rows):
            _count_within(svc, np.searchsorted(self.rows, rows), len(self.rows))
        return self._solution(svc, support)

    def _solution(self, svc: SVC, support: Indices) -> Solution:
        dual, intercept = np.zeros(len(self.factor)), float(svc.intercept_[0])
        dual[support] = svc.dual_coef_[0]
        products = self.problem.matrix.weighted_sum(dual * self.factor)
        return Solution(svc, dual, intercept, self.factor * products + intercept)

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

    def go_on_from(self, other: Chain, n_rounds: int) -> None:
        """Take over the first rounds of another chain."""
        self.bumps, self.factors = other.bumps[:n_rounds], other.factors[: n_rounds + 1]


def _fit(current: FloatArray, signs: FloatArray, weights: FloatArray, C: float, tol: float) -> SVC:
    with config_context(assume_finite=True):  # a pass over the matrix that was made before
        return SVC(C=C, kernel="precomputed", tol=tol).fit(current, signs, weights)


@cache
def _numbers_skip_weightless_rows() -> bool:
    """Whether an SVM numbers its support rows as if those without weight were not there."""
    svc = _fit(np.eye(3), np.array([-1.0, -1.0, 1.0]), np.array([0.0, 1.0, 1.0]), 1.0, _TOLERANCE)
    return int(svc.support_.max()) == 1


def _support_among_all(svc: SVC, rows: Indices) -> Indices:
    support: Indices = svc.support_.astype(np.intp)
    return rows[support] if _numbers_skip_weightless_rows() else support


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


def train_machine(
    problem: Problem, rows: Indices, splits: Sequence[Split], settings: Settings
) -> tuple[Machine, list[Round], SVC]:
    """Train on the given rows, judging by the splits of them."""
    chain = Chain(problem, rows)
    if not splits:
        solution = chain.train(settings.C)
        return _compact(chain, solution, 0.0), [Round(None, None, solution.n_support, None)], solution.svc
    chains = [Chain(problem, part) for part, _ in splits]
    trials, n_kept = _try_rounds(chains, [held_out for _, held_out in splits], settings)
    if n_kept and len(chains) == 1:
        # One split has nearly all rows: its boundary is as good as that of all, and has been judged itself.
        chain.go_on_from(chains[0], n_kept)
        solution = chain.train(settings.C, trials[n_kept].solution)
    else:
        solution = chain.train(settings.C)
        for trial in trials[:n_kept]:
            chain.transform(solution, trial.beta, settings)
            solution = chain.train(settings.C)
    rounds = [Round(t.eta, t.beta, t.solution.n_support, t.loss, n <= n_kept) for n, t in enumerate(trials)]
    rounds[n_kept] = replace(rounds[n_kept], n_support=solution.n_support)
    shift = trials[n_kept].shift if settings.shift else 0.0
    return _compact(chain, solution, shift), rounds, solution.svc


@dataclass(frozen=True)
class _Trial:
    """One round as seen by the held-out rows."""

    eta: float
    losses: FloatArray  # of each held-out row of the rarer side
    shift: float
    solution: Solution  # of the first split

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
        solutions = [chain.judge(settings.C) for chain in chains]
        scores = np.concatenate([s.scores[out] for s, out in zip(solutions, held_out, strict=True)])
        eta, losses = boundary_shift(scores, signs), ranking_losses(scores, signs)
        trials.append(_Trial(eta, losses, best_shift(scores, signs), solutions[0]))
        if number and not clearly_lower(losses, trials[n_kept].losses, settings.tol):
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
