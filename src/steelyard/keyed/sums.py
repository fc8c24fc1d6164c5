"""Statistics of many keys: one packed triangle of integer sums for each key, class and fold.

All sums are rows of one array. A table maps a key, a class and a fold to a row of this array (a slot). Key
number 0 is the group, which is the sum of all keys. A triangle is the lower half of the sum of ``w e e'``
over all rows with weight ``w``, where ``e = [v, 1]`` and ``v`` are the values in steps of the quantizer; see
:meth:`steelyard.proximal.ClassStatistics.from_sums`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, Quantizer
from steelyard.proximal.quantizer import QUANTIZER_ROWS
from steelyard.proximal.row_ledger import fold_numbers
from steelyard.proximal.serialization import triangle_size
from steelyard.proximal.statistics import label_bytes, never_learned

Key = Any  # str, int or float
Sums = NDArray[np.int64]
T = TypeVar("T")

GROUP: IntArray = np.zeros(1, dtype=np.intp)  # gather(GROUP) returns the sums of all keys together
_RANGE_BITS = 13  # the largest deviation in the first rows is 2**12 to 2**13 steps
# Values that deviate by more steps are clipped.
# The limit is 128 times the largest deviation in the first rows.
_MAX_STEPS = 1 << 20
_MAX_SUM = 1 << 62  # the sum of two numbers below this fits in 64 bits
_MAX_CENTER_BITS = 50  # limit that keeps origins below 2**53, so that they are exact integers
_BLOCK_ROWS = 16_384  # number of rows whose products are in memory at a time
_GROWTH = 1.25  # factor by which arrays grow


@dataclass(frozen=True)
class KeyedRows:
    """Validated rows with keys, labels and weights."""

    X: FloatArray
    keys: list[Key]
    labels: list[Label]  # label of each row
    weights: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def joined(self, other: KeyedRows) -> KeyedRows:
        """Return these rows followed by other rows."""
        return KeyedRows(
            np.concatenate([self.X, other.X]),
            self.keys + other.keys,
            self.labels + other.labels,
            np.concatenate([self.weights, other.weights]),
        )

    def without(self, other: KeyedRows, source: str) -> KeyedRows:
        """Return these rows without the rows of ``other``; raise DataError if one of them is missing."""
        wanted = Counter(other._identities())
        kept = []
        for place, identity in enumerate(self._identities()):
            if wanted[identity]:
                wanted[identity] -= 1
            else:
                kept.append(place)
        missing = next((identity for identity, count in wanted.items() if count), None)
        if missing is not None:
            raise never_learned(source, missing[1])
        return self.selected(kept)

    def selected(self, indices: Sequence[int]) -> KeyedRows:
        """Return the rows with the given indices."""
        keys, labels = [self.keys[i] for i in indices], [self.labels[i] for i in indices]
        return KeyedRows(self.X[indices], keys, labels, self.weights[indices])

    def _identities(self) -> Iterable[tuple[Key, Label, bytes, int]]:
        values = (row.tobytes() for row in self.X + 0.0)  # + 0.0 turns -0.0 into 0.0
        return zip(self.keys, self.labels, values, self.weights.tolist(), strict=True)


class Triangles(NamedTuple):
    """Sums of all keys, as triangles."""

    keys: list[Key]
    labels: list[Label]
    places: IntArray  # index in ``keys`` of the key of each triangle
    columns: IntArray  # table column of each triangle
    sums: Sums


class KeyedSums:
    """Exact sums of every key and class, and of the group of all keys.

    A hash of a row selects its fold. Without a quantizer, the first 256 rows are stored, and then determine
    the steps.
    """

    def __init__(self, n_features: int, n_folds: int, quantizer: Quantizer | None = None) -> None:
        self.n_features, self.n_folds, self.quantizer = n_features, n_folds, quantizer
        self.version = 0  # number of changes so far
        self.labels: list[Label] = []
        # First rows, stored until there is a quantizer.
        self.early = KeyedRows(np.zeros((0, n_features)), [], [], np.zeros(0, dtype=np.int64))
        # Cached results with the version and the key for which they are valid.
        self._cache: dict[str, tuple[Any, Any]] = {}
        # Selected value of ``borrow``, and the number of rows at the time of the selection.
        self.selected: tuple[float, float] | None = None
        self._numbers: dict[Key, int] = {}
        self._n_numbers, self._free_numbers = 1, list[int]()  # number 0 denotes the group of all keys
        # Slot of each key and class; 0 means no rows.
        self._table: NDArray[np.int32] = np.zeros((16, 0), dtype=np.int32)
        n_sums = triangle_size(n_features)
        check_fits_memory(8 * n_sums, f"sums of {n_features:,} features for each key", "use fewer columns")
        self._sums: Sums = np.zeros((1, n_sums), dtype=np.int64)
        self._n_slots, self._free_slots = 1, list[int]()  # slot 0 is always zero

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    @property
    def nbytes(self) -> int:
        """Memory of the sums and of the slot table in bytes, without the key names."""
        return self._sums.nbytes + self._table.nbytes

    # -- adding and removing rows ------------------------------------------------------------------------

    def add(self, rows: KeyedRows, source: str) -> None:
        """Add rows; on error no sum changes."""
        if self.quantizer is not None:
            self._change(rows, 1, source)
            return
        early = self.early.joined(rows)
        if len(early) < QUANTIZER_ROWS:
            self.version, self.early = self.version + 1, early
        else:
            self._become(self._frozen(early, source))

    def remove(self, rows: KeyedRows, source: str) -> None:
        """Remove rows; on error no sum changes."""
        if self.quantizer is not None:
            self._change(rows, -1, source)
        else:
            self.version, self.early = self.version + 1, self.early.without(rows, source)

    def remove_key(self, key: Key, source: str) -> None:
        """Remove a key with all its rows."""
        if self.quantizer is None:
            kept = [place for place, other in enumerate(self.early.keys) if other != key]
            if len(kept) == len(self.early):
                raise _unknown_key(key, source)
            self.version, self.early = self.version + 1, self.early.selected(kept)
            return
        number = self._numbers.get(key)
        if number is None or not self._sums[self._table[number], -1].any():
            raise _unknown_key(key, source)
        columns = np.flatnonzero(self._table[number])
        slots = self._table[number, columns]
        self._add_sums(np.full(len(columns), number), columns, -self._sums[slots], source)
        self._table[number] = 0
        del self._numbers[key]
        self._free_numbers.append(number)
        self._free_slots.extend(slots.tolist())

    def merge(self, other: KeyedSums, source: str) -> None:
        """Add all sums of another object with the same quantizer; on error no sum changes."""
        if other.quantizer is None:
            self.add(other.early, source)
            return
        if self.quantizer is None:
            mine = KeyedSums(self.n_features, self.n_folds, other.quantizer)
            mine._change(self.early, 1, source)
            mine.merge(other, source)
            self._become(mine)
            return
        if self.quantizer != other.quantizer or self.n_folds != other.n_folds:
            raise DataError(
                "the two learners round their rows differently; nothing was changed.",
                source=source,
                hint="create both learners with the same quantizer= and the same kind of borrow",
            )
        self.add_triangles(other.triangles(), source)

    def frozen(self) -> KeyedSums:
        """Return these sums. Without a quantizer, return sums with a quantizer fitted to the rows so far."""
        if self.quantizer is not None:
            return self
        return self.cached("frozen", None, lambda: self._frozen(self.early, "KeyedClassifier"))

    def _frozen(self, rows: KeyedRows, source: str) -> KeyedSums:
        quantizer = fitted_quantizer(rows.X) if len(rows) else Quantizer(np.zeros(self.n_features))
        frozen = KeyedSums(self.n_features, self.n_folds, quantizer)
        frozen._change(rows, 1, source)
        return frozen

    def cached(self, name: str, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``; the result is cached until the sums or ``key`` change."""
        version = self.version, key
        if name not in self._cache or self._cache[name][0] != version:
            self._cache[name] = version, make()
        result: T = self._cache[name][1]
        return result

    def _become(self, other: KeyedSums) -> None:
        other.version = self.version + 1
        self.__dict__.update(other.__dict__)

    def _change(self, rows: KeyedRows, sign: int, source: str) -> None:
        """Add rows, or remove rows if ``sign`` is -1."""
        if not len(rows):
            return
        steps = self._in_steps(rows.X, rows.weights, source)
        numbers = self._registered(rows.keys) if sign > 0 else self.numbers(rows.keys)
        if not numbers.all():
            raise _unknown_key(rows.keys[int(np.argmin(numbers))], source)
        columns = self._columns(rows.labels) + fold_numbers(rows.X, self.n_folds).astype(np.intp)
        pairs = numbers * (len(self.labels) * self.n_folds) + columns
        order = np.argsort(pairs, kind="stable")
        starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
        sums = _sums_of_groups(steps, rows.weights, order, starts)
        first = order[starts]
        self._add_sums(numbers[first], columns[first], sums if sign > 0 else -sums, source)

    def _in_steps(self, X: FloatArray, weights: NDArray[np.int64], source: str) -> Sums:
        """Return rows as integer numbers of steps; raise DataError if sums could overflow."""
        values = np.floor(self.coordinates(X) + 0.5)
        steps = np.clip(values, -_MAX_STEPS, _MAX_STEPS).astype(np.int64)
        largest = float(max(np.abs(steps).max(initial=0), 1))
        if largest * largest * float(weights.sum()) >= _MAX_SUM:
            raise _too_large(source)
        return steps

    def coordinates(self, X: FloatArray) -> FloatArray:
        """Return unrounded values in steps of the quantizer, relative to its origins."""
        assert self.quantizer is not None
        result: FloatArray = np.ldexp(np.asarray(X, dtype=np.float64), -self.quantizer.exponents)
        result -= self.quantizer.origins
        return result

    # -- keys and classes ---------------------------------------------------------------------------

    @property
    def keys(self) -> list[Key]:
        """Keys that have rows."""
        sums = self.frozen()
        present = sums._sums[sums._table[: sums._n_numbers], -1].any(axis=1)
        return [key for key, number in sums._numbers.items() if present[number]]

    def numbers(self, keys: Iterable[Key]) -> IntArray:
        """Return the internal number of each key. Unknown keys have the number 0, which is the group."""
        find = self._numbers.get
        return np.array([find(key, 0) for key in keys], dtype=np.intp)

    def _registered(self, keys: Sequence[Key]) -> IntArray:
        """Return the numbers of keys and register new keys."""
        numbers = self.numbers(keys)
        for place in np.flatnonzero(numbers == 0).tolist():
            key = keys[place]
            if key not in self._numbers:
                if not self._free_numbers:
                    self._free_numbers.append(self._n_numbers)
                    self._n_numbers += 1
                self._numbers[key] = self._free_numbers.pop()
            numbers[place] = self._numbers[key]
        self._table = _grown(self._table, self._n_numbers)
        return numbers

    def _columns(self, labels: Sequence[Label]) -> IntArray:
        """Return the first table column of each label and add columns for new labels."""
        indices = {label: index for index, label in enumerate(self.labels)}
        for label in sorted(set(labels).difference(indices)):
            indices[label] = len(indices)
        width = len(indices) * self.n_folds
        if self._table.shape[1] < width:
            more = np.zeros((len(self._table), width - self._table.shape[1]), dtype=np.int32)
            self._table = np.hstack([self._table, more])
        self.labels = list(indices)
        return np.array([indices[label] for label in labels], dtype=np.intp) * self.n_folds

    def classes(self) -> list[Label]:
        """Return the labels of the classes that have rows, sorted."""
        counts = self.gather(GROUP)[0, :, :, -1].sum(axis=1)
        return sorted(label for label, count in zip(self.labels, counts.tolist(), strict=True) if count)

    @property
    def n_rows(self) -> int:
        """Total weight of all rows."""
        return int(self.gather(GROUP)[..., -1].sum())

    def gather(self, numbers: IntArray, labels: Sequence[Label] | None = None) -> Sums:
        """Return the sums of the keys ``numbers``, of shape (n_keys, n_classes, n_folds, n_sums)."""
        chosen = range(len(self.labels)) if labels is None else [self.labels.index(label) for label in labels]
        columns = [c * self.n_folds + fold for c in chosen for fold in range(self.n_folds)]
        sums: Sums = self._sums[self._table[numbers][:, columns]]
        return sums.reshape(len(numbers), len(chosen), self.n_folds, self._sums.shape[1])

    def group_statistics(self) -> ClassStatistics:
        """Return the exact statistics of all rows."""
        assert self.quantizer is not None
        labels = self.classes()
        sums = self.gather(GROUP, labels)[0].sum(axis=1)
        triangles = {label: row.tolist() for label, row in zip(labels, sums, strict=True)}
        return ClassStatistics.from_sums(self.quantizer, triangles)

    def sampled_numbers(self, size: int) -> IntArray:
        """Return the numbers of at most ``size`` keys: those with the smallest hashes."""
        keys = list(self._numbers)
        hashes = np.array([zlib.crc32(label_bytes(key)) for key in keys], dtype=np.int64)
        chosen = np.argsort(hashes, kind="stable")[:size]
        return self.numbers(keys[index] for index in chosen.tolist())

    # -- access to the sums -------------------------------------------------------------------------

    def _add_sums(self, numbers: IntArray, columns: IntArray, sums: Sums, source: str) -> None:
        """Add sums to distinct pairs of key number and table column, and to the group of all keys.

        One assignment changes all sums, so an interrupted call has changed all of them or none.
        """
        present = np.unique(columns)
        totals = [sums[columns == column].sum(axis=0) for column in present.tolist()]
        slots = self._allocated(
            np.concatenate([numbers, np.zeros(len(present), dtype=np.intp)]),
            np.concatenate([columns, present]),
        )
        changed = self._sums[slots]
        changed[: len(sums)] += sums
        changed[len(sums) :] += np.array(totals)
        if (np.abs(changed) >= _MAX_SUM).any():
            raise _too_large(source)
        self._check_possible(changed, columns, source)
        self.version += 1
        self._sums[slots] = changed

    def _check_possible(self, sums: Sums, columns: IntArray, source: str) -> None:
        """Raise DataError if no rows can have these sums, because a row to forget was never learned."""
        d = self.n_features
        counts, firsts = sums[:, -1].astype(np.float64), sums[:, -1 - d : -1].astype(np.float64)
        squares = sums[:, np.cumsum(np.arange(1, d + 1)) - 1].astype(np.float64)
        impossible = (counts < 0) | ((counts == 0) & sums.any(axis=1))
        impossible |= (np.square(firsts) > counts[:, None] * squares * (1.0 + 1e-12)).any(axis=1)
        if impossible.any():
            index = min(int(np.argmax(impossible)), len(columns) - 1)
            raise never_learned(source, self.labels[int(columns[index]) // self.n_folds])

    def _allocated(self, numbers: IntArray, columns: IntArray) -> NDArray[np.int32]:
        """Return the slots of pairs of key number and table column; allocate slots for new pairs."""
        slots = self._table[numbers, columns]
        missing = np.flatnonzero(slots == 0)
        if len(missing):
            n_reused = min(len(missing), len(self._free_slots))
            reused = [self._free_slots.pop() for _ in range(n_reused)]
            end = self._n_slots + len(missing) - n_reused
            self._sums = _grown(self._sums, end)
            slots[missing] = [*reused, *range(self._n_slots, end)]
            self._n_slots = end
            self._table[numbers[missing], columns[missing]] = slots[missing]
        return slots

    def triangles(self) -> Triangles:
        """Return the sums of all keys."""
        keys = list(self._numbers)
        table = self._table[self.numbers(keys)]
        table = table * (self._sums[table, -1] != 0)
        places, columns = np.nonzero(table)
        return Triangles(keys, self.labels, places, columns, self._sums[table[places, columns]])

    def add_triangles(self, added: Triangles, source: str) -> None:
        """Add sums that were computed with the same quantizer and folds."""
        if not len(added.places):
            return
        columns = np.add.outer(self._columns(added.labels), np.arange(self.n_folds)).ravel()
        numbers = self._registered(added.keys)
        self._add_sums(numbers[added.places], columns[added.columns], added.sums, source)

    def digest(self) -> str:
        """Return a hash of the quantizer, the keys and the sums of all keys and classes."""
        assert self.quantizer is not None
        name = blake2b(f"steelyard keyed statistics, {self.n_features} features".encode(), digest_size=16)
        name.update(self.quantizer.exponents.tobytes() + (self.quantizer.origins + 0.0).tobytes())
        labels = self.classes()
        for label in labels:
            name.update(label_bytes(label))
        keys = sorted(self.keys)
        for begin in range(0, len(keys), _BLOCK_ROWS):
            block = keys[begin : begin + _BLOCK_ROWS]
            sums = self.gather(self.numbers(block), labels).sum(axis=2)
            for key, row in zip(block, sums, strict=True):
                name.update(label_bytes(key))
                name.update(row.tobytes())
        return name.hexdigest()


def fitted_quantizer(X: FloatArray) -> Quantizer:
    """Return a quantizer in which the first 256 rows deviate from their median by at most 2**13 steps."""
    X = X[:QUANTIZER_ROWS]
    center = np.median(X, axis=0)
    deviation = np.abs(X - center).max(axis=0)
    deviation = np.where(deviation > 0.0, deviation, np.maximum(np.abs(center), 1.0))
    exponents = np.frexp(deviation)[1] - _RANGE_BITS
    exponents = np.clip(np.maximum(exponents, np.frexp(center)[1] - _MAX_CENTER_BITS), -1000, 1000)
    return Quantizer(exponents, np.floor(np.ldexp(center, -exponents) + 0.5))


def _sums_of_groups(steps: Sums, weights: NDArray[np.int64], order: IntArray, starts: IntArray) -> Sums:
    """Return the packed Gram matrix of each group of rows; ``starts`` are the group starts in ``order``."""
    n_rows, d = steps.shape
    left, right = np.tril_indices(d + 1)
    totals = np.zeros((len(starts), len(left)), dtype=np.int64)
    for begin in range(0, n_rows, _BLOCK_ROWS):
        rows = order[begin : begin + _BLOCK_ROWS]
        extended = np.ones((len(rows), d + 1), dtype=np.int64)
        extended[:, :d] = steps[rows]
        products = extended[:, left]
        products *= extended[:, right]
        products *= weights[rows, None]
        first, last = np.searchsorted(starts, [begin, begin + len(rows) - 1], side="right") - 1
        cuts = np.maximum(starts[first : last + 1] - begin, 0)
        totals[first : last + 1] += np.add.reduceat(products, cuts, axis=0)
    return totals


def _grown(array: Any, n_rows: int) -> Any:
    """Return the array with at least ``n_rows`` rows. New rows are zero. Large arrays grow in place."""
    if n_rows <= len(array):
        return array
    shape = (max(n_rows, int(_GROWTH * len(array))), array.shape[1])
    if not array.flags.owndata:
        array = array.copy()
    array.resize(shape, refcheck=False)  # the array is private and has no views
    return array


def _unknown_key(key: Key, source: str) -> DataError:
    return DataError(
        f"the key {key!r} has no rows; nothing was changed.",
        source=source,
        hint="forget keys and rows exactly as they were learned, and once",
    )


def _too_large(source: str) -> DataError:
    return DataError(
        "the sums of these rows exceed 64 bits; nothing was changed.",
        source=source,
        hint="pass fewer rows at a time, smaller weights, or a quantizer= with larger steps",
    )
