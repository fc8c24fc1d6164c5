r"""Shrinkage of a class covariance towards a multiple of the identity.

The explicit and the kernel ellipsoid describe a class by the same numbers: the eigenvalues of its covariance
and the squared coordinates of its rows along the principal axes. This module uses only these numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

_MIN_RELATIVE_VARIANCE = 1e-12  # eigenvalues below this fraction of the largest one count as 0
# estimate_shrinkage() explains the following constants.
_MAX_DISTANCE_RATIO = 2.0
_MIN_NOISE_RATIO = 1.4
_HEAVY_TAIL_KURTOSIS = 7.0
_MIN_SHRINKAGE = 1e-9  # avoids divisions by zero
_MAX_SHRINKAGE = 0.1
_N_BISECTIONS = 30


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
        return np.asarray(self.spectrum > _MIN_RELATIVE_VARIANCE * self.spectrum.max())


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
            varies = spectrum > _MIN_RELATIVE_VARIANCE * spectrum.max(initial=0.0)
            return np.where(varies, np.sqrt(self.keep * spectrum), np.inf)
        return np.asarray(np.sqrt(self.keep * spectrum + self.floor))


def median_kurtosis(centred: FloatArray, weights: FloatArray) -> float:
    """Return the median kurtosis of features with nonzero variance. A normal distribution has kurtosis 3."""
    shares = weights / weights.sum()
    squares = centred**2
    variances = shares @ squares
    varying = variances > _MIN_RELATIVE_VARIANCE * variances.max(initial=0.0)
    if not varying.any():
        return 0.0
    return float(np.median((shares @ squares**2)[varying] / variances[varying] ** 2))


def estimate_shrinkage(spread: Spread) -> float:
    r"""Return a shrinkage between 0 (ellipsoid) and 1 (sphere), selected by leave-one-out distances.

    Let :math:`d^2_i` be the squared distances of the rows from their mean and :math:`d^2_{-i}` the same with
    row i left out of mean and covariance. The answers to two questions determine the shrinkage.

    *How much shrinkage does the ellipsoid need to generalize?* It needs the smallest shrinkage with
    :math:`\overline{d^2_{-i}} \le 2\, \overline{d^2_i}`. A class with many rows relative to its dimension
    needs none. Leaving a row out gives no information about directions without variance. If there are any,
    the shrinkage is at least 1 / (l + 1) for l rows, as if there were one more row of mean length in a new
    direction. The shrinkage is at most 0.1, because more shrinkage would make the ellipsoid nearly a sphere.

    *Is the sphere better?* In a good metric, left-out rows have distances similar to those of the other rows,
    and displaced rows have larger distances. The ratio of noise to signal is

    .. math::

        J = \frac{\mathrm{mean}_i\, |d^2_{-i} - \overline{d^2}|}{\sum_k \sqrt{s_k} / \lambda_k}

    where :math:`\lambda_k` are the eigenvalues of the metric's covariance, and displacements are assumed to
    be larger in directions in which the class has more variance :math:`s_k`. The sphere is chosen if its J is
    smaller by a factor of 1.4 and the features have heavy tails (a median kurtosis above 7). Texts are an
    example, because words occur in bursts. Both conditions are strict because a single sphere among
    ellipsoids attracts the rows of other classes.

    Leaving out a row has a closed form, because it subtracts a multiple of one outer product from the
    covariance: :math:`d^2_{-i} = (\tfrac{l}{l-1})^2 d_i^2 / (1 - \tfrac{keep}{l-1} d_i^2)`, where keep is
    1 - shrinkage.
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
    """Return the squared distance of each row from the mean: of all rows, and without one copy of the row."""
    distances = spread.squares @ covariance.stretch(spread.spectrum) ** -2.0
    total, removed = float(spread.weights.sum()), np.minimum(spread.weights, 1.0)
    rest = total - removed
    denominators = np.maximum(1.0 - covariance.keep * removed / rest * distances, 1e-12)
    return distances, (total / rest) ** 2 * distances / denominators
