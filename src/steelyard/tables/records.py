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
        iterator = iter(pairs)
        self._sample = list(islice(iterator, _SAMPLE_ROWS))
        self._pairs = chain(self._sample, iterator)
        super().__init__(Place(name))
        fields = dict.fromkeys(str(field) for record, _ in self._sample for field in record)
        if not fields:
            raise DataError("there are no rows.", source=name)
        if LABEL in fields:
            raise DataError(f"a field has the name {LABEL!r}, which is reserved for the labels.", source=name)
        self.names = [*fields, LABEL]

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        kinds = {}
        for name in wanted:
            values = [value for value in self._values(self._sample, name) if value is not None]
            is_text = name in columns.categorical or not all(isinstance(value, Real) for value in values)
            kinds[name] = "text" if is_text else "number"
        return kinds

    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        known, n_rows = set(self.names), 0
        while batch := list(islice(self._pairs, _BATCH_ROWS)):
            for row, (record, _) in enumerate(batch):
                new = next((str(field) for field in record if str(field) not in known), None)
                if new is not None:
                    raise DataError(
                        f"the field {new!r} is in none of the first rows.",
                        source=self.place.of_row(n_rows + row),
                    )
            columns = {name: self._column(batch, name, kinds[name]) for name in wanted}
            yield ColumnBatch(columns, len(batch))
            n_rows += len(batch)

    def _column(self, batch: list[Any], name: str, kind: str) -> NDArray[Any]:
        values = self._values(batch, name)
        if kind == "number" and all(value is None or isinstance(value, Real) for value in values):
            return np.array([np.nan if value is None else float(value) for value in values])
        return np.array([None if value is None else str(value) for value in values], dtype=object)

    @staticmethod
    def _values(batch: list[Any], name: str) -> list[Any]:
        if name == LABEL:
            return [label for _, label in batch]
        return [{str(field): value for field, value in record.items()}.get(name) for record, _ in batch]
