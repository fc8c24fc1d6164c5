"""Readers of text files: CSV, TSV and JSON lines.

A fast parser returns the rows of a block of CSV lines, or None if it cannot parse the block. In that case the
``csv`` module parses the block row by row, and bad lines are reported.
"""

from __future__ import annotations

import csv
import io
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from steelyard import _native
from steelyard.exceptions import DataError
from steelyard.tables.arrow_sources import arrow_batch, has_pyarrow
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.files import ByteSource, without_header
from steelyard.tables.source import TableSource

BLOCK_BYTES = 1 << 19
_BATCH_ROWS = 4096
_SAMPLE_ROWS = 1000  # number of rows from which the kinds of columns are inferred
_MAX_TEXT_SHARE = 0.1  # with a smaller share of texts, the column is numeric and the texts are errors
_MAX_FIELD_CHARACTERS = 1 << 20
_UNDECODED = re.compile(
    "[\udc80-\udcff]"
)  # what the error handler "surrogateescape" makes of bytes that are not UTF-8
_MAX_FAILURES = 8  # number of failed blocks after which NumberParser is disabled
_CELL_HINT = (
    "if this is a column of categories, say so with categorical= (--categorical on the command line), or "
    "drop it"
)
# Cells that mean a missing value, the same as in pyarrow's CSV reader.
_MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A",
    "NA", "NULL", "NaN", "n/a", "nan", "null",
))  # fmt: skip


class TextSource(TableSource):
    """Base class of the readers of text files; ``first_line`` is the line number of the first row."""

    def __init__(self, data: ByteSource, first_line: int) -> None:
        super().__init__(Place(data.name, first_line))
        self.data = self.bytes_source = data

    def _complete_head_lines(self) -> bytes:
        """Return the complete lines at the beginning of the file."""
        head = self.data.head
        return head if self.data.whole_in_head else head[: head.rfind(b"\n") + 1]

    @abstractmethod
    def _cells(self, row: Any, wanted: list[str]) -> list[str] | None:
        """Return the texts of some cells of a row, or None for a blank line; raise DataError if it is bad."""

    def _parsed(
        self, rows: Iterable[Any], wanted: list[str], kinds: Mapping[str, str], first_row: int
    ) -> Iterator[ColumnBatch]:
        """Parse rows one by one. An error is raised after all earlier rows were returned."""
        good, error = self._good_rows(rows, wanted, kinds, first_row), None
        while error is None:
            batch: list[list[Any]] = []
            try:
                batch.extend(islice(good, _BATCH_ROWS))
            except DataError as failure:
                error = failure
            if batch:
                columns = {
                    name: np.array(values, dtype=object if kinds[name] == "text" else np.float64)
                    for name, values in zip(wanted, zip(*batch, strict=True), strict=True)
                }
                yield ColumnBatch(columns, len(batch))
            elif error is None:
                return
        raise error

    def _good_rows(
        self, rows: Iterable[Any], wanted: list[str], kinds: Mapping[str, str], n_rows: int
    ) -> Iterator[list[Any]]:
        """Yield the values of the good rows; ``n_rows`` is the number of good rows before them."""
        readers = [_READERS[kinds[name]] for name in wanted]
        for row in rows:
            cells, values = None, list[Any]()
            try:
                cells = self._cells(row, wanted)
                if cells is None:
                    self.place.skip(n_rows)  # keeps the line numbers of later rows correct
                    continue
                for read, cell in zip(readers, cells, strict=True):
                    values.append(read(cell))
            except DataError as error:
                where = self.place.of_row(n_rows, None if cells is None else wanted[len(values)])
                self.reject(DataError(error.message, source=where, hint=error.hint), n_rows)
            else:
                n_rows += 1
                yield values


class CsvSource(TextSource):
    """Reader of text with a header line. The delimiter is the most frequent of four in this line.

    Blocks of lines are parsed by a native parser or by pyarrow. A block that both reject is parsed with the
    ``csv`` module: all rows before a bad line are returned, then the line is reported.
    """

    def __init__(self, data: ByteSource) -> None:
        super().__init__(data, first_line=2)
        first_line = data.head.split(b"\n", 1)[0].decode("utf-8", "replace")
        self.delimiter = max(",\t;|", key=first_line.count)
        head = list(islice(self._lines(io.BytesIO(self._complete_head_lines())), _SAMPLE_ROWS + 1))
        if not head:
            raise DataError("the file is empty.", source=data.name)
        try:
            self.names = [_decoded(name).strip() for name in head[0]]
        except DataError as error:
            raise error.with_source(self.place.of_row(-1)) from None  # the header is before row 0
        self._index = {name: k for k, name in enumerate(self.names)}
        self._sample = [row for row in head[1:] if len(row) == len(self.names)]
        if not head[1:]:
            raise DataError("the file has a header line but no rows.", source=data.name)

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        values = {name: [row[self._index[name]] for row in self._sample] for name in wanted}
        return {name: _column_kind(columns, name, _kinds_of(cells)) for name, cells in values.items()}

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        kinds = {name: kinds[name] for name in wanted}
        is_numeric = set(kinds.values()) == {"number"}
        parse_numbers = NumberParser(self.names, self.delimiter, wanted) if is_numeric else None
        n_rows = 0
        for number, block in enumerate(self.data.blocks(BLOCK_BYTES)):
            lines = block if number else without_header(block)
            if not lines or lines.isspace():
                continue
            parsed = None if parse_numbers is None else parse_numbers(lines)
            parsed = self._parsed_by_arrow(lines, kinds) if parsed is None else parsed
            n_before = n_rows + 1 + len(self.place.skipped)
            rows = self._lines(io.BytesIO(lines), n_before)
            for batch in self._parsed(rows, wanted, kinds, n_rows) if parsed is None else [parsed]:
                yield batch
                n_rows += batch.n_rows

    def _parsed_by_arrow(self, lines: bytes, kinds: Mapping[str, str]) -> ColumnBatch | None:
        """Parse lines with pyarrow; return None if it is not installed or rejects the lines."""
        if not has_pyarrow():
            return None
        import pyarrow as pa
        from pyarrow import csv

        types = {"number": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
        read = csv.ReadOptions(use_threads=False, column_names=self.names, block_size=len(lines) + 1)
        parse = csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=b'"' in lines)
        convert = csv.ConvertOptions(
            column_types={name: types[kind] for name, kind in kinds.items()},
            include_columns=list(kinds),
            strings_can_be_null=True,
        )
        try:
            table = csv.read_csv(pa.BufferReader(lines), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        columns = {name: table.column(name).combine_chunks() for name in kinds}
        return arrow_batch(columns, kinds, table.num_rows)

    def _cells(self, row: list[str], wanted: list[str]) -> list[str]:
        if len(row) != len(self.names):
            raise DataError(
                f"expected {len(self.names)} columns, as in the header; got "
                f"{len(row)}, the last of them {row[-1][:40]!r}."
            )
        return [row[self._index[name]] for name in wanted]

    def _lines(self, stream: Any, n_lines_before: int = 0) -> Iterator[list[str]]:
        # Bytes that are not UTF-8 become surrogates, so that only their own cells are errors.
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        csv.field_size_limit(_MAX_FIELD_CHARACTERS)
        reader = csv.reader(text, delimiter=self.delimiter)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                where = f"{self.data.name}, line {n_lines_before + reader.line_num + 1:,}"
                self.reject(DataError(f"{where}: this is not text with columns: {error}."))
                continue
            if row:
                yield row


class JsonLinesSource(TextSource):
    """Reader of JSON lines, one object per line. The columns are the fields of the first rows."""

    def __init__(self, data: ByteSource) -> None:
        super().__init__(data, first_line=1)
        head = self._complete_head_lines()
        self._sample = list(islice(_valid_records(io.BytesIO(head)), _SAMPLE_ROWS))
        self._fields = dict.fromkeys(name for record in self._sample for name in record)
        self.names = list(self._fields)
        if not self.names:
            list(self._good_rows(io.BytesIO(head), [], {}, 0))  # raises an error for the first invalid line
            raise DataError("the file is empty.", source=data.name)

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        kinds = {}
        for name in wanted:
            values = [record[name] for record in self._sample if record.get(name) is not None]
            found = [
                "boolean" if isinstance(x, bool) else "number" if isinstance(x, int | float) else "text"
                for x in values
            ]
            kinds[name] = _column_kind(columns, name, found)
        return kinds

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        n_rows = 0
        for block in self.data.blocks(BLOCK_BYTES, quotes=False):
            for batch in self._parsed(io.BytesIO(block), wanted, kinds, n_rows):
                yield batch
                n_rows += batch.n_rows

    def _cells(self, row: bytes, wanted: list[str]) -> list[str] | None:
        if not row.strip():
            return None
        record = _json_record(row)
        if not record.keys() <= self._fields.keys() and self._fields:
            new = next(name for name in record if name not in self._fields)
            raise DataError(f"the field {new!r} is in none of the first rows.")
        values = ("" if (value := record.get(name)) is None else value for name in wanted)
        return [value if isinstance(value, str) else json.dumps(value) for value in values]


def _json_record(line: bytes) -> dict[str, Any]:
    """Return the object in a line, whose values must be numbers, texts, booleans or null."""
    try:
        text = _decoded(line.decode("utf-8-sig", "surrogateescape"))
        record = json.loads(text, object_pairs_hook=_unique_names)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"this is not a JSON object: {error}.") from error
    except RecursionError:
        raise DataError(
            "this JSON object is nested too deeply; its values must be numbers, text, true or false."
        ) from None
    if not isinstance(record, dict):
        raise DataError(f"expected a JSON object; got {str(record)[:40]!r}.")
    for name, value in record.items():
        if isinstance(value, list | dict):
            kind = "a list" if isinstance(value, list) else "an object"
            raise DataError(
                f"the value of {name!r} is {kind}; expected a number, text, true, false or null.",
                hint="write each of its values into a field of its own",
            )
    return record


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the field {repeated!r} occurs twice in this JSON object.")
    return record


def _valid_records(lines: io.BytesIO) -> Iterator[dict[str, Any]]:
    """Yield the valid records. Invalid lines are reported later, when the rows are read."""
    for line in lines:
        if line.strip():
            with suppress(DataError):
                yield _json_record(line)


def _column_kind(columns: Columns, name: str, kinds: list[str]) -> str:
    """Return the kind of a column from the kinds of its first values."""
    if name in columns.categorical:
        return "text"
    if kinds and all(kind == "boolean" for kind in kinds):
        return "boolean"
    n_texts = sum(kind in {"text", "boolean"} for kind in kinds)
    # A few texts among numbers are reported as errors and do not turn the column into categories.
    if n_texts > (0.0 if name == columns.target else _MAX_TEXT_SHARE * len(kinds)):
        return "text"
    return "number"


def _kinds_of(values: list[str]) -> list[str]:
    """Return the kind of each value that is not missing."""
    try:
        if "_" not in "".join(values):
            np.array(values, dtype=np.float64)  # fast path: most columns contain only numbers
            return ["number"] * len(values)
    except ValueError:
        pass
    return [_kind_of(value) for value in values if value not in _MISSING]


def _kind_of(value: str) -> str:
    if value.lower() in {"true", "false"}:
        return "boolean"
    try:
        float(value)
    except ValueError:
        return "text"
    return "text" if "_" in value else "number"  # Python accepts 1_000, data files do not


def _number(text: str) -> float:
    if text in _MISSING:
        return np.nan
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise DataError(f"expected a number; got {text[:40]!r}.", hint=_CELL_HINT)


def _boolean(text: str) -> float:
    if text in _MISSING:
        return np.nan
    if text.lower() not in {"true", "false"}:
        raise DataError(f"expected true or false; got {text[:40]!r}.", hint=_CELL_HINT)
    return float(text.lower() == "true")


def _text(text: str) -> str | None:
    return None if text in _MISSING else _decoded(text)


def _decoded(text: str) -> str:
    """Return a text that was decoded from UTF-8; raise DataError if it contains other bytes."""
    other = None if text.isascii() else _UNDECODED.search(text)
    if other is None:
        return text
    found = text[max(0, other.start() - 20) : other.end()].encode("utf-8", "surrogateescape")
    raise DataError(
        f"expected text in UTF-8; got the byte 0x{found[-1]:02x} at the end of {found!r}.",
        hint="convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW",
    )


_READERS: Mapping[str, Callable[[str], Any]] = {"number": _number, "boolean": _boolean, "text": _text}


class NumberParser:
    """Native parser for lines in which every requested cell is a number or empty."""

    def __init__(self, names: Sequence[str], delimiter: str, wanted: Sequence[str]) -> None:
        index = {name: k for k, name in enumerate(wanted)}
        self._indices = np.array([index.get(name, -1) for name in names], dtype=np.int32)
        self._delimiter, self._wanted = delimiter, list(wanted)
        self._n_failures = 0

    def __call__(self, lines: bytes) -> ColumnBatch | None:
        if self._n_failures == _MAX_FAILURES:
            return None
        matrix = _native.read_number_lines(lines, self._delimiter, self._indices, len(self._wanted))
        if matrix is None:
            self._n_failures += 1
            return None
        return ColumnBatch.from_matrix(self._wanted, matrix)
