"""Stored rows of a model: their format, and an index of their chunks, their times and the expired rows."""

from __future__ import annotations

import heapq
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import methodcaller
from typing import Any

import msgspec
import numpy as np

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence.tree import decode
from steelyard.tables.columns import ColumnBatch

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


# -- format of stored rows --------------------------------------------------------------------------

# A stored chunk is a header, a MessagePack map and one block of doubles with the numeric columns.
# The checksum in the header covers the map and the block.
# Version 0.2 wrote only a tree of :mod:`steelyard.persistence`.
_MAGIC = b"\x93ROWS\0\0\2"
_HEADER = struct.Struct("<8sQQ")  # magic, CRC-32, length of the map in bytes


def pack(batch: ColumnBatch, extra: Mapping[str, Any] | None = None) -> bytes:
    """Serialize rows and additional values that belong to them (plain values, or arrays of doubles)."""
    others: dict[str, Any] = {}
    if batch.matrix is not None:
        block = np.ascontiguousarray(batch.matrix.T)
    else:
        numeric = [values for values in batch.columns.values() if values.dtype == np.float64]
        block = np.array(numeric).reshape(len(numeric), batch.n_rows)
        others = {
            name: values.tolist() for name, values in batch.columns.items() if values.dtype != np.float64
        }
    tree = {"n": batch.n_rows, "names": list(batch.columns), "columns": others, "extra": extra or {}}
    if batch.times:
        tree["times"] = list(batch.times)
    try:
        rest = msgspec.msgpack.encode(tree, enc_hook=methodcaller("tolist"))
    except UnicodeEncodeError as error:
        raise DataError("a text is not valid Unicode.", source="the request") from error
    padded = rest + b"\0" * (-len(rest) % 8)
    checksum = zlib.crc32(block.data, zlib.crc32(padded))
    return b"".join([_HEADER.pack(_MAGIC, checksum, len(rest)), padded, block.data])


def unpack(data: bytes) -> tuple[ColumnBatch, dict[str, Any]]:
    """Restore rows and additional values from the result of :func:`pack` in this or an earlier version."""
    if not data.startswith(_MAGIC):  # version 0.2
        tree = decode(data)
        columns = {name: _object_array(values) for name, values in tree.pop("columns").items()}
        return ColumnBatch(columns, tree.pop("n")), tree
    view = memoryview(data)
    _, checksum, length = _HEADER.unpack_from(view)
    if zlib.crc32(view[_HEADER.size :]) != checksum:
        raise FileFormatError("the checksum of stored rows is wrong: the store is damaged.")
    tree = msgspec.msgpack.decode(view[_HEADER.size : _HEADER.size + length])
    begin = _HEADER.size + length + -length % 8
    names, n_rows, extra = tree["names"], tree["n"], tree["extra"]
    others = {name: _object_array(values) for name, values in tree["columns"].items()}
    block = np.frombuffer(view[begin:]).reshape(len(names) - len(others), n_rows)
    if not others and "times" not in tree:
        return ColumnBatch.from_matrix(names, block.T), extra
    numeric = iter(block)
    columns = {name: others[name] if name in others else next(numeric) for name in names}
    return ColumnBatch(columns, n_rows, times=tree.get("times", ())), extra


def unpack_event(data: bytes) -> Any:
    """Restore the body of an event, in this or an earlier format."""
    return msgspec.json.decode(data) if data[:1] == b"{" else decode(data)


def _object_array(values: Any) -> Any:
    if not isinstance(values, list):
        return np.asarray(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
