r"""Enclosing bodies: a *body* is the smallest sphere or ellipsoid that contains the rows of a class.

An ellipsoid is the smallest ball in whitened coordinates. With the linear kernel these coordinates are
explicit, with one axis per feature. With other kernels they are computed from the kernel matrix of the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._memory import check_fits_memory
from steelyard._threads import limit_blas, num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.enclosing.ball import Ball, smallest_ball, weight_bounds
from steelyard.enclosing.covariance import Covariance, Spread, median_kurtosis
from steelyard.enclosing.rows import ClassRows
from steelyard.kernels import Kernel
from steelyard.kernels.items import ItemTable, is_sequence_kernel, take

_MAX_EXPLICIT_FEATURES = 512  # up to this number of features, one axis per feature is cheap even for few rows
_MIN_RELATIVE_EIGENVALUE = 1e-12  # eigenvalues below this fraction of the largest one are rounding errors
_LINEAR = Kernel("linear").spec()


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
        if is_sequence_kernel(self.kernel):
            return Kernel(self.kernel).resolve(rows.X)
        gamma = self.gamma
        if gamma == "median":
            return Kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0).resolve(rows.X)
        if isinstance(gamma, str):
            variance = rows.variance() if gamma == "scale" else 1.0
            gamma = 1.0 / (rows.X.shape[1] * variance) if variance > 0.0 else 1.0
        return Kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0)

    def ball(self, spec: _native.KernelSpec, X: FloatArray, rows: ClassRows) -> Ball:
        """Return the smallest ball that encloses the rows of a class, given their coordinates ``X``."""
        return smallest_ball(spec, X, weight_bounds(rows.weights, self.C, self.outliers))


class Body(Protocol):
    """Enclosing body of one class: a sphere or an ellipsoid."""

    @property
    def ball(self) -> Ball:
        """Smallest enclosing ball: its radius, and the weights of the rows whose sum is its center."""

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the center."""


def build_body(rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Body:
    """Return the body that encloses the rows. If ``ball`` is given, it is used instead of a new solution."""
    kind: type[Sphere | Ellipsoid | KernelSphere | KernelEllipsoid | SequenceSphere]
    if is_sequence_kernel(settings.kernel):
        kind = SequenceSphere if settings.shape == "sphere" else KernelEllipsoid
        return kind.build(rows, settings, ball)
    n, d = rows.X.shape
    if settings.kernel != "linear":
        kind = KernelSphere if settings.shape == "sphere" else KernelEllipsoid
    elif settings.shape == "sphere":
        kind = Sphere
    else:
        kind = Ellipsoid if d <= max(n, _MAX_EXPLICIT_FEATURES) else KernelEllipsoid
    return kind.build(rows, settings, ball)


# -- explicit bodies of the linear kernel -----------------------------------------------------------


@dataclass(frozen=True)
class Sphere:
    """Sphere in input space that encloses the rows of a class."""

    ball: Ball
    center: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Sphere:
        """Return the sphere that encloses the rows."""
        ball = ball or settings.ball(_LINEAR, rows.X - rows.mean, rows)
        return cls(ball, ball.alpha @ rows.X)

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the center."""
        return sphere_distances([self], X)[:, 0]


@dataclass(frozen=True)
class Ellipsoid:
    """Ellipsoid in input space. The squared distance of x is the sum of (axis'x - offset)^2 over ``axes``."""

    ball: Ball
    axes: FloatArray
    offsets: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Ellipsoid:
        """Return the ellipsoid that encloses the rows."""
        centred = rows.X - rows.mean
        with limit_blas(centred.shape[1]):
            spectrum, directions = np.linalg.eigh((centred * rows.weights[:, None]).T @ centred / rows.total)
        spectrum = np.maximum(spectrum, 0.0)

        def measure() -> Spread:
            tails = median_kurtosis(centred, rows.weights)
            return Spread(spectrum, (centred @ directions) ** 2, rows.weights, len(spectrum), tails)

        covariance = Covariance.from_ridge(settings.ridge, measure)
        axes = np.ascontiguousarray((directions / covariance.stretch(spectrum)).T)
        ball = ball or settings.ball(_LINEAR, centred @ axes.T, rows)
        # Offsets use the same native loop as distances, so that the only row of a class has distance 0.
        offsets = np.empty((1, len(axes)))
        _native.kernel_block(_LINEAR, (ball.alpha @ rows.X)[None, :], axes, offsets)
        return cls(ball, axes, offsets[0])

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the center."""
        return ellipsoid_distances([self], X)[:, 0]


def sphere_distances(spheres: list[Sphere], X: FloatArray) -> FloatArray:
    """Return the squared distance of each row to each center."""
    return _native.sphere_distances(X, _centers(spheres), num_threads())


def ellipsoid_distances(ellipsoids: list[Ellipsoid], X: FloatArray) -> FloatArray:
    """Return the squared distance of each row to each center, by one product with the axes of all bodies."""
    return _native.ellipsoid_distances(X, *_all_axes(ellipsoids), num_threads())


def nearest_sphere(spheres: list[Sphere], radii: FloatArray, X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the sphere with the smallest ratio of distance to radius for each row, and this ratio."""
    return _native.nearest_sphere(X, _centers(spheres), radii, num_threads())


def nearest_ellipsoid(
    ellipsoids: list[Ellipsoid], radii: FloatArray, X: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the ellipsoid with the smallest ratio of distance to radius for each row, and this ratio."""
    return _native.nearest_ellipsoid(X, *_all_axes(ellipsoids), radii, num_threads())


def _centers(spheres: list[Sphere]) -> FloatArray:
    return np.array([sphere.center for sphere in spheres])


def _all_axes(ellipsoids: list[Ellipsoid]) -> tuple[FloatArray, FloatArray, NDArray[np.uint64]]:
    """Return the concatenated axes and offsets of all ellipsoids, and the start index of each ellipsoid."""
    axes = np.concatenate([body.axes for body in ellipsoids])
    offsets = np.concatenate([body.offsets for body in ellipsoids])
    return axes, offsets, np.cumsum([0, *(len(body.axes) for body in ellipsoids)], dtype=np.uint64)


# -- bodies of any kernel ---------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSphere:
    """Ball in the feature space of a kernel, stored as the rows with positive weight in its center."""

    ball: Ball
    kernel: Kernel
    support: _native.PackedRows64
    coefficients: FloatArray
    centre_length: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> KernelSphere:
        """Return the sphere that encloses the rows."""
        kernel = settings.kernel_for(rows)
        ball = ball or settings.ball(kernel.spec(), rows.X, rows)
        support_rows = ball.alpha > 0.0
        X, coefficients = rows.X[support_rows], ball.alpha[support_rows]
        support = _native.PackedRows64(X.shape[1], len(X))
        support.append(X)
        sums = np.empty(len(X))
        support.kernel_sums(kernel.spec(), X, coefficients, sums)
        return cls(ball, kernel, support, coefficients, float(coefficients @ sums))

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the center."""
        sums = np.empty(len(X))
        self.support.kernel_sums(self.kernel.spec(), X, self.coefficients, sums, num_threads())
        return np.maximum(self.kernel.diagonal(X) - 2.0 * sums + self.centre_length, 0.0)


@dataclass(frozen=True)
class SequenceSphere:
    """Ball in the feature space of a sequence kernel, computed from its kernel matrix."""

    ball: Ball
    kernel: Kernel
    support: list[Any]
    coefficients: FloatArray
    centre_length: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> SequenceSphere:
        """Return the sphere that encloses the rows."""
        kernel = settings.kernel_for(rows)
        if ball is None:
            _check_kernel_matrix_fits(len(rows.X))
            table = ItemTable([kernel])
            ball = settings.ball(table.specs()[0], table.add(rows.X), rows)
        support_rows = ball.alpha > 0.0
        support, coefficients = take(rows.X, support_rows), ball.alpha[support_rows]
        length = coefficients @ kernel.block(support) @ coefficients
        return cls(ball, kernel, support, coefficients, float(length))

    def squared_distances(self, X: Any) -> FloatArray:
        """Return the squared distance of each sequence to the center."""
        sums = self.kernel.block(X, self.support) @ self.coefficients
        return np.maximum(self.kernel.diagonal(X) - 2.0 * sums + self.centre_length, 0.0)


@dataclass(frozen=True)
class KernelEllipsoid:
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
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> KernelEllipsoid:
        """Return the ellipsoid that encloses the rows."""
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
        dimension = rows.X.shape[1] if kernel.kernel == "linear" else max(1, len(spectrum))
        coordinates = U * np.sqrt(omega) / roots[:, None]

        def measure() -> Spread:
            linear = kernel.kernel == "linear"
            tails = median_kurtosis(rows.X - rows.mean, rows.weights) if linear else 0.0
            return Spread(spectrum, coordinates**2, rows.weights, dimension, tails)

        covariance = Covariance.from_ridge(settings.ridge, measure)
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
        """Return the squared distance of each row to the center."""
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
