"""From named columns to numbers, on the fly: categories become features, gaps are refused or filled."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.params import Integer
from steelyard.persistence import storable
from steelyard.tables.columns import ColumnBatch, Place, RowError, as_texts

__all__ = ["MISSING", "TableEncoder"]


MISSING = ("refuse", "mean", "zero")

_WIDEST = 1 << 16  # features that categories share; every row has all of them


@storable("TableEncoder")
class TableEncoder(BaseEstimator):
    """Turns columns into rows of numbers and remembers how.

    Numbers stay as they are. A category, when it first comes, becomes a feature of its own at the end
    (1 where a row has it, 0 elsewhere), so a learner whose statistics can grow sees exactly what it
    would have seen had all categories been known from the start. For learners that cannot grow there is
    a second form, in which all categories share ``hash_width`` signed hash features.

    Parameters
    ----------
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do where a value is missing: raise an error that names row and column; take the mean of
        the values of this column so far (0 before the first); take 0. A missing category is, unless
        refused, no category: 0 in all its features.
    hash_width : int, default=32
        Features that categories share in the form of fixed width.
    max_categories : int, default=1000
        A text column with more distinct values than this is refused.

    Attributes
    ----------
    numeric_ : list of str
        Columns taken as numbers.
    categorical_ : list of str
        Columns taken as categories.
    categories_ : list of (str, str)
        Column and value of each feature that stands for a category, in order of appearance.
    """

    def __init__(self, missing: str = "refuse", hash_width: int = 32, max_categories: int = 1000) -> None:
        self.missing = missing
        self.hash_width = hash_width
        self.max_categories = max_categories

    def _check_params(self) -> None:
        if self.missing not in MISSING:
            raise ParameterError(
                f"missing must be one of {', '.join(MISSING)}; got {self.missing!r}.", source="TableEncoder"
            )
        for name, kind in (("hash_width", Integer(1, _WIDEST)), ("max_categories", Integer(1))):
            if not kind.accepts(getattr(self, name)):
                raise ParameterError(
                    f"{name} must be {kind.description}; got {getattr(self, name)!r}.", source="TableEncoder"
                )

    def settle(self, batch: ColumnBatch, features: list[str], categorical: tuple[str, ...]) -> None:
        """Decide by the first rows which features are numbers and which are categories."""
        self._check_params()
        is_text = {name: batch.columns[name].dtype == object or name in categorical for name in features}
        self.columns_ = list(features)
        self.numeric_ = [name for name in features if not is_text[name]]
        self.categorical_ = [name for name in features if is_text[name]]
        self.categories_: list[tuple[str, str]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts = dict.fromkeys(self.categorical_, 0)
        # For missing="mean": sum and number of the values so far.
        self._sums = np.zeros(len(self.numeric_))
        self._seen = np.zeros(len(self.numeric_))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features so far, as the growing form has them."""
        return [*self.numeric_, *(f"{column}={value}" for column, value in self.categories_)]

    def categories_of(self, X: FloatArray) -> list[tuple[str, str]]:
        """Column and value of the last features of rows that were encoded when fewer were known."""
        return self.categories_[: X.shape[1] - len(self.numeric_)]

    @property
    def fixed_names(self) -> list[str]:
        """Names of the features in the form of fixed width."""
        hashed = self.hash_width if self.categorical_ else 0
        return [*self.numeric_, *(f"hash {index}" for index in range(hashed))]

    def encode(
        self, batch: ColumnBatch, place: Place, first_row: int, *, learn: bool = True
    ) -> tuple[FloatArray, FloatArray | None]:
        """Rows as numbers: growing, and of fixed width where that differs.

        With ``learn=False`` nothing is remembered: an unknown category is no category.
        """
        numbers = self._numbers_of(batch, place, first_row, learn=learn)
        if not self.categorical_:
            return numbers, None
        columns = [as_texts(batch.columns[name]) for name in self.categorical_]
        self._check_categories(columns, place, first_row)
        if learn:
            self._remember(columns, place)
        n_rows, n_numeric = numbers.shape
        X = np.zeros((n_rows, n_numeric + len(self.categories_)))
        fixed = np.zeros((n_rows, n_numeric + self.hash_width))
        X[:, :n_numeric] = fixed[:, :n_numeric] = numbers
        for name, values in zip(self.categorical_, columns, strict=True):
            places = [-1 if value is None else self._numbers.get((name, value), -1) for value in values]
            rows = np.flatnonzero(np.array(places) >= 0)
            X[rows, n_numeric + np.array(places)[rows]] = 1.0
            self._add_hashes(fixed[:, n_numeric:], name, values)
        return X, fixed

    # -- numbers ------------------------------------------------------------------------------------

    def _numbers_of(self, batch: ColumnBatch, place: Place, first_row: int, *, learn: bool) -> FloatArray:
        text = batch.first_text(self.numeric_)
        if text is not None:
            raise _text_error(batch.columns[text], text, place, first_row)
        X = batch.side_by_side(self.numeric_)
        if not _native.all_finite(X):
            self._check_finite(X, place, first_row)
            if self.missing == "zero":
                X = np.where(np.isnan(X), 0.0, X)
        if self.missing == "mean":
            X = self._with_means(X, learn=learn)
        return X

    def _check_finite(self, X: FloatArray, place: Place, first_row: int) -> None:
        """Refuse what cannot be filled, before anything is remembered."""
        bad = ~np.isfinite(X) if self.missing == "refuse" else np.isinf(X)
        if bad.any():
            row, index = map(int, np.argwhere(bad)[0])
            if np.isnan(X[row, index]):
                raise _missing_error(place, first_row + row, self.numeric_[index])
            where = place.of_row(first_row + row, self.numeric_[index])
            raise RowError("an infinite value cannot be used.", source=where, row=first_row + row)

    def _with_means(self, X: FloatArray, *, learn: bool) -> FloatArray:
        """Filled with the mean of the values before; sums run row by row, so chunk borders do not matter."""
        present = ~np.isnan(X)
        # A column without a gap needs only its sum, taken in the same order.
        values = np.vstack([self._sums, np.where(present, X, 0.0)]).cumsum(axis=0)
        seen = np.vstack([self._seen, present]).cumsum(axis=0)
        if learn:
            self._sums, self._seen = values[-1].copy(), seen[-1].copy()
        if present.all():
            return X
        means = np.divide(values, seen, out=np.zeros_like(values), where=seen > 0)[:-1]
        return np.where(present, X, means)

    # -- categories ---------------------------------------------------------------------------------

    def _check_categories(self, columns: list[list[str | None]], place: Place, first_row: int) -> None:
        if self.missing != "refuse":
            return
        for name, values in zip(self.categorical_, columns, strict=True):
            if None in values:
                raise _missing_error(place, first_row + values.index(None), name)

    def _remember(self, columns: list[list[str | None]], place: Place) -> None:
        """Give new categories their numbers, row by row, so that chunk borders do not matter."""
        new: list[tuple[int, int, str, str]] = []
        for order, (name, values) in enumerate(zip(self.categorical_, columns, strict=True)):
            firsts: dict[str, int] = {}
            for row, value in enumerate(values):
                if value is not None and (name, value) not in self._numbers and value not in firsts:
                    firsts[value] = row
            if self._counts[name] + len(firsts) > self.max_categories:
                raise DataError(
                    f"column {name!r} has more than {self.max_categories:,} distinct values, "
                    "too many for one feature each.",
                    source=place.source,
                    hint=f"leave the column out: drop={name!r} (--drop {name} on the command line)",
                )
            new += [(row, order, name, value) for value, row in firsts.items()]
        for _, _, name, value in sorted(new):
            self._numbers[name, value] = len(self.categories_)
            self.categories_.append((name, value))
            self._counts[name] += 1

    def _add_hashes(self, hashed: FloatArray, name: str, values: list[str | None]) -> None:
        codes = np.array([self._hash(name, value) for value in values])
        signs = np.where(codes & 2**31, 1.0, -1.0) * np.array([value is not None for value in values])
        hashed[np.arange(len(values)), codes % self.hash_width] += signs

    @staticmethod
    def _hash(name: str, value: str | None) -> int:
        return 0 if value is None else zlib.crc32(f"{name}={value}".encode())

    def fill_of(self, column: str) -> float | None:
        """What a missing number of a column is taken for now; None where it is refused."""
        if self.missing == "refuse":
            return None
        place = self.numeric_.index(column)
        return float(self._sums[place] / max(self._seen[place], 1.0)) if self.missing == "mean" else 0.0

    def place_of(self, column: str, value: str) -> int:
        """The place of a category that is known among all of them."""
        return self._numbers[column, value]

    def know(self, categories: Iterable[tuple[str, str]]) -> None:
        """Give categories their places before a row has them; those that are known keep theirs."""
        for name, value in categories:
            if (name, value) not in self._numbers:
                self._numbers[name, value] = len(self.categories_)
                self.categories_.append((name, value))
                self._counts[name] += 1

    def adopt(self, other: TableEncoder) -> list[int]:
        """Take over the categories of another encoder of the same columns.

        Returns
        -------
        list of int
            For each feature of the other encoder, its place among the features of this one.
        """
        if self.numeric_ != other.numeric_:
            raise DataError(
                f"numbers and categories must be the same columns; got numbers {self.numeric_} and "
                f"{other.numeric_}.",
                source="merge",
            )
        self.know(other.categories_)
        self._sums, self._seen = self._sums + other._sums, self._seen + other._seen
        n_numeric = len(self.numeric_)
        return [*range(n_numeric), *(n_numeric + self._numbers[pair] for pair in other.categories_)]

    # -- files --------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if "columns_" not in self.__dict__:
            return {}
        return {
            "columns": list(self.columns_),
            "numeric": list(self.numeric_),
            "categories": [list(pair) for pair in self.categories_],
            "sums": self._sums,
            "seen": self._seen,
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self.columns_ = [str(name) for name in state["columns"]]
        self.numeric_ = [str(name) for name in state["numeric"]]
        numeric = set(self.numeric_)
        self.categorical_ = [name for name in self.columns_ if name not in numeric]
        self.categories_ = [(str(column), str(value)) for column, value in state["categories"]]
        self._numbers = {pair: number for number, pair in enumerate(self.categories_)}
        self._counts = {name: sum(c == name for c, _ in self.categories_) for name in self.categorical_}
        self._sums, self._seen = np.asarray(state["sums"]), np.asarray(state["seen"])
        if not set(self.numeric_) <= set(self.columns_) or len(self._numbers) != len(self.categories_):
            raise ValueError("columns and categories do not fit together")
        if len(set(self.columns_)) < len(self.columns_) or len(numeric) < len(self.numeric_):
            raise ValueError("a column comes twice")
        if not {column for column, _ in self.categories_} <= set(self.categorical_):
            raise ValueError("a category belongs to no column")
        self._check_params()
        if self._sums.shape != (len(self.numeric_),) or self._seen.shape != self._sums.shape:
            raise ValueError("there must be one sum for each column of numbers")
        if self._sums.dtype != np.float64 or self._seen.dtype != np.float64:
            raise ValueError("sums and counts of columns must be numbers")
        if not np.isfinite(self._sums).all() or not (self._seen >= 0).all():
            raise ValueError("a mean is not finite")


def _text_error(values: NDArray[Any], name: str, place: Place, first_row: int) -> DataError:
    for row, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            where = place.of_row(first_row + row, name)
            return RowError(f"expected a number; got {value!r}.", source=where, row=first_row + row)
    return DataError(f"column {name!r} was a column of numbers and is now text.", source=place.source)


def _missing_error(place: Place, row: int, column: str) -> RowError:
    return RowError(
        "a value is missing.",
        source=place.of_row(row, column),
        row=row,
        column=column,
        hint='fill gaps with missing="mean" or missing="zero" (--missing on the command line)',
    )
