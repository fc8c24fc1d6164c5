"""The rows that came last: what windows hold, and what leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray, IntArray

__all__ = ["Block", "Recent"]


@dataclass(frozen=True)
class Block:
    """Some rows: features, their ranks (no columns before there is a scale), class numbers, weights, times,
    running numbers, and whether the dear experts are offered them.
    """

    X: FloatArray
    ranks: FloatArray
    codes: IntArray
    weights: FloatArray
    times: FloatArray
    numbers: IntArray
    offered: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of_ones(cls, n_rows: int) -> Block:
        """Rows without features, of class 0, that count once."""
        nothing, zeros, ones = np.zeros((n_rows, 0)), np.zeros(n_rows), np.ones(n_rows)
        numbers = np.zeros(n_rows, dtype=np.int64)
        return cls(nothing, nothing, numbers, ones, zeros, numbers, np.ones(n_rows, dtype=bool))

    def at(self, X: FloatArray, codes: IntArray) -> Block:
        """The same with other features and classes, without ranks."""
        return Block(X, self.ranks[:, :0], codes, self.weights, self.times, self.numbers, self.offered)

    def part(self, rows: Any) -> Block:
        """Some of the rows."""
        return Block(
            self.X[rows],
            self.ranks[rows],
            self.codes[rows],
            self.weights[rows],
            self.times[rows],
            self.numbers[rows],
            self.offered[rows],
        )

    def joined(self, *others: Block) -> Block:
        """These rows, then the others."""
        blocks = [self, *(other for other in others if len(other))]
        if len(blocks) == 1:
            return self
        return Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in _COLUMNS))

    def seen_as(self, ranks: FloatArray) -> Block:
        """The same rows with these ranks."""
        return Block(self.X, ranks, self.codes, self.weights, self.times, self.numbers, self.offered)

    def numbered(self, first: int) -> Block:
        """The same rows with running numbers that begin at ``first``."""
        numbers = np.arange(first, first + len(self))
        return Block(self.X, self.ranks, self.codes, self.weights, self.times, numbers, self.offered)

    def thinned(self, most: int) -> Block:
        """Offer at most about so many of the rows: all of rare classes, evenly spaced ones of others."""
        if len(self) <= most:
            return self
        offered = np.zeros(len(self), dtype=bool)
        if not most:
            return replace(self, offered=offered)
        counts = np.bincount(self.codes)
        codes = np.flatnonzero(counts).tolist()
        each = most // len(codes)
        left_over = max(0, most - int(np.minimum(counts, each).sum()))  # by rare classes, for the others
        for code in codes:
            mine = np.flatnonzero(self.codes == code)
            n = len(mine)
            n_offered = min(n, each)
            n_offered += min(n - n_offered, left_over)
            offered[mine[np.arange(n_offered) * n // max(n_offered, 1)]] = True
        return replace(self, offered=offered)


_COLUMNS = ("X", "ranks", "codes", "weights", "times", "numbers", "offered")


class Recent:
    """Rows in the order in which they came; old ones go, and single ones may be taken out.

    It never changes: what is added or taken out makes another one. Both share their storage, so a row costs
    no copy of the others, and whoever still holds the one before may go back to it.
    """

    __slots__ = ("_begin", "_end", "_store")

    def __init__(self, store: Block, begin: int, end: int) -> None:
        self._store = store
        self._begin, self._end = begin, end

    @classmethod
    def empty(cls, n_columns: int) -> Recent:
        """No rows of this width."""
        return cls(_storage((n_columns, 0), 0), 0, 0)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def block(self) -> Block:
        """All rows that are held."""
        return self._store.part(slice(self._begin, self._end))

    def between(self, low: int, high: int) -> Block:
        """The rows with running numbers from ``low`` to ``high``, the latter excluded."""
        begin, end = np.searchsorted(self._numbers(), [low, high]) + self._begin
        return self._store.part(slice(int(begin), int(end)))

    def at(self, numbers: IntArray) -> Block:
        """The rows with these running numbers, which rise and must be here."""
        return self._store.part(self._places(numbers))

    def codes(self, numbers: IntArray) -> IntArray:
        """Class numbers of the rows with these running numbers, likewise."""
        return self._store.codes[self._places(numbers)]

    def _places(self, numbers: IntArray) -> Any:
        held = self._numbers()
        if len(numbers):  # most often they are neighbours, and need no copy
            begin = int(held.searchsorted(numbers[0]))
            end = begin + len(numbers)
            if end <= len(held) and held[end - 1] == numbers[-1]:
                return slice(self._begin + begin, self._begin + end)
        return self._begin + np.searchsorted(held, numbers)

    def has(self, numbers: IntArray) -> bool:
        """Whether the rows with these running numbers, which rise, are all here."""
        return bool(np.isin(numbers, self._numbers(), assume_unique=True).all())

    def is_within(self, low: int, high: int) -> bool:
        """Whether no running number is below ``low`` or has reached ``high``."""
        numbers = self._numbers()
        return not len(numbers) or bool(low <= numbers[0] and numbers[-1] < high)

    def _numbers(self) -> IntArray:
        return self._store.numbers[self._begin : self._end]

    def last(self, n_rows: int, of_class: int, low: int, *, offered: bool = False) -> IntArray:
        """Numbers of the last rows, and of the last rows of every class, none below ``low``; rising.

        With ``offered`` rows that dear experts are not offered do not count.
        """
        numbers, codes = self._numbers(), self._store.codes[self._begin : self._end]
        if not (of_class or offered):  # a stream of single rows pays for every call
            return numbers[max(len(numbers) - n_rows, int(numbers.searchsorted(low))) :]
        if offered:
            places = np.flatnonzero(self._store.offered[self._begin : self._end])
            numbers, codes = numbers[places], codes[places]
        wanted = np.zeros(len(numbers), dtype=bool)
        wanted[max(0, len(numbers) - n_rows) :] = True
        if of_class:
            for code in np.unique(codes):
                wanted[np.flatnonzero(codes == code)[-of_class:]] = True
        wanted[: np.searchsorted(numbers, low)] = False
        return numbers[wanted]

    def added(self, block: Block) -> Recent:
        """With these rows at the end."""
        begin, end, store = self._begin, self._end + len(block), self._store
        if end > len(store):
            held = self.block
            store = _storage(_widths(held), 2 * (len(held) + len(block)) + 64)
            _write(store, 0, held)
            begin, end = 0, len(held) + len(block)
        _write(store, end - len(block), block)
        return Recent(store, begin, end)

    def seen_as(self, ranks: FloatArray) -> Recent:
        """The same rows on another scale of ranks."""
        return Recent(self.block.seen_as(ranks), 0, len(self))

    def trimmed(self, numbers: IntArray, slack: float) -> Recent:
        """Only the rows with these numbers, if that makes it shorter by more than the slack allows."""
        if len(self) <= (1.0 + slack) * len(numbers):
            return self
        places, n = self._places(numbers), len(numbers)
        if isinstance(places, slice):
            places = np.arange(places.start, places.stop)
        store = _storage(_widths(self._store), 2 * n + 64)
        for name in _COLUMNS:
            np.take(getattr(self._store, name), places, axis=0, out=getattr(store, name)[:n], mode="clip")
        return Recent(store, 0, n)

    def without(self, places: NDArray[np.intp]) -> Recent:
        """Without the rows at these places."""
        kept = np.delete(np.arange(self._begin, self._end), places)
        store = self._store.part(kept)
        return Recent(store, 0, len(kept))

    def find(self, X: FloatArray, codes: IntArray, weights: FloatArray) -> NDArray[np.intp]:
        """Places of equal rows, a different one for each, the oldest first; -1 where there is none."""
        held = self.block
        places: dict[tuple[int, int, float], list[int]] = {}
        keys = zip(
            _native.row_hashes(held.X).tolist(), held.codes.tolist(), held.weights.tolist(), strict=True
        )
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        found = []
        wanted = zip(_native.row_hashes(X).tolist(), codes.tolist(), weights.tolist(), strict=True)
        for row, key in enumerate(wanted):
            candidates = places.get(key, [])
            same = next((place for place in candidates if np.array_equal(held.X[place], X[row])), -1)
            if same >= 0:
                candidates.remove(same)
            found.append(same)
        return np.array(found, dtype=np.intp)

    def get_state(self) -> dict[str, Any]:
        """The rows; their ranks follow from the view."""
        block = self.block
        return {name: getattr(block, name).copy() for name in _COLUMNS if name != "ranks"}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Recent:
        """Rows as ``get_state`` gives them, without ranks; ValueError if they make no sense."""
        parts = {name: np.asarray(state[name]) for name in _COLUMNS if name != "ranks"}
        block = Block(ranks=np.zeros((len(parts["codes"]), 0)), **parts)
        if block.X.ndim != 2 or {len(getattr(block, name)) for name in _COLUMNS} != {len(block)}:
            raise ValueError("rows, labels, weights and times must be of one length")
        if not (np.isfinite(block.X).all() and np.isfinite(block.weights).all()):
            raise ValueError("rows and weights must be finite numbers")
        if (np.diff(block.numbers) <= 0).any():
            raise ValueError("the rows are not in order")
        return cls(block, 0, len(block))


def _widths(block: Block) -> tuple[int, int]:
    return block.X.shape[1], block.ranks.shape[1]


def _storage(widths: tuple[int, int], n_rows: int) -> Block:
    return Block(
        np.empty((n_rows, widths[0])),
        np.empty((n_rows, widths[1])),
        np.empty(n_rows, dtype=np.int64),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows, dtype=np.int64),
        np.empty(n_rows, dtype=bool),
    )


def _write(store: Block, place: int, block: Block) -> None:
    for name in _COLUMNS:
        getattr(store, name)[place : place + len(block)] = getattr(block, name)
