"""What :func:`steelyard.datasets.load` gives: rows, labels and where they came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError

__all__ = ["Dataset", "Split", "Splits"]

# Levels of text columns that have an order, from low to high; other text columns are sorted.
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
    """A named set of rows.

    Attributes
    ----------
    name : str
        The name that it was asked for by.
    X : DataFrame, ndarray or list of str
        The rows: a table, a stack of images, or texts.
    y : ndarray or None
        The original labels, one a row; None for a set that has none. The labels of `reuters5` are tuples
        of topics.
    source : str
        Where it came from, for people.
    """

    name: str
    X: Any
    y: Any
    source: str

    def numbers(self, *, nominal: Literal["codes", "onehot"] = "codes") -> NDArray[np.float64]:
        """The rows as one matrix of numbers.

        A text column with an order becomes 0, 1, 2, ... in that order, one with two levels 0 and 1; any
        other one becomes codes of its sorted levels, or one column a level. Images become one row each.
        Missing cells stay ``nan``.

        Parameters
        ----------
        nominal : {"codes", "onehot"}, default="codes"
            What becomes of text columns without an order and with more than two levels.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        if isinstance(self.X, np.ndarray):
            return np.ascontiguousarray(self.X.reshape(len(self.X), -1), dtype=np.float64)
        if not hasattr(self.X, "columns"):
            raise DataError(
                f"the rows of {self.name!r} are texts, not a table of columns.", source="Dataset.numbers"
            )
        blocks = [self._column(name, nominal) for name in self.X.columns]
        return np.ascontiguousarray(np.column_stack(blocks))

    def binary(self, positive: Any) -> NDArray[np.int64]:
        """Labels as 1 for `positive` and 0 for the rest.

        Parameters
        ----------
        positive : label, collection of labels, or callable
            Which labels count as positive; a callable is asked for each label.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if callable(positive):
            chosen: Callable[[Any], bool] = positive
        else:
            many = isinstance(positive, Collection) and not isinstance(positive, str | bytes)
            labels = set(positive) if many else {positive}
            chosen = labels.__contains__
        return np.array([bool(chosen(label)) for label in _plain(self.y)], dtype=np.int64)

    def complete(self) -> Dataset:
        """The rows without missing cells."""
        keep = ~self.X.isna().any(axis=1).to_numpy()
        return Dataset(self.name, self.X[keep].reset_index(drop=True), self.y[keep], self.source)

    def _column(self, name: str, nominal: str) -> NDArray[np.float64]:
        column = self.X[name]
        if column.dtype.kind in "ifub":
            return column.to_numpy(dtype=np.float64)
        values = column.astype(object).to_numpy()
        known = np.array([isinstance(value, str) for value in values])
        levels = _ORDERS.get((self.name, name)) or tuple(sorted(set(values[known])))
        place = {level: float(number) for number, level in enumerate(levels)}
        codes = np.array([place[value] if isinstance(value, str) else np.nan for value in values])
        ordered = (self.name, name) in _ORDERS or len(levels) <= 2
        if nominal == "codes" or ordered:
            return codes
        return (codes[:, None] == np.arange(len(levels))).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Split:
    """One run: which rows are learned, which are asked, and folds inside the learned ones."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    inner: NDArray[np.int8]  # one entry a training row: its fold, 1 to 5; 0 where the file is damaged


@dataclass(frozen=True, eq=False)
class Splits:
    """The runs of the KOIL authors: four partitions of the rows into five folds.

    Iterate over it for the 20 runs in their order; ``splits[k]`` is one of them.

    Attributes
    ----------
    name : str
        The set they belong to.
    folds : ndarray of shape (n_rows, 4)
        The fold, 1 to 5, in which a row is tested, for each partition.
    inner_folds : ndarray of shape (5 * n_rows, 4)
        Folds for choosing parameters, as the authors' program walks through them.
    """

    name: str
    folds: NDArray[np.int8]
    inner_folds: NDArray[np.int8]

    def __len__(self) -> int:
        return 5 * self.folds.shape[1]

    def __iter__(self) -> Iterator[Split]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Split:
        if not 0 <= number < len(self):
            raise IndexError(f"Splits: there are {len(self)} runs; got {number}.")
        partition, fold = divmod(number, 5)
        column = self.folds[:, partition]
        train = np.flatnonzero(column != fold + 1)
        # The authors' program takes the next entries for each run, one a training row.
        head = sum(int((column != earlier + 1).sum()) for earlier in range(fold))
        inner = self.inner_folds[head : head + len(train), partition]
        return Split(train, np.flatnonzero(column == fold + 1), inner)


def _plain(labels: Any) -> list[Any]:
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
