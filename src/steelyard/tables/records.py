"""Records one by one, as river's data sets give them: pairs of a mapping and a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Columns, Place
from steelyard.tables.text_sources import Kinds

__all__ = ["LABEL", "RecordSource"]

LABEL = "label"  # the column that the labels become
_JUDGED_ROWS = 1000
_BATCH_ROWS = 1000


class RecordSource:
    """Pairs of a mapping and a label; the fields of the first thousand are the columns.

    A field that a record lacks is a missing value.

    Parameters
    ----------
    pairs : iterable of (mapping, label)
        The records.
    name : str
        What to call them in sentences.
    """

    def __init__(self, pairs: Iterable[tuple[Mapping[Any, Any], Any]], name: str) -> None:
        iterator = iter(pairs)
        self._judged = list(islice(iterator, _JUDGED_ROWS))
        self._pairs = chain(self._judged, iterator)
        self.place = Place(name)
        fields = dict.fromkeys(str(field) for record, _ in self._judged for field in record)
        if not fields:
            raise DataError("there are no rows.", source=name)
        if LABEL in fields:
            raise DataError(f"no field may be called {LABEL!r}, as the labels are.", source=name)
        self.names = [*fields, LABEL]

    def kinds(self, columns: Columns, wanted: list[str]) -> Kinds:
        """Numbers and truth values are numbers, all else is text."""
        kinds = {}
        for name in wanted:
            values = [value for value in self._values(self._judged, name) if value is not None]
            is_text = name in columns.categorical or not all(isinstance(value, Real) for value in values)
            kinds[name] = "text" if is_text else "number"
        return kinds

    def batches(self, wanted: list[str], kinds: Kinds) -> Iterator[ColumnBatch]:
        """The records as columns."""
        known, done = set(self.names), 0
        while batch := list(islice(self._pairs, _BATCH_ROWS)):
            for row, (record, _) in enumerate(batch):
                new = next((str(field) for field in record if str(field) not in known), None)
                if new is not None:
                    raise DataError(
                        f"the field {new!r} is in none of the first rows.",
                        source=self.place.of_row(done + row),
                    )
            columns = {name: self._column(batch, name, kinds[name]) for name in wanted}
            yield ColumnBatch(columns, len(batch))
            done += len(batch)

    def fraction_read(self) -> float | None:
        """Nobody knows."""
        return None

    def close(self) -> None:
        """Nothing is open."""

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
