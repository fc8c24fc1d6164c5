"""Rows of requests: from a body (JSON, JSON lines, CSV or Arrow) to columns, a learner and the store."""

from __future__ import annotations

import io
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence.tree import decode
from steelyard.service.errors import NotJSONError, TooLargeError
from steelyard.tables.arrow_sources import ArrowSource
from steelyard.tables.columns import ColumnBatch, Columns, Place, Values, as_texts
from steelyard.tables.frames import column_seconds
from steelyard.tables.table_stream import open_source

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

    def check_json(self, body: bytes) -> None:
        """Raise TooLargeError if JSON has more objects and lists than the row limit allows."""
        limit = 2 * self.rows + 1_000
        _check_limit(limit, "JSON objects and lists", body.count(b"[") + body.count(b"{"))

    def check_unpacked(self, n_bytes: int) -> None:
        """Raise TooLargeError if decompressed data is too large."""
        _check_limit(self.unpacked, "bytes after decompression", n_bytes)

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
    source = _arrow_stream(body, limits) if kind == "arrow" else open_source(io.BytesIO(body))
    try:
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
            limits.check_unpacked(n_characters)  # decoding a dictionary-encoded column repeats its texts
            parts.append(part)
    finally:
        source.close()
    if not parts:
        raise DataError("there are no rows.", source=_SOURCE)
    return ColumnBatch.concat(parts)


def _n_characters(batch: ColumnBatch) -> int:
    """Return the total length of all texts."""
    if batch.is_matrix:  # the batch contains only numbers
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
    limits.check_unpacked(n_bytes)
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
        limits.check_json(body)
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
    return column_seconds(batch.columns[name], name, REQUEST.of_row)


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
    if all(part.is_matrix and list(part.columns) == names for part in parts):
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


# -- format of stored rows --------------------------------------------------------------------------

# A stored chunk is a header, a MessagePack map and one block of doubles with the numeric columns.
# The checksum in the header covers the map and the block.
# Version 0.2 wrote only a tree of :mod:`steelyard.persistence`.
_MAGIC = b"\x93ROWS\0\0\2"
_HEADER = struct.Struct("<8sQQ")  # magic, CRC-32, length of the map in bytes


def pack(batch: ColumnBatch, extra: Mapping[str, Any] | None = None) -> bytes:
    """Serialize rows and additional values that belong to them (plain values, or arrays of doubles)."""
    others: dict[str, Any] = {}
    if batch.matrix is not None and batch.is_matrix:
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
        rest = msgspec.msgpack.encode(tree, enc_hook=_encode_array)
    except UnicodeEncodeError as error:
        raise DataError("a text is not valid Unicode.", source=_SOURCE) from error
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


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _object_array(values: Any) -> Any:
    if not isinstance(values, list):
        return np.asarray(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
