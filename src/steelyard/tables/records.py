"""Reader of (mapping, label) pairs, such as river datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.source import TableSource

LABEL = "label"  # name of the label column
_SAMPLE_ROWS = 1000
_BATCH_ROWS = 1000


class RecordSource(TableSource):
    """Reader of (mapping, label) pairs, whose columns are the fields of the first thousand records.

    If a record lacks a field, its value is missing. ``name`` is the name of the source in error messages.
    """

    def __init__(self, pairs: Iterable[tuple[Mapping[Any, Any], Any]], name: str) -> None:
        super().__init__(Place(name))
        iterator = iter(pairs)
        sample = list(islice(iterator, _SAMPLE_ROWS))
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
        while batch := list(islice(self._rows, _BATCH_ROWS)):
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
