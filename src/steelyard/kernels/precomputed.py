"""Kernel values that are known beforehand, for learners whose rows come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.persistence import storable

__all__ = ["PrecomputedKernel"]

_WHO = "PrecomputedKernel"


@storable("PrecomputedKernel")
class PrecomputedKernel(BaseEstimator):
    """A kernel whose values stand in a matrix; a sample is the number of its row there.

    :class:`sklearn.svm.SVC` takes ``kernel="precomputed"`` and a square table in place of the rows. A learner
    that goes on learning and forgetting needs to know which row of the matrix a sample is, so here samples
    are numbers, one column of them.

    Parameters
    ----------
    matrix : array-like of shape (n_samples, n_samples)
        Kernel values of all samples that will be learned or asked for. Finite, symmetric, and for support
        vector machines positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import IncrementalSVC
    >>> from steelyard.kernels import PrecomputedKernel
    >>> rows = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, 2.0], [2.5, 2.5], [0.2, 0.4]])
    >>> samples = np.arange(5)[:, None]
    >>> model = IncrementalSVC(kernel=PrecomputedKernel(rows @ rows.T))
    >>> model.fit(samples[:4], [0, 0, 1, 1]).predict(samples[4:])
    array([0])
    >>> model.forget(samples[:1], [0]).class_count_
    array([1, 2])
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def __call__(self, X: Any, Z: Any) -> FloatArray:
        """Kernel values of every sample of ``X`` with every sample of ``Z``."""
        matrix = self._checked()
        values: FloatArray = matrix[np.ix_(_numbers(X, len(matrix)), _numbers(Z, len(matrix)))]
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrecomputedKernel) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash(np.shape(self.matrix))

    def _checked(self) -> FloatArray:
        """The matrix; looked at as a whole only once."""
        known = self.__dict__.get("_known")
        if known is not None and known[0] is self.matrix:
            return known[1]
        matrix = np.asarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"expected a square matrix; got shape {matrix.shape}.", source=_WHO)
        if not np.isfinite(matrix).all():
            raise DataError("the matrix holds values that are not finite.", source=_WHO)
        if not np.array_equal(matrix, matrix.T):
            raise DataError(
                "the matrix is not symmetric.", source=_WHO, hint="rounding is taken away by (K + K.T) / 2"
            )
        self._known = (self.matrix, matrix)
        return matrix

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_known"}

    def _get_state(self) -> dict[str, Any]:
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError("a matrix of kernel values has no state")


def _numbers(samples: Any, n_known: int) -> NDArray[np.intp]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise DataError(
            f"samples are numbers of rows of the matrix, in one column; got shape {values.shape}.",
            source=_WHO,
            hint="learn np.arange(n)[:, None], not the matrix",
        )
    numbers = values[:, 0].astype(np.intp)
    if not (np.array_equal(numbers, values[:, 0]) and ((numbers >= 0) & (numbers < n_known)).all()):
        raise DataError(f"samples must be whole numbers from 0 to {n_known - 1}.", source=_WHO)
    return numbers
