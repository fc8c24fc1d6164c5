"""Rows of the stream: the recent rows that all experts share, and rows that are not learned yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._labels import encode_labels
from steelyard._types import FloatArray, IntArray
from steelyard._validation import Batch
from steelyard.ensemble.layout import Layout
from steelyard.ensemble.scores import with_new_experts
from steelyard.ensemble.views import row_keys

_SAVED = ("X", "codes", "weights", "times", "numbers")
_COLUMNS = (*_SAVED, "keys")


@dataclass(frozen=True)
class Block:
    """Consecutive rows: features, class codes, weights, times, row numbers and hashes of the features.

    If features are hashed, ``wide`` has the features before hashing, which the row buffer does not keep.
    """

    X: FloatArray
    codes: IntArray
    weights: FloatArray
    times: FloatArray
    numbers: IntArray
    keys: NDArray[np.uint64]
    wide: Any = None  # scipy.sparse.csr_matrix or None

    @classmethod
    def from_rows(
        cls,
        X: FloatArray,
        codes: IntArray,
        weights: FloatArray | None = None,
        times: FloatArray | None = None,
        *,
        first: int = 0,
        layout: Layout | None = None,
        wide: sp.csr_matrix | None = None,
    ) -> Block:
        """Return a block whose row numbers begin at ``first``. For ``layout`` see :func:`row_keys`."""
        n = len(codes)
        weights = np.ones(n) if weights is None else weights
        times = np.zeros(n) if times is None else times
        return cls(X, codes, weights, times, np.arange(first, first + n), row_keys(X, layout, wide), wide)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Block:
        """Return some of the rows, selected by slice, mask or index."""
        return Block(
            self.X[rows],
            self.codes[rows],
            self.weights[rows],
            self.times[rows],
            self.numbers[rows],
            self.keys[rows],
            None if self.wide is None else self.wide[rows],
        )

    def joined(self, *others: Block) -> Block:
        """Return the rows of this block followed by the rows of other blocks."""
        blocks = [self, *(other for other in others if len(other))]
        if len(blocks) == 1:
            return self
        parts = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in _COLUMNS}
        has_wide = all(block.wide is not None for block in blocks)
        wide = sp.vstack([block.wide for block in blocks], format="csr") if has_wide else None
        return Block(**parts, wide=wide)

    def widened(self, n_columns: int) -> Block:
        """Return the same rows padded with columns of missing values."""
        X = np.full((len(self), n_columns), np.nan)
        X[:, : self.X.shape[1]] = self.X
        return replace(self, X=X)

    def batch(self, X: FloatArray | None = None) -> Batch:
        """Return the rows as a batch for a learner, with the features ``X`` if given and codes as labels."""
        labels, codes = encode_labels(self.codes)
        weights = None if (self.weights == 1.0).all() else self.weights
        return Batch(np.ascontiguousarray(self.X if X is None else X), labels, codes, weights)


class RowBuffer:
    """Rows in stream order, which can be looked up by row number or by value.

    A buffer is immutable. Appending returns another buffer that shares the storage, so earlier buffers stay
    valid; only the newest of them may be appended to. A row has a number, which counts all rows of the
    stream from 0, and an index, which counts the rows in the buffer.
    """

    __slots__ = ("_begin", "_end", "_store", "codes", "n_columns", "numbers")

    def __init__(self, store: Block, begin: int, end: int) -> None:
        self._store = store
        self._begin, self._end = begin, end
        self.numbers: IntArray = store.numbers[begin:end]  # ascending
        self.codes: IntArray = store.codes[begin:end]
        self.n_columns: int = store.X.shape[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return RowBuffer, (self._store, self._begin, self._end)

    @classmethod
    def empty(cls, n_columns: int) -> RowBuffer:
        """Return a buffer for rows with ``n_columns`` features."""
        return cls(_storage(n_columns, 0), 0, 0)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def block(self) -> Block:
        """All rows in the buffer."""
        return self._store.take(slice(self._begin, self._end))

    def between(self, low: int, high: int) -> Block:
        """Return the rows with ``low <= number < high``."""
        begin, end = self.numbers.searchsorted([low, high]) + self._begin
        return self._store.take(slice(int(begin), int(end)))

    def at(self, numbers: IntArray) -> Block:
        """Return the rows with the given ascending numbers, which must be in the buffer."""
        return self._store.take(self._indices(numbers))

    def codes_at(self, numbers: IntArray) -> IntArray:
        """Return the class codes of the rows with these ascending numbers."""
        return self._store.codes[self._indices(numbers)]

    def _indices(self, numbers: IntArray) -> Any:
        held = self.numbers
        if len(numbers):  # consecutive rows are returned as a slice, which needs no copy
            begin = int(held.searchsorted(numbers[0]))
            end = begin + len(numbers)
            if end <= len(held) and held[end - 1] == numbers[-1]:
                return slice(self._begin + begin, self._begin + end)
        return self._begin + held.searchsorted(numbers)

    def has(self, numbers: IntArray) -> bool:
        """Return whether all rows with the given numbers are in the buffer."""
        return bool(np.isin(numbers, self.numbers).all())

    def append(self, block: Block) -> RowBuffer:
        """Return a buffer with rows appended."""
        begin, n, n_new, store = self._begin, len(self), len(block), self._store
        if self._end + n_new > len(store):
            begin, store = 0, _storage(self.n_columns, 2 * (n + n_new) + 64)
        for name in _COLUMNS:
            column = getattr(store, name)
            if store is not self._store:
                column[:n] = getattr(self._store, name)[self._begin : self._end]
            column[begin + n : begin + n + n_new] = getattr(block, name)
        return RowBuffer(store, begin, begin + n + n_new)

    def keep(self, numbers: IntArray, slack: float) -> RowBuffer:
        """Return a buffer with only the rows of the given numbers.

        If this buffer has at most ``1 + slack`` times as many rows, the buffer itself is returned.
        """
        if len(self) <= (1.0 + slack) * len(numbers):
            return self
        indices, n = self._indices(numbers), len(numbers)
        if isinstance(indices, slice):
            if indices.stop == self._end and len(self._store) <= 4 * n + 64:  # little storage is unused
                return RowBuffer(self._store, indices.start, indices.stop)
            indices = np.arange(indices.start, indices.stop)
        store = _storage(self.n_columns, 2 * n + 64)
        for name in _COLUMNS:
            np.take(getattr(self._store, name), indices, axis=0, out=getattr(store, name)[:n], mode="clip")
        return RowBuffer(store, 0, n)

    def widened(self, n_columns: int) -> RowBuffer:
        """Return a buffer whose rows are padded with columns of missing values."""
        return RowBuffer(self.block.widened(n_columns), 0, len(self))

    def without(self, indices: NDArray[np.intp]) -> RowBuffer:
        """Return a buffer without the rows at these indices."""
        kept = np.delete(np.arange(self._begin, self._end), indices)
        return RowBuffer(self._store.take(kept), 0, len(kept))

    def find(self, wanted: Block) -> NDArray[np.intp]:
        """Return the index of the oldest equal row for each wanted row, or -1 if there is none.

        No row of the buffer is returned twice.
        """
        held = self.block
        candidates: dict[int, list[int]] = {}
        for index in np.flatnonzero(np.isin(held.keys, wanted.keys)).tolist():
            candidates.setdefault(int(held.keys[index]), []).append(index)
        found = np.full(len(wanted), -1, dtype=np.intp)
        for row, key in enumerate(wanted.keys.tolist()):
            for index in candidates.get(key, ()):
                if (
                    held.codes[index] == wanted.codes[row]
                    and held.weights[index] == wanted.weights[row]
                    and np.array_equal(held.X[index], wanted.X[row], equal_nan=True)
                ):
                    candidates[key].remove(index)
                    found[row] = index
                    break
        return found

    def get_state(self, *, with_keys: bool = False) -> dict[str, Any]:
        """Return the rows as arrays. ``with_keys`` adds hashes that cannot be recomputed from the rows."""
        block = self.block
        return {name: getattr(block, name).copy() for name in (_COLUMNS if with_keys else _SAVED)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], layout: Layout | None = None) -> RowBuffer:
        """Restore the buffer from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        parts = {name: np.asarray(state[name]) for name in _SAVED}
        n = len(parts["codes"])
        if parts["X"].ndim != 2 or {len(part) for part in parts.values()} != {n}:
            raise ValueError("rows, labels, weights and times must have the same length")
        X, codes, weights, times, numbers = parts.values()
        if np.isinf(X).any() or not np.isfinite(weights).all():
            raise ValueError("rows must be finite or missing numbers, weights finite numbers")
        if (np.diff(numbers) <= 0).any():
            raise ValueError("row numbers must be ascending")
        X = np.ascontiguousarray(X, dtype=np.float64)
        keys = np.asarray(state["keys"]) if "keys" in state else row_keys(X, layout)
        if keys.shape != (n,) or keys.dtype != np.uint64:
            raise ValueError("expected one hash for each row")
        return cls(Block(X, codes, weights, times, numbers, keys), 0, n)


@dataclass(frozen=True)
class PendingRows:
    """Single rows that have been scored but not yet learned; immutable.

    The rows are learned together, because each update has a fixed cost. Only the label frequency experts use
    them immediately.
    """

    blocks: tuple[Block, ...] = ()
    scores: tuple[FloatArray, ...] = ()
    n_rows: int = 0

    def added(self, block: Block, scores: FloatArray) -> PendingRows:
        """Return the pending rows with another block at the end."""
        return PendingRows((*self.blocks, block), (*self.scores, scores), self.n_rows + len(block))

    def widened(self, n_columns: int) -> PendingRows:
        """Return the pending rows, padded with columns of missing values at the end."""
        return PendingRows(tuple(block.widened(n_columns) for block in self.blocks), self.scores, self.n_rows)

    def together(self) -> tuple[Block, FloatArray]:
        """Return all rows as one block, and their scores."""
        return self.blocks[0].joined(*self.blocks[1:]), np.concatenate(self.scores)

    def codes(self) -> list[int]:
        """Return the class codes of all rows."""
        return [code for block in self.blocks for code in block.codes.tolist()]

    def get_state(self) -> dict[str, Any]:
        """Return the rows and their scores as arrays."""
        if not self.blocks:
            return {}
        block, scores = self.together()
        parts = {"X": block.X, "codes": block.codes, "weights": block.weights, "times": block.times}
        wide = {} if block.wide is None else {"wide": wide_state(block.wide)}
        return {**parts, **wide, "scores": scores}

    @classmethod
    def from_state(cls, state: dict[str, Any], n_experts: int, layout: Layout | None = None) -> PendingRows:
        """Restore the rows from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        if not state:
            return cls()
        X, codes, weights, times, scores = (
            np.asarray(state[name]) for name in ("X", "codes", "weights", "times", "scores")
        )
        n = len(codes)
        scores = with_new_experts(scores, n_experts, np.nan, axis=1)
        if X.ndim != 2 or scores.ndim != 3 or {len(part) for part in (X, weights, times, scores)} != {n}:
            raise ValueError("pending rows, their labels and scores must have the same length")
        X = np.ascontiguousarray(X, dtype=np.float64)
        wide = wide_from_state(state["wide"], n) if "wide" in state else None
        return cls((Block.from_rows(X, codes, weights, times, layout=layout, wide=wide),), (scores,), n)


def last_rows(
    numbers: IntArray, codes: IntArray, n_rows: int, per_class: int = 0, window_start: int = 0
) -> IntArray:
    """Return the last ``n_rows`` numbers and the last ``per_class`` of each class since ``window_start``."""
    first = int(numbers.searchsorted(window_start))
    if not per_class:
        return numbers[max(len(numbers) - n_rows, first) :]
    return numbers[first + _native.last_rows(codes[first:], n_rows, per_class)]


def union_of_rows(lists: Sequence[IntArray]) -> IntArray:
    """Return the distinct numbers of ascending lists, in ascending order."""
    lists = [numbers for numbers in lists if len(numbers)]
    if len(lists) < 2:
        return lists[0] if lists else np.zeros(0, dtype=np.int64)
    # The stable sort merges ascending lists in linear time, unlike np.unique.
    merged = np.sort(np.concatenate(lists), kind="stable")
    return merged[np.concatenate(([True], merged[1:] != merged[:-1]))]


def without_rows(numbers: IntArray, forgotten: IntArray) -> IntArray:
    """Return the numbers that are not in ``forgotten``."""
    return numbers[np.isin(numbers, forgotten, invert=True)]


def wide_state(wide: sp.csr_matrix) -> dict[str, Any]:
    """Return a sparse matrix as arrays."""
    arrays = {"values": wide.data, "columns": wide.indices, "row_starts": wide.indptr}
    return {**arrays, "n_columns": int(wide.shape[1])}


def wide_from_state(state: Mapping[str, Any], n_rows: int) -> sp.csr_matrix:
    """Restore the result of :func:`wide_state`; raise ValueError if the arrays are inconsistent."""
    values, columns, starts = (np.asarray(state[name]) for name in ("values", "columns", "row_starts"))
    wide = sp.csr_matrix((values, columns, starts), shape=(n_rows, int(state["n_columns"])))
    wide.check_format(full_check=True)
    if values.dtype != np.float64 or not np.isfinite(values).all():
        raise ValueError("wide rows must contain finite numbers")
    return wide


def _storage(n_columns: int, n_rows: int) -> Block:
    return Block(
        np.empty((n_rows, n_columns)),
        np.empty(n_rows, dtype=np.int64),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows, dtype=np.int64),
        np.empty(n_rows, dtype=np.uint64),
    )
