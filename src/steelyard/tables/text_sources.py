"""CSV, TSV and JSON lines, read with the standard library: the slow, exact readers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from steelyard.exceptions import DataError
from steelyard.tables.bad_rows import BadRows, rows_before_error
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


class TextSource:
    """What sources of text have in common.

    Parameters
    ----------
    data : ByteSource
        The file.
    first_line : int
        The line of the first row.
    """

    def __init__(self, data: ByteSource, first_line: int) -> None:
        self.data = self.bytes_source = data
        self.place = Place(data.name, first_line)
        self.bad_rows = BadRows(self.place)

    def _whole_lines(self) -> bytes:
        """The beginning of the file, by which columns are judged."""
        head = self.data.head
        return head if self.data.whole_in_head else head[: head.rfind(b"\n") + 1]

    def fraction_read(self) -> float | None:
        """How much of the file has been read."""
        return self.data.fraction_read()

    def close(self) -> None:
        """Let go of the file."""
        self.data.close()


class CsvSource(TextSource):
    """Lines of text with a delimiter and a header line.

    Parameters
    ----------
    data : ByteSource
        The file.
    delimiter : str
        One character.
    """

    def __init__(self, data: ByteSource, delimiter: str) -> None:
        super().__init__(data, first_line=2)
        self.delimiter = delimiter
        beginning = list(islice(self._lines(io.BytesIO(self._whole_lines())), _JUDGED_ROWS + 1))
        if not beginning:
            raise DataError("the file is empty.", source=data.name)
        self.names = [name.strip() for name in beginning[0]]
        self._judged = [row for row in beginning[1:] if len(row) == len(self.names)]
        if not beginning[1:]:
            raise DataError("there is a header line but there are no rows.", source=data.name)

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
        n_before = done + 1 + len(self.place.left_out)
        rows = self._checked_rows(self._lines(io.BytesIO(block), n_before), done)
        return _converted(self, rows, lambda row, name: row[places[name]], wanted, kinds, done=done)

    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def _lines(self, stream: Any, n_before: int = 0) -> Iterator[list[str]]:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        csv.field_size_limit(_FIELD_LIMIT)
        reader = csv.reader(text, delimiter=self.delimiter)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise self._no_text(n_before + reader.line_num, error) from error
            except csv.Error as error:
                refusal = self._no_text(n_before + reader.line_num, error)
                if self.bad_rows.told is None:
                    raise refusal from error
                self.bad_rows.told(refusal)
                continue
            if row:
                yield row

    def _no_text(self, n_before: int, error: Exception) -> DataError:
        return DataError(f"{self.data.name}, line {n_before + 1:,}: this is not text with columns: {error}.")

    def _checked_rows(self, lines: Iterator[list[str]], done: int) -> Iterator[list[str]]:
        for row in lines:
            if len(row) == len(self.names):
                done += 1
                yield row
            else:
                refusal = DataError(
                    f"expected {len(self.names)} columns, as in the header; got "
                    f"{len(row)}, the last of them {row[-1][:40]!r}.",
                    source=self.place.of_row(done),
                )
                self.bad_rows.refuse(refusal, done)


class JsonLinesSource(TextSource):
    """One JSON object a line; the fields of the first rows are the columns."""

    def __init__(self, data: ByteSource) -> None:
        super().__init__(data, first_line=1)
        head = self._whole_lines()
        self._judged = list(islice(_good_records(io.BytesIO(head)), _JUDGED_ROWS))
        self.names = list(dict.fromkeys(name for record in self._judged for name in record))
        if not self.names:
            list(self._records(io.BytesIO(head)))  # which says what is wrong with it
            raise DataError("the file is empty.", source=data.name)

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
            for batch in _converted(self, records, _json_cell, wanted, kinds, done=done):
                yield batch
                done += batch.n_rows

    def _records(self, lines: io.BytesIO, done: int = 0) -> Iterator[dict[str, Any]]:
        known = set(self.names)
        for line in lines:
            if not line.strip():
                self.place.leave_out(done)  # so that the lines behind it keep their numbers
                continue
            try:
                record = _json_record(line)
                _check_fields(record, known)
            except DataError as error:
                self.bad_rows.refuse(DataError(error.message, source=self.place.of_row(done)), done)
            else:
                done += 1
                yield record


def _json_record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_Record)
    except ValueError as error:
        raise DataError(f"this is not a JSON object: {error}.") from error
    except RecursionError:
        raise DataError(
            "this JSON object is nested too deeply; its values must be numbers, text, true or false."
        ) from None
    if not isinstance(record, _Record):
        raise DataError(f"expected a JSON object; got {str(record)[:40]!r}.")
    _check_values(record)
    return record


class _Record(dict[str, Any]):
    """A JSON object that remembers a name that came twice: the one that counts is anybody's guess."""

    twice: str | None = None

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        if len(self) < len(pairs):
            names = [name for name, _ in pairs]
            self.twice = next(name for name in names if names.count(name) > 1)


def _check_values(record: _Record) -> None:
    if record.twice is not None:
        raise DataError(f"the field {record.twice!r} stands twice in this JSON object.")
    for name, value in record.items():
        if isinstance(value, list | dict):
            kind = "a list" if isinstance(value, list) else "an object"
            raise DataError(
                f"the value of {name!r} is {kind}; expected a number, text, true, false or null.",
                hint="give each value that it holds a field of its own",
            )


def _check_fields(record: dict[str, Any], known: set[str]) -> None:
    if not record.keys() <= known:
        new = next(name for name in record if name not in known)
        raise DataError(f"the field {new!r} is in none of the first rows.")


def _good_records(lines: io.BytesIO) -> Iterator[dict[str, Any]]:
    """The records by which columns are judged; a line that is none is told of when its turn comes."""
    for line in lines:
        if line.strip():
            with suppress(DataError):
                yield _json_record(line)


def csv_source(data: ByteSource) -> CsvSource:
    """The reader for a text file; the delimiter is the one that the first line has most of."""
    first_line = data.head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return CsvSource(data, max(",\t;|", key=first_line.count))


def _converted(
    source: TextSource,
    rows: Iterator[Any],
    cell: Callable[[Any, str], str],
    wanted: list[str],
    kinds: Kinds,
    *,
    done: int,
) -> Iterator[ColumnBatch]:
    """Rows as columns, some thousand at a time; an error comes after all rows before it."""
    while True:
        batch, error = rows_before_error(rows, _BATCH_ROWS)
        columns, refusals = {}, dict[int, DataError]()
        for name in wanted:
            columns[name], sentences = _convert([cell(row, name) for row in batch], kinds[name])
            for row, message in sentences.items():
                refusals.setdefault(row, _no_value(message, source.place.of_row(done + row, name)))
        good, refusal = source.bad_rows.usable(len(batch), refusals, done)
        n_good = int(good.sum())
        if n_good:
            yield ColumnBatch({name: values[good] for name, values in columns.items()}, n_good)
        done += n_good
        error = refusal or error  # the first of both
        if error is not None:
            raise error
        if not batch:
            return


def _no_value(message: str, where: str) -> DataError:
    return DataError(
        message,
        source=where,
        hint="if this is a column of categories, name it so (categorical, --categorical on the "
        "command line), or drop it",
    )


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


def _convert(texts: list[str], kind: str) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
    """Values of a column, and sentences about those that cannot be."""
    if kind == "text":
        return np.array([None if is_missing(text) else text for text in texts], dtype=object), {}
    read = _boolean if kind == "boolean" else _number
    values, sentences = np.full(len(texts), np.nan), {}
    for row, text in enumerate(texts):
        try:
            values[row] = np.nan if is_missing(text) else read(text)
        except ValueError:
            expected = "true or false" if kind == "boolean" else "a number"
            sentences[row] = f"expected {expected}; got {text[:40]!r}."
    return values, sentences


def _boolean(text: str) -> float:
    return float(("false", "true").index(text.lower()))
