"""Columns of a table by name: which one is the target, which are features, and where a row stands."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError

__all__ = [
    "BlockColumns",
    "Coded",
    "ColumnBatch",
    "Columns",
    "KeptColumns",
    "Place",
    "RowError",
    "as_texts",
    "near",
    "side_by_side",
]

Values = NDArray[Any]
Coded = tuple[list[Any], NDArray[np.int64]]  # different values, and for each row the place of its own


class RowError(DataError):
    """A row that cannot be used; the rows before it, ``row`` in number, can."""

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        hint: str | None = None,
        row: int = 0,
        column: str | None = None,
    ) -> None:
        super().__init__(message, source=source, hint=hint)
        self.row, self.column = row, column


@dataclass(frozen=True)
class Place:
    """Where rows come from, for sentences: a file and whether its rows are lines."""

    source: str
    first_line: int | None = None  # line of row 0 in a text file; None where rows have no lines
    # Of every row that was left out, how many rows that were not stand before it; in order.
    left_out: list[int] = field(default_factory=list)

    def leave_out(self, row: int) -> None:
        """Count a row out: those behind it move up by one."""
        at = bisect_right(self.left_out, row)
        self.left_out[at:] = [row, *(other - 1 for other in self.left_out[at:])]

    def of_row(self, row: int, column: str | None = None) -> str:
        """The place of a row, counted from 0 without those left out, and a column."""
        row += bisect_right(self.left_out, row)
        number = f"row {row + 1:,}" if self.first_line is None else f"line {row + self.first_line:,}"
        return f"{self.source}, {number}" + ("" if column is None else f", column {column!r}")


@dataclass(frozen=True)
class ColumnBatch:
    """Some rows as columns: numbers (missing: nan), text (objects, missing: None) or times (seconds).

    Attributes
    ----------
    columns : mapping of str to ndarray
        float64 for numbers, times (seconds) and truth values (1 and 0), object for text.
    n_rows : int
        Number of rows.
    coded : mapping of str to (list, ndarray)
        Columns of text whose values were told apart where they came from, see :meth:`numbered`.
    """

    columns: Mapping[str, Values]
    n_rows: int
    coded: Mapping[str, Coded] = field(default_factory=dict)

    def take(self, begin: int, end: int) -> ColumnBatch:
        """Some of these rows; nothing is copied."""
        end = min(end, self.n_rows)
        coded = {name: (values, codes[begin:end]) for name, (values, codes) in self.coded.items()}
        return ColumnBatch(_Part(self, begin, end), end - begin, coded)

    def side_by_side(self, names: Sequence[str]) -> FloatArray:
        """Columns of numbers as a table, row by row; it may be shared, so it is not to be written to."""
        if isinstance(self.columns, LazyColumns):
            return self.columns.side_by_side(names)
        return side_by_side([self.columns[name] for name in names], self.n_rows)

    def put_into(self, table: FloatArray, names: Sequence[str]) -> None:
        """Write columns of numbers into a table of so many rows."""
        if isinstance(self.columns, LazyColumns):
            table[:] = self.columns.side_by_side(names)
        elif names:
            table[:] = np.array([self.columns[name] for name in names]).T  # as side_by_side has it

    def first_text(self, names: Sequence[str]) -> str | None:
        """The first of these columns that holds text; None if all hold numbers."""
        if isinstance(self.columns, LazyColumns):
            return self.columns.first_text(names)
        return next((name for name in names if self.columns[name].dtype == object), None)

    def numbered(self, name: str) -> Coded:
        """The different values of a column as text, None for those that are missing, and the place of each.

        There may be values that no row has.
        """
        if name in self.coded:
            return self.coded[name]
        if isinstance(self.columns, _Joined):
            return self.columns.numbered(name)
        values = self.columns[name]
        if values.dtype != object:
            found, codes = np.unique(values, return_inverse=True)
            return as_texts(found), codes
        places = _Places()
        codes = np.fromiter(map(places.__getitem__, values.tolist()), np.int64, len(values))
        return list(places), codes

    @staticmethod
    def joined(parts: Sequence[ColumnBatch]) -> ColumnBatch:
        """Rows of several batches, one after the other; values are brought together when asked for."""
        if len(parts) == 1:
            return parts[0]
        n_rows = sum(part.n_rows for part in parts)
        return ColumnBatch(BlockColumns.of_all([part.columns for part in parts]) or _Joined(parts), n_rows)


class _Places(dict[Any, int]):
    """Numbers of values, in the order in which they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


def side_by_side(columns: Sequence[Values], n_rows: int) -> FloatArray:
    """Columns of numbers as a table, row by row."""
    X = np.empty((n_rows, len(columns)))
    if columns:
        X[:] = np.array(columns).T  # two steps through memory in order beat one across it
    return X


class LazyColumns(Mapping[str, Values]):
    """Columns that are made when they are asked for: most never are one by one, but side by side."""

    @abstractmethod
    def side_by_side(self, names: Sequence[str]) -> FloatArray:
        """As :meth:`ColumnBatch.side_by_side`."""

    @abstractmethod
    def first_text(self, names: Sequence[str]) -> str | None:
        """As :meth:`ColumnBatch.first_text`."""


class KeptColumns(LazyColumns):
    """Columns that are made once, and their table too, so that parts of it are views."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._made: dict[str, Values] = {}
        self._tables: dict[tuple[str, ...], FloatArray] = {}

    @abstractmethod
    def _make(self, name: str) -> Values:
        """A column."""

    @abstractmethod
    def _make_table(self, names: Sequence[str]) -> FloatArray:
        """Columns of numbers side by side."""

    def side_by_side(self, names: Sequence[str]) -> FloatArray:
        key = tuple(names)
        if key not in self._tables:
            self._tables[key] = self._make_table(names)
        return self._tables[key]

    def __getitem__(self, name: str) -> Values:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class BlockColumns(KeptColumns):
    """Columns of numbers that lie one after the other in one block, of shape (n_columns, n_rows)."""

    def __init__(self, names: Sequence[str], block: FloatArray) -> None:
        super().__init__(names)
        self.block = block
        self._places = {name: place for place, name in enumerate(names)}

    @classmethod
    def of_all(cls, parts: Sequence[Mapping[str, Values]]) -> Self | None:
        """The rows of several blocks in one, where all of them have the same columns."""
        blocks = [part.block for part in parts if isinstance(part, cls) and list(part) == list(parts[0])]
        return cls(list(parts[0]), np.hstack(blocks)) if len(blocks) == len(parts) else None

    def first_text(self, _: Sequence[str]) -> str | None:
        return None

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def _make(self, name: str) -> Values:
        return self.block[self._places[name]]

    def _make_table(self, names: Sequence[str]) -> FloatArray:
        first = list(names) == list(self._names[: len(names)])  # features mostly come first
        part = self.block[: len(names)] if first else self.block[[self._places[name] for name in names]]
        return np.ascontiguousarray(part.T)


class _Part(LazyColumns):
    """Consecutive rows of a batch."""

    def __init__(self, batch: ColumnBatch, begin: int, end: int) -> None:
        self._batch, self._begin, self._end = batch, begin, end
        if isinstance(batch.columns, _Part):  # nothing is cut twice
            part = batch.columns
            self._batch, self._begin, self._end = part._batch, begin + part._begin, end + part._begin

    def side_by_side(self, names: Sequence[str]) -> FloatArray:
        if isinstance(self._batch.columns, KeptColumns):
            return self._batch.columns.side_by_side(names)[self._begin : self._end]
        return side_by_side([self[name] for name in names], self._end - self._begin)

    def first_text(self, names: Sequence[str]) -> str | None:
        return self._batch.first_text(names)

    def __getitem__(self, name: str) -> Values:
        return self._batch.columns[name][self._begin : self._end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.columns)

    def __len__(self) -> int:
        return len(self._batch.columns)


class _Joined(KeptColumns):
    """The rows of several batches, one after the other."""

    def __init__(self, parts: Sequence[ColumnBatch]) -> None:
        super().__init__(list(parts[0].columns))
        self._parts = parts

    def first_text(self, names: Sequence[str]) -> str | None:
        return next(filter(None, (part.first_text(names) for part in self._parts)), None)

    def numbered(self, name: str) -> Coded:
        """As :meth:`ColumnBatch.numbered`: only different values of the parts are told apart again."""
        places = _Places()
        codes = []
        for values, own in (part.numbered(name) for part in self._parts):
            codes.append(np.array([places[value] for value in values], dtype=np.int64)[own])
        return list(places), np.concatenate(codes)

    def _make(self, name: str) -> Values:
        return np.concatenate([part.columns[name] for part in self._parts])

    def _make_table(self, names: Sequence[str]) -> FloatArray:
        table = np.empty((sum(part.n_rows for part in self._parts), len(names)))
        begin = 0
        for part in self._parts:
            part.put_into(table[begin : begin + part.n_rows], names)
            begin += part.n_rows
        return table


@dataclass(frozen=True)
class Columns:
    """Which columns are what.

    Parameters
    ----------
    target : str or None
        The column of labels; None when rows without labels are read.
    time : str, optional
        The column that says when a row happened; it is no feature.
    features : sequence of str, optional
        Only these are features; all but target and time when not given.
    drop : sequence of str
        These are not features.
    categorical : sequence of str
        These are categories even if they look like numbers.
    """

    target: str | None = None
    time: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def chosen(self, names: Sequence[str], source: str, index: Sequence[str] = ()) -> list[str]:
        """The features among the columns that there are; every name that was asked for must be there.

        Columns of the index are features only if they are asked for.
        """
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise DataError(f"two columns are called {twice!r}; names must differ.", source=source)
        self._check(names, source, "target", [self.target] if self.target is not None else [])
        self._check(names, source, "time", [self.time] if self.time is not None else [])
        self._check(names, source, "feature", self.features or ())
        self._check(names, source, "dropped", self.drop)
        self._check(names, source, "categorical", self.categorical)
        apart = {self.target, self.time, *self.drop}
        offered = [name for name in names if name not in set(index)] if index else names
        features = [name for name in self.features or offered if name not in apart]
        if not features:
            raise DataError(f"no column is left as a feature; there are {_listed(names)}.", source=source)
        return features

    def check_kept(self, names: Sequence[str], source: str, keep: Sequence[str]) -> None:
        """Columns that are to be passed through must be there."""
        self._check(names, source, "kept", keep)

    def _check(self, names: Sequence[str], source: str, kind: str, wanted: Sequence[str]) -> None:
        there = set(names) if wanted else ()
        for name in wanted:
            if name not in there:
                closest = near(str(name), names)
                raise DataError(
                    f"there is no {kind} column {name!r}; there are {_listed(names)}.",
                    source=source,
                    hint=f"did you mean {closest!r}?" if closest else None,
                )

    def wanted(self, features: Sequence[str]) -> list[str]:
        """The columns that must be read."""
        return [*features, *(name for name in (self.target, self.time) if name is not None)]


def as_texts(values: Values) -> list[str | None]:
    """Values of a column as text, None where one is missing; whole numbers without a point."""
    if values.dtype == object:
        return [None if value is None else str(value) for value in values.tolist()]
    return [
        None if math.isnan(value) else str(int(value) if value.is_integer() else value)
        for value in values.astype(np.float64).tolist()
    ]


def near(name: str, names: Sequence[str]) -> str | None:
    """The name that someone may have meant."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    return close[0] if close else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
