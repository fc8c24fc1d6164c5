r"""How far a covariance is drawn towards a multiple of the identity before an ellipsoid is shaped by it.

Both forms of an ellipsoid, explicit and through kernel values, know a class by the same few sums: the
spectrum of its covariance and the squared lengths of its centred rows. Everything here is said in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Covariance", "estimate_shrinkage"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Covariance:
    r"""The covariance :math:`keep \cdot S + floor \cdot I`, known by what it makes of the spectrum of S."""

    keep: float
    floor: float

    @classmethod
    def settle(
        cls, ridge: float | str, spectrum: FloatArray, lengths: FloatArray, weights: FloatArray, dimension: int
    ) -> Covariance:
        """Return the covariance that ``ridge`` asks for.

        Parameters
        ----------
        ridge : float or "auto"
            What is added to every eigenvalue; "auto" estimates the shrinkage.
        spectrum : ndarray
            Eigenvalues of the class covariance S that are not 0.
        lengths : ndarray of shape (n_rows,)
            Squared lengths of the centred rows.
        weights : ndarray of shape (n_rows,)
            How often each row came.
        dimension : int
            Dimension of the space in which the covariance lives.
        """
        if not isinstance(ridge, str):
            return cls(1.0, float(ridge))
        trace = float(spectrum.sum())
        if trace <= 0.0:
            return cls(1.0, 1.0)  # equal rows: the body is a point, whatever the metric
        shrinkage = estimate_shrinkage(spectrum, lengths, weights, dimension)
        return cls(1.0 - shrinkage, shrinkage * trace / dimension)

    def stretch(self, spectrum: FloatArray) -> FloatArray:
        """Return the standard deviation along each axis."""
        return np.asarray(np.sqrt(self.keep * spectrum + self.floor))


def estimate_shrinkage(
    spectrum: FloatArray, lengths: FloatArray, weights: FloatArray, dimension: int
) -> float:
    r"""Ledoit and Wolf's estimate of how much of the covariance is noise, from 0 (none) to 1 (all of it).

    Notes
    -----
    With :math:`l` rows :math:`x_k` about their mean and :math:`p` dimensions,

    .. math::

        s = \frac{\frac{1}{l^2} \sum_k \lVert x_k x_k^\top - S \rVert^2}{\lVert S - \frac{\mathrm{tr} S}{p} I \rVert^2}
          = \frac{\frac{1}{l^2} \sum_k \lVert x_k \rVert^4 - \frac{1}{l} \mathrm{tr} S^2}
                 {\mathrm{tr} S^2 - \frac{1}{p} (\mathrm{tr} S)^2} ,

    cut to at most 1. The second form needs no matrix, so it holds in the space of any kernel.
    """
    total = weights.sum()
    trace, trace_of_square = spectrum.sum(), (spectrum**2).sum()
    noise = (weights @ lengths**2 / total - trace_of_square) / total
    spread = trace_of_square - trace**2 / dimension
    return 1.0 if noise >= spread else max(0.0, float(noise / spread))
