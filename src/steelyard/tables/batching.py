"""Reader that fetches batches ahead in a background thread and resizes them to chunks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from steelyard.tables.columns import ColumnBatch

_MAX_QUEUED_BATCHES = 4  # limits the memory of batches that are read ahead
_POLL_SECONDS = 0.05
_JOIN_SECONDS = 2.0


def first_rows(batches: Iterator[ColumnBatch], limit: int | None) -> Iterator[ColumnBatch]:
    """Yield the first ``limit`` rows of the batches, or all if it is None."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.take(0, limit)
        limit -= batch.n_rows
        if limit <= 0:
            return


@dataclass
class _End:
    """Marker of the end of the batches, with the error that ended them, if any."""

    error: BaseException | None = None


class BatchReader:
    """Reader of batches, optionally in a background thread.

    Parsing releases the GIL, so with two cores, reading ahead does not slow down the consumer. The thread
    also allows a consumer of a live feed to wait with a timeout. If ``threaded``, only the thread uses the
    iterator of batches.
    """

    def __init__(self, batches: Iterator[ColumnBatch], *, threaded: bool) -> None:
        self._batches = batches
        self.n_rows = 0  # number of rows read so far
        self._queue: queue.Queue[ColumnBatch | _End] = queue.Queue(_MAX_QUEUED_BATCHES)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._read_ahead, name="steelyard reader", daemon=True)
            self._thread.start()

    def chunks(self, size: int, flush_seconds: float | None = None) -> Iterator[ColumnBatch]:
        """Yield batches of ``size`` rows.

        An error of the source is raised after all rows before it have been returned. With ``flush_seconds``,
        rows that have waited for this time are returned as a smaller batch.
        """
        pending: list[ColumnBatch] = []
        n_pending, since = 0, 0.0
        while True:
            timeout = None
            if flush_seconds is not None and n_pending:
                timeout = max(0.0, since + flush_seconds - time.monotonic())
            batch = self._next(timeout)
            if isinstance(batch, _End):
                break
            if batch is None:  # flush_seconds have passed
                yield ColumnBatch.concat(pending)
                pending, n_pending = [], 0
                continue
            since = since if n_pending else time.monotonic()
            begin = 0
            while n_pending + batch.n_rows - begin >= size:
                end = begin + size - n_pending
                yield ColumnBatch.concat([*pending, batch.take(begin, end)])
                pending, n_pending, begin, since = [], 0, end, time.monotonic()
            if begin < batch.n_rows:
                pending.append(batch.take(begin, batch.n_rows))
                n_pending += batch.n_rows - begin
        if n_pending:
            yield ColumnBatch.concat(pending)
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Stop reading and wait for the thread, but at most two seconds, because a pipe may block it."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=_JOIN_SECONDS)

    def _next(self, timeout: float | None) -> ColumnBatch | _End | None:
        """Return the next batch or the end marker, or None if nothing arrives within ``timeout`` seconds."""
        try:
            return self._read() if self._thread is None else self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _read(self) -> ColumnBatch | _End:
        try:
            batch = next(self._batches, _End())
        except BaseException as error:
            if self._thread is None and not isinstance(error, Exception):
                raise  # for example KeyboardInterrupt
            return _End(error)
        self.n_rows += 0 if isinstance(batch, _End) else batch.n_rows
        return batch

    def _read_ahead(self) -> None:
        is_open = True
        while is_open:
            item = self._read()
            is_open = self._put(item) and not isinstance(item, _End)

    def _put(self, item: ColumnBatch | _End) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
