"""Base class of the readers of tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from steelyard.tables.bad_rows import BadRows
from steelyard.tables.columns import ColumnBatch, Columns, Place


class TableSource:
    """Reader of the columns of a table.

    Attributes
    ----------
    place : Place
        Location of the rows, for error messages.
    names : list of str
        Names of all columns.
    n_rows : int or None
        Number of rows; None if it is not known.
    index_names, time_names : sequences of str
        Columns that are features only if the user names them, and columns whose declared type is a time.
    bad_rows : BadRows
        Treatment of rows that cannot be used.
    bytes_source : ByteSource or None
        The file or the live feed that is read in another thread; None for other sources.
    """

    names: list[str]
    n_rows: int | None = None
    index_names: Sequence[str] = ()
    time_names: Sequence[str] = ()
    bytes_source: Any = None

    def __init__(self, place: Place) -> None:
        self.place, self.bad_rows = place, BadRows(place)

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        """Return the kind of each column: text, number or boolean, or the declared type of the column."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    @abstractmethod
    def batches(self, wanted: list[str], kinds: Mapping[str, str]) -> Iterator[ColumnBatch]:
        """Yield the rows as batches of columns. An error is raised after all earlier rows were returned."""

    def fraction_read(self) -> float | None:
        """Return the fraction of the rows that has been read, or None if it is not known."""
        return None

    def close(self) -> None:
        """Close the file or the connection, if any."""
