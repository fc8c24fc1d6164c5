"""Section 3.1: the multiple step adds all new rows together, with the same optimum as one by one."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from papers.arrays import Floats
from papers.context import Context
from papers.dcil.common import THESIS
from papers.experiment import experiment
from papers.result import Result, Row, paragraphs
from steelyard.kernels import Kernel
from steelyard.svm import IncrementalSVC

__all__ = ["MultipleStep", "multiple_step"]

_EPS = 1e-10


class MultipleStep:
    """Multiple step of the incremental C-SVM: reference implementation of (3.5) to (3.24).

    The multipliers ``alpha`` move along a piecewise linear path with p from 0 to 1.

    Q_ij = y_i y_j k(x_i, x_j), and g_i = sum_j Q_ij alpha_j + y_i b - 1 is how far row i is beyond its
    margin. Margin vectors M have g = 0, error vectors E have alpha = C, and reserve vectors R have alpha = 0.
    U are the new rows whose multipliers are moving.
    """

    def __init__(self, K: Floats, y: Floats, C: float) -> None:
        self.Q, self.y, self.C = K * np.outer(y, y), y, C
        self.alpha, self.b, self.steps = np.zeros(len(y)), 0.0, 0
        self.margin: list[int] = []
        self.known: list[int] = []

    def g(self) -> Floats:
        """Return the gradient of the dual, including the multiplier of its constraint."""
        result: Floats = self.Q @ self.alpha + self.y * self.b - 1.0
        return result

    def add(self, rows: list[int]) -> None:
        """Add rows, and move multipliers until all rows satisfy the optimality conditions."""
        if not self.known:
            self._start(rows)
            return
        g = self.g()
        moving = [i for i in rows if g[i] < 0.0]
        self.known += rows
        while moving:
            moving = self._move(moving)

    def _start(self, rows: list[int]) -> None:
        """Train LIBSVM on the first rows, because the path needs an initial margin vector."""
        svc = SVC(C=self.C, kernel="precomputed", tol=1e-9)
        part = np.ix_(rows, rows)
        svc.fit(self.Q[part] * np.outer(self.y[rows], self.y[rows]), self.y[rows])
        self.alpha[np.array(rows)[svc.support_]] = np.abs(svc.dual_coef_[0])
        self.b = float(svc.intercept_[0])
        self.known = list(rows)
        inside = (self.alpha > 1e-7) & (self.alpha < self.C - 1e-7)
        self.margin = [i for i in rows if inside[i]]

    def _move(self, moving: list[int]) -> list[int]:
        """Follow one linear piece of the path until a vector changes between M, E, R and U.

        Returns the vectors that are still moving.
        """
        self.steps += 1
        U, M = np.array(moving), np.array(self.margin, dtype=int)
        ahead = self.C - self.alpha[U]  # lambda_U: every multiplier may have to reach C
        beta0, beta = self._sensitivities(U, M, ahead)
        change = np.zeros(len(self.y))
        change[U], change[M] = ahead, beta
        gamma = self.Q @ change + self.y * beta0  # (3.20)
        p, who = self._first_stop(U, M, change, gamma)
        self.alpha = np.clip(self.alpha + p * change, 0.0, self.C)
        self.b += p * beta0
        if who in self.margin:  # the multiplier of this margin vector reached 0 or C
            self.margin.remove(who)
        elif who >= 0:  # this vector reached its margin
            self.alpha[who] = min(self.alpha[who], self.C)
            self.margin.append(who)
        done = {who}
        return [i for i in moving if i not in done and self.alpha[i] < self.C - _EPS and i not in self.margin]

    def _sensitivities(self, U: NDArray[np.intp], M: NDArray[np.intp], ahead: Floats) -> tuple[float, Floats]:
        """Solve (3.18) with the inverse of its matrix, which (3.19) misprints as the transpose."""
        matrix = np.zeros((1 + len(M), 1 + len(M)))
        matrix[0, 1:] = matrix[1:, 0] = self.y[M]
        matrix[1:, 1:] = self.Q[np.ix_(M, M)]
        right = -np.concatenate([[self.y[U] @ ahead], self.Q[np.ix_(M, U)] @ ahead])
        solved = np.linalg.lstsq(matrix, right, rcond=None)[0]
        return float(solved[0]), solved[1:]

    def _first_stop(
        self, U: NDArray[np.intp], M: NDArray[np.intp], change: Floats, gamma: Floats
    ) -> tuple[float, int]:
        """Return the largest step of p by (3.21) to (3.24), and the vector that limits the step, or -1."""
        g = self.g()
        stops = [(1.0, -1)]
        for i in M:
            goal = self.C if change[i] > 0 else 0.0
            if abs(change[i]) > _EPS:
                stops.append(((goal - self.alpha[i]) / change[i], int(i)))
        others = [i for i in self.known if i not in set(M.tolist())]
        for i in others:
            on_the_way = i in U and g[i] < 0 < gamma[i]
            # Reserve vectors have g > 0 and error vectors g < 0. A vector whose g reaches 0 becomes a margin
            # vector.
            at_bound = i not in U and abs(gamma[i]) > _EPS and g[i] * gamma[i] < 0
            if on_the_way or at_bound:
                stops.append((-g[i] / gamma[i], int(i)))
        p, who = min(stop for stop in stops if stop[0] >= 0.0)
        return float(p), who


@experiment("dcil-multiple-step", paper=THESIS, title="Section 3.1: adding rows together or one by one")
def multiple_step(context: Context) -> Result:
    rng = context.rng("multiple")
    rows = []
    for n_new in context.pick((5, 20, 50, 100), (5, 20, 50), (5,)):
        n = 200 + n_new
        y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
        y[:2] = 1.0, -1.0
        X = rng.normal(size=(n, 4)) + 0.8 * (y == 1)[:, None]
        rows += _compared(X, y, n_new)
    return Result(rows, _NOTES)


def _compared(X: Floats, y: Floats, n_new: int) -> list[Row]:
    K, subject, old = Kernel("rbf", gamma=0.25).block(X), f"{n_new} rows to 200", len(y) - n_new
    new = list(range(old, len(y)))
    found = []
    exact = SVC(C=1.0, kernel="precomputed", tol=1e-9).fit(K, y)
    best = np.zeros(len(y))
    best[exact.support_] = np.abs(exact.dual_coef_[0])
    for name, parts in (("together", [new]), ("one by one", [[i] for i in new])):
        path = MultipleStep(K, y, 1.0)
        path.add(list(range(old)))
        started = time.process_time()
        for part in parts:
            path.add(part)
        seconds = time.process_time() - started
        found += _rows(subject, name, path.steps, seconds, path.alpha - best)
    model = IncrementalSVC(1.0, gamma=0.25, tol=1e-10).fit(X[:old], y[:old])
    started = time.process_time()
    model.partial_fit(X[old:], y[old:])
    seconds = time.process_time() - started
    alpha = np.zeros(len(y))
    alpha[model.support_] = np.abs(model.dual_coef_[0])
    steps, _, pairwise_steps = model._state._solver.report(0)
    return [*found, *_rows(subject, "IncrementalSVC", steps + pairwise_steps, seconds, alpha - best)]


def _rows(subject: str, name: str, steps: int, seconds: float, apart: Floats) -> list[Row]:
    return [
        Row(subject, name, "pieces of the path", float(steps), digits=0),
        Row(subject, name, "ms", 1e3 * seconds, timed=True, digits=1),
        Row(subject, name, "largest difference to the optimum", float(np.abs(apart).max()), aim="low"),
    ]


_NOTES = paragraphs(
    """
    A plain NumPy implementation of (3.5) to (3.24) knows 200 rows and adds more, all together or one after
    the other. Both ways end at the optimum that a batch solver finds. Adding rows together takes fewer linear
    pieces of the solution path, since several rows share a piece. IncrementalSVC is the native learner on the
    same rows: it moves several rows that violate their margins along the same path at once, and repeats this
    until no row violates its margin. Its times are those of compiled code and cannot be compared with those
    of the NumPy implementation.
    """
)
