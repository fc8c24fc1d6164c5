"""CSV, TSV and JSON lines, read with the standard library: the slow, exact readers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.files import ByteSource, without_header

__all__ = ["CsvSource", "JsonLinesSource", "csv_source", "is_missing"]

_BATCH_ROWS = 4096
_JUDGED_ROWS = 1000
_STRAY_SHARE = 0.1  # of texts in a column that is still one of numbers
_FIELD_LIMIT = 1 << 20
# What an empty cell may look like; the same as in pyarrow's reader.
_MISSING = frozenset(
    (
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "n/a",
        "nan",
        "null",
    )
)

# What a column holds: "number", "boolean" or "text".
Kinds = Mapping[str, str]


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text in _MISSING


class CsvSource:
    """Lines of text with a delimiter and a header line.

    Parameters
    ----------
    data : ByteSource
        The file.
    delimiter : str
        One character.
    """

    def __init__(self, data: ByteSource, delimiter: str) -> None:
        self.data = data
        self.delimiter = delimiter
        self.place = Place(data.name, first_line=2)
        beginning = list(islice(self._lines(io.BytesIO(self._whole_lines())), _JUDGED_ROWS + 1))
        if not beginning:
            raise DataError("the file is empty.", who=data.name)
        self.names = [name.strip() for name in beginning[0]]
        self._judged = [row for row in beginning[1:] if len(row) == len(self.names)]
        if not beginning[1:]:
            raise DataError("there is a header line but there are no rows.", who=data.name)

    def kinds(self, columns: Columns, wanted: list[str]) -> Kinds:
        """What each column holds, judged by the first rows."""
        kinds = {}
        places = self._places()
        for name in wanted:
            index = places[name]
            values = [row[index] for row in self._judged]
            kinds[name] = _chosen_kind(columns, name, _kinds_of(values))
        return kinds

    def batches(self, wanted: list[str], kinds: Kinds) -> Iterator[ColumnBatch]:
        """The rows, converted; an error comes after all rows before it."""
        done = 0
        for number, block in enumerate(self.data.blocks()):
            for batch in self.batches_of(block if number else without_header(block), wanted, kinds, done):
                yield batch
                done += batch.n_rows

    def batches_of(self, block: bytes, wanted: list[str], kinds: Kinds, done: int) -> Iterator[ColumnBatch]:
        """The rows of some lines without a header, of which ``done`` rows stand before."""
        places = self._places()
        rows = self._checked_rows(self._lines(io.BytesIO(block), done + 1), done)
        return _converted(rows, lambda row, name: row[places[name]], wanted, kinds, self.place, done)

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self.data.fraction_read()

    def close(self) -> None:
        """Let go of the file."""
        self.data.close()

    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def _whole_lines(self) -> bytes:
        head = self.data.head
        return head if self.data.whole_in_head else head[: head.rfind(b"\n") + 1]

    def _lines(self, stream: Any, n_before: int = 0) -> Iterator[list[str]]:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        csv.field_size_limit(_FIELD_LIMIT)
        reader = csv.reader(text, delimiter=self.delimiter)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except (csv.Error, UnicodeDecodeError) as error:
                raise DataError(
                    f"{self.data.name}, line {n_before + reader.line_num + 1:,}: this is not text with "
                    f"columns: {error}."
                ) from error
            if row:
                yield row

    def _checked_rows(self, lines: Iterator[list[str]], done: int) -> Iterator[list[str]]:
        for number, row in enumerate(lines, start=done):
            if len(row) != len(self.names):
                raise DataError(
                    f"expected {len(self.names)} columns, as in the header; got "
                    f"{len(row)}, the last of them {row[-1][:40]!r}.",
                    who=self.place.of_row(number),
                )
            yield row


class JsonLinesSource:
    """One JSON object a line; the fields of the first rows are the columns."""

    def __init__(self, data: ByteSource) -> None:
        self.data = data
        self.place = Place(data.name, first_line=1)
        head = data.head if data.whole_in_head else data.head[: data.head.rfind(b"\n") + 1]
        self._judged = list(islice(self._records(io.BytesIO(head)), _JUDGED_ROWS))
        self.names = list(dict.fromkeys(name for record in self._judged for name in record))
        if not self.names:
            raise DataError("the file is empty.", who=data.name)

    def kinds(self, columns: Columns, wanted: list[str]) -> Kinds:
        """What each column holds, judged by the first rows."""
        kinds = {}
        for name in wanted:
            values = [record[name] for record in self._judged if record.get(name) is not None]
            kinds[name] = _chosen_kind(columns, name, [_json_kind_of(value) for value in values])
        return kinds

    def batches(self, wanted: list[str], kinds: Kinds) -> Iterator[ColumnBatch]:
        """The rows, converted; an error comes after all rows before it."""
        done = 0
        for block in self.data.blocks(quotes=False):
            records = self._records(io.BytesIO(block), done)
            for batch in _converted(records, _json_cell, wanted, kinds, self.place, done):
                yield batch
                done += batch.n_rows

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self.data.fraction_read()

    def close(self) -> None:
        """Let go of the file."""
        self.data.close()

    def _records(self, lines: io.BytesIO, done: int = 0) -> Iterator[dict[str, Any]]:
        known = set(getattr(self, "names", ()))
        for number, line in enumerate(lines, start=done):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8-sig"))
            except ValueError as error:
                raise DataError(
                    f"this is not a JSON object: {error}.", who=self.place.of_row(number)
                ) from error
            except RecursionError:
                raise DataError(
                    "this JSON object is nested too deeply; its values must be numbers, text, true or false.",
                    who=self.place.of_row(number),
                ) from None
            if not isinstance(record, dict):
                raise DataError(
                    f"expected a JSON object; got {str(record)[:40]!r}.", who=self.place.of_row(number)
                )
            if known and not record.keys() <= known:
                new = next(name for name in record if name not in known)
                raise DataError(
                    f"the field {new!r} is in none of the first rows.", who=self.place.of_row(number)
                )
            yield record


def csv_source(data: ByteSource) -> CsvSource:
    """The reader for a text file; the delimiter is the one that the first line has most of."""
    first_line = data.head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return CsvSource(data, max(",\t;|", key=first_line.count))


def _converted(  # noqa: PLR0917  private, and each is named
    rows: Iterator[Any],
    cell: Callable[[Any, str], str],
    wanted: list[str],
    kinds: Kinds,
    place: Place,
    done: int,
) -> Iterator[ColumnBatch]:
    """Rows as columns, some thousand at a time; an error comes after all rows before it."""
    while True:
        batch, error = _until_error(rows)
        columns = {}
        for name in wanted:
            values, n_good, sentence = _convert([cell(row, name) for row in batch], kinds[name])
            if n_good < len(batch):
                batch = batch[:n_good]
                error = DataError(
                    f"{sentence}",
                    who=place.of_row(done + n_good, name),
                    hint="if this is a column of categories, name it so (categorical, --categorical on the "
                    "command line), or drop it",
                )
            columns[name] = values
        if batch:
            yield ColumnBatch({name: values[: len(batch)] for name, values in columns.items()}, len(batch))
        done += len(batch)
        if error is not None:
            raise error
        if not batch:
            return


def _until_error(rows: Iterable[Any]) -> tuple[list[Any], DataError | None]:
    """The next rows, fewer if an error is in the way, and the error."""
    batch: list[Any] = []
    try:
        batch.extend(islice(rows, _BATCH_ROWS))
    except DataError as error:
        return batch, error
    return batch, None


def _chosen_kind(columns: Columns, name: str, kinds: list[str]) -> str:
    """What a column holds, by what its first values are."""
    if name in columns.categorical:
        return "text"
    if kinds and all(kind == "boolean" for kind in kinds):
        return "boolean"
    n_strays = sum(kind in {"text", "boolean"} for kind in kinds)
    # A few texts among numbers are mistakes, to be named as such, and make no categories of the numbers.
    if n_strays > (0.0 if name == columns.target else _STRAY_SHARE * len(kinds)):
        return "text"
    return "number"


def _kinds_of(values: list[str]) -> list[str]:
    """What each value is; those that are missing are left out."""
    try:
        if "_" not in "".join(values):
            np.array(values, dtype=np.float64)  # nearly all columns are numbers and nothing else
            return ["number"] * len(values)
    except ValueError:
        pass
    return [_kind_of(value) for value in values if not is_missing(value)]


def _kind_of(value: str) -> str:
    if value.lower() in {"true", "false"}:
        return "boolean"
    try:
        _number(value)
    except ValueError:
        return "text"
    return "number"


def _json_kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "text"


def _json_cell(record: dict[str, Any], name: str) -> str:
    """A value as a CSV cell would show it."""
    value = record.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _number(text: str) -> float:
    if "_" in text:  # Python's own notation, not that of data
        raise ValueError(text)
    return float(text)


def _convert(texts: list[str], kind: str) -> tuple[np.ndarray[Any, Any], int, str]:
    """Values of a column, how many were good, and a sentence about the first that was not."""
    if kind == "text":
        return np.array([None if is_missing(text) else text for text in texts], dtype=object), len(texts), ""
    read = _boolean if kind == "boolean" else _number
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        try:
            values[row] = np.nan if is_missing(text) else read(text)
        except ValueError:
            expected = "true or false" if kind == "boolean" else "a number"
            return values, row, f"expected {expected}; got {text[:40]!r}."
    return values, len(texts), ""


def _boolean(text: str) -> float:
    return float(("false", "true").index(text.lower()))
