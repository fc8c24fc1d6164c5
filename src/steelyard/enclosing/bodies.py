r"""Rule: from the rows of a class to the smallest body around them, and from a body to distances.

An ellipsoid is the ball of whitened coordinates. Where the kernel is linear these are written down
explicitly, by one axis for each feature; otherwise they are built from the kernel matrix of the class,
which needs no more than kernel values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._memory import check_fits_memory
from steelyard._threads import num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.enclosing.ball import Ball, smallest_ball, weight_bounds
from steelyard.enclosing.covariance import Covariance, Spread, median_kurtosis
from steelyard.enclosing.rows import ClassRows
from steelyard.kernels import Kernel
from steelyard.kernels.items import ItemTable, is_sequence_kernel, take

__all__ = ["Body", "BodySettings", "Ellipsoid", "KernelEllipsoid", "KernelSphere", "Sphere", "build_body"]


_EXPLICIT_FEATURES = 512  # up to here a whole set of axes is cheap, however few the rows
_RANK_CUT = 1e-12  # of the largest eigenvalue: what lies below is rounding
_LINEAR = Kernel("linear").spec()


@dataclass(frozen=True)
class BodySettings:
    """The parameters that decide what body a class gets."""

    shape: str
    kernel: Any  # a name, or a sequence kernel with parameters that do not change any more
    gamma: float | str
    degree: int
    coef0: float
    C: float | None
    outliers: float
    ridge: float | str

    def kernel_for(self, rows: ClassRows) -> Kernel:
        """Return the kernel with a gamma that depends on the rows of this class alone."""
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
        """Return the smallest ball around rows in these coordinates."""
        return smallest_ball(spec, X, weight_bounds(rows.weights, self.C, self.outliers))


class Body(Protocol):
    """One enclosing body."""

    @property
    def ball(self) -> Ball:
        """Weights of the rows in the centre, and the radius."""

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the centre."""


def build_body(rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Body:
    """Return the body around the rows; a ball that is known already is not searched for again."""
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
        kind = Ellipsoid if d <= max(n, _EXPLICIT_FEATURES) else KernelEllipsoid
    return kind.build(rows, settings, ball)


# -- the linear kernel, explicitly ------------------------------------------------------------------


@dataclass(frozen=True)
class Sphere:
    """A ball in the space of the features."""

    ball: Ball
    center: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Sphere:
        """Return the sphere around the rows."""
        ball = ball or settings.ball(_LINEAR, rows.X - rows.mean, rows)
        return cls(ball, ball.alpha @ rows.X)

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the centre."""
        return sphere_distances([self], X)[:, 0]


@dataclass(frozen=True)
class Ellipsoid:
    """The squared distance is the sum of (axis'x - offset)^2 over the axes, the rows of ``axes``."""

    ball: Ball
    axes: FloatArray
    offsets: FloatArray

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> Ellipsoid:
        """Return the ellipsoid around the rows."""
        centred = rows.X - rows.mean
        spectrum, directions = np.linalg.eigh((centred * rows.weights[:, None]).T @ centred / rows.total)
        spectrum = np.maximum(spectrum, 0.0)

        def measure() -> Spread:
            tails = median_kurtosis(centred, rows.weights)
            return Spread(spectrum, (centred @ directions) ** 2, rows.weights, len(spectrum), tails)

        covariance = Covariance.settle(settings.ridge, measure)
        axes = np.ascontiguousarray((directions / covariance.stretch(spectrum)).T)
        ball = ball or settings.ball(_LINEAR, centred @ axes.T, rows)
        # By the loops that distances come from, so that a class of one row is at distance 0 of itself.
        offsets = np.empty((1, len(axes)))
        _native.kernel_block(_LINEAR, (ball.alpha @ rows.X)[None, :], axes, offsets)
        return cls(ball, axes, offsets[0])

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the centre."""
        return ellipsoid_distances([self], X)[:, 0]


def sphere_distances(spheres: list[Sphere], X: FloatArray) -> FloatArray:
    """Return the squared distance of each row to each centre."""
    return _native.sphere_distances(X, _centers(spheres), num_threads())


def ellipsoid_distances(ellipsoids: list[Ellipsoid], X: FloatArray) -> FloatArray:
    """Return the squared distance of each row to each centre, by one product with the axes of all."""
    return _native.ellipsoid_distances(X, *_all_axes(ellipsoids), num_threads())


def nearest_sphere(spheres: list[Sphere], radii: FloatArray, X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the sphere with the smallest ratio of distance and radius for each row, and that ratio."""
    return _native.nearest_sphere(X, _centers(spheres), radii, num_threads())


def nearest_ellipsoid(
    ellipsoids: list[Ellipsoid], radii: FloatArray, X: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the ellipsoid with the smallest ratio of distance and radius for each row, and that ratio."""
    return _native.nearest_ellipsoid(X, *_all_axes(ellipsoids), radii, num_threads())


def _centers(spheres: list[Sphere]) -> FloatArray:
    return np.array([sphere.center for sphere in spheres])


def _all_axes(ellipsoids: list[Ellipsoid]) -> tuple[FloatArray, FloatArray, NDArray[np.uint64]]:
    """Axes and offsets of all, one after the other, and where those of each begin."""
    axes = np.concatenate([body.axes for body in ellipsoids])
    offsets = np.concatenate([body.offsets for body in ellipsoids])
    return axes, offsets, np.cumsum([0, *(len(body.axes) for body in ellipsoids)], dtype=np.uint64)


# -- any kernel -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSphere:
    """A ball in the space of a kernel, known by the rows that carry weight in its centre."""

    ball: Ball
    kernel: Kernel
    support: _native.PackedRows64
    coefficients: FloatArray
    centre_length: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> KernelSphere:
        """Return the sphere around the rows."""
        kernel = settings.kernel_for(rows)
        ball = ball or settings.ball(kernel.spec(), rows.X, rows)
        mine = ball.alpha > 0.0
        X, coefficients = rows.X[mine], ball.alpha[mine]
        support = _native.PackedRows64(X.shape[1], len(X))
        support.append(X)
        sums = np.empty(len(X))
        support.kernel_sums(kernel.spec(), X, coefficients, sums)
        return cls(ball, kernel, support, coefficients, float(coefficients @ sums))

    def squared_distances(self, X: FloatArray) -> FloatArray:
        """Return the squared distance of each row to the centre."""
        sums = np.empty(len(X))
        self.support.kernel_sums(self.kernel.spec(), X, self.coefficients, sums, num_threads())
        return np.maximum(self.kernel.diagonal(X) - 2.0 * sums + self.centre_length, 0.0)


@dataclass(frozen=True)
class SequenceSphere:
    """A ball in the space of a sequence kernel, found in the matrix of its values."""

    ball: Ball
    kernel: Kernel
    support: list[Any]
    coefficients: FloatArray
    centre_length: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> SequenceSphere:
        """Return the sphere around the rows."""
        kernel = settings.kernel_for(rows)
        if ball is None:
            _check_kernel_matrix_fits(len(rows.X))
            table = ItemTable([kernel])
            ball = settings.ball(table.specs()[0], table.places(rows.X), rows)
        mine = ball.alpha > 0.0
        support, coefficients = take(rows.X, mine), ball.alpha[mine]
        length = coefficients @ kernel.block(support) @ coefficients
        return cls(ball, kernel, support, coefficients, float(length))

    def squared_distances(self, X: Any) -> FloatArray:
        """Return the squared distance of each sequence to the centre."""
        sums = self.kernel.block(X, self.support) @ self.coefficients
        return np.maximum(self.kernel.diagonal(X) - 2.0 * sums + self.centre_length, 0.0)


@dataclass(frozen=True)
class KernelEllipsoid:
    r"""An ellipsoid in the space of a kernel.

    Notes
    -----
    With :math:`D` the weights, :math:`K` the kernel matrix, :math:`H` the centring by the weighted mean and
    :math:`D^{1/2} H K H^\top D^{1/2} = U \Omega U^\top`, the covariance has the eigenvalues
    :math:`\lambda = \omega / l` along :math:`v_k = \sum_i B_{ik} \phi(x_i)` with
    :math:`B = D^{1/2} U \Omega^{-1/2}`. The coordinate of x along :math:`v_k` is divided by the standard
    deviation there; what of x lies outside the span of the class is divided by the square root of the
    covariance's floor.
    """

    ball: Ball
    kernel: Kernel
    X: Any
    shares: FloatArray  # (n_rows,): weights, summing to 1
    projection: FloatArray  # (n_rows, n_axes): kernel values to whitened coordinates
    mean: FloatArray  # (n_axes,): what these are at the mean of the class
    center: FloatArray  # (n_axes,): of the ball, relative to that mean
    stretch: FloatArray  # (n_axes,): standard deviations
    mean_length: float
    floor: float

    @classmethod
    def build(cls, rows: ClassRows, settings: BodySettings, ball: Ball | None = None) -> KernelEllipsoid:
        """Return the ellipsoid around the rows."""
        _check_kernel_matrix_fits(len(rows.X))
        kernel, shares, roots = settings.kernel_for(rows), rows.weights / rows.total, np.sqrt(rows.weights)
        K = kernel.block(rows.X)
        means = K @ shares
        mean_length = float(shares @ means)
        centred = K - means[:, None] - means[None, :] + mean_length
        omega, U = np.linalg.eigh(centred * roots[:, None] * roots[None, :])
        real = omega > max(omega[-1], 0.0) * _RANK_CUT
        omega, U = omega[real], U[:, real]
        spectrum = omega / rows.total
        # The space of most kernels has no end; the rows are then compared within what they span.
        dimension = rows.X.shape[1] if kernel.kernel == "linear" else max(1, len(spectrum))
        coordinates = U * np.sqrt(omega) / roots[:, None]

        def measure() -> Spread:
            linear = kernel.kernel == "linear"
            tails = median_kurtosis(rows.X - rows.mean, rows.weights) if linear else 0.0
            return Spread(spectrum, coordinates**2, rows.weights, dimension, tails)

        covariance = Covariance.settle(settings.ridge, measure)
        stretch = covariance.stretch(spectrum)
        Z = coordinates / stretch
        ball = ball or settings.ball(_LINEAR, Z, rows)
        projection = roots[:, None] * U / (np.sqrt(omega) * stretch)
        # The columns sum to 0 but for rounding, which small eigenvalues blow up.
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
        """Return the squared distance of each row to the centre."""
        K = self.kernel.block(X, self.X)
        coordinates = K @ self.projection - self.mean
        inside = ((coordinates - self.center) ** 2).sum(axis=1)
        if self.floor == 0.0:  # the pseudo-inverse: what lies outside the span does not count
            return np.asarray(inside)
        length = self.kernel.diagonal(X) - 2.0 * (K @ self.shares) + self.mean_length
        outside = length - ((coordinates * self.stretch) ** 2).sum(axis=1)
        # Rows within the span have nothing outside but rounding, which a small floor would blow up.
        outside[outside < 1e-12 * np.abs(length)] = 0.0
        return np.asarray(inside + outside / self.floor)


def _check_kernel_matrix_fits(n_rows: int) -> None:
    check_fits_memory(
        4 * 8 * n_rows**2,
        f"EnclosingClassifier: a kernel ellipsoid around a class of {n_rows:,} distinct rows",
        "use shape='sphere' or kernel='linear', whose memory grows with the number of rows only",
    )
