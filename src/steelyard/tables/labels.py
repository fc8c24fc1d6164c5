"""Labels of a stream: of one kind, not missing, and few enough to be classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.base import encode_labels
from steelyard.exceptions import DataError
from steelyard.tables.columns import Place, RowError

__all__ = ["LabelReader"]

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
        self._seen: set[Any] = set()

    def read(self, values: NDArray[Any], place: Place, first_row: int) -> NDArray[Any]:
        """Labels of some rows, as int64 or text."""
        missing = (
            np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)
        )
        if missing.any():
            row = first_row + int(missing.argmax())
            raise RowError("the label is missing.", who=place.of_row(row, self.column), row=row)
        labels = values.astype(str) if values.dtype == object else self._whole(values, place, first_row)
        self._count(labels, place, first_row)
        return labels

    def _whole(self, values: NDArray[Any], place: Place, first_row: int) -> NDArray[np.int64]:
        large = np.abs(values) > _LARGEST_WHOLE
        if large.any():
            row = int(large.argmax())
            raise RowError(
                f"a label that is a whole number must be "
                f"within {_LARGEST_WHOLE:,}, beyond which numbers are rounded; got about "
                f"{float(values[row]):.17g}.",
                who=place.of_row(first_row + row, self.column),
                row=first_row + row,
                hint="is this the right target? Identifiers can be told apart as text, such as id-123",
            )
        labels = values.astype(np.int64)
        broken = labels != values
        if broken.any():
            row = int(broken.argmax())
            raise RowError(
                f"a label must be a whole number or text; got {float(values[row])!r}.",
                who=place.of_row(first_row + row, self.column),
                row=first_row + row,
                hint="a column of measurements is not a column of classes; choose another target",
            )
        return labels

    def _count(self, labels: NDArray[Any], place: Place, first_row: int) -> None:
        distinct, _ = encode_labels(labels)
        self._seen.update(distinct)
        crowded = first_row == 0 and len(labels) >= 100 and 2 * len(distinct) > len(labels)
        if len(self._seen) > self.max_classes or crowded:
            raise DataError(
                f"{place.source}, column {self.column!r}: {len(self._seen):,} distinct labels in the first "
                f"{first_row + len(labels):,} rows; at most {self.max_classes:,} can be classes.",
                hint="is this the right target? It looks like an identifier or a measurement",
            )
