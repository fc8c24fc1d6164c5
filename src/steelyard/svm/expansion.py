"""The rule of kernel machines: scores are weighted sums of kernel values plus a constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.kernels import Kernel

__all__ = ["KernelExpansion"]


_BLOCK_VALUES = 1 << 22  # kernel values that are held at a time
_VALUES_OF_ONE_THREAD = 1 << 12  # so few kernel values that a second thread would start too late


@dataclass(frozen=True)
class KernelExpansion:
    """Scores ``k(x, vectors) @ coef.T + intercept``.

    Attributes
    ----------
    kernel : Kernel
        With a settled gamma.
    vectors : ndarray of shape (n_vectors, n_features), or list of sequences
        Support vectors of all planes.
    coef : ndarray of shape (n_planes, n_vectors)
        Their weights.
    intercept : ndarray of shape (n_planes,)
        The constants.
    """

    kernel: Kernel
    vectors: Any
    coef: FloatArray
    intercept: FloatArray
    _packed: list[_native.PackedRows64] = field(default_factory=list)  # made at the first use

    def scores(self, X: Any) -> FloatArray:
        """Scores of rows, one column a plane."""
        out = np.zeros((len(X), len(self.coef)))
        if len(self.vectors) and len(X):
            if not isinstance(X, list):
                X = np.ascontiguousarray(X, dtype=np.float64)
            if not self.kernel.is_native:
                self._by_blocks(X, out, self.kernel.block)
            elif len(self.coef) == 1:
                self._pack().kernel_sums(self.kernel.spec(), X, self.coef[0], out[:, 0], self._threads(X))
            else:
                self._by_blocks(X, out, self._native_block)
        out += self.intercept
        return out

    def native_plane(self) -> tuple[Any, ...] | None:
        """A single plane for native calls: kernel, vectors, weights and constant; None if it is not one."""
        if not self.kernel.is_native or len(self.coef) != 1 or not len(self.vectors):
            return None
        return self.kernel.spec(), self._pack(), self.coef[0], float(self.intercept[0])

    def _threads(self, X: FloatArray) -> int:
        """Threads that pay; to ask for their number takes as long as a few thousand kernel values."""
        return num_threads() if len(X) * len(self.vectors) > _VALUES_OF_ONE_THREAD else 1

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

    def _by_blocks(self, X: Any, out: FloatArray, block: Any) -> None:
        step = max(1, _BLOCK_VALUES // len(self.vectors))
        for begin in range(0, len(X), step):
            out[begin : begin + step] = block(X[begin : begin + step], self.vectors) @ self.coef.T
