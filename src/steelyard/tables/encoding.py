"""Incremental encoding of columns as numbers, with indicators for categories and missing values; labels."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from steelyard import _native
from steelyard._deprecation import renamed_method
from steelyard._labels import Codes, LabelEncoder
from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.params import Integer, OneOf, check_params
from steelyard.persistence import storable
from steelyard.tables.columns import (
    Coded,
    ColumnBatch,
    Columns,
    Place,
    RowError,
    as_texts,
    erased_codes,
    is_empty,
    new_values,
)
from steelyard.tables.frames import first_unreadable, with_dates

# Numeric columns can have extra features, which are stored as categories with special names.
# GAP names the indicator of missing values, VALUE and PRESENT the value and the presence of a late column.
GAP, VALUE, PRESENT = "missing", "value", "present"

MISSING = ("indicator", "refuse", "mean", "zero")
_CONSTRAINTS = {
    "missing": OneOf(*MISSING),
    "hash_width": Integer(1, 1 << 16),
    "max_categories": Integer(1),
}
MAX_CLASSES = 500  # maximum number of distinct labels; more labels raise an error
_MIN_LABELS_TO_CHECK = 1000  # number of rows after which the share of distinct labels is checked
_MAX_INTEGER = 2**53 - 1  # float64 cannot represent all larger integers exactly

# Mask of missing numbers, or None if no numbers are missing or missing numbers get no indicators.
Gaps = NDArray[np.bool_] | None


@storable("TableEncoder")
class TableEncoder(BaseEstimator):
    """Incremental encoder of tables as numeric features.

    Numbers are unchanged. There are two encodings of categories. In the growing encoding, each new category
    adds an indicator feature at the end (1 if the row has the category, otherwise 0). A learner that can add
    features gets the same result as if all categories had been known from the start. In the fixed encoding,
    for all other learners, the categories share ``hash_width`` signed hash features.

    A late column is one that the first table did not have. In the growing encoding it adds features at the
    end, which are 0 in rows without the column. The fixed encoding ignores late numeric columns. With
    ``missing="refuse"`` all late columns are ignored.

    Parameters
    ----------
    missing : {"indicator", "refuse", "mean", "zero"}, default="indicator"
        Treatment of missing values:

        - "indicator": a numeric column with missing values gets a further feature, which is 1 if the value is
          missing. The value itself is replaced by a constant, the median of the column in the first rows. In
          the fixed encoding only columns with missing values in the first rows get this feature.
        - "refuse": raise an error that names row and column.
        - "mean": use the mean of the values of the column so far (0 before the first).
        - "zero": use 0.

        A row whose category is missing is 0 in all features of the column, except with "refuse".
    hash_width : int, default=32
        Number of features that categories share in the fixed encoding.
    max_categories : int, default=1000
        Maximum number of distinct values of a column; more values raise an error.

    Attributes
    ----------
    numeric_ : list of str
        Numeric columns of the first table.
    categorical_ : list of str
        Columns of categories.
    times_ : list of str
        Numeric columns that contain times, in seconds since 1970.
    late_ : list of str
        Columns that the first table did not have.
    categories_ : list of (str, str)
        Column and category of each feature after ``numeric_``, in order of appearance. Features of numeric
        columns are included: ("x", "missing") is the indicator of missing values of the column x. For a late
        column, "value" is the value minus a constant and "present" is the indicator of present values.
    """

    def __init__(self, missing: str = "indicator", hash_width: int = 32, max_categories: int = 1000) -> None:
        self.missing = missing
        self.hash_width = hash_width
        self.max_categories = max_categories

    def fit_columns(
        self, batch: ColumnBatch, features: list[str], categorical: tuple[str, ...], *, dates: bool = False
    ) -> None:
        """Determine from the first rows which features are numbers and which are categories.

        With ``dates``, text columns whose values are all dates such as 2026-01-31 are columns of times.
        """
        check_params(self, _CONSTRAINTS)
        if dates and batch.matrix is None:
            batch = with_dates(batch, [name for name in features if name not in categorical])
        is_text = {name: batch.columns[name].dtype == object or name in categorical for name in features}
        self.times_ = [name for name in features if name in batch.times and not is_text[name]]
        self.columns_ = list(features)
        self.numeric_ = [name for name in features if not is_text[name]]
        self.numbers = list(self.numeric_)  # numeric columns of the first table, then late ones
        self.categorical_ = [name for name in features if is_text[name]]
        self.late_: list[str] = []
        self.categories_: list[tuple[str, str]] = []
        # Index in categories_ of each category of each column.
        self._codes: dict[str, dict[str, int]] = {name: {} for name in features}
        # Sum and number of the values of each column so far, for missing="mean".
        self._sums = np.zeros(len(self.numeric_))
        self._seen = np.zeros(len(self.numeric_))
        self._fills = np.array([_median(batch.columns[name]) for name in self.numeric_], dtype=np.float64)
        is_finite = [np.isfinite(batch.columns[name]).all() for name in self.numeric_]
        self._first_gaps = [index for index, finite in enumerate(is_finite) if not finite]

    def copy(self) -> Self:
        """Return a copy that can be extended without changing this encoder."""
        other = type(self).__new__(type(self))
        other.__dict__ = {
            name: value.copy() if isinstance(value, list) else value for name, value in vars(self).items()
        }
        if self.is_fitted:
            other._codes = {name: dict(codes) for name, codes in self._codes.items()}
        return other

    def add_columns(self, batch: ColumnBatch) -> None:
        """Add the columns of a batch that were in no earlier table."""
        if self.missing == "refuse":
            return
        new = [name for name in batch.columns if name not in self.columns_]
        batch = with_dates(batch, new)
        for name in new:
            values = batch.columns[name]
            is_text = values.dtype == object
            self.times_ += [name] if name in batch.times and not is_text else []
            fill = _median(values) if self.missing == "indicator" and not is_text else 0.0
            self._add_column(name, fill, is_text=is_text)

    def _add_column(self, name: str, fill: float, *, is_text: bool) -> None:
        self.columns_.append(name)
        self.late_.append(name)
        self._codes[name] = {}
        if is_text:
            self.categorical_.append(name)
            return
        self.numbers.append(name)
        self._fills = np.append(self._fills, fill)
        self._sums, self._seen = np.append(self._sums, 0.0), np.append(self._seen, 0.0)
        parts = (VALUE, PRESENT) if self.missing == "indicator" else (VALUE,)
        self.add_categories((name, part) for part in parts)

    def complete(self, batch: ColumnBatch) -> ColumnBatch:
        """Return a batch in which known columns that are absent, or have no values, have missing values."""
        columns = batch.columns
        empty = {name: np.full(batch.n_rows, np.nan) for name in self.columns_ if name not in columns}
        for name in self.categorical_:
            if name in empty or is_empty(columns[name]):
                empty[name] = np.full(batch.n_rows, None)
        return batch.with_columns(empty) if empty else batch

    @property
    def is_fitted(self) -> bool:
        """Whether the columns are known, so that rows can be encoded."""
        return "columns_" in vars(self)

    def roles(self, target: str | None, time: str | None = None) -> Columns:
        """Return the roles of the columns in a source with the learned columns."""
        return Columns(target, time, tuple(self.columns_), (), tuple(self.categorical_))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features so far, in the growing encoding."""
        values = set(self.numbers[len(self.numeric_) :])
        return [
            *self.numeric_,
            *(
                column if value == VALUE and column in values else f"{column}={value}"
                for column, value in self.categories_
            ),
        ]

    def categories_of(self, X: FloatArray) -> list[tuple[str, str]]:
        """Return the entries of ``categories_`` for encoded rows, which may have fewer features than now."""
        return self.categories_[: X.shape[1] - len(self.numeric_)]

    @property
    def fixed_names(self) -> list[str]:
        """Names of the features in the fixed encoding."""
        gaps = [f"{name}={GAP}" for name in self.fixed_gaps]
        return [*self.numeric_, *gaps, *(f"hash {index}" for index in range(self._n_hashes))]

    @property
    def fixed_gaps(self) -> list[str]:
        """Columns that have an indicator of missing values in the fixed encoding."""
        if self.missing != "indicator":
            return []
        return [self.numeric_[index] for index in self._first_gaps]

    @property
    def _n_hashes(self) -> int:
        """Number of hash features in the fixed encoding, or 0 if the first table had no categories."""
        return self.hash_width if set(self.categorical_).difference(self.late_) else 0

    def encode(
        self, batch: ColumnBatch, place: Place, first_row: int, *, learn: bool = True
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return the rows in the growing encoding, and in the fixed encoding if it differs (else None).

        With ``learn=False`` the encoder does not change, and a row with an unknown category is 0 in all
        indicator features of the column.
        """
        X, fixed, _ = self.encode_all(batch, place, first_row, learn=learn)
        return X, fixed

    def encode_all(
        self, batch: ColumnBatch, place: Place, first_row: int, *, learn: bool = True, named: bool = False
    ) -> tuple[FloatArray, FloatArray | None, FloatArray | ColumnBatch | None]:
        """Return the rows in the growing encoding, the fixed encoding, and as a table.

        The fixed encoding is None if it does not differ from the growing one. The table is for learners that
        read tables; it contains the categories and missing values of the rows. If ``named`` is false and all
        columns are numeric, it is an array, or None if the array would equal the growing encoding.
        """
        numbers = self._encode_numbers(batch, place, first_row, learn=learn)
        keeps_gaps = self.missing == "indicator"
        gaps = np.isnan(numbers) if keeps_gaps and not _native.all_finite(numbers) else None
        columns = {name: batch.dictionary_encode(name) for name in self.categorical_}
        if columns and self.missing == "refuse":
            self._check_present(columns, place, first_row)
        if learn and (columns or gaps is not None):
            self._add_new(columns, gaps, place)
        fixed: FloatArray | None = None
        table: FloatArray | ColumnBatch | None = None
        X = numbers if gaps is None else np.where(gaps, self._fills, numbers)
        if self.categories_ or columns or (keeps_gaps and self._first_gaps):
            X, fixed = self._growing(X, gaps, columns), self._fixed(X, gaps, columns)
        if columns or self.late_ or self.times_ or named:
            table = self._table(batch, self.columns_, numbers)
        elif keeps_gaps and X.shape[1] > len(self.numeric_):
            table = numbers
        return X, fixed, table

    def encode_table(
        self, batch: ColumnBatch, place: Place, first_row: int, names: Sequence[str], *, learn: bool = True
    ) -> ColumnBatch:
        """Return the columns ``names`` for learners that read tables, without encoding their categories.

        A column that the encoder does not know yet contains only missing values. With ``learn``, running
        means are updated.
        """
        numbers = self._encode_numbers(batch, place, first_row, learn=learn)
        if self.missing == "refuse":
            coded = {name: batch.dictionary_encode(name) for name in self.categorical_}
            self._check_present(coded, place, first_row)
        return self._table(batch, names, numbers)

    def _table(self, batch: ColumnBatch, names: Sequence[str], numbers: FloatArray) -> ColumnBatch:
        """Return some columns: categories from the batch, and numbers from the matrix ``numbers``."""
        if self.missing == "indicator" and batch.matrix is not None and list(batch.columns) == list(names):
            return batch
        columns, categorical = dict(zip(self.numbers, numbers.T, strict=True)), set(self.categorical_)
        for name in names:
            if name in categorical:
                values = batch.columns[name]
                is_text = values.dtype == object
                columns[name] = values if is_text else np.array(as_texts(values), dtype=object)
            elif name not in columns:
                columns[name] = np.full(batch.n_rows, np.nan)
        coded = {name: pair for name, pair in batch.coded.items() if name in categorical}
        return ColumnBatch(columns, batch.n_rows, coded, times=tuple(self.times_)).choose(names)

    def _growing(self, numbers: FloatArray, gaps: Gaps, columns: dict[str, Coded]) -> FloatArray:
        n_rows, n_numeric = len(numbers), len(self.numeric_)
        X = np.zeros((n_rows, n_numeric + len(self.categories_)))
        X[:, :n_numeric] = numbers[:, :n_numeric]
        for column, name in enumerate(self.numbers[n_numeric:], start=n_numeric):
            places = self._codes[name]
            X[:, n_numeric + places[VALUE]] = numbers[:, column] - self._fills[column]
            if PRESENT in places:
                X[:, n_numeric + places[PRESENT]] = 1.0 if gaps is None else ~gaps[:, column]
        for name, (values, codes) in columns.items():
            places = self._codes[name]
            index = np.array([places.get(value, -1) for value in values], dtype=np.intp)[codes]
            rows = np.flatnonzero(index >= 0)
            X[rows, n_numeric + index[rows]] = 1.0
        for name, is_missing in self._with_gaps(gaps):
            place = self._codes[name].get(GAP)
            if place is not None:
                X[:, n_numeric + place] = is_missing
        return X

    def _fixed(self, numbers: FloatArray, gaps: Gaps, columns: dict[str, Coded]) -> FloatArray:
        n_rows, n_numeric = len(numbers), len(self.numeric_)
        begin = n_numeric + len(self.fixed_gaps)
        fixed = np.zeros((n_rows, begin + self._n_hashes))
        fixed[:, :n_numeric] = numbers[:, :n_numeric]
        if gaps is not None:
            fixed[:, n_numeric:begin] = gaps[:, self._first_gaps]
        for name, (values, codes) in columns.items() if self._n_hashes else ():
            texts = [f"{name}={value}".encode() for value in values]
            hashes = np.array([zlib.crc32(text) for text in texts], dtype=np.int64)
            signs = np.where(hashes & 2**31, 1.0, -1.0) * np.array([value is not None for value in values])
            fixed[np.arange(n_rows), begin + hashes[codes] % self.hash_width] += signs[codes]
        return fixed

    # -- numeric columns ---------------------------------------------------------------------------------

    def _encode_numbers(self, batch: ColumnBatch, place: Place, first_row: int, *, learn: bool) -> FloatArray:
        names = self.numbers
        if batch.matrix is None:  # a matrix has only numbers
            batch = with_dates(batch, names)
            text = next((name for name in names if batch.columns[name].dtype == object), None)
            if text is not None:
                raise _text_error(batch.columns[text], text, place, first_row, is_time=text in self.times_)
        X = batch.to_matrix(names)
        if not _native.all_finite(X):
            self._check_finite(X, place, first_row)
            if self.missing == "zero":
                X = np.where(np.isnan(X), 0.0, X)
        if self.missing == "mean":
            X = self._with_means(X, learn=learn)
        return X

    def _check_finite(self, X: FloatArray, place: Place, first_row: int) -> None:
        """Raise an error for infinite values and, with missing="refuse", for missing values."""
        bad = ~np.isfinite(X) if self.missing == "refuse" else np.isinf(X)
        if bad.any():
            row, index = map(int, np.argwhere(bad)[0])
            if np.isnan(X[row, index]):
                raise _missing_error(place, first_row + row, self.numbers[index])
            raise place.error(
                "an infinite value cannot be used.",
                first_row + row,
                self.numbers[index],
                "replace it in the table by an empty cell, which is a missing value",
            )

    def _with_means(self, X: FloatArray, *, learn: bool) -> FloatArray:
        """Fill missing values with the mean of all earlier rows, independently of the chunk size."""
        present = ~np.isnan(X)
        values = np.vstack([self._sums, np.where(present, X, 0.0)]).cumsum(axis=0)
        seen = np.vstack([self._seen, present]).cumsum(axis=0)
        if learn:
            self._sums, self._seen = values[-1].copy(), seen[-1].copy()
        if present.all():
            return X
        means = np.divide(values, seen, out=np.zeros_like(values), where=seen > 0)[:-1]
        return np.where(present, X, means)

    # -- categorical columns -----------------------------------------------------------------------------

    @staticmethod
    def _check_present(columns: dict[str, Coded], place: Place, first_row: int) -> None:
        for name, (values, codes) in columns.items():
            if None in values:
                missing = codes == values.index(None)
                if missing.any():
                    raise _missing_error(place, first_row + int(missing.argmax()), name)

    def _add_new(self, columns: dict[str, Coded], gaps: Gaps, place: Place) -> None:
        """Add features for new categories and missing values in row order, for any chunk size."""
        new: list[tuple[int, int, str, str]] = [
            (int(values.argmax()), self.numeric_.index(name) - len(self.numeric_), name, GAP)
            for name, values in self._with_gaps(gaps)
            if GAP not in self._codes[name]
        ]
        for order, (name, coded) in enumerate(columns.items()):
            known = self._codes[name]
            found = [(row, order, name, value) for row, value in new_values(coded, known)]
            self.check_few_categories(name, len(known) + len(found), place.source)
            new += found
        self.add_categories((name, value) for _, _, name, value in sorted(new))

    def check_few_categories(self, name: str, n_values: int, source: str) -> None:
        """Raise DataError if a column has too many categories."""
        if n_values > self.max_categories:
            raise DataError(
                f"column {name!r} has more than {self.max_categories:,} distinct values, "
                "too many for one feature each.",
                source=source,
                hint=f"leave the column out: drop={name!r} (--drop {name} on the command line)",
            )

    def _with_gaps(self, gaps: Gaps) -> list[tuple[str, NDArray[np.bool_]]]:
        """Return numeric columns of the first table that have missing values, each with a mask of them."""
        if gaps is None:
            return []
        columns = np.flatnonzero(gaps[:, : len(self.numeric_)].any(axis=0)).tolist()
        return [(self.numeric_[column], gaps[:, column]) for column in columns]

    def fill_of(self, column: str) -> float | None:
        """Return the number that replaces missing values of a column, or None if they raise an error."""
        if self.missing == "refuse":
            return None
        index = self.numbers.index(column)
        if self.missing == "indicator":
            return float(self._fills[index])
        return float(self._sums[index] / max(self._seen[index], 1.0)) if self.missing == "mean" else 0.0

    def shift_of(self, column: str) -> float:
        """Return the constant that is subtracted from the values of a late numeric column."""
        return float(self._fills[self.numbers.index(column)])

    def index_of(self, column: str, value: str) -> int:
        """Return the index of a known category in ``categories_``."""
        return self._codes[column][value]

    def add_categories(self, categories: Iterable[tuple[str, str]]) -> None:
        """Add categories, given as pairs (column, value). Known categories keep their index."""
        for name, value in categories:
            if value not in self._codes[name]:
                self._codes[name][value] = len(self.categories_)
                self.categories_.append((name, value))

    def erase_categories(self, categories: Iterable[tuple[str, str]]) -> None:
        """Erase the names of categories without rows. Their features remain and are always 0.

        If a name is learned again later, it becomes a new category.
        """
        erased = set(categories)
        for name in {name for name, _ in erased} & self._codes.keys():
            self._codes[name] = erased_codes(self._codes[name], {text for at, text in erased if at == name})
            for text, index in self._codes[name].items():
                self.categories_[index] = (name, text)

    def adopt(self, other: TableEncoder) -> list[int]:
        """Add the categories and late columns of another encoder whose first table had the same columns.

        Returns
        -------
        list of int
            For each feature of the other encoder, its index among the features of this one.
        """
        if self.numeric_ != other.numeric_:
            raise DataError(
                f"both models must have the same numeric columns; got {self.numeric_} and {other.numeric_}.",
                source="merge",
            )
        fills = dict(zip(self.numbers, self._fills.tolist(), strict=True))
        other_fills = dict(zip(other.numbers, other._fills.tolist(), strict=True))
        filled = {name for name, value in (*self.categories_, *other.categories_) if value in {GAP, VALUE}}
        for name in sorted(filled & fills.keys() & other_fills.keys()):
            if fills[name] != other_fills[name]:
                raise DataError(
                    f"column {name!r}: missing values count as {fills[name]:g} in one model and as "
                    f"{other_fills[name]:g} in the other.",
                    source="merge",
                    hint='models that will be merged or compared need missing="zero" or missing="refuse" '
                    "(--missing on the command line)",
                )
        for name in other.late_:
            if name not in self.columns_:
                self._add_column(name, other_fills.get(name, 0.0), is_text=name in other.categorical_)
        self.add_categories(other.categories_)
        places = [self.numbers.index(name) for name in other.numbers]
        self._sums, self._seen = self._sums.copy(), self._seen.copy()  # a copied encoder has the same arrays
        np.add.at(self._sums, places, other._sums)
        np.add.at(self._seen, places, other._seen)
        n_numeric = len(self.numeric_)
        return [
            *range(n_numeric),
            *(n_numeric + self._codes[name][value] for name, value in other.categories_),
        ]

    know = renamed_method("add_categories", "know")
    place_of = renamed_method("index_of", "place_of")
    settle = renamed_method("fit_columns", "settle")

    # -- saving and loading -------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self.is_fitted:
            return {}
        return {
            "columns": list(self.columns_),
            "numeric": list(self.numeric_),
            "late": list(self.late_),
            "late_numbers": self.numbers[len(self.numeric_) :],
            "times": list(self.times_),
            "categories": [list(pair) for pair in self.categories_],
            "sums": self._sums,
            "seen": self._seen,
            "fills": self._fills,
            "first_gaps": [int(index) for index in self._first_gaps],
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self.columns_ = [str(name) for name in state["columns"]]
        self.numeric_ = [str(name) for name in state["numeric"]]
        self.late_ = [str(name) for name in state.get("late", ())]
        late_numbers = {str(name) for name in state.get("late_numbers", ())}
        self.numbers = [*self.numeric_, *(name for name in self.late_ if name in late_numbers)]
        self.times_ = [str(name) for name in state.get("times", ())]
        numeric = {*self.numeric_, *late_numbers}
        self.categorical_ = [name for name in self.columns_ if name not in numeric]
        self.categories_ = [(str(column), str(value)) for column, value in state["categories"]]
        n_numbers = len(self.numbers)
        self._fills = np.asarray(state.get("fills", np.zeros(n_numbers)), dtype=np.float64)
        self._sums, self._seen = np.asarray(state["sums"]), np.asarray(state["seen"])
        self._first_gaps = [int(index) for index in state.get("first_gaps", ())]
        columns, pairs = set(self.columns_), set(self.categories_)
        known = {*self.categorical_, *((name, GAP) for name in self.numeric_)}
        known |= {(name, part) for name in late_numbers for part in (VALUE, PRESENT)}
        is_valid = (
            {*self.times_} <= numeric <= columns and late_numbers <= set(self.late_) <= columns,
            len(columns) == len(self.columns_) and len(numeric) == n_numbers,
            len(pairs) == len(self.categories_) and all(known & {pair, pair[0]} for pair in pairs),
            pairs >= {(name, VALUE) for name in late_numbers},
            all(0 <= index < len(self.numeric_) for index in self._first_gaps),
            all(x.shape == (n_numbers,) and x.dtype == float for x in (self._fills, self._sums, self._seen)),
            np.isfinite([self._fills, self._sums]).all() and (self._seen >= 0).all(),
        )
        if not all(is_valid):
            raise ValueError("columns, categories and sums are inconsistent")
        self._codes = {name: {} for name in self.columns_}
        for index, (name, value) in enumerate(self.categories_):
            self._codes[name][value] = index
        check_params(self, _CONSTRAINTS)


@dataclass
class LabelReader:
    """Reader of the label column, which contains integers or text with few distinct values.

    More than ``max_classes`` distinct labels raise an error, because the column is unlikely to contain
    classes. With ``unlabelled="keep"`` a missing label is no error: the row gets an arbitrary known label as
    a placeholder, and :meth:`is_labelled` tells which labels are real.
    """

    column: str
    max_classes: int = MAX_CLASSES
    unlabelled: str = "refuse"
    table: LabelEncoder = field(default_factory=LabelEncoder)

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
            self._check_present(values, place, first_row)
            codes = self.table.numbers(values.tolist())
            labels = self.table.array()[codes]
        else:
            with np.errstate(invalid="ignore"):
                labels = values.astype(np.int64)
            if not (labels == values).all() or np.abs(values).max(initial=0.0) > _MAX_INTEGER:
                self._check_present(values, place, first_row)
                raise self._number_error(values, place, first_row)
            codes = self.table.codes(labels)
        n_labels, n_seen = len(self.table.labels), first_row + len(values)
        # Labels are not classes if more than half of 1,000 rows, or all of 100 rows, have distinct labels.
        has_too_many = first_row < _MIN_LABELS_TO_CHECK <= n_seen and 2 * n_labels > n_seen
        has_too_many |= 100 <= n_seen < _MIN_LABELS_TO_CHECK and n_labels == n_seen
        if n_labels > self.max_classes or has_too_many:
            raise DataError(
                f"{place.source}, column {self.column!r}: {n_labels:,} distinct labels in the first "
                f"{n_seen:,} rows; at most {self.max_classes:,} can be classes.",
                hint="is this the right target? It looks like an identifier or a measurement",
            )
        return labels, codes

    @staticmethod
    def is_labelled(values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the rows that have a label."""
        if values.dtype == object:
            return np.array([value is not None for value in values], dtype=bool)
        known: NDArray[np.bool_] = ~np.isnan(values)
        return known

    def _check_present(self, values: NDArray[Any], place: Place, first_row: int) -> None:
        is_labelled = self.is_labelled(values)
        if not is_labelled.all():
            raise place.error("the label is missing.", first_row + int(is_labelled.argmin()), self.column)

    def _number_error(self, values: NDArray[Any], place: Place, first_row: int) -> RowError:
        """Return the error for a number that is too large or not an integer."""
        large = np.abs(values) > _MAX_INTEGER
        row = int(large.argmax() if large.any() else (np.trunc(values) != values).argmax())
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
        return place.error(message, first_row + row, self.column, hint)


def _median(values: FloatArray) -> float:
    """Return the median of the finite values, or 0 if there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _text_error(values: NDArray[Any], name: str, place: Place, first_row: int, *, is_time: bool) -> DataError:
    expected = "a date such as 2026-01-31 or 2026-01-31T09:30" if is_time else "a number"
    row = first_unreadable(values, is_time=is_time)
    if row is None:
        return DataError(
            f"column {name!r} contained numbers before and contains text now.", source=place.source
        )
    return place.error(f"expected {expected}; got {values[row]!r}.", first_row + row, name)


def _missing_error(place: Place, row: int, column: str) -> RowError:
    hint = (
        'learn from missing values with missing="indicator", or fill them with missing="zero" '
        "(--missing on the command line)"
    )
    return place.error("a value is missing.", row, column, hint)
