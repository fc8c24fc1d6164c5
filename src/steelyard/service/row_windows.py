"""Which rows of a model count now, chunk by chunk: what a window lets go, and what can be found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from steelyard._types import FloatArray

__all__ = ["Piece", "RowWindowIndex"]

Times = FloatArray | Callable[[], FloatArray]  # sorted, or where to find them


@dataclass(frozen=True)
class Piece:
    """Some neighbouring rows of a chunk."""

    chunk: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


class _Entry:
    __slots__ = ("_times", "begin", "n", "noted")

    def __init__(self, n: int, begin: int, times: Times) -> None:
        self.n, self.begin, self._times = n, begin, times  # rows before `begin` no longer count
        self.noted = begin  # what the store's mark says of that

    @property
    def times(self) -> FloatArray:
        """Looked up when they are asked for: most windows never ask."""
        if callable(self._times):
            self._times = self._times()
        return self._times


class RowWindowIndex:
    """The chunks of one model in the order in which they came; within a chunk rows are sorted by time."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self.n_rows = 0

    def add(self, chunk: int, times: Times, n_rows: int, begin: int = 0) -> None:
        """A new chunk, or one found again of which the first rows no longer count."""
        self._entries[chunk] = _Entry(n_rows, begin, times)
        self.n_rows += n_rows - begin

    def drop(self, chunk: int) -> None:
        """A chunk that is gone."""
        entry = self._entries.pop(chunk)
        self.n_rows -= entry.n - entry.begin

    def replace(self, chunk: int, times: FloatArray) -> None:
        """A chunk that has lost rows; it keeps its place."""
        entry = self._entries[chunk]
        self.n_rows += len(times) - (entry.n - entry.begin)
        self._entries[chunk] = _Entry(len(times), 0, times)

    def leaving(self, window: int | timedelta, now: float) -> list[Piece]:
        """Rows that a window of this size lets go."""
        if isinstance(window, timedelta):
            return self.before(now - window.total_seconds(), inclusive=True)
        pieces, excess = [], self.n_rows - window
        for chunk, entry in self._entries.items():
            if excess <= 0:
                break
            taken = min(excess, entry.n - entry.begin)
            if taken:
                pieces.append(Piece(chunk, entry.begin, entry.begin + taken))
            excess -= taken
        return pieces

    def before(self, moment: float, *, inclusive: bool = False) -> list[Piece]:
        """Rows that are older than a moment."""
        pieces = []
        for chunk, entry in self._entries.items():
            end = int(np.searchsorted(entry.times, moment, side="right" if inclusive else "left"))
            if end > entry.begin:
                pieces.append(Piece(chunk, entry.begin, end))
        return pieces

    def newest(self) -> float:
        """The time of the newest row; minus infinity without rows."""
        return max((float(e.times[-1]) for e in self._entries.values() if e.n), default=-np.inf)

    def forget(self, pieces: Iterable[Piece]) -> None:
        """Rows no longer count; pieces are the first rows of their chunks."""
        for piece in pieces:
            entry = self._entries[piece.chunk]
            self.n_rows -= piece.end - entry.begin
            entry.begin = piece.end

    def counts(self, chunk: int, position: int) -> bool:
        """Whether a row counts now."""
        entry = self._entries.get(chunk)
        return entry is not None and entry.begin <= position < entry.n

    def begin_of(self, chunk: int) -> int:
        """The first row of a chunk that counts."""
        return self._entries[chunk].begin

    def finished(self) -> list[int]:
        """Chunks of which no row counts any more."""
        return [chunk for chunk, entry in self._entries.items() if entry.begin >= entry.n]

    def to_note(self) -> list[tuple[int, int]]:
        """Chunks whose first row that counts is another than the store has noted, and that row."""
        found = [(chunk, entry) for chunk, entry in self._entries.items() if entry.begin != entry.noted]
        for _, entry in found:
            entry.noted = entry.begin
        return [(chunk, entry.begin) for chunk, entry in found]

    def chunks(self) -> list[int]:
        """All chunks, oldest first."""
        return list(self._entries)
