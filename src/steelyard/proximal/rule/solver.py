"""From the linear systems to planes: the rule of the proximal learners.

For class ``j`` against the rest with weights ``sigma`` the plane ``[w; b]`` minimises

    |[w; b]|^2 / C + sum_i sigma_i (y_i - (x_i'w - b))^2,      y_i = +1 for class j, else -1,

so it solves ``(a T + kappa M_j + penalty / C) [w; b] = rhs`` with ``T`` the (weighted) sum of all class
matrices. Equal counts give equal ``a``; what is common to several planes is factored once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, lapack

from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.params import class_factors
from steelyard.proximal.rule.system import Regularizer, System, symmetric

__all__ = ["PlaneEquations", "auc_equations", "margin_equations", "solve", "solve_path"]

# A decomposition into eigenvectors costs about as much as this many Cholesky factors.
_FACTORS_PER_EIGEN = 30
_FEW = 0.6  # of the features: up to so many rows a matrix is taken through its factor
_EPS = float(np.finfo(np.float64).eps)
_REFLECTORS_AT_ONCE = 64  # as many as LAPACK ever applies together


@dataclass
class PlaneEquations:
    """The systems of all planes: ``(a[p] * total + kappa[p] * M[p] + penalty / C) u = rhs[p]``.

    Attributes
    ----------
    classes : list of int
        For each plane the index of its positive class.
    total : ndarray
        Lower triangle shared by all planes.
    a, kappa : ndarray of shape (n_planes,)
        Shares of the common matrix and of the plane's own.
    own : callable
        Lower triangle of the own matrix of a plane.
    own_rows : callable
        The same as few weighted rows, or None.
    rhs : ndarray of shape (n_planes, size)
        Right sides.
    regularizer : Regularizer
        The penalty.
    n_rows : float
        Weight of all rows; rows of weight 1 span no more dimensions than that.
    has_intercept : bool
        Whether the last coordinate is the intercept ``b``; else the systems are for ``w`` alone.
    """

    classes: list[int]
    total: FloatArray
    a: FloatArray
    kappa: FloatArray
    own: Callable[[int], FloatArray]
    own_rows: Callable[[int], tuple[FloatArray, FloatArray] | None]
    rhs: FloatArray
    regularizer: Regularizer
    n_rows: float
    has_intercept: bool = True

    def matrix(self, plane: int) -> FloatArray:
        """Lower triangle of one plane's matrix without the penalty."""
        matrix: FloatArray = self.a[plane] * self.total
        if self.kappa[plane] != 0.0:
            own = self.own(self.classes[plane])
            matrix = blas.daxpy(own.ravel(), matrix.ravel(), a=self.kappa[plane]).reshape(own.shape)
        return matrix

    def penalized(self, matrix: FloatArray, C: float) -> FloatArray:
        if self.has_intercept:
            return self.regularizer.add_to(matrix, 1.0 / C)
        result = matrix.copy()
        result[np.diag_indices_from(result)] += np.square(self.regularizer.scale) / C
        return result


def plane_classes(n_classes: int) -> list[int]:
    """Positive class of each plane: two classes share one plane, whose positive side is the second."""
    return list(range(n_classes)) if n_classes > 2 else [n_classes - 1]


def margin_equations(system: System, class_weight: Any, regularizer: Regularizer) -> PlaneEquations:
    """The systems of the (weighted) least squares planes."""
    classes = plane_classes(len(system.labels))
    factors = None if class_weight == "balanced" else class_factors(class_weight, system.labels)
    if factors is None:  # weights that differ by plane
        shares = system.counts[classes] / system.n_rows
        a, kappa = shares, 1.0 - 2.0 * shares
        rhs = system.v[classes] - shares[:, None] * system.v.sum(axis=0)
        if len(system.labels) == 1:  # no rest: both weights vanish and so does the plane
            a, kappa = np.ones(1), np.zeros(1)
    else:
        a, kappa = np.ones(len(classes)), np.zeros(len(classes))
        rhs = 2.0 * factors[classes, None] * system.v[classes] - factors @ system.v
    total = system.all_rows if factors is None or (factors == 1.0).all() else system.total(factors)
    return PlaneEquations(
        classes, total, a, kappa, system.matrix, system.factor, rhs, regularizer, system.n_rows
    )


def auc_equations(system: System, regularizer: Regularizer) -> PlaneEquations:
    """The systems of the least squared pairwise loss: ``S_+ + S_- + dd'`` and right side ``d``."""
    classes = plane_classes(len(system.labels))
    d = system.n_features
    total = system.all_rows
    counts, sums = system.counts, system.sums
    rest_counts, rest_sums = counts.sum() - counts, sums.sum(axis=0) - sums
    if len(system.labels) == 1:  # nothing to rank against
        zero = np.zeros((d, d))
        return PlaneEquations(
            classes, zero, np.ones(1), np.zeros(1), lambda _: zero, lambda _: None,
            np.zeros((1, d)), regularizer, system.n_rows, has_intercept=False,
        )  # fmt: skip
    mine, rest = sums / counts[:, None], rest_sums / rest_counts[:, None]
    difference = mine - rest

    def pairs(index: int) -> FloatArray:
        own = system.matrix(index)[:d, :d]
        scatter = own / counts[index] + (total[:d, :d] - own) / rest_counts[index]
        means = np.stack([mine[index], rest[index], difference[index]])
        scatter += np.tril((means.T * [-1.0, -1.0, 1.0]) @ means)
        return scatter

    ones, zeros = np.ones(len(classes)), np.zeros(len(classes))
    return PlaneEquations(
        classes, np.zeros((d, d)), zeros, ones, pairs, lambda _: None,
        difference[classes], regularizer, system.n_rows, has_intercept=False,
    )  # fmt: skip


# -- one C ------------------------------------------------------------------------------------------


def solve(equations: PlaneEquations, C: float) -> FloatArray:
    """Solutions of all planes, one a row."""
    solutions = np.empty_like(equations.rhs)
    alone, families = _families(equations)
    if len(families) > _FACTORS_PER_EIGEN and equations.regularizer.center is not None:
        eigen = _Eigen(equations.total, equations)
        for planes in families.values():
            for plane in planes:
                solutions[plane] = eigen.solve(plane, [C])[0]
    else:
        for planes in families.values():
            solutions[planes] = _solve_family(equations, planes, C)
    for plane in alone:
        matrix = equations.penalized(equations.matrix(plane), C)
        solutions[plane] = _solve_definite(matrix, equations.rhs[plane][:, None])[:, 0]
    return solutions


def _families(equations: PlaneEquations) -> tuple[list[int], dict[float, list[int]]]:
    """Planes with a matrix of their own, and planes that differ by few rows from a common matrix."""
    alone: list[int] = []
    families: dict[float, list[int]] = defaultdict(list)
    size = equations.rhs.shape[1]
    for plane, index in enumerate(equations.classes):
        rows = equations.own_rows(index) if equations.kappa[plane] != 0.0 else None
        if equations.kappa[plane] == 0.0 or (
            rows is not None and len(equations.classes) > 1 and 3 * len(rows[0]) < size
        ):
            families[float(equations.a[plane])].append(plane)
        else:
            alone.append(plane)
    return alone, families


def _solve_family(equations: PlaneEquations, planes: list[int], C: float) -> FloatArray:
    """Planes of one ``a``: one Cholesky factor of the common matrix, Woodbury's identity for the rest."""
    common = equations.penalized(equations.a[planes[0]] * equations.total, C)
    rows, weights, starts = _own_rows(equations, planes)
    solved = _solve_definite(common, np.concatenate([equations.rhs[planes], rows]).T).T
    base, spread = solved[: len(planes)], solved[len(planes) :]
    for position, plane in enumerate(planes):
        mine = slice(starts[position], starts[position + 1])
        if mine.stop > mine.start:
            base[position] -= _correction(
                rows[mine], equations.kappa[plane] * weights[mine], spread[mine], base[position]
            )
    return base


def _own_rows(equations: PlaneEquations, planes: list[int]) -> tuple[FloatArray, FloatArray, list[int]]:
    """All own rows of some planes in one matrix, their weights, and where those of each plane begin."""
    rows, weights, starts = [np.empty((0, equations.rhs.shape[1]))], [np.empty(0)], [0]
    for plane in planes:
        own = equations.own_rows(equations.classes[plane]) if equations.kappa[plane] != 0.0 else None
        if own is not None:
            rows.append(own[0])
            weights.append(own[1])
        starts.append(starts[-1] + (0 if own is None else len(own[1])))
    check_fits_memory(
        3 * 8 * equations.rhs.shape[1] * (starts[-1] + len(planes)),
        f"the planes of {len(planes):,} classes",
        "join rare classes, or leave those with a handful of rows out",
    )
    return np.concatenate(rows), np.concatenate(weights), starts


def _correction(
    rows: FloatArray, weights: FloatArray, spread: FloatArray, solution: FloatArray
) -> FloatArray:
    """What Woodbury's identity subtracts: ``spread = inv(B) rows'`` (as rows), ``solution = inv(B) rhs``."""
    small = np.diag(1.0 / weights) + rows @ spread.T
    correction: FloatArray = np.linalg.solve(small, rows @ solution) @ spread
    return correction


def _solve_definite(lower: FloatArray, rhs: FloatArray) -> FloatArray:
    """Solve for a positive definite matrix; where rounding denies that, in the least squares sense."""
    factor, info = lapack.dpotrf(lower.T, lower=0, clean=0)
    if info == 0:
        solution: FloatArray = lapack.dpotrs(factor, rhs, lower=0)[0]
        return solution
    values, vectors = _decomposed(symmetric(lower))
    keep = values > len(lower) * _EPS * values[-1]
    usable = vectors[:, keep]
    result: FloatArray = usable @ ((usable.T @ rhs) / values[keep, None])
    return result


def _decomposed(matrix: FloatArray, driver: str | None = None) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors; a sentence where a damaged file left sums that no rows can have."""
    if not np.isfinite(matrix).all():
        raise DataError(
            "the sums of products are beyond all numbers, so no plane can be found.",
            source="ProximalSVC",
            hint="no rows within the limits make such sums: was the model read from a damaged file?",
        )
    values, vectors = eigh(matrix, driver=driver, check_finite=False)
    return values, vectors


# -- a whole grid of C ------------------------------------------------------------------------------


def _moved(lower: FloatArray, center: FloatArray) -> FloatArray:
    """A lower triangle as it is where the intercept is measured at a center."""
    side, corner = lower[-1, :-1], float(lower[-1, -1])
    half, whole = np.append(side + 0.5 * corner * center, 0.0), np.append(center, 0.0)
    moved: FloatArray = blas.dsyr2(1.0, half, whole, a=lower.T, lower=0).T
    moved[-1, :-1] = side + corner * center
    return moved


class _Eigen:
    """One decomposition of a matrix against the penalty, good for every C.

    ``U' penalty U = I`` and ``U' matrix U = diag(values)``, hence
    ``inv(a * matrix + penalty / C) = U diag(1 / (a * values + 1 / C)) U'``.
    """

    def __init__(self, matrix: FloatArray, equations: PlaneEquations) -> None:
        self.equations = equations
        regularizer = equations.regularizer
        self._free: tuple[FloatArray, float] | None = None  # a free intercept is eliminated first
        if not equations.has_intercept:
            self._scale = sp.diags_array(1.0 / regularizer.scale)
            lower = matrix.copy()
        elif regularizer.center is None:
            column, corner = matrix[-1, :-1].copy(), float(matrix[-1, -1])
            self._free = (column, corner)
            self._scale = sp.diags_array(1.0 / regularizer.scale)
            lower = matrix[:-1, :-1] - np.outer(column, column) / corner
        else:
            self._scale = regularizer.congruence()
            lower = _moved(matrix, regularizer.center)
        d = len(regularizer.scale)
        if (regularizer.scale != 1.0).any():
            lower[:, :d] /= regularizer.scale
            lower[:d] /= regularizer.scale[:, None]
        self._decompose(lower)

    def _decompose(self, lower: FloatArray) -> None:
        """Take apart a matrix whose lower triangle this is; it is not needed any more."""
        self.values, vectors = _decomposed(lower, driver="evd")
        self.U = self._scale @ vectors

    def solve(self, plane: int, Cs: ArrayOfC) -> FloatArray:
        """Solutions of a plane for several C, one a row; own rows come in by Woodbury's identity."""
        equations = self.equations
        kappa = equations.kappa[plane]
        own = equations.own_rows(equations.classes[plane]) if kappa != 0.0 else None
        if own is None:
            return self.solve_rhs(equations.rhs[plane], Cs, equations.a[plane])
        projected = own[0] @ self.U
        right = equations.rhs[plane] @ self.U
        solutions = np.empty((len(Cs), len(right)))
        for i, C in enumerate(Cs):
            inverse = 1.0 / (equations.a[plane] * self.values + 1.0 / C)
            base, spread = inverse * right, projected * inverse
            solutions[i] = base - _correction(projected, kappa * own[1], spread, base)
        result: FloatArray = solutions @ self.U.T
        return result

    def solve_rhs(self, rhs: FloatArray, Cs: ArrayOfC, a: float = 1.0) -> FloatArray:
        """Solutions for one right side and several C when the matrix is the whole system."""
        reduced = rhs
        if self._free is not None:
            column, corner = self._free
            reduced = rhs[:-1] - column * (rhs[-1] / corner)
        solutions = self._reduced_solutions(reduced, Cs, a)
        if self._free is not None:
            intercepts = (rhs[-1] - solutions @ column) / corner
            solutions = np.column_stack([solutions, intercepts])
        return solutions

    def _reduced_solutions(self, rhs: FloatArray, Cs: ArrayOfC, a: float) -> FloatArray:
        inverse = 1.0 / (a * self.values + 1.0 / np.asarray(Cs, dtype=np.float64)[:, None])
        solutions: FloatArray = (inverse * (rhs @ self.U)) @ self.U.T
        return solutions


class _Tridiagonal(_Eigen):
    """The same for one right side, at a third of the cost: ``U' matrix U`` is only made tridiagonal.

    Fewer rows than features leave a matrix ``S = F'F`` of low rank, and a right side ``F'g`` in its range.
    Then ``inv(S + I / C) F'g = F' inv(FF' + I / C) g``, and it is the small ``FF'`` that is made tridiagonal.
    """

    def _decompose(self, lower: FloatArray) -> None:
        few_rows = self.equations.n_rows <= _FEW * len(lower)
        self._factor = _Factor.of(lower) if few_rows else None
        if self._factor is not None:
            lower = self._factor.products()
        work = int(lapack.dsytrd_lwork(len(lower), lower=1)[0])
        reflectors, self._diagonal, self._beside, self._tau, _ = lapack.dsytrd(
            np.asfortranarray(lower), lower=1, lwork=work, overwrite_a=1
        )
        self._reflectors = np.asfortranarray(reflectors[1:, :-1])

    def _reduced_solutions(self, rhs: FloatArray, Cs: ArrayOfC, a: float) -> FloatArray:
        right = self._scale.T @ rhs
        if self._factor is not None:
            right = self._factor.coordinates(right)
        right = self._rotate(right, "T")[:, 0]
        solutions = np.empty((len(right), len(Cs)))
        beside = a * self._beside
        for i, C in enumerate(Cs):
            solutions[:, i] = lapack.dgtsv(beside, a * self._diagonal + 1.0 / C, beside, right)[3]
        solutions = self._rotate(solutions, "N")
        if self._factor is not None:
            solutions = self._factor.combined(solutions)
        result: FloatArray = (self._scale @ solutions).T
        return result

    def _rotate(self, vectors: FloatArray, trans: str) -> FloatArray:
        """Apply the product of the reflectors, which leaves the first coordinate as it is."""
        columns = np.array(vectors.reshape(len(vectors), -1), order="F")
        if len(columns) > 1:
            rest = np.asfortranarray(columns[1:])
            work = _REFLECTORS_AT_ONCE * (rest.shape[1] + _REFLECTORS_AT_ONCE + 1)
            columns[1:] = lapack.dormqr("L", trans, self._reflectors, self._tau, rest, work, overwrite_c=1)[0]
        return columns


class _Factor:
    """Few rows ``F`` with ``F'F`` equal to a matrix of low rank: its Cholesky factor, largest pivot first."""

    def __init__(self, lower: FloatArray, order: NDArray[np.intp]) -> None:
        self._lower = lower  # F' with its rows in `order`
        self._order = order

    @classmethod
    def of(cls, lower: FloatArray) -> _Factor | None:
        """That of a lower triangle, if it has few rows and more than one; it leaves out rounding alone."""
        # A lower triangle, row by row, is an upper one for LAPACK, which takes columns.
        factored, pivots, rank, info = lapack.dpstrf(lower.T, lower=0)
        if info < 0 or not 1 < rank <= _FEW * len(lower):
            return None
        return cls(np.triu(factored[:rank]).T, pivots - 1)

    def products(self) -> FloatArray:
        """``FF'``."""
        products: FloatArray = self._lower.T @ self._lower
        return products

    def coordinates(self, vector: FloatArray) -> FloatArray:
        """``g`` with ``F'g`` equal to a vector of the range."""
        rank = self._lower.shape[1]
        solved: FloatArray = lapack.dtrtrs(self._lower[:rank], vector[self._order[:rank]], lower=1)[0]
        return solved

    def combined(self, columns: FloatArray) -> FloatArray:
        """``F'`` times columns."""
        result = np.empty((len(self._order), columns.shape[1]))
        result[self._order] = self._lower @ columns
        return result


ArrayOfC = list[float] | FloatArray


def solve_path(equations: PlaneEquations, Cs: ArrayOfC) -> FloatArray:
    """Solutions of all planes for every C, of shape (n_Cs, n_planes, size).

    Planes that share a matrix, or differ from the common one by few rows, share one decomposition.
    """
    paths = np.empty((len(Cs), *equations.rhs.shape))
    alone, families = _families(equations)
    shared = [plane for planes in families.values() for plane in planes]
    if equations.regularizer.center is None and (equations.kappa[shared] != 0.0).any():
        alone, shared = sorted(alone + shared), []
    if shared:
        eigen = _Eigen(equations.total, equations)
        for plane in shared:
            paths[:, plane] = eigen.solve(plane, Cs)
    for plane in alone:
        matrix = equations.matrix(plane)
        decomposition = _Tridiagonal if len(matrix) > 4 else _Eigen  # which a single entry needs
        paths[:, plane] = decomposition(matrix, equations).solve_rhs(equations.rhs[plane], Cs)
    return paths


def score_moments(system: System, index: int, u: FloatArray) -> FloatArray:
    """Mean and variance of the scores ``e'u`` of a class and of the rest: [[m+, v+], [m-, v-]]."""
    moments: FloatArray = all_score_moments(system, [index], u[None])[0]
    return moments


def all_score_moments(system: System, classes: list[int], solutions: FloatArray) -> FloatArray:
    """The same for several planes, each with its class: of shape (n_planes, 2, 2)."""
    counts = system.counts[classes]
    own = np.array(
        [system.quadratics(index, u[None])[0] for index, u in zip(classes, solutions, strict=True)]
    )
    sums = np.einsum("ij,ij->i", system.v[classes], solutions)
    counts = np.stack([counts, system.n_rows - counts], axis=1)
    squares = np.stack([own, system.quadratics(None, solutions) - own], axis=1)
    sums = np.stack([sums, solutions @ system.v.sum(axis=0) - sums], axis=1)
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0.0)
    mean_squares = np.divide(squares, counts, out=np.zeros_like(sums), where=counts > 0.0)
    return np.stack([means, np.maximum(mean_squares - np.square(means), 0.0)], axis=2)
