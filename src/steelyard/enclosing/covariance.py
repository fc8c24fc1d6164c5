r"""How far a covariance is drawn towards a multiple of the identity before an ellipsoid is shaped by it.

Both forms of an ellipsoid, explicit and through kernel values, know a class by the same numbers: the
spectrum of its covariance and the squared coordinates of its rows along the principal axes. Everything
here is said in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Covariance", "Spread", "estimate_shrinkage"]

FloatArray = NDArray[np.float64]

_SHARPNESS = 6.0  # see estimate_shrinkage
_NO_VARIANCE = 1e-12  # of the largest eigenvalue


@dataclass(frozen=True)
class Spread:
    """How the rows of a class lie about their mean.

    Attributes
    ----------
    spectrum : ndarray of shape (n_axes,)
        Eigenvalues of the covariance, those of 0 included or not.
    squares : ndarray of shape (n_rows, n_axes)
        Squared coordinates of the centred rows along the eigenvectors.
    weights : ndarray of shape (n_rows,)
        How often each row came.
    dimension : int
        Dimension of the space; the covariance has eigenvalue 0 along what the axes leave out.
    """

    spectrum: FloatArray
    squares: FloatArray
    weights: FloatArray
    dimension: int

    @property
    def mean_variance(self) -> float:
        """Mean eigenvalue."""
        return float(self.spectrum.sum()) / self.dimension


@dataclass(frozen=True)
class Covariance:
    r"""The covariance :math:`keep \cdot S + floor \cdot I`, known by what it makes of the spectrum of S."""

    keep: float
    floor: float

    @classmethod
    def settle(cls, ridge: float | str, spread: Spread) -> Covariance:
        """Return the covariance that ``ridge`` asks for; "auto" estimates the shrinkage."""
        if not isinstance(ridge, str):
            return cls(1.0, float(ridge))
        if spread.mean_variance <= 0.0:
            return cls(1.0, 1.0)  # equal rows: the body is a point, whatever the metric
        return cls.shrunk(spread, estimate_shrinkage(spread))

    @classmethod
    def shrunk(cls, spread: Spread, shrinkage: float) -> Covariance:
        """Return the covariance between S (shrinkage 0) and the sphere of the same size (1)."""
        return cls(1.0 - shrinkage, shrinkage * spread.mean_variance)

    def stretch(self, spectrum: FloatArray) -> FloatArray:
        """Return the standard deviation along each axis."""
        return np.asarray(np.sqrt(self.keep * spectrum + self.floor))


def estimate_shrinkage(spread: Spread) -> float:
    r"""Weigh ellipsoid and sphere against each other by how they treat rows of the class not seen before.

    Returns
    -------
    float
        0 keeps the covariance as it is, 1 replaces it by the sphere.

    Notes
    -----
    A metric serves well if rows of the class that it was not fitted to lie where the others lie, and a
    row that is displaced stands out. With :math:`d^2_{-i}` the squared distance of row i from a body fitted
    to the others and :math:`\overline{d^2}` the mean of the fitted ones, noise over signal is

    .. math::

        J = \frac{\sqrt{\mathrm{mean}_i\,(d^2_{-i} - \overline{d^2})^2}}{\sum_k 1 / \lambda_k}

    where :math:`\lambda_k` are the eigenvalues of the metric's covariance along directions in which the
    class varies. The odds of the shrinkage, s / (1 - s), are :math:`(J_{ellipsoid} / J_{sphere})^6`. The
    sixth power decides for one end when the two differ clearly, and stays smooth between them, so that
    classes of one kind get about the same metric and their distances remain comparable.

    The ellipsoid's end is not the bare covariance but the one with one more row, of mean length, in a
    direction not seen yet: s = 1 / (l + 1) for l rows. Leaving out a row is closed form in its distance
    :math:`d^2_i`, since it takes a multiple of one outer product out of the covariance:
    :math:`d^2_{-i} = (\tfrac{l}{l-1})^2 d_i^2 / (1 - \tfrac{keep}{l-1} d_i^2)`.
    """
    total = float(spread.weights.sum())
    if total <= 1.0:
        return 1.0
    least = 1.0 / (total + 1.0)
    ellipsoid, sphere = (_noise_over_signal(spread, shrinkage) for shrinkage in (least, 1.0))
    odds = (ellipsoid / sphere) ** _SHARPNESS if sphere > 0.0 else 0.0
    return max(least, odds / (1.0 + odds)) if np.isfinite(odds) else 1.0


def _noise_over_signal(spread: Spread, shrinkage: float) -> float:
    covariance = Covariance.shrunk(spread, shrinkage)
    precision = covariance.stretch(spread.spectrum) ** -2.0
    distances = spread.squares @ precision
    total = float(spread.weights.sum())
    shares = spread.weights / total
    left = np.minimum(spread.weights, 1.0)  # one repetition of a row is left out
    rest = total - left
    kept = np.maximum(1.0 - covariance.keep * left / rest * distances, 1e-12)
    unseen = (total / rest) ** 2 * distances / kept
    noise = np.sqrt(shares @ (unseen - shares @ distances) ** 2)
    varying = spread.spectrum > _NO_VARIANCE * spread.spectrum.max()
    return float(noise / precision[varying].sum())
