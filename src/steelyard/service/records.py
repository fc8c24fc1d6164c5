"""JSON records as columns: one row of a request, or the rows of many requests at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, RowError, Values

__all__ = ["TogetherColumns", "from_records", "place_of"]

Record = Mapping[str, Any]
_SOURCE = "the request"
_NUMBERS = frozenset({float, int, type(None)})
_NO_NUMBERS = (str, list, dict)
_WHOLE = 2**53  # whole numbers up to this are the same as doubles


def from_records(
    records: list[Any],
    texts_wanted: Iterable[str] = (),
    check_size: Callable[[int, int], None] | None = None,
) -> ColumnBatch:
    """Records as columns; a field that a record lacks is missing."""
    if not records:
        raise DataError("there are no rows.", source=_SOURCE)
    wanted = frozenset(texts_wanted)
    names: dict[str, None] = {}
    for row, record in enumerate(records):
        if not isinstance(record, dict):
            raise RowError(
                f"expected a row as an object; got {str(record)[:60]!r}.", source=place_of(row), row=row
            )
        names.update(dict.fromkeys(record))
        if check_size is not None:
            check_size(len(records), len(names))
    if len(records) == 1:
        return ColumnBatch(TogetherColumns(records, wanted), 1)
    return ColumnBatch(_columns(records, list(names), wanted), len(records))


def place_of(row: int, column: str | None = None) -> str:
    """Where something stands in a request."""
    return f"row {row + 1:,}" + ("" if column is None else f", column {column!r}")


class TogetherColumns(Mapping[str, Values]):
    """Columns of records with the same fields, made all at once when one is asked for.

    A single row is the most frequent request of all: by the time somebody looks at its columns, it has been
    put together with the rows of other requests, and all of them become arrays in one go. What cannot become
    a column is refused then.
    """

    def __init__(self, records: Sequence[Record], wanted: frozenset[str]) -> None:
        self.records, self._wanted = records, wanted

    @classmethod
    def of_all(cls, parts: Sequence[Mapping[str, Values]]) -> Self | None:
        """The records of several parts, where all of them have the same fields."""
        records: list[Record] = []
        first = parts[0]
        for part in parts:
            if not isinstance(part, cls) or not isinstance(first, cls) or part._wanted != first._wanted:
                return None
            records += part.records
        assert isinstance(first, cls)
        fields = first.records[0].keys()
        return cls(records, first._wanted) if all(r.keys() == fields for r in records) else None

    @cached_property
    def _batch(self) -> ColumnBatch:
        columns = _columns(self.records, list(self.records[0]), self._wanted)
        return ColumnBatch(columns, len(self.records))

    def __getitem__(self, name: str) -> Values:
        return self._batch.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.records[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records[0])

    def __len__(self) -> int:
        return len(self.records[0])


def _columns(records: Sequence[Record], names: Sequence[str], wanted: frozenset[str]) -> dict[str, Values]:
    """All columns; those of numbers as rows of one block, which is soon made."""
    values = _values(records, names)
    numbers = [name for name in names if name not in wanted and _NUMBERS.issuperset(map(type, values[name]))]
    try:
        block = np.array([values[name] for name in numbers], dtype=np.float64)  # None becomes nan
    except OverflowError:  # one of them is beyond all doubles: told by name below
        numbers = []
    columns = dict(zip(numbers, block, strict=True)) if numbers else {}
    return {
        name: columns[name] if name in columns else _column(name, values[name], as_text=name in wanted)
        for name in names
    }


def _values(records: Sequence[Record], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """What each column holds; None where a record lacks it."""
    order = list(names)
    if all(list(record) == order for record in records):  # as clients send them: none is looked up
        return dict(zip(names, zip(*(record.values() for record in records), strict=True), strict=True))
    return {name: [record.get(name) for record in records] for name in names}


def _column(name: str, values: Sequence[Any], *, as_text: bool) -> Values:
    if not as_text:
        try:
            return np.array([math.nan if v is None else float(v) for v in _numbers(values)])
        except TypeError:
            pass  # a text among them: a column of texts
        except OverflowError:
            raise DataError(f"column {name!r} has a number beyond all that a double holds.") from None
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if value is None or isinstance(value, str):
            result[row] = value
        elif isinstance(value, bool | int | float):
            result[row] = _text_of(value)
        else:
            raise RowError(
                f"expected a number or a text; got {type(value).__name__}.",
                source=place_of(row, name),
                row=row,
                column=name,
            )
    return result


def _numbers(values: Sequence[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, _NO_NUMBERS):
            raise TypeError
        yield value


def _text_of(value: float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)
