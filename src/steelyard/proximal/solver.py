"""Linear systems of the planes, and their LAPACK solver.

All matrices are lower triangles in the coordinates of the statistics, ``e = [x - origin, -1]``.
A standardized row ``z`` is ``[z, -1] = e T`` with a matrix ``T``. Solving for ``e`` with the regularizer
``inv(T)' inv(T) / C`` is equivalent to solving for ``z`` with ``I / C``. So standardization only changes the
regularizer.

For class ``j`` against the rest with weights ``sigma`` the plane ``[w; b]`` minimizes

    |[w; b]|^2 / C + sum_i sigma_i (y_i - (x_i'w - b))^2,      y_i = +1 for class j, else -1,

so it solves ``(a M + kappa M_j + penalty / C) [w; b] = rhs``. ``M_j`` is the matrix of class ``j``, ``M`` the
(weighted) sum of all class matrices, and the numbers ``a`` and ``kappa`` depend on the weights. Classes with
equal counts have equal ``a``; planes with a common matrix share its Cholesky factor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas, eigh, lapack

from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.params import class_factors
from steelyard.proximal.statistics import ClassStatistics

_FACTORS_PER_EIGEN = 30  # cost of an eigendecomposition in units of one Cholesky factorization
_MAX_RANK_FRACTION = 0.6  # a low-rank factor is used if n_rows <= 0.6 * n_features
_EPS = float(np.finfo(np.float64).eps)
_REFLECTOR_BLOCK = 64  # largest block of Householder reflectors in LAPACK
# Minimum scale of a raw feature; a smaller scale would have no effect in floating-point arithmetic.
_MIN_RAW_SCALE = 2.0**-200
_MAX_CLASSES_WITHOUT_FACTORS = 30  # up to this number of classes, one matrix per plane is cheap

ArrayOfC = list[float] | FloatArray


def symmetric(lower: FloatArray) -> FloatArray:
    """Return the full matrix of a lower triangle."""
    return lower + np.tril(lower, -1).T


def times(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the product of a symmetric matrix, given by its lower triangle, with a vector or columns."""
    # BLAS reads a row-major lower triangle as a column-major upper triangle, without a copy.
    if vectors.ndim == 1:
        product: FloatArray = blas.dsymv(1.0, lower.T, vectors, lower=0)
    else:
        product = blas.dsymm(1.0, lower.T, vectors, lower=0)
    return product


@dataclass(frozen=True)
class Regularizer:
    """Penalty on a plane ``[w; b]``: ``|scale * w|^2``, plus ``(b - center'w)^2`` if ``b`` is penalized."""

    scale: FloatArray  # standard deviations of the features; 1 / unit if they are not standardized
    center: FloatArray | None  # point relative to the origin, or None if the intercept ``b`` is not penalized

    def add_to(self, lower: FloatArray, factor: float) -> FloatArray:
        """Return ``lower + factor * penalty`` as a new lower triangle."""
        result = lower.copy()
        d = len(self.scale)
        if self.center is not None:
            result[:d, :d] += np.tril(np.outer(factor * self.center, self.center))
            result[d, :d] -= factor * self.center
            result[d, d] += factor
        result[np.arange(d), np.arange(d)] += factor * np.square(self.scale)
        return result

    def congruence(self) -> Any:
        """Return the sparse matrix ``T`` with ``T' penalty T = I``. The intercept must be penalized."""
        assert self.center is not None
        d = len(self.scale)
        places = np.arange(d + 1)
        values = np.concatenate([1.0 / self.scale, self.center / self.scale, [1.0]])
        rows = np.concatenate([places[:d], np.full(d + 1, d)])
        columns = np.concatenate([places[:d], places])
        return sp.csr_array((values, (rows, columns)), shape=(d + 1, d + 1))


class System:
    """Counts, sums and matrices of all classes in the coordinates ``(x - origin) / unit``, rounded correctly.

    Statistics of the same rows give bit-identical values with every quantizer and after every history.
    """

    def __init__(self, statistics: ClassStatistics, *, standardize: bool = True) -> None:
        self.labels: list[Label] = statistics.classes
        self._view = statistics.view()
        # A point near the mean of all rows; the coordinate of a constant feature is its value.
        self.origin: FloatArray = self._view.origin
        # A unit is 1 except for features of extreme size.
        self.unit: FloatArray = np.ldexp(1.0, self._view.units)
        self._scaling: FloatArray | None = None  # factor of each coordinate, or None if all factors are 1
        if not standardize and (self.unit < 1.0).any():
            # Units below 1 become 1, because tiny features are practically constant if they are not
            # standardized, and the inverse square of their unit would overflow.
            self._scaling = np.append(np.minimum(self.unit, 1.0), 1.0)
            self.unit = np.maximum(self.unit, 1.0)
        self._dense: dict[int, FloatArray] = {}
        self._factors: dict[int, FloatArray] = {}
        self.counts = np.array([self._view.count(k) for k in range(len(self.labels))])
        self.sums = np.array([self._view.sums(k) for k in range(len(self.labels))])
        if self._scaling is not None:
            self.sums *= self._scaling[:-1]

    def _scaled(self, lower: FloatArray) -> FloatArray:
        return lower if self._scaling is None else lower * np.outer(self._scaling, self._scaling)

    @property
    def n_features(self) -> int:
        return len(self.origin)

    @property
    def n_rows(self) -> float:
        return float(self.counts.sum())

    @cached_property
    def v(self) -> FloatArray:
        """Sum of the rows ``e`` of each class; the result has one row per class."""
        return np.column_stack([self.sums, -self.counts])

    @cached_property
    def offset(self) -> FloatArray:
        """Mean of all rows relative to the origin."""
        return self.sums.sum(axis=0) / self.n_rows

    @cached_property
    def scale(self) -> FloatArray:
        """Standard deviations of the features; 1 where a feature is constant."""
        variance = self._view.variance
        # Deviations near the floating-point resolution of the values are rounding errors of constants.
        resolution = np.square(4.0 * _EPS * (self.origin / self.unit + self.offset))
        varies = (variance > 0.0) & (variance > resolution)
        return np.where(varies, np.sqrt(variance), 1.0)

    def regularizer(self, *, standardize: bool, penalize_intercept: bool) -> Regularizer:
        scale = self.scale if standardize else np.maximum(1.0 / self.unit, _MIN_RAW_SCALE)
        center = self.offset if standardize else -self.origin / self.unit
        return Regularizer(scale, center if penalize_intercept else None)

    def matrix(self, index: int) -> FloatArray:
        """Return the lower triangle of ``E_c' E_c`` of one class."""
        if index not in self._dense:
            self._dense[index] = self._scaled(self._view.matrix(index))
        return self._dense[index]

    def factor(self, index: int) -> FloatArray | None:
        """Return a few rows ``F`` with ``F' F = E_c' E_c``, computed from sums, or None if not faster."""
        many_classes = len(self.labels) > _MAX_CLASSES_WITHOUT_FACTORS
        if not many_classes or 3.0 * self.counts[index] >= self.n_features + 1:
            return None
        if index not in self._factors:
            rows = self._view.factor(index, np.append(self.scale, 1.0))
            self._factors[index] = rows if self._scaling is None else rows * self._scaling
        return self._factors[index]

    @cached_property
    def all_rows(self) -> FloatArray:
        """Lower triangle of ``E'E`` of all rows."""
        return self._scaled(self._view.total())

    def total(self, class_factors: FloatArray) -> FloatArray:
        """Return the lower triangle of the sum of all class matrices, each multiplied by its factor."""
        total = np.zeros((self.n_features + 1,) * 2)
        for index, factor in enumerate(class_factors):
            total += factor * self.matrix(index)
        return total

    def quadratics(self, index: int | None, vectors: FloatArray) -> FloatArray:
        """Return ``u' E_c' E_c u`` for each row ``u`` of ``vectors``, for one class or for all rows."""
        rows = None if index is None else self.factor(index)
        if rows is not None:
            return np.ones(len(rows)) @ np.square(rows @ vectors.T)
        matrix = self.all_rows if index is None else self.matrix(index)
        return np.einsum("ij,ji->i", vectors, times(matrix, vectors.T))

    def raw(self, solutions: FloatArray) -> FloatArray:
        """Convert the normals of planes from the coordinates of the system to units of the raw features."""
        largest = np.finfo(np.float64).max  # limit of the coefficient of a subnormal feature
        with np.errstate(over="ignore"):
            normals: FloatArray = np.ascontiguousarray(solutions[:, : self.n_features]) / self.unit
        return np.clip(normals, -largest, largest, out=normals)


@dataclass
class PlaneEquations:
    """Linear systems of all planes: ``(a[p] total + kappa[p] own(classes[p]) + penalty / C) u = rhs[p]``."""

    classes: list[int]  # index of the positive class of each plane
    total: FloatArray  # lower triangle of the matrix that all planes share
    a: FloatArray  # coefficient of ``total`` for each plane
    kappa: FloatArray  # coefficient of the class matrix ``own`` for each plane
    own: Callable[[int], FloatArray]  # function that returns the lower triangle of the matrix of one class
    # Function that returns a few rows with the Gram matrix ``own``, or None if many are needed.
    own_rows: Callable[[int], FloatArray | None]
    rhs: FloatArray  # right-hand sides, of shape (n_planes, size)
    regularizer: Regularizer
    n_rows: float  # total weight of all rows, which bounds the rank if all weights are 1
    has_intercept: bool = True  # whether the last coordinate is the intercept

    def factor(self, plane: int) -> FloatArray | None:
        """Return ``own_rows`` of one plane, or None if the plane does not need them."""
        return self.own_rows(self.classes[plane]) if self.kappa[plane] != 0.0 else None

    def matrix(self, plane: int) -> FloatArray:
        """Return the lower triangle of one plane's matrix without the penalty."""
        matrix: FloatArray = self.a[plane] * self.total
        if self.kappa[plane] != 0.0:
            own = self.own(self.classes[plane])
            matrix = blas.daxpy(own.ravel(), matrix.ravel(), a=self.kappa[plane]).reshape(own.shape)
        return matrix

    def penalized(self, matrix: FloatArray, C: float) -> FloatArray:
        """Return ``matrix + penalty / C``."""
        if self.has_intercept:
            return self.regularizer.add_to(matrix, 1.0 / C)
        result = matrix.copy()
        result[np.diag_indices_from(result)] += np.square(self.regularizer.scale) / C
        return result


def plane_classes(n_classes: int) -> list[int]:
    """Return the positive class of each plane. Two classes have one plane, that of the second class."""
    return list(range(n_classes)) if n_classes > 2 else [n_classes - 1]


def margin_equations(system: System, class_weight: Any, regularizer: Regularizer) -> PlaneEquations:
    """Return the linear systems of planes fitted by (weighted) least squares."""
    classes = plane_classes(len(system.labels))
    factors = None if class_weight == "balanced" else class_factors(class_weight, system.labels)
    if factors is None:  # balanced weights differ between planes
        shares = system.counts[classes] / system.n_rows
        a, kappa = shares, 1.0 - 2.0 * shares
        rhs = system.v[classes] - shares[:, None] * system.v.sum(axis=0)
        if len(system.labels) == 1:  # with a single class, both weights and the plane are zero
            a, kappa = np.ones(1), np.zeros(1)
    else:
        a, kappa = np.ones(len(classes)), np.zeros(len(classes))
        rhs = 2.0 * factors[classes, None] * system.v[classes] - factors @ system.v
    total = system.all_rows if factors is None or (factors == 1.0).all() else system.total(factors)
    return PlaneEquations(
        classes, total, a, kappa, system.matrix, system.factor, rhs, regularizer, system.n_rows
    )


def auc_equations(system: System, regularizer: Regularizer) -> PlaneEquations:
    """Return the linear systems of the squared pairwise loss, with the matrix ``S_+ + S_- + dd'``.

    ``S`` are the covariance matrices of the class and of the rest. The right-hand side ``d`` is the
    difference of their means.
    """
    classes = plane_classes(len(system.labels))
    d = system.n_features
    total = system.all_rows
    counts, sums = system.counts, system.sums
    rest_counts, rest_sums = counts.sum() - counts, sums.sum(axis=0) - sums
    if len(system.labels) == 1:  # with a single class there are no pairs to rank
        zero = np.zeros((d, d))
        return PlaneEquations(
            classes, zero, np.ones(1), np.zeros(1), lambda _: zero, lambda _: None,
            np.zeros((1, d)), regularizer, system.n_rows, has_intercept=False,
        )  # fmt: skip
    own_means, rest_means = sums / counts[:, None], rest_sums / rest_counts[:, None]
    difference = own_means - rest_means

    def pairs(index: int) -> FloatArray:
        own = system.matrix(index)[:d, :d]
        scatter = own / counts[index] + (total[:d, :d] - own) / rest_counts[index]
        means = np.stack([own_means[index], rest_means[index], difference[index]])
        scatter += np.tril((means.T * [-1.0, -1.0, 1.0]) @ means)
        return scatter

    ones, zeros = np.ones(len(classes)), np.zeros(len(classes))
    return PlaneEquations(
        classes, np.zeros((d, d)), zeros, ones, pairs, lambda _: None,
        difference[classes], regularizer, system.n_rows, has_intercept=False,
    )  # fmt: skip


# -- solutions for one value of C --------------------------------------------------------------------


def solve(equations: PlaneEquations, C: float) -> FloatArray:
    """Return the solutions of all planes, one per row."""
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
    """Return the planes that need their own matrix, and the other planes grouped by coefficient ``a``."""
    alone: list[int] = []
    families: dict[float, list[int]] = defaultdict(list)
    size = equations.rhs.shape[1]
    for plane in range(len(equations.classes)):
        rows = equations.factor(plane)
        if equations.kappa[plane] == 0.0 or (
            rows is not None and len(equations.classes) > 1 and 3 * len(rows) < size
        ):
            families[float(equations.a[plane])].append(plane)
        else:
            alone.append(plane)
    return alone, families


def _solve_family(equations: PlaneEquations, planes: list[int], C: float) -> FloatArray:
    """Solve all planes with the same coefficient ``a`` by one Cholesky factor and the Woodbury identity."""
    common = equations.penalized(equations.a[planes[0]] * equations.total, C)
    own_rows = {plane: rows for plane in planes if (rows := equations.factor(plane)) is not None}
    sides = [equations.rhs[planes], *own_rows.values()]
    check_fits_memory(
        3 * 8 * equations.rhs.shape[1] * sum(map(len, sides)),
        f"the planes of {len(planes):,} classes",
        "merge rare classes, or remove classes with few rows",
    )
    solved = _solve_definite(common, np.concatenate(sides).T).T
    base, end = solved[: len(planes)], len(planes)
    for position, plane in enumerate(planes):
        if plane in own_rows:
            rows, begin = own_rows[plane], end
            end = begin + len(rows)
            base[position] -= _correction(rows, equations.kappa[plane], solved[begin:end], base[position])
    return base


def _correction(rows: FloatArray, kappa: float, spread: FloatArray, solution: FloatArray) -> FloatArray:
    """Return the term that the Woodbury identity subtracts from ``solution = inv(B) rhs``.

    ``B`` is the matrix of the family, and the rows of ``spread`` are the columns of ``inv(B) rows'``.
    """
    small = np.diag(np.full(len(rows), 1.0 / kappa)) + rows @ spread.T
    return np.linalg.solve(small, rows @ solution) @ spread


def _solve_definite(lower: FloatArray, rhs: FloatArray) -> FloatArray:
    """Solve a positive definite system; use the pseudo-inverse if the matrix is numerically singular."""
    factor, info = lapack.dpotrf(lower.T, lower=0, clean=0)
    if info == 0:
        return lapack.dpotrs(factor, rhs, lower=0)[0]
    values, vectors = _eigh(symmetric(lower))
    keep = values > len(lower) * _EPS * values[-1]
    usable = vectors[:, keep]
    return usable @ ((usable.T @ rhs) / values[keep, None])


def _eigh(matrix: FloatArray, driver: str | None = None) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues and eigenvectors; raise DataError if sums of a damaged file overflow."""
    if not np.isfinite(matrix).all():
        raise DataError(
            "the sums of products are not finite, so the planes cannot be computed.",
            source="ProximalSVC",
            hint="valid rows cannot have such sums; the file of the model may be damaged",
        )
    values, vectors = eigh(matrix, driver=driver, check_finite=False)
    return values, vectors


# -- solutions for several values of C ---------------------------------------------------------------


def _translated(lower: FloatArray, center: FloatArray) -> FloatArray:
    """Return the Gram matrix (lower triangle) of rows ``[x - center, -1]`` from that of rows ``[x, -1]``."""
    side, corner = lower[-1, :-1], float(lower[-1, -1])
    half, full = np.append(side + 0.5 * corner * center, 0.0), np.append(center, 0.0)
    result: FloatArray = blas.dsyr2(1.0, half, full, a=lower.T, lower=0).T
    result[-1, :-1] = side + corner * center
    return result


class _Eigen:
    """Generalized eigendecomposition of a matrix and the penalty, which gives the solution for every C.

    ``U' penalty U = I`` and ``U' matrix U = diag(values)``, hence
    ``inv(a * matrix + penalty / C) = U diag(1 / (a * values + 1 / C)) U'``.
    """

    def __init__(self, matrix: FloatArray, equations: PlaneEquations) -> None:
        self.equations = equations
        regularizer = equations.regularizer
        self._free: tuple[FloatArray, float] | None = None  # set only if the intercept is not penalized
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
            lower = _translated(matrix, regularizer.center)
        d = len(regularizer.scale)
        if (regularizer.scale != 1.0).any():
            lower[:, :d] /= regularizer.scale
            lower[:d] /= regularizer.scale[:, None]
        self._decompose(lower)

    def _decompose(self, lower: FloatArray) -> None:
        """Decompose a matrix, given by its lower triangle, which is overwritten."""
        self.values, vectors = _eigh(lower, driver="evd")
        self.U = self._scale @ vectors

    def solve(self, plane: int, Cs: ArrayOfC) -> FloatArray:
        """Return the solutions of a plane for several values of C, by the Woodbury identity if possible."""
        equations = self.equations
        own = equations.factor(plane)
        if own is None:
            return self.solve_rhs(equations.rhs[plane], Cs, equations.a[plane])
        projected = own @ self.U
        right = equations.rhs[plane] @ self.U
        solutions = np.empty((len(Cs), len(right)))
        for i, C in enumerate(Cs):
            inverse = 1.0 / (equations.a[plane] * self.values + 1.0 / C)
            base, spread = inverse * right, projected * inverse
            solutions[i] = base - _correction(projected, equations.kappa[plane], spread, base)
        return solutions @ self.U.T

    def solve_rhs(self, rhs: FloatArray, Cs: ArrayOfC, a: float = 1.0) -> FloatArray:
        """Return the solutions for one right-hand side and several values of C, without ``own_rows``."""
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
        return (inverse * (rhs @ self.U)) @ self.U.T


class _Tridiagonal(_Eigen):
    """Householder tridiagonalization. For one right-hand side it costs a third of computing eigenvectors.

    With fewer rows than features, the matrix ``S = F'F`` has low rank and the right-hand side ``F'g`` is in
    its range. Then ``inv(S + I / C) F'g = F' inv(FF' + I / C) g``, and only the small ``FF'`` is
    tridiagonalized.
    """

    def _decompose(self, lower: FloatArray) -> None:
        self._factor: FloatArray | None = None
        max_rank = _MAX_RANK_FRACTION * len(lower)
        if self.equations.n_rows <= max_rank:
            # LAPACK reads a row-major lower triangle as a column-major upper triangle.
            factored, pivots, rank, info = lapack.dpstrf(lower.T, lower=0)
            if info >= 0 and 1 < rank <= max_rank:
                # F' of the pivoted Cholesky factorization, with its rows in the order of the pivots.
                self._factor, self._order = np.triu(factored[:rank]).T, pivots - 1
                lower = self._factor.T @ self._factor
        work = int(lapack.dsytrd_lwork(len(lower), lower=1)[0])
        reflectors, self._diagonal, self._off_diagonal, self._tau, _ = lapack.dsytrd(
            np.asfortranarray(lower), lower=1, lwork=work, overwrite_a=1
        )
        self._reflectors = np.asfortranarray(reflectors[1:, :-1])

    def _reduced_solutions(self, rhs: FloatArray, Cs: ArrayOfC, a: float) -> FloatArray:
        right = self._scale.T @ rhs
        factor = self._factor
        if factor is not None:  # the coordinates g of F'g
            rank = factor.shape[1]
            right = lapack.dtrtrs(factor[:rank], right[self._order[:rank]], lower=1)[0]
        right = self._rotate(right, "T")[:, 0]
        solutions = np.empty((len(right), len(Cs)))
        off_diagonal = a * self._off_diagonal
        for i, C in enumerate(Cs):
            solutions[:, i] = lapack.dgtsv(off_diagonal, a * self._diagonal + 1.0 / C, off_diagonal, right)[3]
        solutions = self._rotate(solutions, "N")
        if factor is not None:
            products, solutions = factor @ solutions, np.empty((len(factor), len(Cs)))
            solutions[self._order] = products
        return (self._scale @ solutions).T

    def _rotate(self, vectors: FloatArray, trans: str) -> FloatArray:
        """Multiply by the product of the Householder reflectors, which keeps the first coordinate."""
        columns = np.array(vectors.reshape(len(vectors), -1), order="F")
        if len(columns) > 1:
            rest = np.asfortranarray(columns[1:])
            work = _REFLECTOR_BLOCK * (rest.shape[1] + _REFLECTOR_BLOCK + 1)
            columns[1:] = lapack.dormqr("L", trans, self._reflectors, self._tau, rest, work, overwrite_c=1)[0]
        return columns


def solve_path(equations: PlaneEquations, Cs: ArrayOfC) -> FloatArray:
    """Return the solutions of all planes for every C, of shape (n_Cs, n_planes, size)."""
    paths = np.empty((len(Cs), *equations.rhs.shape))
    alone, families = _families(equations)
    shared = [plane for planes in families.values() for plane in planes]
    if equations.regularizer.center is None and (equations.kappa[shared] != 0.0).any():
        alone, shared = sorted(alone + shared), []
    if shared:  # planes whose matrices are equal, or differ from ``total`` by a few rows
        eigen = _Eigen(equations.total, equations)
        for plane in shared:
            paths[:, plane] = eigen.solve(plane, Cs)
    for plane in alone:
        matrix = equations.matrix(plane)
        decomposition = _Tridiagonal if len(matrix) > 4 else _Eigen  # tiny matrices use an eigendecomposition
        paths[:, plane] = decomposition(matrix, equations).solve_rhs(equations.rhs[plane], Cs)
    return paths


def score_moments(system: System, classes: list[int], solutions: FloatArray) -> FloatArray:
    """Return [mean, variance] of the scores of each class and of all others, shape (n_planes, 2, 2)."""
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
