"""Labels of a stream: of one kind, not missing, and few enough to be classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.streams.labels import Codes, LabelTable
from steelyard.tables.columns import Place, RowError

__all__ = ["LabelReader"]

_JUDGED = 1000  # rows after which it is judged whether there are too many labels
_LARGEST_WHOLE = 2**53 - 1  # numbers are read as float64, in which all up to this one differ


class LabelReader:
    """Checks labels as they come; the first rows decide whether they are whole numbers or text.

    Parameters
    ----------
    column : str
        Name of the target column.
    max_classes : int
        More distinct labels than this are refused: the column is then hardly one of classes.
    """

    def __init__(self, column: str, max_classes: int) -> None:
        self.column = column
        self.max_classes = max_classes
        self.table = LabelTable()

    def read(self, values: NDArray[Any], place: Place, first_row: int) -> NDArray[Any]:
        """Labels of some rows, as int64 or text."""
        return self.numbered(values, place, first_row)[0]

    def numbered(self, values: NDArray[Any], place: Place, first_row: int) -> tuple[NDArray[Any], Codes]:
        """Labels of some rows, as int64 or text, and their numbers in ``table``."""
        if values.dtype == object:
            self._check_present(np.array([value is None for value in values]), place, first_row)
            codes = self.table.texts(values)
            labels = self.table.array()[codes]
        else:
            labels, codes = self._whole(values, place, first_row)
        self._check_few(len(values), place, first_row)
        return labels, codes

    def _check_present(self, missing: NDArray[np.bool_], place: Place, first_row: int) -> None:
        if missing.any():
            row = first_row + int(missing.argmax())
            raise RowError("the label is missing.", source=place.of_row(row, self.column), row=row)

    def _whole(self, values: NDArray[Any], place: Place, first_row: int) -> tuple[NDArray[np.int64], Codes]:
        with np.errstate(invalid="ignore"):
            labels = values.astype(np.int64)
        if (labels == values).all():
            known = self.table.looked_up(labels)  # nearly always: what is known has been looked at before
            if known is not None:
                return labels, known
            if np.abs(labels).max(initial=0) <= _LARGEST_WHOLE:
                return labels, self.table.codes(labels)
        self._check_present(np.isnan(values), place, first_row)
        large = np.abs(values) > _LARGEST_WHOLE
        if large.any():
            row = int(large.argmax())
            raise RowError(
                f"a label that is a whole number must be "
                f"within {_LARGEST_WHOLE:,}, beyond which numbers are rounded; got about "
                f"{float(values[row]):.17g}.",
                source=place.of_row(first_row + row, self.column),
                row=first_row + row,
                hint="is this the right target? Identifiers can be told apart as text, such as id-123",
            )
        row = int((labels != values).argmax())
        raise RowError(
            f"a label must be a whole number or text; got {float(values[row])!r}.",
            source=place.of_row(first_row + row, self.column),
            row=first_row + row,
            hint="a column of measurements is not a column of classes; choose another target",
        )

    def _check_few(self, n_rows: int, place: Place, first_row: int) -> None:
        n_labels, n_seen = len(self.table), first_row + n_rows
        # Half of the first thousand rows with a label of their own, or a hundred of them all, are no classes.
        crowded = first_row < _JUDGED <= n_seen and 2 * n_labels > n_seen
        crowded |= 100 <= n_seen < _JUDGED and n_labels == n_seen
        if n_labels > self.max_classes or crowded:
            raise DataError(
                f"{place.source}, column {self.column!r}: {n_labels:,} distinct labels in the first "
                f"{first_row + n_rows:,} rows; at most {self.max_classes:,} can be classes.",
                hint="is this the right target? It looks like an identifier or a measurement",
            )
