r"""Enclosing bodies: a *body* is the smallest sphere or ellipsoid that contains the rows of a class.

An ellipsoid is the smallest ball in whitened coordinates. With the linear kernel these coordinates are
explicit, with one axis per feature. With other kernels they are computed from the kernel matrix of the class.
The covariance that whitens them may be shrunk towards a multiple of the identity.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from math import sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from steelyard import _native
from steelyard._memory import check_fits_memory
from steelyard._threads import limit_blas, num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.kernels import Kernel
from steelyard.kernels.expansion import KernelExpansion
from steelyard.kernels.sequences import SequenceStore, distinct, is_sequence_kernel, take

TOLERANCE = 1e-6  # tolerance of the optimality conditions, relative to the squared radius
CACHE_BYTES = 256 << 20
MAX_STEPS = 10_000_000
POINT_RADIUS = 1e-100  # replaces the radius 0 of a body that contains a single point
_BLOCK_ROWS = 4096
_MAX_EXPLICIT_FEATURES = 512  # up to this number of features, one axis per feature is cheap even for few rows
_MIN_RELATIVE_EIGENVALUE = 1e-12  # eigenvalues below this fraction of the largest one count as 0
_LINEAR = Kernel("linear").spec()
# estimate_shrinkage() explains the following constants.
_MAX_DISTANCE_RATIO = 2.0
_MIN_NOISE_RATIO = 1.4
_HEAVY_TAIL_KURTOSIS = 7.0
_MIN_SHRINKAGE = 1e-9  # avoids divisions by zero
_MAX_SHRINKAGE = 0.1
_N_BISECTIONS = 30


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Distinct rows with their total weights.

    Rows are sorted by a hash of their values. The arrays therefore do not depend on the order of arrival or
    on batch boundaries, and every fourth row is a pseudo-random sample of a quarter of the rows.
    """

    X: Any  # distinct rows, shape (n_distinct, n_features)
    # Total weight of each row. All weights are positive.
    weights: FloatArray

    @classmethod
    def gather(cls, X: Any, weights: FloatArray) -> ClassRows:
        """Return the sorted distinct rows with summed weights. Rows of weight 0 are dropped."""
        if isinstance(X, list):
            return cls(*distinct(X, weights))
        X = X + 0.0  # turns -0.0 into 0.0, so that equal rows are bitwise equal
        hashes = _native.row_hashes(X)
        order = np.argsort(hashes, kind="stable")
        order = order[weights[order] > 0.0]
        X, hashes = X[order], hashes[order]
        is_first = np.ones(len(X), dtype=bool)
        is_first[1:] = (hashes[1:] != hashes[:-1]) | (X[1:] != X[:-1]).any(axis=1)
        first = np.flatnonzero(is_first)
        summed = np.add.reduceat(weights[order], first) if len(first) else np.empty(0)
        return cls(np.ascontiguousarray(X[first]), summed)

    def with_more(self, batches: list[tuple[Any, FloatArray]]) -> ClassRows:
        """Return these rows together with the rows of the batches."""
        rows, weights = zip((self.X, self.weights), *batches, strict=True)
        X: Any = [*chain.from_iterable(rows)] if isinstance(self.X, list) else np.concatenate(rows)
        return ClassRows.gather(X, np.concatenate(weights))

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @property
    def mean(self) -> FloatArray:
        """Weighted mean of the rows."""
        return np.asarray(self.weights @ self.X / self.total)

    def variance(self) -> float:
        """Return the variance of all values in all columns, as used by ``gamma="scale"``."""
        shares = self.weights / (self.total * self.X.shape[1])
        mean = shares @ self.X.sum(axis=1)
        return float(shares @ ((self.X - mean) ** 2).sum(axis=1))


# -- smallest enclosing ball ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Ball:
    """Smallest enclosing ball: its radius, and the weights ``alpha`` of the rows whose mean is the center."""

    alpha: FloatArray
    radius: float


def weight_bounds(weights: FloatArray, C: float | None, outliers: float) -> FloatArray:
    """Return the upper bound of the weight of each row in the center of the ball.

    With a bound of 1, every row is inside the ball. Bounds that sum to less than 1 are raised to a sum of 1.
    """
    total = weights.sum()
    if C is None:
        C = 1.0 / (outliers * total) if outliers > 0.0 else np.inf
    return np.minimum(1.0, weights * max(C, 1.0 / total) * (1.0 + 1e-12))


# -- bodies ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BodySettings:
    """Parameters that determine the enclosing body of a class."""

    shape: str
    kernel: Any  # kernel name, or a private copy of a sequence kernel
    gamma: float | str
    degree: int
    coef0: float
    C: float | None
    outliers: float
    ridge: float | str

    def kernel_for(self, rows: ClassRows) -> Kernel:
        """Return the kernel with gamma computed from the rows of one class."""
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
        if self.gamma == "median" or is_sequence_kernel(kernel) or not isinstance(self.gamma, str):
            return kernel.resolve(rows.X)
        variance = rows.variance() if self.gamma == "scale" else 1.0
        return replace(kernel, gamma=1.0 / (rows.X.shape[1] * variance) if variance > 0.0 else 1.0)

    def ball(self, spec: _native.KernelSpec, X: FloatArray, rows: ClassRows) -> Ball:
        """Return the smallest ball that encloses the rows of a class, given their coordinates ``X``."""
        X, bounds = np.ascontiguousarray(X), weight_bounds(rows.weights, self.C, self.outliers)
        solution = _native.enclosing_ball(spec, X, bounds, TOLERANCE, CACHE_BYTES, MAX_STEPS, num_threads())
        if solution["gap"] > 10 * TOLERANCE:
            warnings.warn(
                f"EnclosingClassifier: the solver stopped after {solution['steps']:,} steps; the sphere or "
                f"ellipsoid around {len(X):,} rows is only accurate to {solution['gap']:.1e} of its squared "
                "radius.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Ball(solution["alpha"], sqrt(solution["squared_radius"]))


class Body(ABC):
    """Enclosing body of one class: a sphere or an ellipsoid."""

    ball: Ball  # its radius, and the weights of the rows whose sum is its center

    @classmethod
    @abstractmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Self:
        """Return the body that encloses the rows. If ``ball`` is given, no new solution is computed."""

    def squared_distances(self, X: Any) -> FloatArray:
        """Return the squared distance of each row to the center."""
        return _squared_distances([self], X)[:, 0]


def build_body(rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Body:
    """Return the body of the kind that suits the settings and the number of rows and features."""
    is_sphere = settings.shape == "sphere"
    kind: type[Body]
    if settings.kernel != "linear":
        kind = KernelSphere if is_sphere else KernelEllipsoid
    elif is_sphere:
        kind = Sphere
    else:
        n, d = rows.X.shape
        kind = Ellipsoid if d <= max(n, _MAX_EXPLICIT_FEATURES) else KernelEllipsoid
    return kind.build(rows, settings, ball)


# -- covariance of a class -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Eigenvalues of the covariance of a class, and squared coordinates of its rows along the axes."""

    # Eigenvalues of the covariance. Zeros may be omitted.
    spectrum: FloatArray
    # Squared coordinates of the centred rows along the eigenvectors, shape (n_rows, n_axes).
    squares: FloatArray
    weights: FloatArray  # weight of each row, shape (n_rows,)
    # Dimension of the space. The covariance is 0 in directions without an axis.
    dimension: int
    tails: float  # median kurtosis of the features, or 0 for nonlinear kernels

    @property
    def mean_variance(self) -> float:
        """Mean eigenvalue of the covariance."""
        return float(self.spectrum.sum()) / self.dimension

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Mask of the axes with nonzero variance."""
        return np.asarray(self.spectrum > _MIN_RELATIVE_EIGENVALUE * self.spectrum.max())


@dataclass(frozen=True)
class Covariance:
    r"""Covariance :math:`keep \cdot S + floor \cdot I`, where S is the covariance of the rows of a class.

    If ``floor`` is 0, distances use the pseudo-inverse: axes without variance are ignored.
    """

    keep: float
    floor: float

    @classmethod
    def from_ridge(cls, ridge: float | str, measure: Callable[[], Spread]) -> Covariance:
        """Return the covariance for the parameter ``ridge``, where "auto" estimates the shrinkage."""
        if not isinstance(ridge, str) and ridge > 0:
            return cls(1.0, float(ridge))
        spread = measure()
        if spread.mean_variance <= 0.0:
            return cls(1.0, 1.0)  # all rows are equal, so the body is a point for any covariance
        if not isinstance(ridge, str):
            return cls(1.0, 0.0)
        return cls.shrunk(spread, estimate_shrinkage(spread))

    @classmethod
    def shrunk(cls, spread: Spread, shrinkage: float) -> Covariance:
        """Return a covariance between S (shrinkage 0) and a multiple of I of equal trace (shrinkage 1)."""
        return cls(1.0 - shrinkage, shrinkage * spread.mean_variance)

    def stretch(self, spectrum: FloatArray) -> FloatArray:
        """Return the standard deviation along each axis, infinite for ignored axes."""
        if self.floor == 0.0:
            varies = spectrum > _MIN_RELATIVE_EIGENVALUE * spectrum.max(initial=0.0)
            return np.where(varies, np.sqrt(self.keep * spectrum), np.inf)
        return np.asarray(np.sqrt(self.keep * spectrum + self.floor))


def median_kurtosis(centred: FloatArray, weights: FloatArray) -> float:
    """Return the median kurtosis of features with nonzero variance. A normal distribution has kurtosis 3."""
    shares = weights / weights.sum()
    squares = centred**2
    variances = shares @ squares
    varying = variances > _MIN_RELATIVE_EIGENVALUE * variances.max(initial=0.0)
    if not varying.any():
        return 0.0
    return float(np.median((shares @ squares**2)[varying] / variances[varying] ** 2))


def estimate_shrinkage(spread: Spread) -> float:
    r"""Return a shrinkage between 0 (ellipsoid) and 1 (sphere), selected by leave-one-out distances.

    Let :math:`d^2_i` be the squared distances of the rows from their mean and :math:`d^2_{-i}` the same with
    row i left out of mean and covariance. The shrinkage is the smallest one, but at most 0.1, with
    :math:`\overline{d^2_{-i}} \le 2\, \overline{d^2_i}`. Leaving a row out gives no information about
    directions without variance. If there are any, the shrinkage of l rows is at least 1 / (l + 1), as if
    there were one more row of mean length in a new direction.

    The sphere is used instead if the features have heavy tails and the ratio of noise to signal

    .. math::

        J = \frac{\mathrm{mean}_i\, |d^2_{-i} - \overline{d^2}|}{\sum_k \sqrt{s_k} / \lambda_k}

    is clearly smaller for the sphere, where :math:`\lambda_k` are the eigenvalues of the metric's covariance,
    and displacements are assumed to be larger in directions in which the class has more variance
    :math:`s_k`. Both conditions are strict because a single sphere among ellipsoids attracts the rows of
    other classes.
    """
    if float(spread.weights.sum()) <= 1.0:
        return 1.0
    shrinkage = _smallest_shrinkage(spread)
    if spread.tails > _HEAVY_TAIL_KURTOSIS:
        ellipsoid, sphere = (_noise_over_signal(spread, s) for s in (shrinkage, 1.0))
        if ellipsoid > _MIN_NOISE_RATIO * sphere:
            return 1.0
    return min(shrinkage, _MAX_SHRINKAGE)


def _smallest_shrinkage(spread: Spread) -> float:
    """Return the smallest shrinkage for which the ellipsoid generalizes to left-out rows."""
    degenerate = np.count_nonzero(spread.varying) < spread.dimension
    low, high = (1.0 / (float(spread.weights.sum()) + 1.0) if degenerate else _MIN_SHRINKAGE), 1.0
    if _generalizes(spread, low):
        return low
    for _ in range(_N_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if _generalizes(spread, middle) else (middle, high)
    return high


def _generalizes(spread: Spread, shrinkage: float) -> bool:
    distances, left_out = _distances(spread, Covariance.shrunk(spread, shrinkage))
    return bool(spread.weights @ left_out <= _MAX_DISTANCE_RATIO * (spread.weights @ distances))


def _noise_over_signal(spread: Spread, shrinkage: float) -> float:
    covariance = Covariance.shrunk(spread, shrinkage)
    distances, left_out = _distances(spread, covariance)
    shares = spread.weights / spread.weights.sum()
    variances = spread.spectrum[spread.varying]
    signal = (np.sqrt(variances) / covariance.stretch(variances) ** 2).sum()
    return float(shares @ np.abs(left_out - shares @ distances) / signal)


def _distances(spread: Spread, covariance: Covariance) -> tuple[FloatArray, FloatArray]:
    """Return the squared distance of each row from the mean: of all rows, and without one copy of the row.

    Leaving out a row subtracts a multiple of one outer product from the covariance, so the distance is
    (l / (l - 1))^2 d^2 / (1 - keep / (l - 1) d^2) for l rows.
    """
    distances = spread.squares @ covariance.stretch(spread.spectrum) ** -2.0
    total, removed = float(spread.weights.sum()), np.minimum(spread.weights, 1.0)
    rest = total - removed
    denominators = np.maximum(1.0 - covariance.keep * removed / rest * distances, 1e-12)
    return distances, (total / rest) ** 2 * distances / denominators


# -- explicit bodies of the linear kernel -----------------------------------------------------------


@dataclass(frozen=True)
class Sphere(Body):
    """Sphere in input space that encloses the rows of a class."""

    ball: Ball
    center: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Self:
        ball = ball or settings.ball(_LINEAR, rows.X - rows.mean, rows)
        return cls(ball, ball.alpha @ rows.X)


@dataclass(frozen=True)
class Ellipsoid(Body):
    """Ellipsoid in input space. The squared distance of x is the sum of (axis'x - offset)^2 over ``axes``."""

    ball: Ball
    axes: FloatArray
    offsets: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Self:
        centred = rows.X - rows.mean
        with limit_blas(centred.shape[1]):
            spectrum, directions = np.linalg.eigh((centred * rows.weights[:, None]).T @ centred / rows.total)
        spectrum = np.maximum(spectrum, 0.0)
        covariance = Covariance.from_ridge(
            settings.ridge,
            lambda: Spread(
                spectrum,
                (centred @ directions) ** 2,
                rows.weights,
                len(spectrum),
                median_kurtosis(centred, rows.weights),
            ),
        )
        axes = np.ascontiguousarray((directions / covariance.stretch(spectrum)).T)
        ball = ball or settings.ball(_LINEAR, centred @ axes.T, rows)
        # Offsets use the same native loop as distances, so that the only row of a class has distance 0.
        offsets = np.empty((1, len(axes)))
        _native.kernel_block(_LINEAR, (ball.alpha @ rows.X)[None, :], axes, offsets)
        return cls(ball, axes, offsets[0])


# -- bodies of any kernel ---------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSphere(Body):
    """Ball in the feature space of a kernel. The center is a sum of the rows with positive weight."""

    ball: Ball
    center: KernelExpansion  # function that returns the inner products of rows with the center
    squared_norm: float  # squared norm of the center

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Self:
        kernel = settings.kernel_for(rows)
        if ball is None and is_sequence_kernel(kernel):
            _check_kernel_matrix_fits(len(rows.X))
            store = SequenceStore([kernel])
            ball = settings.ball(store.specs()[0], store.add(rows.X), rows)
        elif ball is None:
            ball = settings.ball(kernel.spec(), rows.X, rows)
        is_support = ball.alpha > 0.0
        support, weights = take(rows.X, is_support), ball.alpha[is_support]
        center = KernelExpansion(kernel, support, weights[None], np.zeros(1))
        return cls(ball, center, float(weights @ center.scores(support)[:, 0]))

    def squared_distances(self, X: Any) -> FloatArray:
        products = self.center.scores(X)[:, 0]
        return np.maximum(self.center.kernel.diagonal(X) - 2.0 * products + self.squared_norm, 0.0)


@dataclass(frozen=True)
class KernelEllipsoid(Body):
    r"""Ellipsoid in the feature space of a kernel.

    Notes
    -----
    Let :math:`D` be the diagonal matrix of the weights, :math:`l` their sum, :math:`K` the kernel matrix and
    :math:`H` the centering by the weighted mean. With the eigendecomposition
    :math:`D^{1/2} H K H^\top D^{1/2} = U \Omega U^\top`, the covariance has the eigenvalues
    :math:`\lambda_k = \omega_k / l` along the axes :math:`v_k = \sum_i B_{ik} \phi(x_i)` with
    :math:`B = D^{1/2} U \Omega^{-1/2}`. The coordinate of x along :math:`v_k` is divided by the standard
    deviation along this axis. The component of x outside the span of the class is divided by the square root
    of ``floor``, the variance in all directions without rows.
    """

    ball: Ball
    kernel: Kernel
    X: Any
    shares: FloatArray  # row weights that sum to 1, shape (n_rows,)
    projection: FloatArray  # maps kernel values to whitened coordinates, shape (n_rows, n_axes)
    mean: FloatArray  # whitened coordinates of the class mean, shape (n_axes,)
    center: FloatArray  # center of the ball relative to ``mean``, shape (n_axes,)
    stretch: FloatArray  # standard deviation along each axis, shape (n_axes,)
    mean_length: float
    floor: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Self:
        _check_kernel_matrix_fits(len(rows.X))
        kernel, shares, roots = settings.kernel_for(rows), rows.weights / rows.total, np.sqrt(rows.weights)
        K = kernel.block(rows.X)
        means = K @ shares
        mean_length = float(shares @ means)
        centred = K - means[:, None] - means[None, :] + mean_length
        with limit_blas(len(roots)):
            omega, U = np.linalg.eigh(centred * roots[:, None] * roots[None, :])
        nonzero = omega > max(omega[-1], 0.0) * _MIN_RELATIVE_EIGENVALUE
        omega, U = omega[nonzero], U[:, nonzero]
        spectrum = omega / rows.total
        # The feature space may have infinite dimension, so the dimension of the span of the rows is used.
        is_linear = kernel.kernel == "linear"
        dimension = rows.X.shape[1] if is_linear else max(1, len(spectrum))
        coordinates = U * np.sqrt(omega) / roots[:, None]
        covariance = Covariance.from_ridge(
            settings.ridge,
            lambda: Spread(
                spectrum,
                coordinates**2,
                rows.weights,
                dimension,
                median_kurtosis(rows.X - rows.mean, rows.weights) if is_linear else 0.0,
            ),
        )
        stretch = covariance.stretch(spectrum)
        Z = coordinates / stretch
        ball = ball or settings.ball(_LINEAR, Z, rows)
        projection = roots[:, None] * U / (np.sqrt(omega) * stretch)
        # The column sums are rounding errors. They are subtracted, because small eigenvalues amplify them.
        projection -= shares[:, None] * projection.sum(axis=0)
        return cls(
            ball=ball,
            kernel=kernel,
            X=rows.X,
            shares=shares,
            projection=projection,
            mean=means @ projection,
            center=ball.alpha @ Z,
            stretch=stretch,
            mean_length=mean_length,
            floor=covariance.floor,
        )

    def squared_distances(self, X: Any) -> FloatArray:
        K = self.kernel.block(X, self.X)
        coordinates = K @ self.projection - self.mean
        inside = ((coordinates - self.center) ** 2).sum(axis=1)
        if self.floor == 0.0:  # with the pseudo-inverse, the component outside the span does not count
            return np.asarray(inside)
        length = self.kernel.diagonal(X) - 2.0 * (K @ self.shares) + self.mean_length
        outside = length - ((coordinates * self.stretch) ** 2).sum(axis=1)
        # For rows in the span the outside component is a rounding error, which a small floor would amplify.
        outside[outside < 1e-12 * np.abs(length)] = 0.0
        return np.asarray(inside + outside / self.floor)


def _check_kernel_matrix_fits(n_rows: int) -> None:
    check_fits_memory(
        4 * 8 * n_rows**2,
        f"EnclosingClassifier: a kernel ellipsoid around a class of {n_rows:,} distinct rows",
        "use shape='sphere' or kernel='linear', whose memory is proportional to the number of rows",
    )


# -- decision rule: the class whose body has the smallest ratio of distance to radius -----------------


def distance_ratios(bodies: list[Body], X: FloatArray) -> FloatArray:
    """Return the ratio of distance to radius for each row and body.

    The ratio of a body around a single point is 0 at the point and huge but finite elsewhere, so bodies of
    positive radius have smaller ratios there. If all bodies are points, the nearest one has the smallest.
    """
    ratios, radii = np.empty((len(X), len(bodies))), _radii(bodies)
    for begin in range(0, len(X), _BLOCK_ROWS):
        block = slice(begin, begin + _BLOCK_ROWS)
        np.sqrt(_squared_distances(bodies, X[block]), out=ratios[block])
        ratios[block] /= radii
    return ratios


def nearest_bodies(bodies: list[Body], X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the body with the smallest ratio of distance to radius for each row, and this ratio."""
    kind = _common_kind(bodies)
    if kind is Sphere:
        return _native.nearest_sphere(X, _centers(bodies), _radii(bodies), num_threads())
    if kind is Ellipsoid:
        return _native.nearest_ellipsoid(X, *_all_axes(bodies), _radii(bodies), num_threads())
    ratios = distance_ratios(bodies, X)
    nearest = ratios.argmin(axis=1)
    return nearest, ratios[np.arange(len(X)), nearest]


def _squared_distances(bodies: list[Any], X: Any) -> FloatArray:
    """Return the squared distance of each row to the center of each body, in one pass if possible."""
    kind = _common_kind(bodies)
    if kind is Sphere:
        return _native.sphere_distances(X, _centers(bodies), num_threads())
    if kind is Ellipsoid:
        return _native.ellipsoid_distances(X, *_all_axes(bodies), num_threads())
    return np.column_stack([body.squared_distances(X) for body in bodies])


def _common_kind(bodies: list[Any]) -> type[Body] | None:
    kinds = {type(body) for body in bodies}
    return kinds.pop() if len(kinds) == 1 else None


def _radii(bodies: list[Body]) -> FloatArray:
    return np.array([max(body.ball.radius, POINT_RADIUS) for body in bodies])


def _centers(spheres: list[Any]) -> FloatArray:
    return np.array([sphere.center for sphere in spheres])


def _all_axes(ellipsoids: list[Any]) -> tuple[FloatArray, FloatArray, NDArray[np.uint64]]:
    """Return the concatenated axes and offsets of all ellipsoids, and the start index of each ellipsoid."""
    axes = np.concatenate([body.axes for body in ellipsoids])
    offsets = np.concatenate([body.offsets for body in ellipsoids])
    return axes, offsets, np.cumsum([0, *(len(body.axes) for body in ellipsoids)], dtype=np.uint64)
