"""Planes of the proximal SVM: computation from statistics, and scores.

Two solvers compute the planes. Only :meth:`PlaneRule.native_arguments` chooses between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import expit, softmax

from steelyard import _native
from steelyard._labels import all_forgotten_error, winners
from steelyard._threads import limit_blas, num_threads
from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import ParameterError
from steelyard.features import RandomFeatures
from steelyard.params import class_factors
from steelyard.proximal.folds import ClassLabels, FoldedStatistics
from steelyard.proximal.model_selection import C_GRID, SelectedC, best_C, fold_losses
from steelyard.proximal.solver import (
    PlaneEquations,
    System,
    auc_equations,
    margin_equations,
    score_moments,
    solve,
    solve_path,
)
from steelyard.proximal.statistics import ClassStatistics
from steelyard.thresholds import normal_gmean_threshold

# Maximum number of features for which C is selected with all folds; above it, only two folds are used.
_MAX_FEATURES_FOR_ALL_FOLDS = 256
# Limits of the native solver. Beyond any of these limits LAPACK is faster.
_MAX_NATIVE_FEATURES = 2000  # above this, the threads of LAPACK outweigh the cost of the Python code
_MAX_NATIVE_CLASSES = 30  # above this, LAPACK is faster because all planes share one Cholesky factor
# Up to this number of features, SIMD over the planes is faster than a shared factor.
_MAX_NATIVE_FEATURES_MANY_CLASSES = 64
_MAX_NATIVE_FEATURES_LEAVE_ONE_OUT = 200  # above this, LAPACK inverts the matrix faster
_MIN_FEATURES_FOR_THREADS = 101  # below this, starting threads costs more than they save
_MIN_ROWS_FOR_THREADS = 17  # minimum number of rows to score with several threads

_MAX_LEVERAGE = 0.95  # upper limit of a mean leverage; a class with a single row has leverage 1
_TARGETS = np.array([1.0, -1.0])
_MEAN_TOLERANCE = 1e-12  # relative rounding error of mean scores

# Sums, slots of the classes, and the parameters of the native solver.
NativeArguments = tuple[_native.ExactSums, list[int], tuple[float, bool, bool, bool, bool, bool, list[float]]]


@dataclass(frozen=True)
class Planes:
    """Fitted planes: scores are ``x @ coef.T + intercept``."""

    coef: FloatArray  # normals in units of the features after the feature map, shape (n_planes, n_features)
    intercept: FloatArray
    slope: float  # log-odds per unit of score
    C: float

    def write_scores(self, rows: Any, scores: FloatArray) -> bool:
        """Write the scores of rows for all planes; return whether all are finite."""
        if type(rows) is np.ndarray or not sp.issparse(rows):
            threads = num_threads() if len(rows) >= _MIN_ROWS_FOR_THREADS else 1
            finite = _native.linear_scores(rows, self.coef, self.intercept, scores, threads)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(rows @ self.coef.T, self.intercept, out=scores)
            finite = bool(np.isfinite(scores).all())
        return finite or self._rewrite_overflown(rows, scores)

    def _rewrite_overflown(self, rows: Any, scores: FloatArray) -> bool:
        """Recompute scores of finite rows that overflowed; return whether all scores are finite."""
        limit = np.finfo(np.float64).max
        weights, weight_powers = np.frexp(np.column_stack([self.coef, self.intercept]))
        for i in np.flatnonzero(~np.isfinite(scores).all(axis=1)):
            row = rows[[i]].toarray()[0] if sp.issparse(rows) else rows[i]
            if not np.isfinite(row).all():
                continue
            values, powers = np.frexp(np.append(row.astype(np.float64), 1.0))
            terms, exponents = values * weights, powers + weight_powers
            top = np.where(terms != 0.0, exponents, -4000).max(axis=1, keepdims=True)
            sums = np.ldexp(terms, exponents - top).sum(axis=1)
            with np.errstate(over="ignore"):  # a score beyond the largest double becomes the largest double
                scores[i] = np.clip(np.ldexp(sums, top[:, 0]), -limit, limit)
        return bool(np.isfinite(scores).all())

    def write_labels(self, rows: Any, labels_of: NDArray[np.uint64], labels: NDArray[np.uint64]) -> bool:
        """Write the label of the highest score of each row; return whether all scores are finite."""
        if type(rows) is np.ndarray or not sp.issparse(rows):
            threads = num_threads() if len(rows) >= _MIN_ROWS_FOR_THREADS else 1
            if _native.linear_labels(rows, self.coef, self.intercept, labels_of, labels, threads):
                return True
        scores = np.empty((rows.shape[0], len(self.coef)))
        finite = self.write_scores(rows, scores)
        labels_of.take(winners(scores, len(labels_of)), out=labels)
        return finite

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return probabilities that assume equally frequent classes. A single plane gives two columns."""
        scaled = self.slope * scores
        if scaled.shape[1] == 1:
            return np.column_stack([expit(-scaled[:, 0]), expit(scaled[:, 0])])
        return np.asarray(softmax(scaled, axis=1))


@dataclass(frozen=True, slots=True)
class Predictor:
    """Planes and classes for predictions, valid for one version of the statistics."""

    classes: ClassLabels
    planes: Planes
    feature_map: RandomFeatures | None


@dataclass(frozen=True)
class PlaneRule:
    """Parameters of :class:`~steelyard.ProximalSVC` that determine the planes for given statistics."""

    C: float | str
    class_weight: Any
    standardize: bool
    objective: str
    threshold: str
    penalize_intercept: bool

    def predictor(self, state: FoldedStatistics) -> Predictor:
        """Return the planes and classes of the current rows."""
        classes = state._labels()
        if self.C != "auto":
            C = float(self.C)
        else:
            n_rows, selected = state.statistics.n_rows, state.selected_C
            if selected is None or selected.rule != self or not selected.is_valid_for(n_rows):
                selected = state.selected_C = SelectedC(self.select_C(state.total, state), self, n_rows)
            C = selected.C
        return Predictor(classes, self.planes(state.total, C, classes.labels), state.feature_map)

    def planes(self, statistics: ClassStatistics, C: float, labels: list[Label] | None = None) -> Planes:
        """Return the planes for one value of C. ``labels`` are the classes, if the caller knows them."""
        labels = labels or _labels(statistics)
        arguments = self.native_arguments(statistics, C, labels)
        if arguments is not None:
            (sums, slots, parameters), d = arguments, statistics.n_features
            n_planes = len(labels) if len(labels) > 2 else 1
            coef, intercept = np.empty((n_planes, d)), np.empty(n_planes)
            threads = num_threads() if d >= _MIN_FEATURES_FOR_THREADS else 1
            slope = _native.solve_planes(sums, slots, coef, intercept, *parameters, threads)
            if slope >= 0.0:
                return Planes(coef, intercept, slope, C)
            # A matrix is not positive definite in floating-point arithmetic.
        return self.reference_planes(statistics, C)

    def native_arguments(
        self, statistics: ClassStatistics, C: float, labels: list[Label]
    ) -> NativeArguments | None:
        """Return sums, slots and parameters for the native solver, or None if the reference solver is used.

        The native solver, ``src/native/proximal/planes.cpp``, is faster for small systems, such as those of a
        stream of single rows. The reference solver, :mod:`steelyard.proximal.solver`, uses LAPACK and also
        solves systems that are not positive definite in floating-point arithmetic. The choice depends only on
        the parameters and on sizes, so equal rows give equal planes.
        """
        d, n_classes = statistics.n_features, len(labels)
        leaves_out = self.threshold == "gmean" and n_classes == 2
        if n_classes > _MAX_NATIVE_CLASSES:
            max_features = _MAX_NATIVE_FEATURES_MANY_CLASSES if self.objective == "margin" else 0
        else:
            max_features = _MAX_NATIVE_FEATURES_LEAVE_ONE_OUT if leaves_out else _MAX_NATIVE_FEATURES
        if d > max_features or (self.threshold == "gmean" and self.objective == "auc"):
            return None
        weights = self.class_weight
        parameters = (
            C,
            weights == "balanced",
            self.standardize,
            self.objective == "auc",
            self.penalize_intercept,
            self.threshold == "gmean",
            [] if weights is None or weights == "balanced" else class_factors(weights, labels).tolist(),
        )
        return *statistics.slots_of(labels), parameters

    def reference_planes(self, statistics: ClassStatistics, C: float) -> Planes:
        """Return the planes computed by the LAPACK solver, which supports every case."""
        with limit_blas(statistics.n_features):
            system, equations = self._problem(statistics)
            return self._finish(system, equations, solve(equations, C), C)

    def select_C(
        self, statistics: ClassStatistics, state: FoldedStatistics, folds: Sequence[int] | None = None
    ) -> float:
        """Return C; "auto" is selected by cross-validation on the folds, whose sums are ``statistics``."""
        if self.C != "auto":
            return float(self.C)
        folds = range(state.n_folds) if folds is None else folds
        if len(folds) == 1:
            raise ParameterError(
                'ProximalSVC: C="auto" needs statistics of folds, which are kept only if C is "auto" from '
                "the first rows on.",
                hint='set C="auto" before fit() or the first partial_fit()',
            )
        # Decomposing a wide system is slow, and two of five folds select a C that is about as good.
        # On twelve data sets with 600 mapped features, mean AUC and G-mean differed by 0.0003.
        tested = folds if statistics.n_features <= _MAX_FEATURES_FOR_ALL_FOLDS else folds[::3][:2]
        losses = np.zeros(len(C_GRID))
        with limit_blas(statistics.n_features):
            system, equations = self._problem(statistics)
            for fold in tested:
                test, rest = state._subset({fold}), state._subset({*folds} - {fold})
                if test.classes and rest.classes:
                    training, training_equations = self._problem(rest)
                    paths = solve_path(training_equations, C_GRID)
                    losses += fold_losses(system, equations, training, paths, System(test))
        return best_C(losses)

    def path(self, statistics: ClassStatistics, Cs: FloatArray) -> list[Planes]:
        """Return the planes for several values of C."""
        with limit_blas(statistics.n_features):
            system, equations = self._problem(statistics)
            return [
                self._finish(system, equations, solutions, C)
                for solutions, C in zip(solve_path(equations, Cs), Cs, strict=True)
            ]

    def _problem(self, statistics: ClassStatistics) -> tuple[System, PlaneEquations]:
        _labels(statistics)  # raises an error if there are no rows
        system = System(statistics, standardize=self.standardize)
        regularizer = system.regularizer(
            standardize=self.standardize, penalize_intercept=self.penalize_intercept
        )
        if self.objective == "auc":
            return system, auc_equations(system, regularizer)
        return system, margin_equations(system, self.class_weight, regularizer)

    def _side_weights(self, system: System) -> FloatArray:
        """Return the weights of a row of the second class and of a row of the first class (two classes)."""
        if self.objective == "auc":
            return 1.0 / system.counts[::-1]
        if self.class_weight == "balanced":
            return system.counts / system.n_rows
        return class_factors(self.class_weight, system.labels)[::-1]

    def _finish(self, system: System, equations: PlaneEquations, solutions: FloatArray, C: float) -> Planes:
        """Convert solutions of the linear system to planes in raw units with thresholds and slopes."""
        if not equations.has_intercept:
            solutions = np.column_stack([solutions, np.zeros(len(solutions))])
        moments = score_moments(system, equations.classes, solutions)
        positive, negative = moments[:, 0], moments[:, 1]
        if len(system.labels) == 1:
            threshold = np.zeros(1)
        elif self.threshold == "gmean":
            left_out = leave_one_out_moments(system, equations, moments, self._side_weights(system), C)
            threshold = normal_gmean_threshold(left_out[:, 1], left_out[:, 0])
        elif equations.has_intercept:
            threshold = np.zeros(len(solutions))
        else:
            threshold = 0.5 * (positive[:, 0] + negative[:, 0])
        coef = system.raw(solutions)
        intercept = -(coef @ system.origin) - solutions[:, -1] - threshold
        return Planes(coef, intercept, float(_logistic_slope(positive, negative).mean()), C)


def _labels(statistics: ClassStatistics) -> list[Label]:
    labels = statistics.classes
    if not labels:
        raise all_forgotten_error("ProximalSVC")
    return labels


def _logistic_slope(positive: FloatArray, negative: FloatArray) -> FloatArray:
    """Return the log-odds per unit of score from [mean, variance] of normal scores of equal variance."""
    gap = positive[:, 0] - negative[:, 0]
    # If a class has weight zero, all rows have the same score, and the gap of the means is a rounding error.
    gap[np.abs(gap) <= _MEAN_TOLERANCE * np.maximum(np.abs(positive[:, 0]), np.abs(negative[:, 0]))] = 0.0
    variance = 0.5 * (positive[:, 1] + negative[:, 1])
    slope = np.divide(
        gap, variance, out=np.where(gap == 0.0, 0.0, np.inf), where=(variance > 0.0) & (gap != 0.0)
    )
    # A positive slope gives the probabilities the same order as the scores.
    return np.clip(slope, 1e-9, 1e9)


# -- leave-one-out scores ---------------------------------------------------------------------------


def leave_one_out_moments(
    system: System, equations: PlaneEquations, moments: FloatArray, weights: FloatArray, C: float
) -> FloatArray:
    """Return mean and variance of leave-one-out scores. For more than two classes, return ``moments``.

    A training row pulls the plane towards itself, so training scores are farther apart than scores of new
    rows, and a threshold should lie between the scores of new rows. In a (weighted) ridge regression with the
    matrix ``A``, let row ``x_i`` have the target ``y_i``, the weight ``sigma_i`` and the training score
    ``s_i``. Its score on a plane fitted without that row is

        s_i' = y_i - (y_i - s_i) / (1 - h_i),      h_i = sigma_i x_i' inv(A) x_i.

    The leverage ``h_i`` of one row needs the row, but the mean leverage of class ``c`` follows from its
    matrix ``M_c``, weight ``sigma_c`` and count ``l_c``: ``trace(inv(A) M_c) * sigma_c / l_c``.
    """
    if len(system.labels) != 2:
        return moments
    inverse = _inverse(equations.penalized(equations.matrix(0), C))
    if inverse is None:
        return moments
    index = equations.classes[0]
    counts = system.counts[[index, 1 - index]]
    matrices = [system.matrix(index), system.all_rows - system.matrix(index)]
    means, variances = moments[0].T
    if equations.has_intercept:
        traces = np.array([_trace(inverse, matrix) for matrix in matrices])
        scale, center = 1.0, 0.0
    else:
        # Up to scale, w is the same as in least squares with weights 1 / l_c and an unpenalized intercept.
        # Let d be the difference of the class means, B the matrix without dd', and q = d' inv(B) d.
        # The pairwise loss gives w = inv(B) d / (1 + q), least squares gives w = inv(B) d / (1 + q / 2).
        # The means of the scores differ by q / (1 + q), which determines q.
        scale, center = 2.0 / (2.0 - float(means[0] - means[1])), float(means.mean())
        traces = _pair_traces(inverse, equations.rhs[0], matrices, counts)
    rest = 1.0 - np.clip(weights * traces / counts, 0.0, _MAX_LEVERAGE)
    left_out = _TARGETS - (_TARGETS - scale * (means - center)) / rest
    return np.column_stack([left_out / scale + center, variances / np.square(rest)])[None]


def _pair_traces(
    inverse: FloatArray, difference: FloatArray, matrices: list[FloatArray], counts: FloatArray
) -> FloatArray:
    """Return ``trace(inv(A) M_c)`` of both classes relative to the midpoint between their means."""
    symmetric = inverse + np.tril(inverse, -1).T
    pull = symmetric @ difference
    half = 0.5 / (1.0 - 0.5 * float(difference @ pull))  # Sherman-Morrison formula
    traces = np.empty(2)
    for side, (matrix, count) in enumerate(zip(matrices, counts, strict=True)):
        mean = -matrix[-1, :-1] / count
        scatter = matrix[:-1, :-1] / count
        spread = _trace(inverse, scatter) - float(mean @ symmetric @ mean)
        quadratic = 2.0 * (pull @ (scatter @ pull)) - np.square(pull) @ scatter.diagonal()
        spread += half * (float(quadratic) - float(mean @ pull) ** 2)
        between = 0.25 * (float(difference @ pull) + half * float(difference @ pull) ** 2)
        traces[side] = count * (0.5 + spread + between)
    return traces


def _inverse(lower: FloatArray) -> FloatArray | None:
    """Return the lower triangle of the inverse, or None if the matrix is numerically singular."""
    factor, failed = lapack.dpotrf(lower.T, lower=0, clean=0)
    if failed:
        return None
    inverse, failed = lapack.dpotri(factor, lower=0, overwrite_c=1)
    return None if failed else np.tril(inverse.T)


def _trace(left: FloatArray, right: FloatArray) -> float:
    """Return the trace of the product of two symmetric matrices, given by their lower triangles."""
    return float(2.0 * np.vdot(left, right) - left.diagonal() @ right.diagonal())
