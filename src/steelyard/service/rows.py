"""Rows of requests: conversion of a body (JSON, JSON lines, CSV or Arrow) to columns and learner input."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.service.errors import NotJSONError, TooLargeError
from steelyard.service.spec import Spec
from steelyard.streams.chunks import Chunk
from steelyard.tables.arrow_sources import ArrowSource
from steelyard.tables.columns import ColumnBatch, Columns, Place, Values, as_texts, did_you_mean, listed
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.frames import column_seconds
from steelyard.tables.table_stream import open_source

if TYPE_CHECKING:
    from steelyard.service.engine import Engine
    from steelyard.service.published import PublishedModel

CONTENT_TYPES = {
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
}
Record = Mapping[str, Any]
_SOURCE = "the request"
REQUEST = Place(_SOURCE)
SPLIT_HINT = "send it in several requests"  # for requests that are too large
_ARROW_STREAM = b"\xff\xff\xff\xff"
_COMPRESSED = (b"\x1f\x8b", b"PAR1", b"ARROW1")
_MAX_IDENTIFIER_CHARACTERS = 500
_NUMBERS = frozenset({float, int, type(None)})
_MAX_EXACT_INTEGER = 2**53  # larger integers cannot be represented exactly as doubles


@dataclass(frozen=True)
class Limits:
    """Limits on requests, checked before memory is allocated for them.

    Parameters
    ----------
    rows, columns, values : int
        Maximum numbers of rows, columns and values.
    unpacked : int
        Maximum number of bytes of an Arrow stream after decompression (buffers and texts).
    body : int
        Maximum number of bytes in a body.
    listeners : int
        Maximum number of concurrent event streams.
    all_bodies : int
        Maximum total number of bytes of all bodies in memory. A body counts until the response.
    """

    rows: int = 200_000
    columns: int = 10_000
    values: int = 50_000_000
    unpacked: int = 512 << 20
    body: int = 64 << 20
    listeners: int = 100
    all_bodies: int = 512 << 20

    def check(self, n_rows: int, n_columns: int) -> None:
        """Raise TooLargeError if a limit is exceeded."""
        if n_rows <= self.rows and n_columns <= self.columns and n_rows * n_columns <= self.values:
            return
        _check_limit(self.rows, "rows", n_rows, " or more")
        _check_limit(self.columns, "columns", n_columns, " or more")
        _check_limit(self.values, "values", n_rows * n_columns, " or more")


def _check_limit(limit: int, what: str, found: int, more: str = "") -> None:
    if found > limit:
        raise TooLargeError(
            f"a request may have {limit:,} {what}; got {found:,}{more}. Nothing was changed.",
            hint=SPLIT_HINT,
        )


# -- bodies of requests -----------------------------------------------------------------------------


def from_body(
    body: bytes,
    kind: str,
    text_columns: Sequence[str],
    *,
    limits: Limits | None = None,
    value: Any = None,
) -> ColumnBatch:
    """Return the rows of a body. The columns ``text_columns`` are read as text.

    ``value`` is the JSON value of the body if it is already decoded.
    """
    limits = limits or Limits()
    if kind in {"json", "jsonl"}:
        value = decoded_json(body, limits, lines=kind == "jsonl") if value is None else value
        rows = value.get("rows") if isinstance(value, dict) else value
        if not isinstance(rows, list):
            raise DataError(f'expected {{"rows": [{{...}}, ...]}}; got {str(value)[:60]!r}.', source=_SOURCE)
        return from_records(rows, text_columns, limits)
    _check_signature(body, kind)
    with closing(_arrow_stream(body, limits) if kind == "arrow" else open_source(io.BytesIO(body))) as source:
        names = list(source.names)
        known = [name for name in text_columns if name in names]
        columns = Columns(categorical=tuple(known))
        limits.check(0, len(names))
        columns.chosen(names, _SOURCE)  # raises an error if two columns have the same name
        parts, n_rows, n_characters = [], 0, 0
        for part in source.batches(names, source.kinds(columns, names)):
            n_rows += part.n_rows
            limits.check(n_rows, len(names))
            n_characters += _n_characters(part)
            # Decoding a dictionary-encoded column repeats its texts.
            _check_limit(limits.unpacked, "bytes after decompression", n_characters)
            parts.append(part)
    if not parts:
        raise DataError("there are no rows.", source=_SOURCE)
    return ColumnBatch.concat(parts)


def _n_characters(batch: ColumnBatch) -> int:
    """Return the total length of all texts."""
    if batch.matrix is not None:  # the batch contains only numbers
        return 0
    columns = [values.tolist() for values in batch.columns.values() if values.dtype == object]
    return sum(len(text) for texts in columns for text in texts if text is not None)


def _arrow_stream(body: bytes, limits: Limits) -> ArrowSource:
    import pyarrow as pa

    try:
        n_bytes = n_unpacked_bytes(body)
        reader = pa.ipc.open_stream(body)
        source = ArrowSource(lambda _: reader, reader.schema, _SOURCE, None, reader.close)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"the stream is damaged or truncated: {error}.", source=_SOURCE) from error
    _check_limit(limits.unpacked, "bytes after decompression", n_bytes)
    return source


def n_unpacked_bytes(body: bytes) -> int:
    """Return the size of all buffers of an Arrow stream after decompression, without decompressing them.

    The metadata of a message is a flatbuffer: Message.header (field 2) is a RecordBatch, or a DictionaryBatch
    whose field 1 is a RecordBatch. A RecordBatch has a vector of buffers (field 2: offset and length, 8 bytes
    each) and, if it is compressed, field 3. A compressed buffer begins with its decompressed length, or -1 if
    it is stored uncompressed. Decompression allocates exactly this length, so a smaller length would fail.
    """
    import pyarrow as pa

    n_bytes = 0
    reader = pa.ipc.MessageReader.open_stream(body)
    try:
        while True:
            message = reader.read_next_message()
            if message.type not in {"record batch", "dictionary"}:
                continue
            metadata, data = memoryview(message.metadata), memoryview(message.body)
            batch = _table_field(metadata, _offset(metadata, 0), 2)
            if message.type == "dictionary":
                batch = _table_field(metadata, _offset(metadata, batch), 1)
            batch = _offset(metadata, batch)
            vector = _offset(metadata, _table_field(metadata, batch, 2))
            is_compressed = bool(_table_field(metadata, batch, 3))
            (n_buffers,) = struct.unpack_from("<I", metadata, vector)
            for k in range(n_buffers):
                offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * k)
                unpacked = struct.unpack_from("<q", data, offset)[0] if is_compressed and length >= 8 else -1
                n_bytes += length if unpacked < 0 else unpacked
    except StopIteration:
        return n_bytes
    except struct.error as error:
        raise ValueError("the metadata of a message is damaged") from error


def _offset(metadata: memoryview, position: int) -> int:
    """Follow a relative offset of a flatbuffer."""
    return position + int(struct.unpack_from("<I", metadata, position)[0])


def _table_field(metadata: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a flatbuffer table, or 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    entry = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
    return table + entry if entry else 0


def _check_signature(body: bytes, kind: str) -> None:
    """Raise DataError if the first bytes do not match the content type or belong to a compressed file."""
    is_arrow = body.startswith(_ARROW_STREAM)
    if is_arrow != (kind == "arrow") or body.startswith(_COMPRESSED):
        raise DataError(
            f"the body does not begin like {'an Arrow stream' if kind == 'arrow' else 'CSV'}.",
            source=_SOURCE,
            hint="the content type must match the body; compressed files are not accepted",
        )


def decoded_json(body: bytes, limits: Limits, *, lines: bool = False) -> Any:
    """Return the value of a JSON body, or the list of values of JSON lines."""
    if len(body) > limits.rows:  # a body has at most one object or list per byte
        n_found = body.count(b"[") + body.count(b"{")
        _check_limit(2 * limits.rows + 1_000, "JSON objects and lists", n_found)
    try:
        value = msgspec.json.Decoder().decode_lines(body) if lines else msgspec.json.decode(body)
        check_duplicate_fields(body, value, lines=lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJSONError(f"this is not JSON: {error}.", source=_SOURCE) from error
    return value


def check_duplicate_fields(body: bytes, value: Any, *, lines: bool = False) -> None:
    """Raise DataError if a JSON object has a field twice, because the decoder keeps only the last one.

    Every field is followed by a colon. If there are no more colons than decoded fields, no field was dropped.
    Otherwise the body is parsed again with a slower parser, because texts can also contain colons.
    """
    n_colons, n_fields = body.count(b":"), 0
    rows = value.get("rows") if isinstance(value, dict) else value
    if isinstance(rows, list):  # counts the fields of flat rows, which is fast and usually sufficient
        n_fields = sum(len(row) for row in rows if isinstance(row, dict))
        n_fields += len(value) if rows is not value else 0
    if n_colons > n_fields and n_colons > _n_fields(value):
        for text in body.split(b"\n") if lines else (body,):
            if text.strip():
                json.loads(text, object_pairs_hook=_refuse_duplicates, parse_int=float)


def _n_fields(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_n_fields, value.values()))
    return sum(map(_n_fields, value)) if isinstance(value, list) else 0


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        duplicate = next(name for name in names if [n for n, _ in pairs].count(name) > 1)
        raise DataError(f"the field {duplicate[:60]!r} occurs twice in one object.", source=_SOURCE)


# -- conversion of JSON records ---------------------------------------------------------------------


def from_records(
    records: list[Any], text_columns: Iterable[str] = (), limits: Limits | None = None
) -> ColumnBatch:
    """Convert records to columns. Absent fields become missing values."""
    if not records:
        raise DataError("there are no rows.", source=_SOURCE)
    if len(records) == 1 and isinstance(records[0], dict):
        if limits is not None:
            limits.check(1, len(records[0]))
        return ColumnBatch(RecordColumns(records, frozenset(text_columns)), 1)
    names: dict[str, None] = {}
    for row, record in enumerate(records):
        if not isinstance(record, dict):
            raise REQUEST.error(f"expected a row as an object; got {str(record)[:60]!r}.", row)
        names.update(dict.fromkeys(record))
        if limits is not None:
            limits.check(len(records), len(names))
    return _columns(records, list(names), frozenset(text_columns))


@dataclass(eq=False)
class RecordColumns(Mapping[str, Values]):
    """Columns of records with the same fields, converted to arrays on first access.

    Most requests have a single row, so the writer concatenates the records of all requests of a group and
    converts them at once. Values that cannot be converted raise an error at this conversion.
    """

    records: Sequence[Record]
    text_columns: frozenset[str]

    @classmethod
    def of_all(cls, parts: Sequence[Mapping[str, Values]]) -> Self | None:
        """Concatenate several parts, or return None if their fields differ."""
        records: list[Record] = []
        first = parts[0]
        for part in parts:
            if not isinstance(part, cls) or not isinstance(first, cls):
                return None
            if part.text_columns != first.text_columns:
                return None
            records += part.records
        assert isinstance(first, cls)
        fields = first.records[0].keys()
        return cls(records, first.text_columns) if all(r.keys() == fields for r in records) else None

    @cached_property
    def batch(self) -> ColumnBatch:
        """The records as arrays."""
        return _columns(self.records, list(self.records[0]), self.text_columns)

    def __getitem__(self, name: str) -> Values:
        return self.batch.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.records[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records[0])

    def __len__(self) -> int:
        return len(self.records[0])


def _columns(records: Sequence[Record], names: list[str], as_text: frozenset[str]) -> ColumnBatch:
    """Convert all columns. Numeric columns are converted together as rows of one array, which is faster."""
    values: dict[str, Sequence[Any]]
    if all(list(record) == names for record in records):  # usual case, which needs no lookup for each value
        values = dict(zip(names, zip(*(record.values() for record in records), strict=True), strict=True))
    else:
        values = {name: [record.get(name) for record in records] for name in names}
    numeric = [name for name in names if name not in as_text and _NUMBERS.issuperset(map(type, values[name]))]
    try:
        block = np.array([values[name] for name in numeric], dtype=np.float64)  # None becomes nan
    except OverflowError:  # an integer is too large for a double, and _column reports the column name
        numeric = []
    if numeric == names:
        return ColumnBatch.from_matrix(names, block.T)
    columns = dict(zip(numeric, block, strict=True)) if numeric else {}
    return ColumnBatch(
        {
            name: columns[name] if name in columns else _column(name, values[name], as_text=name in as_text)
            for name in names
        },
        len(records),
    )


def _column(name: str, values: Sequence[Any], *, as_text: bool) -> Values:
    if not as_text and not any(isinstance(value, str | list | dict) for value in values):
        try:
            return np.array([math.nan if value is None else float(value) for value in values])
        except OverflowError:
            raise DataError(f"column {name!r} has a number that is too large for a double.") from None
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if value is None or isinstance(value, str):
            result[row] = value
        elif isinstance(value, bool | int | float):
            result[row] = _text_of(value)
        else:
            raise REQUEST.error(f"expected a number or a text; got {type(value).__name__}.", row, name)
    return result


def _text_of(value: float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    is_integer = isinstance(value, int) or (value.is_integer() and abs(value) < _MAX_EXACT_INTEGER)
    return str(int(value)) if is_integer else repr(value)


# -- columns of ids, subjects and times -------------------------------------------------------------


def texts(batch: ColumnBatch, name: str | None) -> list[str | None]:
    """Return a column as texts, because ids and subjects are compared as texts."""
    return [None] * batch.n_rows if name is None else as_texts(batch.columns[name])


def identifiers(batch: ColumnBatch, column: str | None) -> list[str | None]:
    """Return a column of ids or subjects; raise RowError for a value that is not a valid identifier."""
    if column is None:
        return [None] * batch.n_rows
    found = texts(batch, column)
    for row, name in enumerate(found):
        if name is not None and not is_identifier(name):
            raise REQUEST.error(
                f"an id or subject must have 1 to {_MAX_IDENTIFIER_CHARACTERS} characters and no null "
                f"character; got a text of {len(name):,} characters.",
                row,
                column,
            )
    return found


def is_identifier(name: str) -> bool:
    """Return whether a text can be the id or the subject of a row."""
    return 1 <= len(name) <= _MAX_IDENTIFIER_CHARACTERS and "\0" not in name


def times(batch: ColumnBatch, name: str) -> FloatArray:
    """Return the times of rows in seconds, from a column."""
    return column_seconds(batch.columns[name], name, REQUEST)


def check_not_in_future(seconds: FloatArray, name: str, limit: float) -> None:
    """Raise RowError if a time is later than the limit."""
    late = seconds > limit
    if late.any():
        row = int(late.argmax())
        raise REQUEST.error(
            f"the time {seconds[row]:.16g} is {(seconds[row] - limit) / 86_400:,.1f} days later than "
            "allowed; nothing was changed.",
            row,
            name,
            hint="times are seconds since 1970; the setting max_future changes the limit",
        )


# -- combining and selecting rows -------------------------------------------------------------------


def joined(parts: Sequence[ColumnBatch]) -> ColumnBatch:
    """Concatenate batches. Absent columns of a batch get missing values."""
    if len(parts) == 1:
        return parts[0]
    records = RecordColumns.of_all([part.columns for part in parts])
    if records is not None:
        return ColumnBatch(records, len(records.records))
    names = list(parts[0].columns)
    if all(part.matrix is not None and list(part.columns) == names for part in parts):
        return ColumnBatch.concat(parts)
    is_text: dict[str, bool] = {}
    for part in parts:
        for name, values in part.columns.items():
            is_text[name] = is_text.get(name, False) or values.dtype == object
    whole = ColumnBatch.concat([with_all_columns(part, is_text) for part in parts])
    whole.times = [name for name in is_text if not is_text[name] and any(name in p.times for p in parts)]
    return whole


def with_all_columns(part: ColumnBatch, is_text: Mapping[str, bool]) -> ColumnBatch:
    """Return the columns ``is_text``, as texts or numbers. Absent columns get missing values."""
    columns = {}
    for name, text in is_text.items():
        values = part.columns.get(name)
        if values is None:
            values = np.full(part.n_rows, None) if text else np.full(part.n_rows, np.nan)
        elif text and values.dtype != object:
            values = np.array([*as_texts(values), None], dtype=object)[:-1]
        columns[name] = values
    return ColumnBatch(columns, part.n_rows)


def fill_missing(batch: ColumnBatch, values: Mapping[str | None, Any]) -> ColumnBatch:
    """Return a single row whose missing values and columns are replaced by the given values."""
    columns = dict(batch.columns)
    for name, value in values.items():
        if name is not None and (name not in columns or as_texts(columns[name])[0] is None):
            columns[name] = np.array([value], dtype=object if isinstance(value, str) else np.float64)
    return ColumnBatch(columns, batch.n_rows)


# -- input of a learner ------------------------------------------------------------------------------


def reads_tables(learner: Any) -> bool:
    """Return whether a learner learns the columns of a table without an encoder."""
    return hasattr(learner, "reads_table") and bool(learner.reads_table({}))


def encoded_chunk(
    model: Engine | PublishedModel,
    batch: ColumnBatch,
    labels: NDArray[Any] | None = None,
    *,
    learn: bool = False,
    times: FloatArray | None = None,
) -> Chunk:
    """Return the rows of a request as a chunk. If ``learn`` is true, the encoder adds new categories.

    A learner that reads tables gets the columns without encoding.
    """
    spec, learner, encoder = model.spec, model.learner, model.encoder
    labels = np.zeros(batch.n_rows) if labels is None else labels
    if not all(name in batch.columns for name in encoder.columns_):
        check_features(spec, encoder, batch)
        batch = encoder.complete(batch)
    names = [name for name in encoder.numbers if name not in encoder.times_]
    texts = [name for name in names if batch.columns[name].dtype == object] if batch.matrix is None else ()
    if texts:
        batch = batch.with_columns({name: _numbers(name, batch.columns[name]) for name in texts})
    if not reads_tables(learner):
        X, fixed = encoder.encode(batch, REQUEST, 0, learn=learn)
        return Chunk(X, labels, 0, times, fixed)
    names = spec.feature_names(batch.columns)
    known = names if learn else [name for name in names if name in encoder.columns_]
    table = encoder.encode_table(batch, REQUEST, 0, known, learn=learn)
    return Chunk(np.empty((batch.n_rows, 0)), labels, 0, times, columns=table)


def check_features(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Raise DataError if rows lack a column that must not be missing, or have no known column."""
    known, found = encoder.columns_, batch.columns
    absent = next((name for name in known if name not in found), None)
    if absent is None or (spec.columns_may_change and any(name in found for name in known)):
        return
    raise missing_column(absent, found)


def check_known_values(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Raise RowError for a row that has no value in any column known when the row is learned.

    A column becomes known with its first value, in the order of the rows. Therefore the result does not
    depend on how the messages of a topic are divided into batches.
    """
    names = spec.feature_names(batch.columns)
    if not spec.columns_may_change or not names:
        return
    has_value = np.stack([has_values(batch.columns[name]) for name in names], axis=1)
    is_known = np.isin(names, encoder.columns_ if encoder.is_fitted else [])
    if has_value[:, is_known].any(axis=1).all():
        return
    known_before = np.logical_or.accumulate(np.vstack([is_known, has_value[:-1]]), axis=0)
    # No column is known before the first row of a stream, so a value in any column of this row is sufficient.
    usable = np.where(known_before.any(axis=1, keepdims=True), has_value & known_before, has_value)
    unusable = ~usable.any(axis=1)
    if unusable.any():
        row = int(unusable.argmax())
        raise REQUEST.error("no known column has a value.", row)


def row_costs(batch: ColumnBatch, column: str) -> FloatArray:
    """Return the cost factors of rows."""
    values = batch.columns.get(column)
    if values is None or values.dtype != np.float64 or not (np.isfinite(values) & (values >= 0.0)).all():
        raise DataError(
            f"the column {column!r} must have a number >= 0 in every row: it is the cost of a row.",
            source=_SOURCE,
        )
    return values


def missing_column(name: str, found: Collection[str]) -> DataError:
    """Return the error for a column that the rows of a request lack."""
    others = f"there are {listed(found)}" if found else "the rows have no columns"
    return DataError(
        f"the column {name!r} is missing; {others}.",
        source=_SOURCE,
        hint=did_you_mean(name, found),
    )


def extend_columns(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Fit the encoder to the first rows, or add the columns that have their first value in these rows."""
    names = spec.feature_names(batch.columns)
    if not encoder.is_fitted:
        filled = [name for name in names if has_values(batch.columns[name]).any()]
        encoder.fit_columns(batch, (spec.columns_may_change and filled) or names, (), dates=True)
    elif spec.columns_may_change:
        known = set(encoder.columns_)
        new = [name for name in names if name not in known and has_values(batch.columns[name]).any()]
        if new:
            columns = {name: batch.columns[name] for name in new}
            encoder.add_columns(ColumnBatch(columns, batch.n_rows, times=batch.times))


def has_values(values: Values) -> NDArray[np.bool_]:
    """Return a mask of the values that are not missing."""
    if values.dtype == object:
        return np.array([value is not None for value in values.tolist()], dtype=bool)
    return ~np.isnan(values)


def _numbers(name: str, values: Values) -> FloatArray:
    found = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        try:
            found[row] = np.nan if value is None else float(value)
        except ValueError:
            raise REQUEST.error(f"expected a number; got {value!r}.", row, name) from None
    return found
