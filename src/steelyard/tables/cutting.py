"""Batches as they come, cut into batches of the size that was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from steelyard.tables.columns import ColumnBatch
from steelyard.tables.read_ahead import End

__all__ = ["limited", "recut"]

Pull = Callable[[float | None], ColumnBatch | End | None]


def recut(pull: Pull, size: int, flush_after: float | None) -> Iterator[ColumnBatch]:
    """Batches of ``size`` rows, the last one smaller; an error at their end comes after all rows.

    With ``flush_after``, rows that have waited for so many seconds come out even if they are fewer.
    """
    pending: list[ColumnBatch] = []
    n_pending, since = 0, 0.0
    while True:
        waits = flush_after is not None and n_pending > 0
        batch = pull(max(0.0, since + (flush_after or 0.0) - time.monotonic()) if waits else None)
        if isinstance(batch, End):
            break
        if batch is None:  # nothing came for a while
            yield ColumnBatch.joined(pending)
            pending, n_pending = [], 0
            continue
        since = since if n_pending else time.monotonic()
        begin = 0
        while n_pending + batch.n_rows - begin >= size:
            end = begin + size - n_pending
            yield ColumnBatch.joined([*pending, batch.take(begin, end)])
            pending, n_pending, begin, since = [], 0, end, time.monotonic()
        if begin < batch.n_rows:
            pending.append(batch.take(begin, batch.n_rows))
            n_pending += batch.n_rows - begin
    if n_pending:
        yield ColumnBatch.joined(pending)
    if batch.error is not None:
        raise batch.error


def limited(batches: Iterator[ColumnBatch], limit: int | None) -> Iterator[ColumnBatch]:
    """The first ``limit`` rows."""
    for batch in batches:
        if limit is None:
            yield batch
            continue
        yield batch.take(0, limit)
        limit -= batch.n_rows
        if limit <= 0:
            return
