"""Reader that fetches batches ahead in a background thread and resizes them to chunks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from steelyard.tables.columns import ColumnBatch

_MAX_QUEUED_BATCHES = 4  # limits the memory of batches that are read ahead
_POLL_SECONDS = 0.05
_JOIN_SECONDS = 2.0


class _End:
    """Marker of the end of the batches, with the error that ended them, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class BatchReader:
    """Reader of batches, optionally in a background thread.

    Parsing releases the GIL, so with two cores, reading ahead does not slow down the consumer. The thread
    also allows a consumer of a live feed to wait with a timeout.

    Parameters
    ----------
    batches : iterator of ColumnBatch
        The batches; if ``threaded``, only the background thread uses this iterator.
    threaded : bool
        Whether to read ahead in a background thread.
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

    def chunks(self, size: int, limit: int | None, flush_seconds: float | None) -> Iterator[ColumnBatch]:
        """Yield batches of ``size`` rows, at most ``limit`` rows in total.

        An error of the source is raised after all rows before it have been returned.

        With ``flush_seconds``, rows that have waited for this time are returned as a smaller batch.
        """
        for batch in self._resized(size, flush_seconds):
            yield batch if limit is None else batch.take(0, limit)
            limit = None if limit is None else limit - batch.n_rows
            if limit is not None and limit <= 0:
                return

    def _resized(self, size: int, flush_seconds: float | None) -> Iterator[ColumnBatch]:
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
        if self._thread is None:
            try:
                batch = next(self._batches, _End())
            except Exception as error:  # noqa: BLE001  the consumer raises the error after all earlier rows
                return _End(error)
            self.n_rows += 0 if isinstance(batch, _End) else batch.n_rows
            return batch
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _read_ahead(self) -> None:
        end = _End()
        try:
            for batch in self._batches:
                self.n_rows += batch.n_rows
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  the consumer raises the error
            end = _End(error)
        self._put(end)

    def _put(self, item: ColumnBatch | _End) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
