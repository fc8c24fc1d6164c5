"""Base class of the readers of tables, and the reader of records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Columns, Place

# Schemes of the addresses of databases.
SCHEMES = ("duckdb", "sqlite", "postgresql", "postgres")
_MAX_MESSAGES = 1000
LABEL = "label"  # name of the label column of records
_SAMPLE_RECORDS = 1000
_BATCH_RECORDS = 1000


class TableSource:
    """Reader of the columns of a table.

    A row is bad if its line cannot be parsed, if a cell is not valid in its column, or if a value cannot be
    learned. All rows before a bad row are returned before its error is raised.
    """

    names: list[str]  # all columns
    n_rows: int | None = None  # None if the number is not known
    index_names: Sequence[str] = ()  # columns that are features only if the user names them
    time_names: Sequence[str] = ()  # columns whose declared type is a time
    bytes_source: Any = None  # ByteSource that is read in another thread, or None

    def __init__(self, place: Place) -> None:
        self.place = place
        self.skips_bad_rows = False  # otherwise the first bad row raises an error
        self.n_skipped = 0
        self.skipped: list[str] = []  # errors of the first thousand skipped rows

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        """Return the kind of each column: text, number or boolean, or the declared type of the column."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    @abstractmethod
    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        """Yield the rows as batches of columns. An error is raised after all earlier rows were returned."""

    def reject(self, error: DataError, row: int | None = None) -> None:
        """Raise the error or skip the row; ``row`` is its index if later rows are counted without it."""
        if not self.skips_bad_rows:
            raise error
        self.n_skipped += 1
        if len(self.skipped) < _MAX_MESSAGES:
            self.skipped.append(error.summary)
        if row is not None:
            self.place.skip(row)

    def fraction_read(self) -> float | None:
        """Return the fraction of the rows that has been read, or None if it is not known."""
        return None if self.bytes_source is None else self.bytes_source.fraction_read()

    def close(self) -> None:
        """Close the file or the connection, if any."""
        if self.bytes_source is not None:
            self.bytes_source.close()


def is_address(source: object) -> bool:
    """Return whether a string is the address of a database, such as ``sqlite:///shop.db?table=payments``."""
    return isinstance(source, str) and source.partition("://")[0] in SCHEMES and "://" in source


class RecordSource(TableSource):
    """Reader of (mapping, label) pairs, whose columns are the fields of the first thousand records.

    If a record lacks a field, its value is missing. ``name`` is the name of the source in error messages.
    """

    def __init__(self, pairs: Iterable[tuple[Mapping[Any, Any], Any]], name: str) -> None:
        super().__init__(Place(name))
        iterator = iter(pairs)
        sample = list(islice(iterator, _SAMPLE_RECORDS))
        fields = dict.fromkeys(str(field) for record, _ in sample for field in record)
        if not fields:
            raise DataError("there are no rows.", source=name)
        if LABEL in fields:
            raise DataError(f"a field has the name {LABEL!r}, which is reserved for the labels.", source=name)
        self.names = [*fields, LABEL]
        self._sample = list(map(_row, sample))
        self._rows = chain(self._sample, map(_row, iterator))

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        kinds = {}
        for name in wanted:
            values = [row[name] for row in self._sample if row.get(name) is not None]
            is_text = name in columns.categorical or not all(isinstance(value, Real) for value in values)
            kinds[name] = "text" if is_text else "number"
        return kinds

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        known, n_rows = set(self.names), 0
        while batch := list(islice(self._rows, _BATCH_RECORDS)):
            for number, row in enumerate(batch):
                new = next((field for field in row if field not in known), None)
                if new is not None:
                    raise DataError(
                        f"the field {new!r} is in none of the first rows.",
                        source=self.place.of_row(n_rows + number),
                    )
            columns = {name: _column([row.get(name) for row in batch], kinds[name]) for name in wanted}
            yield ColumnBatch(columns, len(batch))
            n_rows += len(batch)


def _row(pair: tuple[Mapping[Any, Any], Any]) -> dict[str, Any]:
    record, label = pair
    return {**{str(field): value for field, value in record.items()}, LABEL: label}


def _column(values: list[Any], kind: str) -> NDArray[Any]:
    if kind == "number" and all(value is None or isinstance(value, Real) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array([None if value is None else str(value) for value in values], dtype=object)
