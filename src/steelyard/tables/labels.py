"""Validation and encoding of the label column of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import Codes, LabelEncoder
from steelyard.exceptions import DataError
from steelyard.tables.columns import Place

_MIN_ROWS_TO_CHECK = 1000  # number of rows after which the share of distinct labels is checked
_MAX_INTEGER = 2**53 - 1  # float64 cannot represent all larger integers exactly


class LabelReader:
    """Reader of the label column, which contains integers or text with few distinct values.

    More than ``max_classes`` distinct labels raise an error, because the column is unlikely to contain
    classes. With ``unlabelled="keep"`` a missing label is no error: the row gets an arbitrary known label as
    a placeholder, and :meth:`is_labelled` tells which labels are real.
    """

    def __init__(self, column: str, max_classes: int, unlabelled: str = "refuse") -> None:
        self.column = column
        self.max_classes = max_classes
        self.unlabelled = unlabelled
        self.table = LabelEncoder()

    def read(self, values: NDArray[Any], place: Place, first_row: int) -> NDArray[Any]:
        """Return the labels of some rows as int64 or text."""
        return self.encode(values, place, first_row)[0]

    def encode(self, values: NDArray[Any], place: Place, first_row: int) -> tuple[NDArray[Any], Codes]:
        """Return the labels of some rows as int64 or text, and their codes in ``table``."""
        if self.unlabelled == "keep" and not (known := self.is_labelled(values)).all():
            if not known.any():
                return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.intp)
            values = np.where(known, values, values[known.argmax()])
        if values.dtype == object:
            self._check_present(~self.is_labelled(values), place, first_row)
            codes = self.table.numbers(values.tolist())
            labels = self.table.array()[codes]
        else:
            labels, codes = self._integers(values, place, first_row)
        self._check_few(len(values), place, first_row)
        return labels, codes

    @staticmethod
    def is_labelled(values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the rows that have a label."""
        if values.dtype == object:
            return np.array([value is not None for value in values], dtype=bool)
        known: NDArray[np.bool_] = ~np.isnan(values)
        return known

    def _check_present(self, missing: NDArray[np.bool_], place: Place, first_row: int) -> None:
        if missing.any():
            raise place.error("the label is missing.", first_row + int(missing.argmax()), self.column)

    def _integers(
        self, values: NDArray[Any], place: Place, first_row: int
    ) -> tuple[NDArray[np.int64], Codes]:
        with np.errstate(invalid="ignore"):
            labels = values.astype(np.int64)
        if (labels == values).all() and np.abs(labels).max(initial=0) <= _MAX_INTEGER:
            return labels, self.table.codes(labels)
        self._check_present(np.isnan(values), place, first_row)
        large = np.abs(values) > _MAX_INTEGER
        row = int(large.argmax() if large.any() else (labels != values).argmax())
        value = float(values[row])
        if large.any():
            message = (
                f"integer labels must be within {_MAX_INTEGER:,} of 0, because larger numbers are rounded; "
                f"got about {value:.17g}."
            )
            hint = "is this the right target? Identifiers can be text, such as id-123"
        else:
            message = f"a label must be an integer or text; got {value!r}."
            hint = "this looks like a column of measurements, not of classes; choose another target"
        raise place.error(message, first_row + row, self.column, hint)

    def _check_few(self, n_rows: int, place: Place, first_row: int) -> None:
        n_labels, n_seen = len(self.table), first_row + n_rows
        # Labels are not classes if more than half of 1,000 rows, or all of 100 rows, have distinct labels.
        has_too_many = first_row < _MIN_ROWS_TO_CHECK <= n_seen and 2 * n_labels > n_seen
        has_too_many |= 100 <= n_seen < _MIN_ROWS_TO_CHECK and n_labels == n_seen
        if n_labels > self.max_classes or has_too_many:
            raise DataError(
                f"{place.source}, column {self.column!r}: {n_labels:,} distinct labels in the first "
                f"{first_row + n_rows:,} rows; at most {self.max_classes:,} can be classes.",
                hint="is this the right target? It looks like an identifier or a measurement",
            )
