"""Sequences in numbered places: how learners that keep rows of numbers keep things that are none.

A native learner sees a sequence as a row of one number, its place in a catalogue. Equal sequences share a
place, so they are found again when they are to be forgotten. Kernel values of rows are then values of the
sequences at these places: computed when they are asked for, or looked up in a table of them.
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

__all__ = ["Catalogue", "ItemTable", "distinct", "is_sequence_kernel", "restored_items", "take"]


_TOGETHER = 64  # sequences that enter a table at a time


def is_sequence_kernel(kernel: object) -> bool:
    """Whether a kernel, bare or wrapped, compares sequences."""
    return isinstance(kernel.kernel if isinstance(kernel, Kernel) else kernel, SequenceKernel)


def restored_items(kernel: Kernel, items: Any) -> list[Any]:
    """Sequences from a file, which is not trusted; ValueError if they make no sense."""
    compared = kernel.kernel if isinstance(items, list) else None
    if not isinstance(compared, SequenceKernel):
        raise ValueError("the model file has no list of sequences")  # noqa: TRY004 - of a file it is the content
    return compared.check(items, "a model file") if items else []


def take(X: Any, chosen: NDArray[Any]) -> Any:
    """Some rows of a table, or some of a list of sequences; by positions or by a mask."""
    if not isinstance(X, list):
        return X[chosen]
    positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    return [X[position] for position in positions]


def distinct(items: list[Any], weights: FloatArray) -> tuple[list[Any], FloatArray]:
    """Distinct sequences and their summed weights, in an order that depends on the sequences alone."""
    sums: dict[Any, tuple[Any, float]] = {}
    for item, weight in zip(items, weights.tolist(), strict=True):
        key = sequence_key(item)
        sums[key] = item, sums.get(key, (item, 0.0))[1] + weight
    order = sorted(
        (key for key, (_, weight) in sums.items() if weight > 0.0),
        key=lambda key: blake2b(repr(key).encode("utf-8", "surrogatepass")).digest(),
    )
    return [sums[key][0] for key in order], np.array([sums[key][1] for key in order])


class Catalogue:
    """Distinct sequences, each in a place of its own; places of those that are let go are taken again."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items: list[Any] = []
        self._places: dict[Any, int] = {}
        self._free: list[int] = []
        self.places(items)

    def __len__(self) -> int:
        return len(self._places)

    def places(self, items: Iterable[Any]) -> FloatArray:
        """The places of sequences as rows of one number; new ones are taken in."""
        found = [self._place(item) for item in items]
        return np.array(found, dtype=np.float64).reshape(-1, 1)

    def at(self, rows: NDArray[Any]) -> list[Any]:
        """The sequences whose places are in these rows."""
        return [self._items[int(place)] for place in np.ravel(rows)]

    def keep(self, rows: NDArray[Any]) -> None:
        """Let go of all sequences but those whose places are in these rows."""
        wanted = {int(place) for place in np.ravel(rows)}
        for key, place in [(k, p) for k, p in self._places.items() if p not in wanted]:
            del self._places[key]
            self._items[place] = None
            self._free.append(place)

    def _place(self, item: Any) -> int:
        key = sequence_key(item)
        place = self._places.get(key)
        if place is None:
            place = self._free.pop() if self._free else len(self._items)
            self._items[place : place + 1] = [item]
            self._places[key] = place
        return place


class ItemTable(Catalogue):
    """A catalogue with the values of some kernels between all of its sequences.

    Parameters
    ----------
    kernels : list of Kernel
        Sequence kernels, settled.
    items : iterable
        Sequences to begin with, in places 0, 1, 2, ... if they are distinct.
    """

    def __init__(self, kernels: Sequence[Kernel], items: Iterable[Any] = ()) -> None:
        self._kernels = list(kernels)
        self._values = [np.empty((0, 0)) for _ in kernels]
        self._tables = [_native.KernelTable() for _ in kernels]
        super().__init__(items)

    def copy(self) -> ItemTable:
        """The same sequences in the same places, going their own way from here on."""
        twin = ItemTable(self._kernels)
        twin._items, twin._places, twin._free = list(self._items), dict(self._places), list(self._free)
        for number, values in enumerate(self._values):
            twin._values[number] = values.copy()
            twin._tables[number].set(twin._values[number])
        return twin

    def specs(self) -> list[_native.KernelSpec]:
        """The kernels as native learners take them; they read the values from here."""
        return [_native.KernelSpec.lookup(table) for table in self._tables]

    def places(self, items: Iterable[Any]) -> FloatArray:
        """The places of sequences as rows of one number; values of new ones are computed."""
        before = set(self._places.values())
        rows = super().places(items)
        new = np.array(sorted(set(self._places.values()) - before), dtype=np.intp)
        if len(new):
            self._fill(new, np.array(sorted(before), dtype=np.intp))
        return rows

    def restored(self, items: Any) -> FloatArray:
        """The places of sequences from a file, which are not trusted; ValueError if they make no sense."""
        return self.places(restored_items(self._kernels[0], items))

    def sweep(
        self, items: list[Any], learn: Callable[[FloatArray, slice], None], held: Callable[[], NDArray[Any]]
    ) -> None:
        """Let a learner take in sequences a few at a time; what it does not hold afterwards is let go."""
        for begin in range(0, len(items), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            learn(self.places(items[part]), part)
            self.keep(held())

    def _fill(self, new: NDArray[np.intp], old: NDArray[np.intp]) -> None:
        capacity = len(self._values[0]) if self._values else 0
        if len(self._items) > capacity:
            self._grow(max(len(self._items), 2 * capacity))
        incoming, others = self.at(new), self.at(old)
        for kernel, values in zip(self._kernels, self._values, strict=True):
            values[np.ix_(new, new)] = kernel.block(incoming)
            if others:
                block = kernel.block(incoming, others)
                values[np.ix_(new, old)] = block
                values[np.ix_(old, new)] = block.T

    def _grow(self, capacity: int) -> None:
        for number, values in enumerate(self._values):
            grown = np.zeros((capacity, capacity))
            grown[: len(values), : len(values)] = values
            self._values[number] = grown
            self._tables[number].set(grown)
