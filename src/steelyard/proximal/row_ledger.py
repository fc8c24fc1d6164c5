"""Row hashes, the ledger (record of learned rows), and the assignment of rows to folds."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard.base import Batch, Label
from steelyard.exceptions import DataError

Hashes = NDArray[np.uint64]


class FoldLabel(NamedTuple):
    """Key of a class in one fold: the label and the fold."""

    label: Label
    fold: int


class RowLedger:
    """Immutable multiset of the hashes of all learned rows with their labels and weights.

    The hashes, eight bytes each, are stored in sorted arrays (runs), each at least twice as long as the next
    one. Removed hashes are stored separately and are deleted from the runs when they exceed an eighth of the
    others, so the ledger takes at most eleven bytes per learned row. With a million rows, the hash of one in
    1.8e13 unknown rows equals that of a learned row.
    """

    def __init__(self, added: tuple[Hashes, ...] = (), removed: tuple[Hashes, ...] = ()) -> None:
        self._added = added
        self._removed = removed

    @classmethod
    def of(cls, hashes: Hashes) -> RowLedger:
        """Return a ledger with the given hashes, as read from a file."""
        array = np.asarray(hashes)
        if array.dtype != np.uint64 or array.ndim != 1:
            raise ValueError("a ledger must be an array of hashes")
        return cls().with_hashes(array)

    def __bool__(self) -> bool:
        return True  # a ledger is true even if it is empty

    def __len__(self) -> int:
        return sum(map(len, self._added)) - sum(map(len, self._removed))

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(run.nbytes for run in (*self._added, *self._removed))

    def with_hashes(self, hashes: Hashes) -> RowLedger:
        """Return the ledger with more rows."""
        return RowLedger(_with_run(self._added, np.sort(hashes)), self._removed)

    def without_hashes(self, hashes: Hashes, source: str) -> RowLedger:
        """Return the ledger without some rows; raise DataError for rows that are not in the ledger."""
        wanted, times = np.unique(hashes, return_counts=True)
        missing = np.maximum(times - self._counts(wanted), 0)
        if missing.any():
            raise DataError(
                f"{missing.sum()} of {len(hashes)} rows that were to be forgotten are not in the ledger; "
                "they were never learned with these values, labels and weights, or were forgotten already; "
                "nothing was changed.",
                source=source,
                hint="forget rows exactly as they were learned, and only once",
            )
        removed = _with_run(self._removed, np.sort(hashes))
        if 8 * sum(map(len, removed)) > sum(map(len, self._added)):
            left = _difference(_joined(self._added), _joined(removed))
            return RowLedger((left,) if len(left) else ())
        return RowLedger(self._added, removed)

    def contains(self, other: RowLedger) -> bool:
        """Return whether every row of ``other`` occurs at least as often in this ledger."""
        wanted, times = np.unique(other.to_array(), return_counts=True)
        return bool((self._counts(wanted) >= times).all())

    def to_array(self) -> Hashes:
        """Return all hashes, sorted."""
        return _difference(_joined(self._added), _joined(self._removed))

    def _counts(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the number of times that each hash is in the ledger."""
        counts = np.zeros(len(hashes), dtype=np.int64)
        for sign, runs in ((1, self._added), (-1, self._removed)):
            for run in runs:
                right, left = np.searchsorted(run, hashes, "right"), np.searchsorted(run, hashes, "left")
                counts += sign * (right - left)
        return counts


def row_hashes(X: Any) -> Hashes:
    """Return a hash of the values of each row; dense and sparse rows have equal hashes."""
    if sp.issparse(X):
        return _native.sparse_row_hashes(X.data, X.indices, X.indptr)
    return _native.row_hashes(X)


def fold_numbers(X: Any, n_folds: int) -> Hashes:
    """Return the fold of each row. The fold depends only on the values, so ``forget`` finds it again."""
    if n_folds == 1:
        return np.zeros(X.shape[0], dtype=np.uint64)
    return row_hashes(X) % np.uint64(n_folds)


def batch_hashes(batch: Batch) -> Hashes:
    """Return a hash of each row with its label and weight. Rows of weight zero are left out."""
    labels = np.array([_label_hash(label) for label in batch.labels], dtype=np.uint64)[batch.codes]
    weights = np.ones(len(batch.codes)) if batch.weights is None else batch.weights
    mixed: Hashes = _scrambled(row_hashes(batch.X) + labels) ^ weights.view(np.uint64)
    return _scrambled(mixed)[weights != 0.0]


def _scrambled(hashes: Hashes) -> Hashes:
    """Apply a xor-shift-multiply finalizer: every input bit affects every output bit."""
    shift, factor = np.uint64(32), np.uint64(0xD6E8FEB86659FD93)
    for _ in range(2):
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> shift)


def _label_hash(label: Label) -> int:
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # a column of integers may be read as int or as float, so both get the same hash
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")


def _with_run(runs: tuple[Hashes, ...], run: Hashes) -> tuple[Hashes, ...]:
    if not len(run):
        return runs
    longer = list(runs)
    while longer and len(longer[-1]) < 2 * len(run):
        run = np.sort(np.concatenate([longer.pop(), run]), kind="stable")
    return (*longer, run)


def _joined(runs: tuple[Hashes, ...]) -> Hashes:
    return np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *runs]), kind="stable")


def _difference(added: Hashes, removed: Hashes) -> Hashes:
    """Return the difference of two sorted multisets; the first must contain the second."""
    if not len(removed):
        return added
    values, counts = np.unique(added, return_counts=True)
    removed_values, removed_counts = np.unique(removed, return_counts=True)
    counts[np.searchsorted(values, removed_values)] -= removed_counts
    return np.repeat(values, counts)
