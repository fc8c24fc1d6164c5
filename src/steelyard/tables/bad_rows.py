"""Rows that cannot be used: all rows before one come first, then it ends them, or is left out and told of.

Three kinds are found one after the other: lines that are no rows, cells that are no values of their column,
and values that cannot be learned. All of them keep this order by the rules here.
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


class BadRows:
    """What becomes of the bad rows of a source.

    Parameters
    ----------
    place : Place
        Where rows stand; those that are left out are counted out there.

    Attributes
    ----------
    told : callable or None
        Who hears of rows that are left out; None where the first bad row ends all.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.told: Callable[[DataError], None] | None = None

    def refuse(self, refusal: DataError, row: int) -> None:
        """Raise, or leave the row out: those behind it move up."""
        if self.told is None:
            raise refusal
        self.told(refusal)
        self.place.leave_out(row)

    def usable(
        self, n_rows: int, refusals: Mapping[int, DataError], first_row: int
    ) -> tuple[NDArray[np.bool_], DataError | None]:
        """Which of some rows come, given what is wrong with others; and the error that comes after them."""
        good = np.ones(n_rows, dtype=bool)
        if refusals and self.told is None:
            first = min(refusals)
            good[first:] = False
            return good, refusals[first]
        for row in sorted(refusals, reverse=True):
            good[row] = False
            self.refuse(refusals[row], first_row + row)
        return good, None

    def good_parts(
        self, batch: ColumnBatch, first_row: int, make: Callable[[ColumnBatch, int], Made]
    ) -> Iterator[Made]:
        """What is made of the rows between bad ones; ``make`` raises a RowError at one of these."""
        while batch.n_rows:
            bad, good = None, batch
            while good.n_rows:
                try:
                    made = make(good, first_row)
                except RowError as error:  # another, further up, may be bad in a column that was read later
                    bad, good = error, good.take(0, error.row - first_row)
                else:
                    yield made
                    break
            if bad is None:
                return
            if self.told is None:
                raise bad
            self.told(bad)
            first_row += good.n_rows + 1
            batch = batch.take(good.n_rows + 1, batch.n_rows)


def rows_before_error(rows: Iterator[Any], most: int) -> tuple[list[Any], DataError | None]:
    """The next rows, fewer if an error is in the way, and the error."""
    found: list[Any] = []
    try:
        found.extend(islice(rows, most))
    except DataError as error:
        return found, error
    return found, None
