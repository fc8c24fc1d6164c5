"""Result types of :func:`steelyard.datasets.load`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError

# Levels of ordinal text columns from low to high. Levels of other columns are sorted alphabetically.
_ORDERS = {
    ("car", "buying"): ("low", "med", "high", "vhigh"),
    ("car", "maint"): ("low", "med", "high", "vhigh"),
    ("car", "doors"): ("2", "3", "4", "5more"),
    ("car", "persons"): ("2", "4", "more"),
    ("car", "lug_boot"): ("small", "med", "big"),
    ("car", "safety"): ("low", "med", "high"),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset.

    Attributes
    ----------
    name : str
        Name of the dataset.
    X : DataFrame, ndarray or list of str
        The rows: a table, a stack of images, or texts.
    y : ndarray or None
        The original labels; None for a dataset without labels. The labels of ``reuters5`` are tuples of
        topics.
    source : str
        Description of where the data came from.
    """

    name: str
    X: Any
    y: Any
    source: str

    def numbers(self, *, nominal: Literal["codes", "onehot"] = "codes") -> NDArray[np.float64]:
        """Return the rows as a matrix of numbers.

        An ordinal text column becomes 0, 1, 2, ... in its order; a text column with two levels becomes 0 and
        1. Other text columns become codes of their sorted levels, or one column per level. An image becomes
        one row. Missing cells are ``nan``.

        Parameters
        ----------
        nominal : {"codes", "onehot"}, default="codes"
            Encoding of unordered text columns with more than two levels.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        if isinstance(self.X, np.ndarray):
            return np.ascontiguousarray(self.X.reshape(len(self.X), -1), dtype=np.float64)
        if not hasattr(self.X, "columns"):
            raise DataError(f"the rows of {self.name!r} are texts, not a table.", source="Dataset.numbers")
        blocks = [self._column(name, nominal) for name in self.X.columns]
        return np.ascontiguousarray(np.column_stack(blocks))

    def binary(self, positive: Any) -> NDArray[np.int64]:
        """Return 1 for positive labels and 0 for all others.

        Parameters
        ----------
        positive : label, collection of labels, or callable
            The positive labels, or a function that returns whether a label is positive.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if callable(positive):
            is_positive: Callable[[Any], bool] = positive
        else:
            is_collection = isinstance(positive, Collection) and not isinstance(positive, str | bytes)
            labels = set(positive) if is_collection else {positive}
            is_positive = labels.__contains__
        return np.array([bool(is_positive(label)) for label in _plain(self.y)], dtype=np.int64)

    def complete(self) -> Dataset:
        """Return the dataset without the rows that have missing cells."""
        keep = ~self.X.isna().any(axis=1).to_numpy()
        return Dataset(self.name, self.X[keep].reset_index(drop=True), self.y[keep], self.source)

    def _column(self, name: str, nominal: str) -> NDArray[np.float64]:
        column = self.X[name]
        if column.dtype.kind in "ifub":
            return column.to_numpy(dtype=np.float64)
        values = column.astype(object).to_numpy()
        is_known = np.array([isinstance(value, str) for value in values])
        levels = _ORDERS.get((self.name, name)) or tuple(sorted(set(values[is_known])))
        code = {level: float(number) for number, level in enumerate(levels)}
        codes = np.array([code[value] if isinstance(value, str) else np.nan for value in values])
        is_ordered = (self.name, name) in _ORDERS or len(levels) <= 2
        if nominal == "codes" or is_ordered:
            return codes
        return (codes[:, None] == np.arange(len(levels))).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Split:
    """One run of cross-validation: training rows, test rows, and the inner fold of each training row."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    inner: NDArray[np.int8]  # fold (1 to 5) of each training row, or 0 where the file is damaged


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of the KOIL authors: four partitions of the rows into five folds.

    Iteration yields the 20 runs in order; ``splits[k]`` is the run with index k.

    Attributes
    ----------
    name : str
        Name of the dataset.
    folds : ndarray of shape (n_rows, 4)
        Test fold of each row, 1 to 5, for each partition.
    inner_folds : ndarray of shape (5 * n_rows, 4)
        Inner folds for the selection of parameters, in the order of the authors' program.
    """

    name: str
    folds: NDArray[np.int8]
    inner_folds: NDArray[np.int8]

    def __len__(self) -> int:
        return 5 * self.folds.shape[1]

    def __getitem__(self, number: int) -> Split:
        if not 0 <= number < len(self):
            raise IndexError(f"Splits: there are {len(self)} runs; got {number}.")
        partition, fold = divmod(number, 5)
        column = self.folds[:, partition]
        train = np.flatnonzero(column != fold + 1)
        # Each run uses the next len(train) entries, as in the program of the authors.
        head = sum(int((column != earlier + 1).sum()) for earlier in range(fold))
        inner = self.inner_folds[head : head + len(train), partition]
        return Split(train, np.flatnonzero(column == fold + 1), inner)


def _plain(labels: Any) -> list[Any]:
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
