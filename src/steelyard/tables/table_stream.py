"""Streams of table rows from files, standard input, data frames and databases."""

from __future__ import annotations

import codecs
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.params import Integer, OneOf, check_value
from steelyard.streams.chunks import Chunk, RowStream, check_chunk
from steelyard.tables.arrow_sources import arrow_file_source, has_pyarrow, table_source
from steelyard.tables.column_checks import ColumnChecks
from steelyard.tables.columns import ColumnBatch, Columns, RowError, check_exist
from steelyard.tables.databases import open_database
from steelyard.tables.encoding import LabelReader, TableEncoder
from steelyard.tables.files import ByteSource, open_bytes
from steelyard.tables.frames import column_seconds
from steelyard.tables.source import TableSource, is_address
from steelyard.tables.text_sources import CsvSource, JsonLinesSource

_ARROW_MAGIC = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
FLUSH_SECONDS = 0.5  # time after which rows of a live feed are returned even if the chunk is not full
_MAX_SEARCHED_LABELS = 1 << 20
_MAX_QUEUED_BATCHES = 4  # limits the memory of batches that are read ahead
_JOIN_SECONDS = 2.0


class TableStream(RowStream):
    """Stream of the encoded rows and labels of a table; use :func:`open_stream` to create one.

    Parameters
    ----------
    source : TableSource
        Reader of the columns.
    columns : Columns
        Roles of the columns.
    encoder : TableEncoder
        Encoder of the columns; if it is fitted, unlabelled rows do not change it.
    learn : bool
        Whether the encoder adds new categories and updates means.
    chunk, limit, max_classes, on_bad_row, unlabelled
        As for :func:`open_stream`.

    Attributes
    ----------
    live : bool
        Whether rows arrive while the stream is read: from a pipe, socket or terminal.
    n_bad_rows : int
        Number of skipped rows.
    bad_rows : list of str
        Error messages of the first thousand skipped rows.
    notices : list of str
        Advice about columns that are unlikely to be features; ``on_notice`` is called with each of them.
    """

    def __init__(
        self,
        source: TableSource,
        columns: Columns,
        *,
        encoder: TableEncoder,
        chunk: int,
        limit: int | None = None,
        max_classes: int = 500,
        learn: bool = True,
        on_bad_row: str = "stop",
        unlabelled: str = "refuse",
    ) -> None:
        check_value("on_bad_row", on_bad_row, OneOf("stop", "skip"), "open_stream")
        check_value("unlabelled", unlabelled, OneOf("refuse", "keep"), "open_stream")
        if limit is not None:
            check_value("limit", limit, Integer(1), "open_stream")
        self.chunk = check_chunk(chunk, "open_stream")
        self.columns, self.encoder, self.limit = columns, encoder, limit
        self._source, self.learning = source, learn
        self._bytes: ByteSource | None = source.bytes_source
        self.live = self._bytes is not None and self._bytes.live
        self.name = source.place.source
        try:
            self._features = columns.chosen(source.names, self.name, source.index_names)
        except DataError:
            source.close()
            raise
        self._labels = LabelReader(columns.target or "", max_classes, unlabelled)
        self.n_rows = source.n_rows
        if limit is not None and self.n_rows is not None:
            self.n_rows = min(limit, self.n_rows)
        self._kept: tuple[str, ...] = ()
        self.notices: list[str] = []
        self.on_notice: Callable[[str], None] = lambda _: None
        # The columns of a fitted encoder were checked when it was fitted.
        checked = [] if encoder.is_fitted else self._features
        named = (*columns.categorical, *(columns.features or ()))
        self._checks = ColumnChecks(checked, named, self.name, source.time_names)
        self._done = 0
        self._reader: BatchReader | None = None
        source.skips_bad_rows = on_bad_row == "skip"
        self.bad_rows = source.skipped

    def keep(self, names: Sequence[str]) -> Self:
        """Return the given columns unchanged in ``chunk.kept``, whether or not they are features."""
        try:
            check_exist(self._source.names, self.name, "kept", names)
        except DataError:
            self._source.close()
            raise
        self._kept = tuple(dict.fromkeys(names))
        return self

    def __iter__(self) -> Iterator[Chunk]:
        wanted = self.columns.wanted(self._features)
        # Kept columns that are not features are read as text, so 007 stays 007.
        as_text = tuple(name for name in self._kept if name not in set(wanted))
        wanted += as_text
        columns = replace(self.columns, categorical=(*self.columns.categorical, *as_text))
        batches = self._source.batches(wanted, self._source.kinds(columns, wanted))
        self._reader = BatchReader(first_rows(batches, self.limit), threaded=self._bytes is not None)
        try:
            for batch in self._reader.chunks(self.chunk, FLUSH_SECONDS if self.live else None):
                for message in self._checks.add(batch):
                    self._notice(message)
                end = self._done + batch.n_rows
                yield from self._good_chunks(batch, self._done)
                self._done = end
        finally:
            self.stop()
            self._reader.close()
            self._source.close()
        if not self._done:
            raise DataError("there are no rows.", source=self.name)
        for message in self._checks.finish():
            self._notice(message)

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features so far."""
        return self.encoder.feature_names if self.encoder.is_fitted else None

    @property
    def n_bad_rows(self) -> int:
        """Number of skipped rows."""
        return self._source.n_skipped

    def fraction_read(self) -> float | None:
        """Return the fraction of the stream that has been read."""
        fraction = self._source.fraction_read()
        if fraction is not None and self._reader is not None:  # rows that were read ahead are excluded
            fraction *= min(1.0, self._done / max(self._reader.n_rows, 1))
        return fraction if self.limit is None else max(self._done / self.limit, fraction or 0.0)

    def stop(self) -> None:
        """End a live feed: return the rows that have already arrived, but do not wait for more."""
        if self.live and self._bytes is not None:
            self._bytes.stop()

    def fingerprint(self) -> str | None:
        """Return the SHA-256 of the file, or of the bytes from a pipe; None for a table in memory."""
        return None if self._bytes is None else self._bytes.fingerprint()

    def _notice(self, message: str) -> None:
        self.notices.append(message)
        self.on_notice(message)

    def _good_chunks(self, batch: ColumnBatch, first_row: int) -> Iterator[Chunk]:
        """Yield the rows between bad rows as chunks, and reject the bad rows."""
        while batch.n_rows:
            bad, good = None, batch
            while good.n_rows:
                try:
                    chunk = self._encode(good, first_row)
                except RowError as error:  # earlier rows may be bad in other columns, so they are tried next
                    bad, good = error, good.take(0, error.row - first_row)
                else:
                    yield chunk
                    break
            if bad is None:
                return
            self._source.reject(bad)
            first_row += good.n_rows + 1
            batch = batch.take(good.n_rows + 1, batch.n_rows)

    def _encode(self, batch: ColumnBatch, first_row: int) -> Chunk:
        place = self._source.place
        if not self.encoder.is_fitted:
            self.encoder.fit_columns(batch, self._features, self.columns.categorical, dates=True)
        target, time = self.columns.target, self.columns.time
        y: NDArray[Any] = np.zeros(batch.n_rows)
        codes = None
        if target is not None:
            y, codes = self._labels.encode(batch.columns[target], place, first_row)
        times = None if time is None else column_seconds(batch.columns[time], time, place, first_row)
        X, fixed, columns = self.encoder.encode_all(batch, place, first_row, learn=self.learning)
        kept = {name: batch.columns[name] for name in self._kept}
        table = None if codes is None else self._labels.table
        self._done = first_row + batch.n_rows
        chunk = Chunk(X, y, first_row, times, fixed, codes, table, kept, columns=columns)
        if target is None or self._labels.unlabelled == "refuse":
            return chunk
        return chunk.split(self._labels.is_labelled(batch.columns[target]))


def open_stream(
    source: Any,
    target: str | None,
    *,
    time: str | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    missing: str = "indicator",
    chunk: int = 1000,
    limit: int | None = None,
    max_classes: int = 500,
    encoder: TableEncoder | None = None,
    on_bad_row: str = "stop",
    unlabelled: str = "refuse",
) -> TableStream:
    """Open a table as a stream.

    Parameters
    ----------
    source : path, binary file, ``"-"``, table or address
        A CSV, TSV, JSON-lines, Parquet or Arrow file, recognised by content; text may be compressed with
        gzip; ``"-"`` is standard input. Or a pandas, polars or pyarrow table, or a table in a database:
        ``sqlite:///shop.db?table=payments`` (duckdb and postgresql likewise). Memory use is bounded.
    target : str or None
        The column of labels; None for rows without labels.
    time : str, optional
        The column with the time of each row: seconds, or dates and times in ISO 8601 format.
    features, drop, categorical : str or sequences of str
        Columns to use, to leave out, and to treat as categories even if they contain numbers.
    missing : {"indicator", "refuse", "mean", "zero"}, default="indicator"
        Treatment of missing values, see :class:`TableEncoder`.
    chunk : int, default=1000
        Rows per chunk.
    limit : int, optional
        Maximum number of rows.
    max_classes : int, default=500
        Maximum number of distinct labels. With more labels an error is raised.
    encoder : TableEncoder, optional
        A fitted encoder, for example of a saved model; it does not change if ``target`` is None.
    on_bad_row : {"stop", "skip"}, default="stop"
        With "stop", a row that cannot be used raises an error after all rows before it. With "skip", it is
        skipped: ``n_bad_rows`` counts the skipped rows and ``bad_rows`` contains their error messages.
    unlabelled : {"refuse", "keep"}, default="refuse"
        With "refuse", a row without a label is a row that cannot be used. With "keep", it is kept in
        ``chunk.unlabelled``: it can be predicted but not learned.

    Returns
    -------
    TableStream

    Examples
    --------
    >>> import io
    >>> from steelyard.tables import open_stream
    >>> file = io.BytesIO(b"amount,country,fraud\\n1.5,NZ,no\\n2.5,AU,yes\\n")
    >>> stream = open_stream(file, target="fraud")
    >>> for chunk in stream:
    ...     print(chunk.X, chunk.y, stream.feature_names)
    [[1.5 1.  0. ]
     [2.5 0.  1. ]] ['no' 'yes'] ['amount', 'country=NZ', 'country=AU']
    """
    columns = Columns.of(target, time, features=features, drop=drop, categorical=categorical)
    is_fitted = encoder is not None and encoder.is_fitted
    if encoder is not None and is_fitted:
        columns = replace(encoder.roles(target, time), drop=columns.drop)
    return TableStream(
        open_source(source),
        columns,
        encoder=encoder or TableEncoder(missing),
        chunk=chunk,
        limit=limit,
        max_classes=max_classes,
        learn=target is not None or not is_fitted,
        on_bad_row=on_bad_row,
        unlabelled=unlabelled,
    )


def has_label(source: Any, target: str, text: str, limit: int | None = None) -> tuple[bool, list[Any]]:
    """Return whether a label occurs in the label column of a table, and the labels that were found.

    ``text`` is the label as text. Reading stops at the label or after ``limit`` rows. If the table cannot be
    read to its end, the result is True: the error is reported when the rows are read.
    """
    labels = LabelReader(target, _MAX_SEARCHED_LABELS, "keep")
    try:
        with closing(open_source(source)) as reader:
            done = 0
            batches = reader.batches([target], reader.kinds(Columns(target), [target]))
            for batch in first_rows(batches, limit):
                labels.read(batch.columns[target], reader.place, done)
                done += batch.n_rows
                if labels.table.find(text) is not None:
                    break
    except (DataError, KeyError):  # KeyError: the target column does not exist
        return True, labels.table.labels
    return labels.table.find(text) is not None, labels.table.labels


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


def open_source(source: Any) -> TableSource:
    """Return the reader of a source. Files are recognised by their first bytes."""
    if is_address(source):
        return open_database(source)
    if isinstance(source, TableSource):
        return source
    if not isinstance(source, str | os.PathLike) and not hasattr(source, "read"):
        _need_pyarrow("a table")
        return table_source(source)
    data = open_bytes(source)
    try:
        return _reader_of(data)
    except DataError:
        data.close()
        raise


def _reader_of(data: ByteSource) -> TableSource:
    if data.head.startswith(_ARROW_MAGIC):
        _need_pyarrow(data.name)
        return arrow_file_source(data)
    if not data.head:
        raise DataError("the file is empty.", source=data.name)
    if data.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            "this is text in UTF-16; expected UTF-8.",
            source=data.name,
            hint="convert the file, for example: iconv -f UTF-16 -t UTF-8 OLD > NEW",
        )
    position = data.head.find(b"\0")
    if position >= 0:
        raise DataError(
            f"this is a binary file (a zero byte at position {position:,}), not a table.",
            source=data.name,
            hint="tables can be CSV, TSV or JSON lines (also compressed with gzip), Parquet and Arrow",
        )
    begin = data.head.removeprefix(codecs.BOM_UTF8).lstrip()
    if begin.startswith(b"{"):
        return JsonLinesSource(data)
    if begin.startswith(b"[") and begin[1:].lstrip().startswith((b"{", b"[")):
        raise DataError(
            "this looks like a JSON list; expected one JSON object per line, or a table.",
            source=data.name,
            hint="`jq -c '.[]' FILE` writes the objects of a list one per line",
        )
    return CsvSource(data)


def _need_pyarrow(what: str) -> None:
    if not has_pyarrow():
        raise DataError(
            "reading this format needs pyarrow, which is not installed.",
            source=what,
            hint='pip install "steelyard[tables]"',
        )
