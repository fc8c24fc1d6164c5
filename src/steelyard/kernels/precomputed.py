"""Kernel given by a precomputed matrix of values, for incremental learners."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.persistence import storable

__all__ = ["PrecomputedKernel"]

_SOURCE = "PrecomputedKernel"


@storable("PrecomputedKernel")
class PrecomputedKernel(BaseEstimator):
    """Kernel given by a matrix of values. A sample is the index of its row in the matrix.

    :class:`sklearn.svm.SVC` takes ``kernel="precomputed"`` and a square matrix instead of rows. An
    incremental learner must know which row of the matrix belongs to a sample. With this kernel, ``X``
    therefore has one column, which contains the index of each sample.

    Parameters
    ----------
    matrix : array-like of shape (n_samples, n_samples)
        Kernel values of all samples that will be learned or predicted. Finite, symmetric, and for support
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
        """Return the kernel values of every sample of ``X`` with every sample of ``Z``."""
        matrix = self._validated_matrix()
        values: FloatArray = matrix[np.ix_(_indices(X, len(matrix)), _indices(Z, len(matrix)))]
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrecomputedKernel) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash(np.shape(self.matrix))

    def _validated_matrix(self) -> FloatArray:
        """Return the matrix, which is validated once and then cached."""
        cached = self.__dict__.get("_cached")
        if cached is not None and cached[0] is self.matrix:
            return cached[1]
        matrix = np.asarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"expected a square matrix; got shape {matrix.shape}.", source=_SOURCE)
        if not np.isfinite(matrix).all():
            raise DataError("the matrix contains values that are not finite.", source=_SOURCE)
        if not np.array_equal(matrix, matrix.T):
            raise DataError(
                "the matrix is not symmetric.", source=_SOURCE, hint="(K + K.T) / 2 removes rounding errors"
            )
        self._cached = (self.matrix, matrix)
        return matrix

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_cached"}

    def _get_state(self) -> dict[str, Any]:
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError("a PrecomputedKernel has no learned state")


def _indices(samples: Any, n_rows: int) -> NDArray[np.intp]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise DataError(
            f"samples must be row indices of the matrix in one column; got shape {values.shape}.",
            source=_SOURCE,
            hint="pass np.arange(n)[:, None] as X, not the matrix",
        )
    indices = values[:, 0].astype(np.intp)
    if not (np.array_equal(indices, values[:, 0]) and ((indices >= 0) & (indices < n_rows)).all()):
        raise DataError(f"samples must be integers from 0 to {n_rows - 1}.", source=_SOURCE)
    return indices
