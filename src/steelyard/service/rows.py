"""Rows as they come over the wire, as columns: JSON records, JSON lines, CSV and Arrow streams."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence.tree import decode, encode
from steelyard.service.records import TogetherColumns, from_records, place_of
from steelyard.tables.arrow_sources import ArrowSource
from steelyard.tables.columns import BlockColumns, ColumnBatch, Columns, RowError, as_texts
from steelyard.tables.table_stream import open_source, seconds_of

__all__ = [
    "CONTENT_TYPES",
    "RequestLimits",
    "TooMuch",
    "are_alike",
    "check_fields",
    "completed",
    "cut",
    "from_body",
    "from_records",
    "is_name",
    "joined",
    "names",
    "pack",
    "texts",
    "times",
    "unpack",
]

CONTENT_TYPES = {
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
}
_SOURCE = "the request"
_ARROW_STREAM = b"\xff\xff\xff\xff"
_LONGEST = 500  # characters of an id or a subject
_BLOCK = b"\x93ROWS\0\0\1"  # rows whose numbers stand behind the rest
_BLOCK_HEAD = struct.Struct("<8sQQ")
_NOT_TEXT = (b"\x1f\x8b", b"PAR1", b"ARROW1")


class TooMuch(DataError):  # noqa: N818  a state of the world
    """More rows, columns or values than a request may have."""


@dataclass(frozen=True)
class RequestLimits:
    """How much a request may hold; asked before memory is taken for it."""

    rows: int = 200_000
    columns: int = 10_000
    values: int = 50_000_000

    def check(self, n_rows: int, n_columns: int) -> None:
        """Refuse more than that."""
        if n_rows <= self.rows and n_columns <= self.columns and n_rows * n_columns <= self.values:
            return
        for what, found, most in (
            ("rows", n_rows, self.rows),
            ("columns", n_columns, self.columns),
            ("values", n_rows * n_columns, self.values),
        ):
            if found > most:
                raise TooMuch(
                    f"a request can have {most:,} {what}; got {found:,} or more. Nothing was changed.",
                    hint="send it in several requests",
                )


def from_body(
    body: bytes,
    kind: str,
    texts_wanted: Sequence[str],
    *,
    key: str = "rows",
    most: RequestLimits | None = None,
) -> ColumnBatch:
    """The rows of a body; columns that are to be texts are read as such."""
    most = most or RequestLimits()
    if kind in {"json", "jsonl"}:
        return from_records(_records(body, kind, key), texts_wanted, most.check)
    _check_beginning(body, kind)
    source = _arrow_stream(body) if kind == "arrow" else open_source(io.BytesIO(body))
    try:
        names = list(source.names)
        known = [name for name in texts_wanted if name in names]
        columns = Columns(categorical=tuple(known))
        most.check(0, len(names))
        columns.chosen(names, _SOURCE)  # says so where two have one name
        parts, n_rows = [], 0
        for part in source.batches(names, source.kinds(columns, names)):
            n_rows += part.n_rows
            most.check(n_rows, len(names))  # packed rows may be a thousand times what came
            parts.append(part)
    finally:
        source.close()
    if not parts:
        raise DataError("there are no rows.", source=_SOURCE)
    return ColumnBatch.joined(parts)


def _arrow_stream(body: bytes) -> ArrowSource:
    """Read where it lies: nothing has to be found out about it."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(body)
        return ArrowSource(
            lambda _: reader,  # all columns are wanted
            reader.schema,
            _SOURCE,
            None,
            reader.close,
        )
    except (pa.ArrowException, OSError, ValueError) as error:  # names that are no text are found out late
        raise DataError(f"the stream is damaged or cut short: {error}.", source=_SOURCE) from error


def _check_beginning(body: bytes, kind: str) -> None:
    """A body is what its content type says: nothing is unpacked because it looks packed."""
    is_arrow = body.startswith(_ARROW_STREAM)
    if is_arrow != (kind == "arrow") or body.startswith(_NOT_TEXT):
        raise DataError(
            f"the body does not begin as {'an Arrow stream' if kind == 'arrow' else 'CSV'} does.",
            source=_SOURCE,
            hint="the content type must say what is sent; packed files are not taken",
        )


def _records(body: bytes, kind: str, key: str) -> list[Any]:
    try:
        if kind == "jsonl":
            lines = msgspec.json.Decoder().decode_lines(body)
            check_fields(body, lines, lines=True)
            return lines
        value = msgspec.json.decode(body)
        check_fields(body, value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"this is not JSON: {error}.", source=_SOURCE) from error
    rows = value.get(key) if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise DataError(f'expected {{"{key}": [{{...}}, ...]}}; got {str(value)[:60]!r}.', source=_SOURCE)
    return rows


def check_fields(body: bytes, value: Any, *, lines: bool = False) -> None:
    """Refuse JSON in which an object says a field twice: the decoder would keep one and drop the other.

    Every field is followed by a colon. Where there are not more colons than fields, none was dropped; only
    where texts hold colons, too, the body is read once more.
    """
    n_colons = body.count(b":")
    if n_colons > _n_plain_fields(value) and n_colons > _n_fields(value):
        for text in body.split(b"\n") if lines else (body,):
            if text.strip():
                json.loads(text, object_pairs_hook=_once, parse_int=float)


def _n_plain_fields(value: Any) -> int:
    """Fields of rows and of what they stand in, nearly always all that there are; soon counted."""
    rows = value.get("rows") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        return 0
    return (len(value) if rows is not value else 0) + sum(len(row) for row in rows if isinstance(row, dict))


def _n_fields(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_n_fields, value.values()))
    return sum(map(_n_fields, value)) if isinstance(value, list) else 0


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        twice = next(name for name in names if [n for n, _ in pairs].count(name) > 1)
        raise DataError(f"the field {twice[:60]!r} stands twice in one object.", source=_SOURCE)


def texts(batch: ColumnBatch, name: str | None) -> list[str | None]:
    """A column as texts: identifiers and subjects are compared as such."""
    return [None] * batch.n_rows if name is None else as_texts(batch.columns[name])


def names(batch: ColumnBatch, column: str | None) -> list[str | None]:
    """Identifiers and subjects; what a store could not look up again is refused."""
    found = texts(batch, column)
    if column is None:
        return found
    for row, name in enumerate(found):
        if name is not None and not is_name(name):
            raise RowError(
                f"an id or subject has 1 to {_LONGEST} characters and no null character; got {len(name)}.",
                source=place_of(row, column),
                row=row,
                column=column,
            )
    return found


def is_name(name: str) -> bool:
    """Whether a text can be the id or the subject of a row."""
    return 1 <= len(name) <= _LONGEST and "\0" not in name


def times(batch: ColumnBatch, name: str | None, now: float) -> Any:
    """A column of times in seconds; the time of arrival where there is none."""
    if name is None:
        return np.full(batch.n_rows, now)
    values = batch.columns[name]
    if values.dtype != object:
        bad = ~np.isfinite(values)
        seconds = np.asarray(values, dtype=np.float64)
    else:
        seconds = np.full(batch.n_rows, np.nan)
        for row, value in enumerate(values):
            try:
                seconds[row] = np.nan if value is None else seconds_of(value)
            except (ValueError, TypeError) as error:
                raise RowError(
                    f"expected a time; got {value!r}.",
                    source=place_of(row, name),
                    row=row,
                    column=name,
                    hint="times are numbers of seconds or like 2026-01-31T12:30:00",
                ) from error
        bad = np.isnan(seconds)
    if bad.any():
        row = int(bad.argmax())
        raise RowError("the time is missing.", source=place_of(row, name), row=row, column=name)
    return seconds


# -- many and few, written down ---------------------------------------------------------------------


def joined(parts: Sequence[ColumnBatch]) -> ColumnBatch:
    """Rows of several batches; a column that one of them lacks is missing there."""
    if len(parts) == 1:
        return parts[0]
    records = TogetherColumns.of_all([part.columns for part in parts])
    if records is not None:
        return ColumnBatch(records, len(records.records))
    blocks = BlockColumns.of_all([part.columns for part in parts])
    if blocks is not None:
        return ColumnBatch(blocks, sum(part.n_rows for part in parts))
    is_text: dict[str, bool] = {}
    for part in parts:
        for name, values in part.columns.items():
            is_text[name] = is_text.get(name, False) or values.dtype == object
    return ColumnBatch.joined([_with_all(part, is_text) for part in parts])


def are_alike(batch: ColumnBatch) -> bool:
    """Whether these rows, of several requests, are known to have the same columns."""
    return isinstance(batch.columns, TogetherColumns)


def _with_all(part: ColumnBatch, texts: Mapping[str, bool]) -> ColumnBatch:
    columns = {}
    for name, is_text in texts.items():
        values = part.columns.get(name)
        if values is None:
            values = np.full(part.n_rows, None) if is_text else np.full(part.n_rows, np.nan)
        elif is_text and values.dtype != object:
            values = np.array([*as_texts(values), None], dtype=object)[:-1]
        columns[name] = values
    return ColumnBatch(columns, part.n_rows)


def completed(batch: ColumnBatch, values: Mapping[str | None, Any]) -> ColumnBatch:
    """A single row with values for columns that it lacks, or in which it has none."""
    columns = dict(batch.columns)
    for name, value in values.items():
        if name is not None and (name not in columns or as_texts(columns[name])[0] is None):
            columns[name] = np.array([value], dtype=object if isinstance(value, str) else np.float64)
    return ColumnBatch(columns, batch.n_rows)


def cut(batch: ColumnBatch, keep: Any) -> ColumnBatch:
    """Some of the rows, by numbers or by a mask."""
    columns = {name: values[keep] for name, values in batch.columns.items()}
    n_rows = len(next(iter(columns.values()))) if columns else 0
    return ColumnBatch(columns, n_rows)


def pack(batch: ColumnBatch, extra: Mapping[str, Any] | None = None) -> bytes:
    """Rows as bytes, with whatever belongs to them.

    Columns of numbers, nearly all there is, stand as one block behind the rest, under a checksum that takes
    a quarter of the time of the one that files have: every row goes through here while its client waits.
    """
    block, others = _block_and_others(batch)
    names = msgspec.json.encode(list(batch.columns)).decode()  # one text: many small parts take long
    rest = encode({"n": batch.n_rows, "names": names, "columns": others, **(extra or {})})
    head = _BLOCK_HEAD.pack(_BLOCK, zlib.crc32(block.data), len(rest))
    return b"".join([head, rest, b"\0" * (-len(rest) % 8), block.data])


def _block_and_others(batch: ColumnBatch) -> tuple[FloatArray, dict[str, Any]]:
    if isinstance(batch.columns, BlockColumns):
        return np.ascontiguousarray(batch.columns.block), {}
    numbers = [values for values in batch.columns.values() if values.dtype == np.float64]
    others = {
        name: values.tolist() if values.dtype == object else values
        for name, values in batch.columns.items()
        if values.dtype != np.float64
    }
    return np.array(numbers).reshape(len(numbers), batch.n_rows), others


def unpack(data: bytes) -> tuple[ColumnBatch, dict[str, Any]]:
    """What :func:`pack` wrote, also before its blocks stood behind the rest, or before there were any."""
    if data.startswith(_BLOCK):
        tree, block = _with_block(data)
    else:
        tree = decode(data)
        block = np.array(tree.pop("block", ()))
    n_rows, others = tree.pop("n"), {name: _unpacked(v) for name, v in tree.pop("columns").items()}
    names = msgspec.json.decode(tree.pop("names")) if "names" in tree else list(others)
    block = block.reshape(len(names) - len(others), n_rows)
    if not others:
        return ColumnBatch(BlockColumns(names, block), n_rows), tree
    numbers = iter(block)
    columns = {name: others[name] if name in others else next(numbers) for name in names}
    return ColumnBatch(columns, n_rows), tree


def _with_block(data: bytes) -> tuple[dict[str, Any], FloatArray]:
    view = memoryview(data)
    _, checksum, length = _BLOCK_HEAD.unpack_from(view)
    begin = _BLOCK_HEAD.size + length + -length % 8
    if zlib.crc32(view[begin:]) != checksum:
        raise FileFormatError("The checksum of rows does not fit: the store is damaged.")
    tree = decode(view[_BLOCK_HEAD.size : _BLOCK_HEAD.size + length])
    return tree, np.frombuffer(view[begin:])


def _unpacked(values: Any) -> Any:
    if not isinstance(values, list):
        return np.asarray(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
