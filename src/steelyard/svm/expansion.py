"""Kernel expansions: scores are weighted sums of kernel values plus an intercept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.kernels import Kernel

_MAX_BLOCK_VALUES = 1 << 22  # maximum number of kernel values that are held in memory at a time
_MAX_VALUES_FOR_ONE_THREAD = 1 << 12  # number of kernel values up to which one thread is faster


@dataclass(frozen=True)
class KernelExpansion:
    """Kernel expansion of one or several planes: ``k(x, vectors) @ coef.T + intercept``."""

    kernel: Kernel  # kernel with a numeric gamma
    vectors: Any  # support vectors of all planes: an array, or a list of sequences
    coef: FloatArray  # coefficients, shape (n_planes, n_vectors)
    intercept: FloatArray
    # At most one entry: the packed vectors, which are created at the first use.
    _packed: list[_native.PackedRows64] = field(default_factory=list)

    def scores(self, X: Any) -> FloatArray:
        """Return the scores of rows, one column per plane."""
        out = np.zeros((len(X), len(self.coef)))
        if len(self.vectors) and len(X):
            if not isinstance(X, list):
                X = np.ascontiguousarray(X, dtype=np.float64)
            if not self.kernel.is_native:
                self._write_blocks(X, out, self.kernel.block)
            elif len(self.coef) == 1:
                self._pack().kernel_sums(self.kernel.spec(), X, self.coef[0], out[:, 0], self._threads(X))
            else:
                self._write_blocks(X, out, self._native_block)
        out += self.intercept
        return out

    def native_plane(self) -> tuple[Any, ...] | None:
        """Return kernel, vectors, coefficients and intercept for native code, or None if it cannot score."""
        if not self.kernel.is_native or len(self.coef) != 1 or not len(self.vectors):
            return None
        return self.kernel.spec(), self._pack(), self.coef[0], float(self.intercept[0])

    def _threads(self, X: FloatArray) -> int:
        """Return the number of threads, which is 1 if there are few kernel values."""
        return num_threads() if len(X) * len(self.vectors) > _MAX_VALUES_FOR_ONE_THREAD else 1

    def _pack(self) -> _native.PackedRows64:
        if not self._packed:
            packed = _native.PackedRows64(self.vectors.shape[1], len(self.vectors))
            packed.append(self.vectors)
            self._packed.append(packed)
        return self._packed[0]

    def _native_block(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        values = np.empty((len(X), len(Z)))
        self._pack().kernel_rows(self.kernel.spec(), X, values, self._threads(X))
        return values

    def _write_blocks(self, X: Any, out: FloatArray, block: Any) -> None:
        step = max(1, _MAX_BLOCK_VALUES // len(self.vectors))
        for begin in range(0, len(X), step):
            out[begin : begin + step] = block(X[begin : begin + step], self.vectors) @ self.coef.T
