"""Kernel expansions: scores are weighted sums of kernel values plus an intercept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.kernels.kernel import Kernel

_MAX_BLOCK_VALUES = 1 << 22  # maximum number of kernel values that are held in memory at a time
_MAX_VALUES_FOR_ONE_THREAD = 1 << 12  # number of kernel values up to which one thread is faster


@dataclass(frozen=True)
class KernelExpansion:
    """Kernel expansion of one or several planes: ``k(x, vectors) @ coef.T + intercept``."""

    kernel: Kernel  # kernel with a numeric gamma
    vectors: Any  # support vectors of all planes: an array, or a list of sequences
    coef: FloatArray  # coefficients, shape (n_planes, n_vectors)
    intercept: FloatArray

    def scores(self, X: Any) -> FloatArray:
        """Return the scores of rows, one column per plane."""
        n_vectors, is_native = len(self.vectors), self.kernel.is_native
        out = np.zeros((len(X), len(self.coef)))
        if n_vectors and len(X):
            if not isinstance(X, list):
                X = np.ascontiguousarray(X, dtype=np.float64)
            n_threads = num_threads() if len(X) * n_vectors > _MAX_VALUES_FOR_ONE_THREAD else 1
            if is_native and len(self.coef) == 1:
                self._packed.kernel_sums(self.kernel.spec(), X, self.coef[0], out[:, 0], n_threads)
            else:
                step = max(1, _MAX_BLOCK_VALUES // n_vectors)
                for begin in range(0, len(X), step):
                    rows = X if len(X) <= step else X[begin : begin + step]
                    values = np.empty((len(rows), n_vectors))
                    if is_native:
                        self._packed.kernel_rows(self.kernel.spec(), rows, values, n_threads)
                    else:
                        values = self.kernel.block(rows, self.vectors)
                    out[begin : begin + step] = values @ self.coef.T
        out += self.intercept
        return out

    def native_plane(self) -> tuple[Any, ...] | None:
        """Return kernel, vectors, coefficients and intercept for native code, or None if it cannot score."""
        if not self.kernel.is_native or len(self.coef) != 1 or not len(self.vectors):
            return None
        return self.kernel.spec(), self._packed, self.coef[0], float(self.intercept[0])

    @cached_property
    def _packed(self) -> _native.PackedRows64:
        packed = _native.PackedRows64(self.vectors.shape[1], len(self.vectors))
        packed.append(self.vectors)
        return packed
