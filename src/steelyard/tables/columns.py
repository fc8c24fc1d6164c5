"""Batches of columns, the roles of columns, and the location of rows in a source."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError

Values = NDArray[Any]
Coded = tuple[list[Any], NDArray[np.int64]]  # distinct values, and the index of each row's value in them


class RowError(DataError):
    """Error for a row that cannot be used, see :meth:`Place.error`; ``row`` is its index, counted from 0."""

    row = 0
    column: str | None = None


@dataclass(frozen=True)
class Place:
    """Location of the rows of a source, for error messages."""

    source: str
    first_line: int | None = None  # line number of row 0 in a text file, or None for other sources
    skipped: list[int] = field(default_factory=list)  # number of kept rows before each skipped row

    def skip(self, row: int) -> None:
        """Record that a row was skipped, so that the line numbers of later rows stay correct."""
        at = bisect_right(self.skipped, row)
        self.skipped[at:] = [row, *(other - 1 for other in self.skipped[at:])]

    def of_row(self, row: int, column: str | None = None) -> str:
        """Return a text for the location of a row and column. Rows count from 0, without skipped rows."""
        row += bisect_right(self.skipped, row)
        number = f"row {row:,}" if self.first_line is None else f"line {row + self.first_line:,}"
        return f"{self.source}, {number}" + ("" if column is None else f", column {column!r}")

    def error(self, message: str, row: int, column: str | None = None, hint: str | None = None) -> RowError:
        """Return an error that names a row and a column."""
        error = RowError(message, source=self.of_row(row, column), hint=hint)
        error.row, error.column = row, column
        return error


@dataclass(slots=True, eq=False)
class ColumnBatch:
    """Batch of rows stored as named columns, similar to an Arrow record batch."""

    # float64 for numbers, times (in seconds) and booleans (1 and 0), with nan for missing values; object for
    # text, with None for missing values
    columns: Mapping[str, Values]
    n_rows: int
    coded: Mapping[str, Coded] = field(default_factory=dict)  # text columns, see dictionary_encode()
    _: KW_ONLY
    matrix: FloatArray | None = None  # all columns, if all are numeric; `columns` then contains views of it
    times: Collection[str] = ()  # numeric columns whose declared type is a date or time

    @classmethod
    def from_matrix(cls, names: Sequence[str], matrix: FloatArray) -> ColumnBatch:
        """Return a batch of numeric columns from a matrix of shape (n_rows, n_names)."""
        return cls(dict(zip(names, matrix.T, strict=True)), len(matrix), matrix=matrix)

    def __len__(self) -> int:
        return self.n_rows

    @classmethod
    def of_cells(cls, found: Mapping[str, Values | Coded], n_rows: int) -> ColumnBatch:
        """Return a batch of numbers (float64), times (datetime64), texts (object) and coded texts."""
        columns, coded, times = dict[str, Values](), dict[str, Coded](), []
        for name, values in found.items():
            if isinstance(values, tuple):
                coded[name] = values
                columns[name] = np.array(values[0], dtype=object).take(values[1])
            elif values.dtype.kind == "M":
                columns[name] = in_seconds(values)
                times.append(name)
            else:
                columns[name] = values
        return cls(columns, n_rows, coded, times=times)

    def kind(self, name: str) -> str:
        """Return the kind of a column: number, time, category, or unknown if all values are missing."""
        values = self.columns[name]
        if is_empty(values):
            return "unknown"
        return "category" if values.dtype == object else "time" if name in self.times else "number"

    def take(self, begin: int, end: int) -> ColumnBatch:
        """Return the rows from ``begin`` to ``end`` (exclusive), without copying."""
        if begin == 0 and end >= self.n_rows:
            return self
        return self.select(slice(begin, min(end, self.n_rows)))

    def select(self, rows: Any) -> ColumnBatch:
        """Return some rows, selected by slice, mask or index."""
        if self.matrix is not None:
            return self.from_matrix(list(self.columns), self.matrix[rows])
        return ColumnBatch(
            {name: values[rows] for name, values in self.columns.items()},
            len(np.arange(self.n_rows)[rows]),
            {name: (values, codes[rows]) for name, (values, codes) in self.coded.items()},
            times=self.times,
        )

    def choose(self, names: Iterable[str]) -> ColumnBatch:
        """Return some columns in the given order."""
        columns = {name: self.columns[name] for name in names}
        coded = {name: self.coded[name] for name in columns if name in self.coded}
        return ColumnBatch(columns, self.n_rows, coded, times=self.times)

    def without(self, name: str) -> ColumnBatch:
        """Return all columns except one."""
        return self.choose(other for other in self.columns if other != name)

    def with_columns(self, columns: Mapping[str, Values], times: Iterable[str] = ()) -> ColumnBatch:
        """Return the batch with columns replaced or added; ``times`` names those that contain times."""
        coded = {name: pair for name, pair in self.coded.items() if name not in columns}
        all_times = [*(name for name in self.times if name not in columns), *times]
        return ColumnBatch({**self.columns, **columns}, self.n_rows, coded, times=all_times)

    def to_matrix(self, names: Sequence[str]) -> FloatArray:
        """Return numeric columns as a C-contiguous matrix, which may share memory with the batch."""
        names = list(names)
        if self.matrix is not None and names == list(self.columns)[: len(names)]:
            return np.ascontiguousarray(self.matrix[:, : len(names)])
        X = np.empty((self.n_rows, len(names)))
        if names:
            X[:] = np.array([self.columns[name] for name in names]).T  # faster than filling column by column
        return X

    def dictionary_encode(self, name: str) -> Coded:
        """Return the distinct values of a column as text, and the index of each row's value.

        The value None means missing. The list may contain values that occur in no row.
        """
        if name in self.coded and len(self.coded[name][0]) <= max(self.n_rows, 32):
            return self.coded[name]
        values = self.columns[name]
        if values.dtype != object:
            found, codes = np.unique(values, return_inverse=True)
            return as_texts(found), codes
        return encode_texts(values.tolist())

    @staticmethod
    def concat(parts: Sequence[ColumnBatch]) -> ColumnBatch:
        """Return the rows of several batches with the same columns as one batch."""
        first = parts[0]
        if len(parts) == 1:
            return first
        names = list(first.columns)
        matrices = [part.matrix for part in parts if part.matrix is not None and list(part.columns) == names]
        if len(matrices) == len(parts):
            return ColumnBatch.from_matrix(names, np.concatenate(matrices))
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
        is_coded = [name for name in first.coded if all(name in part.coded for part in parts)]
        coded = {name: _concat_coded([part.coded[name] for part in parts]) for name in is_coded}
        return ColumnBatch(columns, sum(part.n_rows for part in parts), coded, times=first.times)


def _concat_coded(parts: Sequence[Coded]) -> Coded:
    index: dict[Any, int] = {}
    codes = []
    for values, own in parts:
        positions = [index.setdefault(value, len(index)) for value in values]
        codes.append(np.array(positions, dtype=np.int64)[own])
    return list(index), np.concatenate(codes)


@dataclass(frozen=True)
class Columns:
    """Roles of the columns of a table."""

    target: str | None = None  # labels
    time: str | None = None  # time of each row, not a feature
    features: tuple[str, ...] | None = None  # by default all columns except target and time
    drop: tuple[str, ...] = ()  # columns that are not features
    categorical: tuple[str, ...] = ()  # columns of categories even if they contain numbers

    @classmethod
    def of(
        cls,
        target: str | None,
        time: str | None = None,
        *,
        features: str | Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
        categorical: str | Sequence[str] = (),
    ) -> Columns:
        """Return the roles of columns, each given as one name or several."""
        chosen = None if features is None else _names(features)
        return cls(target, time, chosen, _names(drop), _names(categorical))

    def chosen(self, names: Sequence[str], source: str, index: Sequence[str] = ()) -> list[str]:
        """Return the names of the features in a source; raise an error for names that do not exist.

        Columns in ``index``, such as a pandas index, are features only if ``self.features`` names them.
        """
        check_unique(names, source)
        for kind, wanted in (
            ("target", () if self.target is None else (self.target,)),
            ("time", () if self.time is None else (self.time,)),
            ("feature", self.features or ()),
            ("dropped", self.drop),
            ("categorical", self.categorical),
        ):
            check_exist(names, source, kind, wanted)
        excluded = {self.target, self.time, *self.drop}
        candidates = self.features or [name for name in names if name not in set(index)]
        features = [name for name in candidates if name not in excluded]
        if not features:
            raise DataError(
                f"no column is left as a feature; the columns are {listed(names)}.", source=source
            )
        return features

    def wanted(self, features: Sequence[str]) -> list[str]:
        """Return the columns that must be read: features, target and time."""
        return [*features, *(name for name in (self.target, self.time) if name is not None)]


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def check_exist(names: Sequence[str], source: str, kind: str, wanted: Sequence[str]) -> None:
    """Raise DataError if one of the columns ``wanted``, which are of a ``kind``, is not in ``names``."""
    existing = set(names) if wanted else ()
    for name in wanted:
        if name not in existing:
            raise DataError(
                f"the {kind} column {name!r} does not exist; the columns are {listed(names)}.",
                source=source,
                hint=did_you_mean(str(name), names),
            )


def encode_texts(texts: Iterable[str | None]) -> Coded:
    """Return the distinct texts, in order of appearance, and the index of each text."""
    index: dict[Any, int] = {}
    codes = np.array([index.setdefault(text, len(index)) for text in texts], dtype=np.int64)
    return list(index), codes


def in_seconds(times: Values) -> FloatArray:
    """Return times or durations of NumPy in seconds, with NaN for missing values."""
    micros = times.astype(times.dtype.kind + "8[us]")
    return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 1e6)


def is_empty(values: Values) -> bool:
    """Return whether all values of a column are missing."""
    if values.dtype == object:
        return all(value is None for value in values)
    return bool(np.isnan(values).all())


def new_values(coded: Coded, known: Container[Any]) -> list[tuple[int, Any]]:
    """Return the values that are not in ``known``, each with its first row, in the order of these rows."""
    values, codes = coded
    unknown = [code for code, value in enumerate(values) if value is not None and value not in known]
    if not unknown:
        return []
    first_rows = np.full(len(values), len(codes))
    np.minimum.at(first_rows, codes, np.arange(len(codes)))
    return sorted((int(first_rows[code]), values[code]) for code in unknown if first_rows[code] < len(codes))


def erased_codes(codes: Mapping[str, int], erased: Container[str]) -> dict[str, int]:
    """Return the codes of texts, with a placeholder in place of each text in ``erased``."""
    found: dict[str, int] = {}
    for text, code in codes.items():
        new = f"(erased {code})" if text in erased else text
        while new != text and (new in codes or new in found):
            new += "'"
        found[new] = code
    return found


def as_texts(values: Values) -> list[str | None]:
    """Return the values of a column as text, with None for missing values. Integers have no decimal point."""
    if values.dtype == object:
        return [None if value is None else str(value) for value in values.tolist()]
    return [
        None if math.isnan(value) else str(int(value) if value.is_integer() else value)
        for value in values.astype(np.float64).tolist()
    ]


def did_you_mean(name: str, names: Collection[str], otherwise: str | None = None) -> str | None:
    """Return a hint with the most similar of ``names``, or ``otherwise`` if none is similar."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def check_unique(names: Sequence[str], source: str) -> None:
    """Raise DataError if two columns have the same name."""
    if len(set(names)) < len(names):
        repeated = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(
            f"two columns have the name {repeated!r}; names must be unique.",
            source=source,
            hint="rename or drop one of them",
        )


def listed(names: Iterable[str]) -> str:
    """Return a text with the first twelve names and the number of the others, for an error message."""
    texts = [repr(name) for name in names]
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "")
