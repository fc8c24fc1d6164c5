"""Prediction sets (conformal prediction): the classes that cannot be ruled out for a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from steelyard._types import FloatArray, IntArray
from steelyard.exceptions import ParameterError

_HALF_LIFE_ROWS = 200.0  # half-life of the weights of recent rows, in rows of the same class


def check_coverage(coverage: object, source: str) -> float:
    """Return the coverage; raise ParameterError if it is not a number between 0 and 1."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0.0 < coverage < 1.0:
        raise ParameterError(f"coverage must be a number between 0 and 1; got {coverage!r}.", source=source)
    return float(coverage)


def prediction_sets(
    recent: FloatArray, places: IntArray, new: FloatArray, coverage: float
) -> NDArray[np.bool_]:
    """Return the prediction set of every new row, as a boolean matrix over the classes.

    A class belongs to the set unless the row's probability of this class is among the lowest
    ``1 - coverage`` of recent out-of-sample probabilities of rows of this class. Newer rows have larger
    weights. If the rows of a class are exchangeable and the weights equal, the set of a row of this class
    contains it with probability ``coverage`` or more (Vovk 2012). With drift and decaying weights, the loss
    of coverage is at most the weighted distance between the past and the current distributions (Barber,
    Candes, Ramdas, Tibshirani 2023).

    Parameters
    ----------
    recent : ndarray of shape (n_recent, n_classes)
        Out-of-sample log-odds of recent rows, oldest first.
    places : ndarray of shape (n_recent,)
        Class index of each recent row.
    new : ndarray of shape (n_rows, n_classes)
        Log-odds of the new rows.
    coverage : float
        Target probability that the true class belongs to the set.
    """
    recent, new = log_softmax(recent, axis=1), log_softmax(new, axis=1)
    members = np.ones(new.shape, dtype=bool)
    for k in range(new.shape[1]):
        own = recent[places == k, k]
        weights = 0.5 ** (np.arange(len(own), 0, -1) / _HALF_LIFE_ROWS)
        order = np.argsort(own)
        summed = np.concatenate([[0.0], np.cumsum(weights[order])])
        below = summed[np.searchsorted(own[order], new[:, k], side="right")]
        members[:, k] = below + 1.0 > (1.0 - coverage) * (summed[-1] + 1.0)
    return members
