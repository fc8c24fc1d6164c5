"""Indexed storage of sequences for learners whose rows are numbers.

A native learner represents a sequence by a row with one number, its slot in a :class:`SequenceStore`. Equal
sequences share a slot, so ``forget`` finds them again. Kernel values of rows are the kernel values of the
sequences in these slots, computed on demand or read from an :class:`ItemTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.kernels.kernel import Kernel
from steelyard.kernels.sequences import SequenceKernel, sequence_key

_SWEEP_SEQUENCES = 64  # number of sequences that are added to the table and learned together


def is_sequence_kernel(kernel: object) -> bool:
    """Return whether a kernel compares sequences."""
    return isinstance(kernel.kernel if isinstance(kernel, Kernel) else kernel, SequenceKernel)


def restored_items(kernel: Kernel, items: Any) -> list[Any]:
    """Validate sequences read from a file. Raise ValueError if they are not valid."""
    compared = kernel.kernel if isinstance(items, list) else None
    if not isinstance(compared, SequenceKernel):
        raise ValueError("the model file contains no list of sequences")  # noqa: TRY004 - a file is invalid
    return compared.check(items, "a model file") if items else []


def take(X: Any, chosen: NDArray[Any] | slice) -> Any:
    """Return rows of a matrix or items of a list, selected by a slice, by indices or by a mask."""
    if not isinstance(X, list) or isinstance(chosen, slice):
        return X[chosen]
    positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    return [X[position] for position in positions]


def distinct(items: list[Any], weights: FloatArray) -> tuple[list[Any], FloatArray]:
    """Return distinct sequences and their total weights, in an order that depends only on the sequences."""
    sums: dict[Any, tuple[Any, float]] = {}
    for item, weight in zip(items, weights.tolist(), strict=True):
        key = sequence_key(item)
        sums[key] = item, sums.get(key, (item, 0.0))[1] + weight
    order = sorted(
        (key for key, (_, weight) in sums.items() if weight > 0.0),
        key=lambda key: blake2b(repr(key).encode("utf-8", "surrogatepass")).digest(),
    )
    return [sums[key][0] for key in order], np.array([sums[key][1] for key in order])


class SequenceStore:
    """Store of distinct sequences in numbered slots. Slots of removed sequences are reused."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items: list[Any] = []
        self._slots: dict[Any, int] = {}
        self._free: list[int] = []
        self.add(items)

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, items: Iterable[Any]) -> FloatArray:
        """Add sequences that are not stored yet. Return the slots of all given sequences as one column."""
        slots = [self._slot(item) for item in items]
        return np.array(slots, dtype=np.float64).reshape(-1, 1)

    def at(self, rows: NDArray[Any]) -> list[Any]:
        """Return the sequences whose slots are given."""
        return [self._items[int(slot)] for slot in np.ravel(rows)]

    def retain(self, rows: NDArray[Any]) -> None:
        """Remove all sequences except those whose slots are given."""
        retained = {int(slot) for slot in np.ravel(rows)}
        for key, slot in [(k, s) for k, s in self._slots.items() if s not in retained]:
            del self._slots[key]
            self._items[slot] = None
            self._free.append(slot)

    def _slot(self, item: Any) -> int:
        key = sequence_key(item)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._items)
            self._items[slot : slot + 1] = [item]
            self._slots[key] = slot
        return slot


class ItemTable(SequenceStore):
    """Sequence store that also contains the values of some kernels for all pairs of its sequences.

    The parameters of the kernels are numbers. Distinct initial sequences get the slots 0, 1, 2, ...
    """

    def __init__(self, kernels: Sequence[Kernel], items: Iterable[Any] = ()) -> None:
        self._kernels = list(kernels)
        self._values = [np.empty((0, 0)) for _ in kernels]
        self._tables = [_native.KernelTable() for _ in kernels]
        super().__init__(items)

    def copy(self) -> ItemTable:
        """Return an independent copy with the same sequences in the same slots."""
        copied = ItemTable(self._kernels)
        copied._items, copied._slots, copied._free = list(self._items), dict(self._slots), list(self._free)
        for number, values in enumerate(self._values):
            copied._values[number] = values.copy()
            copied._tables[number].set(copied._values[number])
        return copied

    def specs(self) -> list[_native.KernelSpec]:
        """Return native kernels that read their values from this table."""
        return [_native.KernelSpec.lookup(table) for table in self._tables]

    def add(self, items: Iterable[Any]) -> FloatArray:
        """Add new sequences and compute their kernel values. Return the slots of all given sequences."""
        before = set(self._slots.values())
        rows = super().add(items)
        new = np.array(sorted(set(self._slots.values()) - before), dtype=np.intp)
        if len(new):
            self._compute_values(new, np.array(sorted(before), dtype=np.intp))
        return rows

    def restored(self, items: Any) -> FloatArray:
        """Add sequences read from a file and return their slots. Raise ValueError if they are not valid."""
        return self.add(restored_items(self._kernels[0], items))

    def sweep(
        self, items: list[Any], learn: Callable[[FloatArray, slice], None], stored: Callable[[], NDArray[Any]]
    ) -> None:
        """Pass sequences to ``learn`` in batches, and then remove those that are not in ``stored()``."""
        for begin in range(0, len(items), _SWEEP_SEQUENCES):
            batch = slice(begin, begin + _SWEEP_SEQUENCES)
            learn(self.add(items[batch]), batch)
            self.retain(stored())

    def _compute_values(self, new: NDArray[np.intp], old: NDArray[np.intp]) -> None:
        capacity = len(self._values[0]) if self._values else 0
        if len(self._items) > capacity:
            self._grow(max(len(self._items), 2 * capacity))
        added, others = self.at(new), self.at(old)
        for kernel, values in zip(self._kernels, self._values, strict=True):
            values[np.ix_(new, new)] = kernel.block(added)
            if others:
                block = kernel.block(added, others)
                values[np.ix_(new, old)] = block
                values[np.ix_(old, new)] = block.T

    def _grow(self, capacity: int) -> None:
        for number, values in enumerate(self._values):
            grown = np.zeros((capacity, capacity))
            grown[: len(values), : len(values)] = values
            self._values[number] = grown
            self._tables[number].set(grown)
