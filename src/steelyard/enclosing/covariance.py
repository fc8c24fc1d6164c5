r"""How far a covariance is drawn towards a multiple of the identity before an ellipsoid is shaped by it.

Both forms of an ellipsoid, explicit and through kernel values, know a class by the same numbers: the
spectrum of its covariance and the squared coordinates of its rows along the principal axes. Everything
here is said in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

__all__ = ["Covariance", "Spread", "estimate_shrinkage", "median_kurtosis"]


_NO_VARIANCE = 1e-12  # of the largest eigenvalue
# See estimate_shrinkage.
_FARTHER = 2.0
_CLEARLY = 1.4
_HEAVY_TAILS = 7.0
_BARE = 1e-9  # shrinkage that only keeps numbers finite
_MOST = 0.1
_BISECTIONS = 30


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
    tails : float
        Median kurtosis of the features, see :func:`median_kurtosis`; 0 where the space is not theirs.
    """

    spectrum: FloatArray
    squares: FloatArray
    weights: FloatArray
    dimension: int
    tails: float

    @property
    def mean_variance(self) -> float:
        """Mean eigenvalue."""
        return float(self.spectrum.sum()) / self.dimension

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Axes along which the rows differ."""
        return np.asarray(self.spectrum > _NO_VARIANCE * self.spectrum.max())


@dataclass(frozen=True)
class Covariance:
    r"""The covariance :math:`keep \cdot S + floor \cdot I`, known by what it makes of the spectrum of S.

    With a floor of 0 it is inverted as a pseudo-inverse: axes without variance do not count.
    """

    keep: float
    floor: float

    @classmethod
    def settle(cls, ridge: float | str, measure: Callable[[], Spread]) -> Covariance:
        """Return the covariance that ``ridge`` asks for; "auto" estimates the shrinkage from the spread."""
        if not isinstance(ridge, str) and ridge > 0:
            return cls(1.0, float(ridge))
        spread = measure()
        if spread.mean_variance <= 0.0:
            return cls(1.0, 1.0)  # equal rows: the body is a point, whatever the metric
        if not isinstance(ridge, str):
            return cls(1.0, 0.0)
        return cls.shrunk(spread, estimate_shrinkage(spread))

    @classmethod
    def shrunk(cls, spread: Spread, shrinkage: float) -> Covariance:
        """Return the covariance between S (shrinkage 0) and the sphere of the same size (1)."""
        return cls(1.0 - shrinkage, shrinkage * spread.mean_variance)

    def stretch(self, spectrum: FloatArray) -> FloatArray:
        """Return the standard deviation along each axis; infinite for an axis that does not count."""
        if self.floor == 0.0:
            varies = spectrum > _NO_VARIANCE * spectrum.max(initial=0.0)
            return np.where(varies, np.sqrt(self.keep * spectrum), np.inf)
        return np.asarray(np.sqrt(self.keep * spectrum + self.floor))


def median_kurtosis(centred: FloatArray, weights: FloatArray) -> float:
    """Return the median kurtosis of features with variance: 3 for normal ones, more for heavier tails."""
    shares = weights / weights.sum()
    squares = centred**2
    variances = shares @ squares
    varying = variances > _NO_VARIANCE * variances.max(initial=0.0)
    if not varying.any():
        return 0.0
    return float(np.median((shares @ squares**2)[varying] / variances[varying] ** 2))


def estimate_shrinkage(spread: Spread) -> float:
    r"""Choose between ellipsoid and sphere by how they treat rows of the class not seen before.

    Returns
    -------
    float
        0 keeps the covariance as it is, 1 replaces it by the sphere.

    Notes
    -----
    With :math:`d^2_i` the squared distances of the rows from their mean and :math:`d^2_{-i}` what they are
    when row i is left out of mean and covariance, two questions are asked.

    *How much shrinkage makes the ellipsoid hold for rows that it was not fitted to?* The least with which
    they lie not more than twice as far, :math:`\overline{d^2_{-i}} \le 2\, \overline{d^2_i}`. A class with
    many rows for its dimension needs none. Leaving a row out tells nothing of directions in which no row
    differs from the others; where there are any, at least 1 / (l + 1) is taken for l rows, as if one more
    row, of mean length, had come in a new direction. More than a tenth is not taken, since the ellipsoid
    then has little left to tell.

    *Would the sphere be better?* A metric serves well if rows not seen lie where the others lie and a row
    that is displaced stands out. Noise over signal is

    .. math::

        J = \frac{\mathrm{mean}_i\, |d^2_{-i} - \overline{d^2}|}{\sum_k \sqrt{s_k} / \lambda_k}

    where :math:`\lambda_k` are the eigenvalues of the metric's covariance, and a displacement is taken to be
    larger in directions in which the class itself has more variance :math:`s_k`. The sphere is taken if its
    J is smaller by a factor of 1.4 and the features have heavy tails, a median kurtosis above 7. This is so
    for texts, whose words come in bursts. One class that is a sphere among ellipsoids draws in the rows of
    the others, so the two conditions are strict.

    Leaving out a row is closed form, since it takes a multiple of one outer product out of the covariance:
    :math:`d^2_{-i} = (\tfrac{l}{l-1})^2 d_i^2 / (1 - \tfrac{keep}{l-1} d_i^2)`.
    """
    if float(spread.weights.sum()) <= 1.0:
        return 1.0
    shrinkage = _least_shrinkage(spread)
    if spread.tails > _HEAVY_TAILS:
        ellipsoid, sphere = (_noise_over_signal(spread, s) for s in (shrinkage, 1.0))
        if ellipsoid > _CLEARLY * sphere:
            return 1.0
    return min(shrinkage, _MOST)


def _least_shrinkage(spread: Spread) -> float:
    """Return the least shrinkage with which rows left out lie not much farther than the fitted ones."""
    constant = np.count_nonzero(spread.varying) < spread.dimension
    low, high = (1.0 / (float(spread.weights.sum()) + 1.0) if constant else _BARE), 1.0
    if _holds_for_unseen(spread, low):
        return low
    for _ in range(_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if _holds_for_unseen(spread, middle) else (middle, high)
    return high


def _holds_for_unseen(spread: Spread, shrinkage: float) -> bool:
    distances, unseen = _distances(spread, Covariance.shrunk(spread, shrinkage))
    return bool(spread.weights @ unseen <= _FARTHER * (spread.weights @ distances))


def _noise_over_signal(spread: Spread, shrinkage: float) -> float:
    covariance = Covariance.shrunk(spread, shrinkage)
    distances, unseen = _distances(spread, covariance)
    shares = spread.weights / spread.weights.sum()
    variances = spread.spectrum[spread.varying]
    signal = (np.sqrt(variances) / covariance.stretch(variances) ** 2).sum()
    return float(shares @ np.abs(unseen - shares @ distances) / signal)


def _distances(spread: Spread, covariance: Covariance) -> tuple[FloatArray, FloatArray]:
    """Return squared distances from the mean: fitted, and with one repetition of the row left out."""
    distances = spread.squares @ covariance.stretch(spread.spectrum) ** -2.0
    total, left = float(spread.weights.sum()), np.minimum(spread.weights, 1.0)
    rest = total - left
    kept = np.maximum(1.0 - covariance.keep * left / rest * distances, 1e-12)
    return distances, (total / rest) ** 2 * distances / kept
