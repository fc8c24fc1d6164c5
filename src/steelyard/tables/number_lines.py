"""Lines of plain numbers, read at once: most of most CSV files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.tables.columns import ColumnBatch, KeptColumns, Values

__all__ = ["NumberLines"]

_MOST_REFUSALS = 8  # blocks with anything else in them, after which no more are tried


class NumberLines:
    """Reads blocks of lines in which all that is wanted are numbers or empty cells.

    A block with anything else is left to a reader that knows what it means, or what is wrong with it.

    Parameters
    ----------
    names : sequence of str
        The columns of the file.
    delimiter : str
        One character.
    wanted : sequence of str
        The columns to read, all of numbers.
    """

    def __init__(self, names: Sequence[str], delimiter: str, wanted: Sequence[str]) -> None:
        places = {name: place for place, name in enumerate(wanted)}
        self._places = np.array([places.get(name, -1) for name in names], dtype=np.int32)
        self._delimiter, self._wanted = delimiter, list(wanted)
        self._n_refusals = 0

    def batch(self, lines: bytes) -> ColumnBatch | None:
        """The rows of some whole lines; None if they are not plain."""
        if self._n_refusals == _MOST_REFUSALS:
            return None
        table = _native.read_number_lines(lines, self._delimiter, self._places, len(self._wanted))
        if table is None:
            self._n_refusals += 1
            return None
        return ColumnBatch(_NumberColumns(table, self._wanted), len(table))


class _NumberColumns(KeptColumns):
    """Columns of a table that is there row by row."""

    def __init__(self, table: FloatArray, names: list[str]) -> None:
        super().__init__(names)
        self._table = table

    def first_text(self, _: Sequence[str]) -> str | None:
        return None

    def _make(self, name: str) -> Values:
        return np.ascontiguousarray(self._table[:, self._names.index(name)])

    def _make_table(self, names: Sequence[str]) -> FloatArray:
        if list(names) == self._names[: len(names)]:  # features come first
            return np.ascontiguousarray(self._table[:, : len(names)])
        return np.ascontiguousarray(self._table[:, [self._names.index(name) for name in names]])
