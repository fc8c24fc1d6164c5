"""Base class of the readers of tables, the reader of records, bad rows, and reading ahead in chunks."""

from __future__ import annotations

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Columns, Place, RowError

Made = TypeVar("Made")
_MAX_MESSAGES = 1000
LABEL = "label"  # name of the label column of records
_SAMPLE_RECORDS = 1000
_BATCH_RECORDS = 1000
_MAX_QUEUED_BATCHES = 4  # limits the memory of batches that are read ahead
_JOIN_SECONDS = 2.0


class TableSource:
    """Reader of the columns of a table."""

    names: list[str]  # all columns
    n_rows: int | None = None  # None if the number is not known
    index_names: Sequence[str] = ()  # columns that are features only if the user names them
    time_names: Sequence[str] = ()  # columns whose declared type is a time
    bytes_source: Any = None  # ByteSource that is read in another thread, or None

    def __init__(self, place: Place) -> None:
        self.place, self.bad_rows = place, BadRows(place)

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        """Return the kind of each column: text, number or boolean, or the declared type of the column."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    @abstractmethod
    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        """Yield the rows as batches of columns. An error is raised after all earlier rows were returned."""

    def fraction_read(self) -> float | None:
        """Return the fraction of the rows that has been read, or None if it is not known."""
        return None if self.bytes_source is None else self.bytes_source.fraction_read()

    def close(self) -> None:
        """Close the file or the connection, if any."""
        if self.bytes_source is not None:
            self.bytes_source.close()


class BadRows:
    """Policy for the bad rows of a source (raise or skip), and a record of the skipped rows.

    A row is bad if its line cannot be parsed, if a cell is not valid in its column, or if a value cannot be
    learned. All rows before a bad row are returned before its error is raised.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.skip = False  # otherwise the first bad row raises an error
        self.n_skipped = 0
        self.messages: list[str] = []  # errors of the first thousand skipped rows

    def handle(self, error: DataError, row: int | None = None) -> None:
        """Raise the error or skip the row; ``row`` is its index if later rows are counted without it."""
        if not self.skip:
            raise error
        self.n_skipped += 1
        if len(self.messages) < _MAX_MESSAGES:
            self.messages.append(error.summary)
        if row is not None:
            self.place.skip(row)

    def good_parts(
        self, batch: ColumnBatch, first_row: int, make: Callable[[ColumnBatch, int], Made]
    ) -> Iterator[Made]:
        """Yield ``make(rows, first_row)``, which raises RowError for a bad row, for each run of good rows."""
        while batch.n_rows:
            bad, good = None, batch
            while good.n_rows:
                try:
                    made = make(good, first_row)
                except RowError as error:  # earlier rows may be bad in other columns, so they are tried next
                    bad, good = error, good.take(0, error.row - first_row)
                else:
                    yield made
                    break
            if bad is None:
                return
            self.handle(bad)
            first_row += good.n_rows + 1
            batch = batch.take(good.n_rows + 1, batch.n_rows)


def rows_before_error(rows: Iterator[Any], max_rows: int) -> tuple[list[Any], DataError | None]:
    """Return the next rows (at most ``max_rows``), and the error that ended them early or None."""
    found: list[Any] = []
    try:
        found.extend(islice(rows, max_rows))
    except DataError as error:
        return found, error
    return found, None


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
            with suppress(queue.Empty):  # with an empty queue the thread can put its last batch and end
                while True:
                    self._queue.get_nowait()
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
        item: ColumnBatch | _End | None = None
        while not (self._closed.is_set() or isinstance(item, _End)):
            item = self._read()
            self._queue.put(item)


class RecordSource(TableSource):
    """Reader of (mapping, label) pairs, whose columns are the fields of the first thousand records.

    If a record lacks a field, its value is missing. ``name`` is the name of the source in error messages.
    """

    def __init__(self, pairs: Iterable[tuple[Mapping[Any, Any], Any]], name: str) -> None:
        super().__init__(Place(name))
        iterator = iter(pairs)
        sample = list(islice(iterator, _SAMPLE_RECORDS))
        fields = dict.fromkeys(str(field) for record, _ in sample for field in record)
        if not fields:
            raise DataError("there are no rows.", source=name)
        if LABEL in fields:
            raise DataError(f"a field has the name {LABEL!r}, which is reserved for the labels.", source=name)
        self.names = [*fields, LABEL]
        self._sample = list(map(_row, sample))
        self._rows = chain(self._sample, map(_row, iterator))

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        kinds = {}
        for name in wanted:
            values = [row[name] for row in self._sample if row.get(name) is not None]
            is_text = name in columns.categorical or not all(isinstance(value, Real) for value in values)
            kinds[name] = "text" if is_text else "number"
        return kinds

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        known, n_rows = set(self.names), 0
        while batch := list(islice(self._rows, _BATCH_RECORDS)):
            for number, row in enumerate(batch):
                new = next((field for field in row if field not in known), None)
                if new is not None:
                    raise DataError(
                        f"the field {new!r} is in none of the first rows.",
                        source=self.place.of_row(n_rows + number),
                    )
            columns = {name: _column([row.get(name) for row in batch], kinds[name]) for name in wanted}
            yield ColumnBatch(columns, len(batch))
            n_rows += len(batch)


def _row(pair: tuple[Mapping[Any, Any], Any]) -> dict[str, Any]:
    record, label = pair
    return {**{str(field): value for field, value in record.items()}, LABEL: label}


def _column(values: list[Any], kind: str) -> NDArray[Any]:
    if kind == "number" and all(value is None or isinstance(value, Real) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array([None if value is None else str(value) for value in values], dtype=object)
