"""Arrow's fast readers: CSV, Parquet, Arrow files, and tables of pandas, polars and pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables.columns import (
    BlockColumns,
    Coded,
    ColumnBatch,
    Columns,
    KeptColumns,
    Place,
    as_texts,
    side_by_side,
)
from steelyard.tables.files import ByteSource, without_header
from steelyard.tables.number_lines import NumberLines
from steelyard.tables.text_sources import CsvSource, Kinds

__all__ = [
    "ArrowCsvSource",
    "ArrowSource",
    "arrow_batch",
    "arrow_file_source",
    "arrow_values",
    "has_pyarrow",
    "table_source",
]

BLOCK_BYTES = 1 << 19
_BATCH_ROWS = 1 << 14


def has_pyarrow() -> bool:
    """Whether the fast readers are there."""
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


class ArrowCsvSource:
    """CSV block by block: plain numbers at once, else with pyarrow's reader, a bad line with the exact one.

    pyarrow refuses a whole block for one bad line; the exact reader then gives the rows up to that line
    and says what is wrong with it. Blocks are read here and not in pyarrow's threads, so that a slow pipe
    gives what it has and Ctrl-C works.
    """

    def __init__(self, exact: CsvSource) -> None:
        self._exact = exact
        self.place, self.names, self.bad_rows = exact.place, exact.names, exact.bad_rows
        self.bytes_source = exact.data

    def kinds(self, columns: Columns, wanted: list[str]) -> Kinds:
        """What each column holds, judged by the first rows."""
        return self._exact.kinds(columns, wanted)

    def batches(self, wanted: list[str], kinds: Kinds) -> Iterator[ColumnBatch]:
        """The rows, converted; an error comes after all rows before it."""
        import pyarrow as pa

        done = 0
        by_kind = {kind: frozenset(n for n in wanted if kinds[n] == kind) for kind in ("text", "number")}
        all_numbers = len(by_kind["number"]) == len(wanted)
        plain = NumberLines(self.names, self._exact.delimiter, wanted) if all_numbers else None
        parser = _BlockParser(self.names, self._exact.delimiter, {name: kinds[name] for name in wanted})
        blocks = self._exact.data.blocks(BLOCK_BYTES)
        for number, block in enumerate(blocks):
            lines = block if number else without_header(block)
            if not lines or lines.isspace():
                continue
            if plain is not None and (batch := plain.batch(lines)) is not None:
                yield batch
                done += batch.n_rows
                continue
            try:
                table = parser.table(lines)
            except pa.ArrowInvalid as error:
                n_left_out = len(self.place.left_out)
                for batch in self._exact.batches_of(lines, wanted, kinds, done):
                    yield batch
                    done += batch.n_rows
                if len(self.place.left_out) > n_left_out:
                    continue
                raise DataError(f"{error}.", source=self.place.source) from error  # only pyarrow objected
            yield ColumnBatch(_ArrowColumns(table, wanted, by_kind), table.num_rows)
            done += table.num_rows

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self._exact.fraction_read()

    def close(self) -> None:
        """Let go of the file."""
        self._exact.close()


class _BlockParser:
    """pyarrow's reader with its options made once.

    Looking every cell up among all words for a missing value takes a sixth of the reader's time. Where no
    column holds text, such a word is no number and shows itself: until one comes, only empty cells are
    looked for.
    """

    def __init__(self, names: list[str], delimiter: str, kinds: Kinds) -> None:
        import pyarrow as pa
        from pyarrow import csv

        types = {"number": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
        asked = {
            "column_types": {name: types[kind] for name, kind in kinds.items()},
            "include_columns": list(kinds),
            "strings_can_be_null": True,
        }
        self._read = csv.ReadOptions(use_threads=False, column_names=names)
        self._parse = csv.ParseOptions(delimiter=delimiter)
        self._all_words = csv.ConvertOptions(**asked)
        self._empty_cells = csv.ConvertOptions(**asked, null_values=[""])
        self._looks_for_words = "text" in kinds.values()

    def table(self, lines: bytes) -> Any:
        """The rows of some whole lines."""
        import pyarrow as pa

        self._read.block_size = len(lines) + 1
        self._parse.newlines_in_values = b'"' in lines
        if not self._looks_for_words:
            try:
                return self._parsed(lines, self._empty_cells)
            except pa.ArrowInvalid:  # such a word, or a mistake, which the second look will find too
                pass
        table = self._parsed(lines, self._all_words)
        self._looks_for_words = True
        return table

    def _parsed(self, lines: bytes, convert: Any) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(pa.BufferReader(lines), self._read, self._parse, convert)


class ArrowSource:
    """Record batches whose columns have declared types."""

    def __init__(
        self,
        batches: Any,
        schema: Any,
        name: str,
        n_rows: int | None,
        close: Callable[[], None],
    ) -> None:
        self._batches = batches
        self.close = close
        self.names = schema.names
        self._schema = schema
        # The index of a data frame of pandas travels as columns, which are features only if they are named.
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        self.index_names = [column for column in index if isinstance(column, str)]
        self.place = Place(name)
        self.n_rows = n_rows
        self._done = 0

    @cached_property
    def moment_names(self) -> list[str]:
        """Columns of dates, or of dates and times."""
        return [field.name for field in self._schema if _is_moment(field.type)]

    def kinds(self, columns: Columns, wanted: list[str]) -> Kinds:
        """Declared types need no judging; only what is to be categories must be said."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    def batches(self, wanted: list[str], kinds: Kinds) -> Iterator[ColumnBatch]:
        """The rows as columns."""
        import pyarrow as pa

        are_declared = all(kinds[name] == "declared" for name in wanted)
        for batch in self._read(wanted):
            if are_declared and set(batch.schema.types) == {pa.float64()}:
                block = batch.to_tensor(null_to_nan=True, row_major=False).to_numpy().T
                yield ColumnBatch(BlockColumns(batch.schema.names, block), batch.num_rows)
            else:
                yield arrow_batch({name: batch.column(name) for name in wanted}, kinds, batch.num_rows)
            self._done += batch.num_rows

    def _read(self, wanted: list[str]) -> Iterator[Any]:
        """The batches; what is damaged is found only when it is unpacked."""
        import pyarrow as pa

        try:
            for batch in self._batches(wanted):
                # Offsets and indices come as they were sent; followed unseen, they would lead anywhere.
                batch.validate(full=True)
                yield batch
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"after row {self._done:,} the content is damaged or cut short: {str(error).rstrip('.')}.",
                source=self.place.source,
            ) from error

    def fraction_read(self) -> float | None:
        """How many of the rows have come."""
        return self._done / self.n_rows if self.n_rows else None


def arrow_file_source(data: ByteSource) -> ArrowSource:
    """Parquet, Arrow file or Arrow stream, by the first bytes."""
    import pyarrow as pa

    try:
        if data.head.startswith(b"PAR1"):
            return _parquet_source(data)
        if data.head.startswith(b"ARROW1"):
            file = pa.ipc.open_file(_seekable(data))
            batches = (file.get_batch(index) for index in range(file.num_record_batches))
            return ArrowSource(
                lambda wanted: _selected(batches, wanted), file.schema, data.name, None, data.close
            )
        reader = pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(data, BLOCK_BYTES), mode="r"))
        return ArrowSource(
            lambda wanted: _selected(reader, wanted), reader.schema, data.name, None, data.close
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).rstrip(".")
        raise DataError(f"the file is damaged or cut short: {reason}.", source=data.name) from error


def _parquet_source(data: ByteSource) -> ArrowSource:
    from pyarrow import parquet

    file = parquet.ParquetFile(_seekable(data), page_checksum_verification=True)

    def batches(wanted: list[str]) -> Iterator[Any]:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=wanted, use_threads=False)

    return ArrowSource(batches, file.schema_arrow, data.name, file.metadata.num_rows, data.close)


def _seekable(data: ByteSource) -> Any:
    if data.path is None:
        raise DataError(
            "Parquet and Arrow files must be read from an unpacked file on disk.",
            source=data.name,
            hint="save it to a file first, or send an Arrow stream",
        )
    return str(data.path)


def _selected(batches: Any, wanted: list[str]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(wanted)


def table_source(table: Any) -> ArrowSource:
    """A table of pandas, polars, pyarrow or anything else that speaks Arrow's C interface."""
    import pyarrow as pa

    if isinstance(table, dict):
        table = _checked_table(pa.table, table)
    if not hasattr(table, "__arrow_c_stream__") and hasattr(table, "to_arrow"):
        table = table.to_arrow()  # polars, before it spoke that interface
    if not hasattr(table, "__arrow_c_stream__"):
        raise DataTypeError(
            f"expected a path or a table of pandas, polars or pyarrow; got {type(table).__name__}.",
            source="open_stream",
        )
    reader = _checked_table(pa.RecordBatchReader.from_stream, table)
    n_rows = len(table) if hasattr(table, "__len__") else None

    def batches(wanted: list[str]) -> Iterator[Any]:
        for batch in reader:
            for begin in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.select(wanted).slice(begin, _BATCH_ROWS)

    return ArrowSource(batches, reader.schema, "table", n_rows, lambda: None)


def _checked_table(make: Callable[[Any], Any], table: Any) -> Any:
    import pyarrow as pa

    try:
        return make(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = " ".join(map(str, error.args))
        raise DataError(
            f"its columns cannot be read: {reason}.",
            source="table",
            hint="every column must hold values of one kind, and all columns equally many",
        ) from error


class _ArrowColumns(KeptColumns):
    """Columns that become NumPy's by who uses them, not by who reads ahead."""

    def __init__(self, table: Any, names: list[str], by_kind: dict[str, frozenset[str]]) -> None:
        super().__init__(names)
        self._table, self._texts, self._numbers = table, by_kind["text"], by_kind["number"]

    def first_text(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self._texts), None) if self._texts else None

    def _make(self, name: str) -> NDArray[Any]:
        return arrow_values(_in_one_piece(self._table.column(name)), name)

    def _make_table(self, names: Sequence[str]) -> FloatArray:
        pieces = self._table.select(names).to_batches() if self._numbers.issuperset(names) else []
        if len(pieces) != 1 or not names:
            return side_by_side([self[name] for name in names], self._table.num_rows)
        # Column after column in one call, then across: faster than a column at a time or across at once.
        columns = pieces[0].to_tensor(null_to_nan=True, row_major=False).to_numpy()
        return np.array(columns, order="C")


def _in_one_piece(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrow_values(column: Any, name: str) -> NDArray[Any]:
    """A column as NumPy has it: float64 with nan, or objects with None."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = _decoded(column)
        kind = column.type
    if pa.types.is_float64(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _floats(column)
    if _is_moment(kind):
        micros = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)
        return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 1e6)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    raise DataTypeError(f"column {name!r} is of type {kind}, which is neither numbers nor text.")


def _is_moment(kind: Any) -> bool:
    """Whether a type is one of dates, or of dates and times."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _floats(column: Any) -> NDArray[Any]:
    """Numbers of any type; whole ones beyond 2**53 are rounded, as they are in a text file."""
    import pyarrow as pa

    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _decoded(column: Any) -> Any:
    """A column of categories as the values themselves."""
    import pyarrow as pa

    if str(column.type.value_type) == "string_view":  # which pyarrow cannot take from yet
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_string()))
    return column.dictionary_decode()


def arrow_batch(found: Mapping[str, Any], kinds: Mapping[str, str], n_rows: int) -> ColumnBatch:
    """Columns of Arrow by name as NumPy has them; the values of texts are told apart once, by Arrow."""
    columns, coded = {}, {}
    for name, column in found.items():
        if kinds[name] != "text":
            columns[name] = arrow_values(column, name)
            continue
        made = _coded(column)
        if made is None:
            columns[name] = np.array(as_texts(arrow_values(column, name)), dtype=object)
        else:
            coded[name] = made
            columns[name] = np.array(made[0], dtype=object).take(made[1])
    return ColumnBatch(columns, n_rows, coded)


def _coded(column: Any) -> Coded | None:
    """The different values of a column and the place of each; None for what is neither text nor whole."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())  # exact also where a float is not
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    encoded = column.dictionary_encode()
    values = [*encoded.dictionary.to_numpy(zero_copy_only=False).tolist(), None]
    return values, encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
