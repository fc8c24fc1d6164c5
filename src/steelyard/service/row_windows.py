"""Index of the stored rows of a model: their chunks, their times, and the rows that have left the window."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from steelyard._types import FloatArray

Times = FloatArray | Callable[[], FloatArray]  # sorted times, or a function that loads them


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of one chunk."""

    chunk: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(slots=True)
class _Entry:
    n: int
    begin: int  # rows before this index have expired
    _times: Times

    @property
    def times(self) -> FloatArray:
        # Times are loaded on first use, because a window of n rows does not need them.
        if callable(self._times):
            self._times = self._times()
        return self._times


class RowWindowIndex:
    """Chunks of one model in order of arrival. Within a chunk, rows are sorted by time.

    Finding expired rows takes constant time per expired row. Chunks without active rows are removed from
    ``_active``, and a heap orders the other chunks by the time of their oldest active row. The heap is built
    at the first query by time. Items of the heap whose chunk has changed since then are skipped.
    """

    def __init__(self) -> None:
        self._active: dict[int, _Entry] = {}
        self._expired: dict[int, _Entry] = {}  # chunks all of whose rows have expired
        self._unsaved: dict[int, _Entry] = {}  # chunks whose `begin` is not in the store yet
        self._heap: list[tuple[float, int]] | None = None  # (time of the oldest active row, chunk)
        self._newest: float | None = None  # cached time of the newest row, or None if it must be computed
        self.n_rows = 0

    def add(self, chunk: int, times: Times, n_rows: int, begin: int = 0) -> None:
        """Add a chunk of which the first ``begin`` rows have expired."""
        self.n_rows += n_rows - begin
        entry = _Entry(n_rows, begin, times)
        if entry.begin >= entry.n:
            self._expired[chunk] = entry
            return
        self._active[chunk] = entry
        if self._heap is not None:
            heapq.heappush(self._heap, (float(entry.times[entry.begin]), chunk))
        if self._newest is not None:
            self._newest = max(self._newest, float(entry.times[-1]))

    def drop(self, chunk: int) -> None:
        """Remove a chunk."""
        entry = self._active.pop(chunk, None) or self._expired.pop(chunk)
        self._unsaved.pop(chunk, None)
        self.n_rows -= entry.n - entry.begin
        self._newest = None

    def replace(self, chunk: int, times: FloatArray) -> None:
        """Replace the rows of a chunk by fewer rows. The chunk keeps its position in the order of arrival."""
        entry = self._active[chunk]
        self.n_rows -= entry.n - entry.begin
        self._unsaved.pop(chunk, None)
        self._newest = None
        self.add(chunk, times, len(times))

    def expired(self, window: int | timedelta, now: float) -> list[RowRange]:
        """Return the active rows outside ``window``, which is a number of rows or a length of time."""
        if isinstance(window, timedelta):
            return self._expired_by_time(now - window.total_seconds())
        ranges, excess = [], self.n_rows - window
        for chunk, entry in self._active.items():
            if excess <= 0:
                break
            n_rows = min(excess, entry.n - entry.begin)
            ranges.append(RowRange(chunk, entry.begin, entry.begin + n_rows))
            excess -= n_rows
        return ranges

    def _expired_by_time(self, limit: float) -> list[RowRange]:
        if self._heap is None:
            self._heap = [(float(e.times[e.begin]), chunk) for chunk, e in self._active.items()]
            heapq.heapify(self._heap)
        chunks: set[int] = set()
        while self._heap and self._heap[0][0] <= limit:
            chunks.add(heapq.heappop(self._heap)[1])
        ranges = []
        for chunk in sorted(chunks & self._active.keys()):
            entry = self._active[chunk]
            end = int(np.searchsorted(entry.times, limit, side="right"))
            if end > entry.begin:
                ranges.append(RowRange(chunk, entry.begin, end))
            # The chunk is pushed again, because its rows stay active until expire() is called.
            heapq.heappush(self._heap, (float(entry.times[entry.begin]), chunk))
        return ranges

    def before(self, moment: float) -> list[RowRange]:
        """Return the active rows with a time before ``moment``."""
        ranges = []
        for chunk, entry in self._active.items():
            end = int(np.searchsorted(entry.times, moment, side="left"))
            if end > entry.begin:
                ranges.append(RowRange(chunk, entry.begin, end))
        return ranges

    def newest(self) -> float:
        """Return the time of the newest row, or minus infinity if there are no rows."""
        if self._newest is None:
            entries = [*self._active.values(), *self._expired.values()]
            self._newest = max((float(e.times[-1]) for e in entries if e.n), default=-np.inf)
        return self._newest

    def expire(self, ranges: Iterable[RowRange]) -> None:
        """Mark rows as expired. Each range begins at the oldest active row of its chunk."""
        for rows in ranges:
            entry = self._active[rows.chunk]
            self.n_rows -= rows.end - entry.begin
            entry.begin = rows.end
            self._unsaved[rows.chunk] = entry
            if entry.begin >= entry.n:
                self._expired[rows.chunk] = self._active.pop(rows.chunk)
            elif self._heap is not None:
                heapq.heappush(self._heap, (float(entry.times[entry.begin]), rows.chunk))

    def begin_of(self, chunk: int) -> int:
        """Return the index of the oldest active row of a chunk."""
        return (self._active.get(chunk) or self._expired[chunk]).begin

    def expired_chunks(self) -> list[int]:
        """Return the chunks without active rows."""
        return list(self._expired)

    def take_unsaved(self) -> list[tuple[int, int]]:
        """Return chunk and index of its oldest active row for chunks whose index in the store is outdated."""
        unsaved = [(chunk, entry.begin) for chunk, entry in self._unsaved.items()]
        self._unsaved.clear()
        return unsaved

    def chunks(self) -> list[int]:
        """Return the chunks with active rows, oldest first."""
        return list(self._active)
