"""Any table as a stream: files, standard input, data frames."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, ParameterError
from steelyard.params import Integer
from steelyard.streams.chunks import Chunk, RowStream, check_chunk
from steelyard.tables.arrow_sources import ArrowCsvSource, arrow_file_source, has_pyarrow, table_source
from steelyard.tables.bad_rows import BadRows
from steelyard.tables.columns import ColumnBatch, Columns, RowError
from steelyard.tables.cutting import limited, recut
from steelyard.tables.databases import DatabaseSource, is_address, open_database
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.files import ByteSource, open_bytes
from steelyard.tables.labels import LabelReader
from steelyard.tables.read_ahead import ReadAhead, ReadDirectly
from steelyard.tables.text_sources import JsonLinesSource, csv_source
from steelyard.tables.watch import ColumnWatch

__all__ = ["ON_BAD_ROW", "TableStream", "has_label", "open_source", "open_stream", "seconds_of"]

_ARROW_BEGINNINGS = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FLUSH_SECONDS = 0.5  # rows of a live feed wait no longer for the rest of their chunk
ON_BAD_ROW = ("stop", "skip")
_MOST_NOTED = 1000
_MOST_LABELS = 1 << 20  # that are told apart where nothing is learned


class TableStream(RowStream):
    """Rows of a table as numbers and labels, chunk by chunk; made by :func:`open_stream`.

    Parameters
    ----------
    source : object
        What gives the columns, one of the readers of this package.
    columns : Columns
        Which columns are what.
    encoder : TableEncoder
        How columns become numbers; one that is settled already is not changed by unlabelled rows.
    chunk : int
        Rows in a chunk.
    limit : int, optional
        Stop after so many rows.
    max_classes : int
        How many labels there can be.
    learn : bool
        Whether new categories and means are remembered.
    on_bad_row : {"stop", "skip"}
        Whether a row that cannot be used ends the stream or is left out and noted.

    Attributes
    ----------
    n_bad_rows : int
        Rows that were left out.
    notices : list of str
        Columns that are hardly features, and what to do about them; ``on_notice`` is called with each.
    bad_rows : list of str
        What was wrong with each of them and where it stands; of the first thousand.
    """

    def __init__(
        self,
        source: Any,
        columns: Columns,
        *,
        encoder: TableEncoder,
        chunk: int,
        limit: int | None = None,
        max_classes: int = 500,
        learn: bool = True,
        on_bad_row: str = "stop",
    ) -> None:
        if on_bad_row not in ON_BAD_ROW:
            raise ParameterError(
                f"on_bad_row must be one of {', '.join(ON_BAD_ROW)}; got {on_bad_row!r}.",
                source="open_stream",
            )
        self.chunk = check_chunk(chunk, "open_stream")
        if limit is not None and not Integer(1).accepts(limit):
            raise ParameterError(
                f"limit must be {Integer(1).description}; got {limit!r}.", source="open_stream"
            )
        self.columns, self.encoder, self.limit = columns, encoder, limit
        self._source, self.learning = source, learn
        self.name = source.place.source
        try:
            index = getattr(source, "index_names", ())
            self._features = columns.chosen(source.names, self.name, index)
        except DataError:
            source.close()
            raise
        self._labels = LabelReader(columns.target or "", max_classes)
        self.n_rows = getattr(source, "n_rows", None)
        if limit is not None and self.n_rows is not None:
            self.n_rows = min(limit, self.n_rows)
        self._kept: tuple[str, ...] = ()
        self.notices: list[str] = []
        self.on_notice: Callable[[str], None] = lambda _: None
        self._watch: ColumnWatch | None = None
        if "columns_" not in vars(encoder):  # else somebody has looked before
            named = (*columns.categorical, *(columns.features or ()))
            moments = getattr(source, "moment_names", ())
            self._watch = ColumnWatch(self._features, named, self.name, moments)
        self._done = self._n_read = 0
        self.n_bad_rows, self.bad_rows = 0, list[str]()
        self._bad_rows: BadRows = getattr(source, "bad_rows", None) or BadRows(source.place)
        if on_bad_row == "skip":
            self._bad_rows.told = self._note_bad

    def keep(self, names: Sequence[str]) -> Self:
        """Pass these columns through as they come (``chunk.kept``), whether they are features or not."""
        try:
            self.columns.check_kept(self._source.names, self.name, names)
        except DataError:
            self._source.close()
            raise
        self._kept = tuple(dict.fromkeys(names))
        return self

    def __iter__(self) -> Iterator[Chunk]:
        wanted = self.columns.wanted(self._features)
        # What is only passed through is read as text, so that 007 stays 007.
        as_text = tuple(name for name in self._kept if name not in set(wanted))
        wanted += as_text
        columns = replace(self.columns, categorical=(*self.columns.categorical, *as_text))
        kinds = self._source.kinds(columns, wanted)
        batches = self._counted(self._source.batches(wanted, kinds))
        reader = (ReadAhead if hasattr(self._source, "bytes_source") else ReadDirectly)(batches)
        flush_after = FLUSH_SECONDS if self.live else None
        try:
            for batch in limited(recut(reader.get, self.chunk, flush_after), self.limit):
                yield from self._chunks(batch)
        finally:
            self.stop()
            reader.close()
            self._source.close()
        if not self._done:
            raise DataError("there are no rows.", source=self.name)
        if self._watch is not None:
            self._notice(self._watch.finish())

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features so far."""
        return self.encoder.feature_names if "columns_" in vars(self.encoder) else None

    def fraction_read(self) -> float | None:
        """How much of the stream has come."""
        fraction: float | None = self._source.fraction_read()
        if fraction is not None:  # of what the file has given, which is ahead of what has come out here
            fraction *= min(1.0, self._done / max(self._n_read, 1))
        return fraction if self.limit is None else max(self._done / self.limit, fraction or 0.0)

    @property
    def live(self) -> bool:
        """Whether rows come from a pipe, at any time."""
        return hasattr(self._source, "bytes_source") and bool(self._source.bytes_source.live)

    def stop(self) -> None:
        """Let a live feed end here: rows that have come are given, and no more are waited for."""
        if self.live:
            self._source.bytes_source.stop()

    def fingerprint(self) -> str | None:
        """SHA-256 of the file, or of what a pipe has brought; None for a table in memory."""
        found = self._source.bytes_source.fingerprint() if hasattr(self._source, "bytes_source") else None
        return None if found is None else str(found)

    def _counted(self, batches: Iterator[ColumnBatch]) -> Iterator[ColumnBatch]:
        for batch in batches:
            self._n_read += batch.n_rows
            yield batch

    def _notice(self, sentences: list[str]) -> None:
        for message in sentences:
            self.notices.append(message)
            self.on_notice(message)

    def _note_bad(self, error: DataError) -> None:
        self.n_bad_rows += 1
        if len(self.bad_rows) < _MOST_NOTED:
            self.bad_rows.append(error.summary)

    def _chunks(self, batch: ColumnBatch) -> Iterator[Chunk]:
        """The batch as a chunk; of several, where bad rows in between are left out."""
        if self._watch is not None:
            self._notice(self._watch.add(batch))
        end = self._done + batch.n_rows
        for chunk in self._bad_rows.good_parts(batch, self._done, self._chunk):
            self._done = chunk.first_row + len(chunk)
            yield chunk
        self._done = end

    def _chunk(self, batch: ColumnBatch, first_row: int) -> Chunk:
        place = self._source.place
        if "columns_" not in vars(self.encoder):
            self.encoder.settle(batch, self._features, self.columns.categorical)
        target, time = self.columns.target, self.columns.time
        y: NDArray[Any]
        if target is None:
            y, codes = np.zeros(batch.n_rows), None
        else:
            y, codes = self._labels.numbered(batch.columns[target], place, first_row)
        times = None if time is None else self._times(batch.columns[time], time, first_row)
        X, fixed = self.encoder.encode(batch, place, first_row, learn=self.learning)
        kept = {name: batch.columns[name] for name in self._kept}
        table = None if codes is None else self._labels.table
        return Chunk(X, y, first_row, times, fixed, codes, table, kept)

    def _times(self, values: NDArray[Any], column: str, first_row: int) -> NDArray[np.float64]:
        place = self._source.place
        if values.dtype == object:
            seconds = np.empty(len(values))
            for row, value in enumerate(values):
                try:
                    seconds[row] = np.nan if value is None else seconds_of(value)
                except (ValueError, TypeError) as error:
                    where = place.of_row(first_row + row, column)
                    raise RowError(
                        f"expected a time; got {value!r}.",
                        source=where,
                        row=first_row + row,
                        hint="times are numbers of seconds or like 2026-01-31T12:30:00",
                    ) from error
            values = seconds
        if np.isnan(values).any():
            row = int(np.isnan(values).argmax())
            raise RowError(
                "the time is missing.", source=place.of_row(first_row + row, column), row=first_row + row
            )
        return np.asarray(values, dtype=np.float64)


def open_stream(
    source: Any,
    target: str | None,
    *,
    time: str | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    missing: str = "refuse",
    chunk: int = 1000,
    limit: int | None = None,
    max_classes: int = 500,
    encoder: TableEncoder | None = None,
    on_bad_row: str = "stop",
) -> TableStream:
    """Open a table as a stream.

    Parameters
    ----------
    source : path, binary file, ``"-"``, table or address
        CSV or TSV, JSON lines, Parquet or Arrow, recognised by its content; text may be packed with gzip;
        ``"-"`` is standard input. Or a table of pandas, polars or pyarrow, or one in a
        database: ``sqlite:///shop.db?table=payments`` (duckdb and postgresql likewise). Read in bounded
        memory.
    target : str or None
        The column of labels; None for rows without labels.
    time : str, optional
        The column that says when a row happened: seconds, or dates and times as in ISO 8601.
    features, drop, categorical : str or sequences of str
        Columns to use, to leave out, and to take as categories although they look like numbers.
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do with missing values, see :class:`TableEncoder`.
    chunk : int, default=1000
        Rows in a chunk.
    limit : int, optional
        Stop after so many rows.
    max_classes : int, default=500
        More distinct labels than this are refused.
    encoder : TableEncoder, optional
        One that knows its columns already, as when a saved model goes on; it is then not changed when
        ``target`` is None.
    on_bad_row : {"stop", "skip"}, default="stop"
        A row that cannot be used raises, after all rows before it have come, or is left out: then
        ``n_bad_rows`` counts and ``bad_rows`` tells what was wrong with each.

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
    known = encoder is not None and "columns_" in vars(encoder)
    columns = Columns(
        target,
        time,
        tuple(encoder.columns_)
        if known and encoder is not None
        else (None if features is None else _names(features)),
        _names(drop),
        tuple(encoder.categorical_) if known and encoder is not None else _names(categorical),
    )
    return TableStream(
        open_source(source),
        columns,
        encoder=encoder or TableEncoder(missing),
        chunk=chunk,
        limit=limit,
        max_classes=max_classes,
        learn=target is not None or not known,
        on_bad_row=on_bad_row,
    )


def has_label(source: Any, target: str, text: str, limit: int | None = None) -> tuple[bool, list[Any]]:
    """Whether a label stands in a table, as far as can be told by its column of labels alone.

    Reading ends where the label is found. What is wrong with a table is told when its rows are read, so one
    that cannot be read to its end is not said to lack anything.

    Parameters
    ----------
    source : path or table
        As for :func:`open_stream`; it must be one that can be read again.
    target : str
        The column of labels.
    text : str
        The label as it is written.
    limit : int, optional
        Look at so many rows only.

    Returns
    -------
    bool, list
        Whether it is there, and the labels that are.
    """
    labels = LabelReader(target, _MOST_LABELS)
    try:
        reader = open_source(source)
        try:
            done = 0
            for batch in reader.batches([target], reader.kinds(Columns(target), [target])):
                part = batch if limit is None else batch.take(0, limit - done)
                labels.read(part.columns[target], reader.place, done)
                done += part.n_rows
                if labels.table.find(text) is not None or done == limit:
                    break
        finally:
            reader.close()
    except (DataError, KeyError):  # also a target that is no column
        return True, labels.table.labels
    return labels.table.find(text) is not None, labels.table.labels


_YEAR = re.compile(r"[+-]?\d{1,5}(?!\d)", re.ASCII)


def seconds_of(text: str) -> float:
    """A date and time as seconds since 1970; one without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        # NumPy knows years and months alone; a year of more digits would wrap around to some other time.
        if _YEAR.match(text) is None:
            raise
        return float(np.datetime64(text, "us").astype(np.int64)) / 1e6
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def open_source(source: Any) -> Any:
    """The reader for a source, by what it begins with."""
    if is_address(source):
        return open_database(source)
    if isinstance(source, DatabaseSource):
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


def _reader_of(data: ByteSource) -> Any:
    if data.head.startswith(_ARROW_BEGINNINGS):
        _need_pyarrow(data.name)
        return arrow_file_source(data)
    _check_text(data)
    begin = data.head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if begin.startswith(b"{"):
        return JsonLinesSource(data)
    if begin.startswith(b"[") and begin[1:].lstrip().startswith((b"{", b"[")):
        raise DataError(
            "this begins as a JSON list does; expected one JSON object a line, or a table.",
            source=data.name,
            hint="`jq -c '.[]' FILE` writes the objects of a list one a line",
        )
    exact = csv_source(data)
    return ArrowCsvSource(exact) if has_pyarrow() else exact


def _check_text(data: ByteSource) -> None:
    if not data.head:
        raise DataError("the file is empty.", source=data.name)
    position = data.head.find(b"\0")
    if position >= 0:
        raise DataError(
            f"this is a binary file (a zero byte at position {position:,}), not a table.",
            source=data.name,
            hint="tables can be CSV, TSV or JSON lines (also packed with gzip), Parquet and Arrow",
        )


def _need_pyarrow(what: str) -> None:
    if not has_pyarrow():
        raise DataError("reading this needs pyarrow.", source=what, hint='pip install "steelyard[tables]"')
