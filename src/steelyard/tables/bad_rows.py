"""Rows that cannot be used: the first one ends the stream, or bad rows are skipped and counted.

Bad rows are detected in three stages: lines that cannot be parsed as rows, cells that are not valid in their
column, and values that cannot be learned. In each stage all rows before a bad one are returned first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch, Place, RowError

__all__ = ["BadRows", "rows_before_error"]

Made = TypeVar("Made")
_MAX_MESSAGES = 1000


class BadRows:
    """Policy for the bad rows of a source, and the record of the skipped ones.

    Parameters
    ----------
    place : Place
        Location of the rows.

    Attributes
    ----------
    skip : bool
        Whether bad rows are skipped; otherwise the first one raises.
    n_skipped : int
        Number of skipped rows.
    messages : list of str
        Errors of the first thousand skipped rows.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.skip = False
        self.n_skipped, self.messages = 0, list[str]()

    def handle(self, error: DataError, row: int | None = None) -> None:
        """Raise the error or skip the row; with ``row``, row numbers in later error messages count it."""
        if not self.skip:
            raise error
        self.n_skipped += 1
        if len(self.messages) < _MAX_MESSAGES:
            self.messages.append(error.summary)
        if row is not None:
            self.place.skip(row)

    def usable(
        self, n_rows: int, errors: Mapping[int, DataError], first_row: int
    ) -> tuple[NDArray[np.bool_], DataError | None]:
        """Return which rows can be used, given the errors by row, and the error to raise after them."""
        good = np.ones(n_rows, dtype=bool)
        if errors and not self.skip:
            first = min(errors)
            good[first:] = False
            return good, errors[first]
        for row in sorted(errors, reverse=True):
            good[row] = False
            self.handle(errors[row], first_row + row)
        return good, None

    def good_parts(
        self, batch: ColumnBatch, first_row: int, make: Callable[[ColumnBatch, int], Made]
    ) -> Iterator[Made]:
        """Yield ``make(rows, first_row)`` for every run of rows between bad rows, which raise RowError."""
        while batch.n_rows:
            bad, good = None, batch
            while good.n_rows:
                try:
                    made = make(good, first_row)
                except RowError as error:  # an earlier row may be bad in a column that is checked later
                    bad, good = error, good.take(0, error.row - first_row)
                else:
                    yield made
                    break
            if bad is None:
                return
            self.handle(bad)
            first_row += good.n_rows + 1
            batch = batch.take(good.n_rows + 1, batch.n_rows)


def rows_before_error(rows: Iterator[Any], max_rows: int) -> tuple[list[Any], DataError | None]:
    """Return up to ``max_rows`` next rows, and the error that ended them early."""
    found: list[Any] = []
    try:
        found.extend(islice(rows, max_rows))
    except DataError as error:
        return found, error
    return found, None
