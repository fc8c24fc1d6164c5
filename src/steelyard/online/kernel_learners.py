"""What all online kernel learners share: rows of numbers are learned as they come, sequences by their places.

Native machines see rows of numbers only. Where a kernel compares sequences, a row is one number, the place of
a sequence in a table that also holds the kernel values of what is there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard.base import Batch
from steelyard.kernels.items import ItemTable, is_sequence_kernel
from steelyard.kernels.kernel import Kernel, check_kernel_range
from steelyard.online.targets import OnlineLearner, Signs

__all__ = ["KernelLearner"]


class KernelLearner(OnlineLearner):
    """Base of the learners whose machines keep support vectors.

    A subclass says which kernels it uses, in which type its machines take rows, by which rule they learn, and
    which vectors they keep.
    """

    _items: ItemTable | None  # where sequences are kept, as rows of one number

    @abstractmethod
    def _used_kernels(self) -> list[Kernel]:
        """The kernels, settled by the first rows."""

    @abstractmethod
    def _like_vectors(self, X: NDArray[Any]) -> Any:
        """Rows in the type of the machines, which become double when doubles come. No value changes."""

    @abstractmethod
    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        """Let all machines learn rows by this learner's rule, in one native call."""

    @abstractmethod
    def _kept_rows(self) -> NDArray[Any]:
        """The vectors that machines keep, as they see them."""

    def _open_items(self) -> None:
        """Begin a table of sequences, where the kernels compare them."""
        kernels = self._used_kernels()
        self._items = ItemTable(kernels) if any(map(is_sequence_kernel, kernels)) else None

    def _specs(self) -> list[_native.KernelSpec]:
        if self._items is not None:
            return self._items.specs()
        return [kernel.spec() for kernel in self._used_kernels()]

    def _width(self) -> int:
        """Columns that the machines see."""
        return self.n_features_in_ if self._items is None else 1

    def _samples(self, rows: NDArray[Any]) -> Any:
        """What the caller passed, for rows as the machines see them."""
        return rows if self._items is None else self._items.at(rows)

    def _rows_of(self, samples: Any) -> Any:
        """Rows as the machines see them, for what a file holds; the other way round."""
        return samples if self._items is None else self._items.restored(samples)

    def _learn(self, batch: Batch) -> None:
        check_kernel_range(self._used_kernels(), batch.X, type(self).__name__)
        super()._learn(batch)

    def _sweep(self, X: Any, signs: Signs) -> None:
        if self._items is None:
            self._learn_rows(self._like_vectors(X), signs)
        else:  # kernel values of new sequences come into tables, some at a time
            self._separate_machines()
            self._items.sweep(
                X,
                lambda rows, part: self._learn_rows(rows, np.ascontiguousarray(signs[:, part])),
                self._kept_rows,
            )
