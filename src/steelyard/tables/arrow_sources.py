"""Readers of Parquet and Arrow files, and of pandas, polars and pyarrow tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables.columns import Coded, ColumnBatch, Place, Values, as_texts, in_seconds
from steelyard.tables.files import ByteSource
from steelyard.tables.source import TableSource

_BUFFER_BYTES = 1 << 19
_BATCH_ROWS = 1 << 14


def has_pyarrow() -> bool:
    """Return whether pyarrow is installed."""
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


class ArrowSource(TableSource):
    """Reader of Arrow record batches, whose columns have declared types."""

    def __init__(
        self, batches: Any, schema: Any, name: str, n_rows: int | None, close: Callable[[], None]
    ) -> None:
        super().__init__(Place(name))
        self._batches = batches
        self.close = close  # type: ignore[method-assign]
        self.names = schema.names
        self.time_names = [field.name for field in schema if _is_time(field.type)]
        # A pandas index is stored as columns, which are features only if the user names them.
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        self.index_names = [column for column in index if isinstance(column, str)]
        self.n_rows = n_rows
        self._n_read = 0

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        import pyarrow as pa

        try:
            for read in self._batches(wanted):
                batch = read.select(wanted)
                # Invalid offsets or indices in a damaged file would cause out-of-bounds reads.
                batch.validate(full=True)
                yield arrow_batch({name: batch.column(name) for name in wanted}, kinds, batch.num_rows)
                self._n_read += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"after row {self._n_read:,} the content is damaged or cut short: {str(error).rstrip('.')}.",
                source=self.place.source,
            ) from error

    def fraction_read(self) -> float | None:
        return self._n_read / self.n_rows if self.n_rows else None


def arrow_file_source(data: ByteSource) -> ArrowSource:
    """Return the reader of a Parquet file, Arrow file or Arrow stream, recognised by its first bytes."""
    import pyarrow as pa

    try:
        if data.head.startswith(b"PAR1"):
            from pyarrow import parquet

            file = parquet.ParquetFile(_seekable(data), page_checksum_verification=True)
            read = partial(file.iter_batches, _BATCH_ROWS, None, use_threads=False)
            return ArrowSource(read, file.schema_arrow, data.name, file.metadata.num_rows, data.close)
        if data.head.startswith(b"ARROW1"):
            file = pa.ipc.open_file(_seekable(data))
            batches = map(file.get_batch, range(file.num_record_batches))
            return ArrowSource(lambda _: batches, file.schema, data.name, None, data.close)
        reader = pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(data, _BUFFER_BYTES), mode="r"))
        return ArrowSource(lambda _: reader, reader.schema, data.name, None, data.close)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).rstrip(".")
        raise DataError(f"the file is damaged or cut short: {reason}.", source=data.name) from error


def _seekable(data: ByteSource) -> Any:
    if data.path is None:
        raise DataError(
            "Parquet and Arrow files must be read from an uncompressed file on disk.",
            source=data.name,
            hint="save it to a file first, or send an Arrow stream",
        )
    return str(data.path)


def table_source(table: Any) -> ArrowSource:
    """Return the reader of a pandas, polars or pyarrow table, or any object with Arrow's C interface."""
    import pyarrow as pa

    if isinstance(table, dict):
        table = _checked_table(pa.table, table)
    table = arrow_stream(table, "a path or a table of pandas, polars or pyarrow", "open_stream")
    reader = _checked_table(pa.RecordBatchReader.from_stream, table)
    n_rows = len(table) if hasattr(table, "__len__") else None
    return ArrowSource(lambda _: slices(reader), reader.schema, "table", n_rows, lambda: None)


def slices(batches: Iterable[Any]) -> Iterator[Any]:
    """Split batches of Arrow into parts of at most 16,384 rows."""
    for batch in batches:
        for begin in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(begin, _BATCH_ROWS)


def arrow_stream(table: Any, expected: str, source: str) -> Any:
    """Return the table as an object with Arrow's C interface; raise DataTypeError if that is impossible."""
    if not hasattr(table, "__arrow_c_stream__") and hasattr(table, "to_arrow"):
        table = table.to_arrow()  # polars versions without Arrow's C interface
    kind = type(table).__name__
    if not hasattr(table, "__arrow_c_stream__") or kind == "Series":
        hints = {
            "LazyFrame": "call collect() first",
            "Series": "for one row, pass a table of one row, such as frame[:1]",
        }
        raise DataTypeError(f"expected {expected}; got {kind}.", source=source, hint=hints.get(kind))
    return table


def _checked_table(make: Callable[[Any], Any], table: Any) -> Any:
    import pyarrow as pa

    try:
        return make(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = " ".join(map(str, error.args))
        raise DataError(
            f"the columns of the table cannot be read: {reason}.",
            source="table",
            hint="all values of a column must have one type, and all columns the same length",
        ) from error


def _is_time(kind: Any) -> bool:
    """Return whether a type is a date or timestamp."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def arrow_batch(found: Mapping[str, Any], kinds: Mapping[str, str], n_rows: int) -> ColumnBatch:
    """Return Arrow columns as a batch. Text columns are dictionary-encoded by Arrow."""
    import pyarrow as pa

    if (
        found
        and all(column.type == pa.float64() for column in found.values())
        and "text" not in kinds.values()
    ):
        rows = pa.RecordBatch.from_arrays(list(found.values()), names=list(found))
        matrix = rows.to_tensor(null_to_nan=True, row_major=False).to_numpy()
        return ColumnBatch.from_matrix(list(found), matrix)
    cells = {name: arrow_cells(column, name, as_text=kinds[name] == "text") for name, column in found.items()}
    return ColumnBatch.of_cells(cells, n_rows)


def arrow_cells(column: Any, name: str, *, as_text: bool) -> Values | Coded:
    """Return a column as numbers, times or coded texts; with ``as_text``, numbers and times become text."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        dictionary = column.dictionary
        if str(dictionary.type) == "string_view":  # pyarrow cannot decode string_view
            column = pa.DictionaryArray.from_arrays(column.indices, dictionary.cast(pa.large_string()))
        column = column.dictionary_decode()
    elif str(column.type) == "string_view":
        column = column.cast(pa.large_string())
    if as_text and pa.types.is_integer(column.type):
        column = column.cast(pa.string())  # float64 would round integers beyond 2**53
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = column.dictionary_encode()
        texts = [*encoded.dictionary.to_numpy(zero_copy_only=False).tolist(), None]
        codes = encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        return texts, codes.astype(np.int64)
    values = _values(column, name)
    if not as_text:
        return values
    return np.array(as_texts(in_seconds(values) if values.dtype.kind == "M" else values), dtype=object)


def _values(column: Any, name: str) -> NDArray[Any]:
    """Return a column as an array: numbers and durations as float64, dates and times as datetime64."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if _is_time(kind):
        return np.asarray(column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False))
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    is_span = types.is_duration(kind) or types.is_time(kind)
    if is_span:
        unit = pa.duration("us") if types.is_duration(kind) else pa.time64("us")
        column = column.cast(unit).cast(pa.int64())
    elif not (
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    ):
        raise DataTypeError(f"column {name!r} is of type {kind}, which is neither numbers nor text.")
    # Integers beyond 2**53 are rounded.
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return values / 1e6 if is_span else values
