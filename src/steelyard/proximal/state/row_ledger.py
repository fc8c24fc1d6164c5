"""Which rows were learned: a compact multiset of their hashes."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from steelyard.base import Batch, Label
from steelyard.exceptions import DataError
from steelyard.proximal.state.batches import row_hashes

__all__ = ["RowLedger", "batch_hashes"]

Hashes = NDArray[np.uint64]


class RowLedger:
    """The hashes of rows, labels and weights that were learned and not forgotten, each as often as it is in.

    Eight bytes a row, in sorted runs of which each is at least twice as long as the next; those of rows that
    went are kept apart until they are an eighth as many, so it is never more than eleven bytes for each row
    that is in. Nothing is ever changed in place.

    A row that was never learned passes only if its 64 bits are those of one that was: with a million rows,
    one stranger in eighteen million millions.
    """

    def __init__(self, held: tuple[Hashes, ...] = (), gone: tuple[Hashes, ...] = ()) -> None:
        self._held = held
        self._gone = gone

    @classmethod
    def of(cls, hashes: Hashes) -> RowLedger:
        """The ledger that such hashes make, as a file has them."""
        array = np.asarray(hashes)
        if array.dtype != np.uint64 or array.ndim != 1:
            raise ValueError("a ledger is a list of hashes")
        return cls().added(array)

    def __bool__(self) -> bool:
        return True  # also without rows

    def __len__(self) -> int:
        return sum(map(len, self._held)) - sum(map(len, self._gone))

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return sum(run.nbytes for run in (*self._held, *self._gone))

    def added(self, hashes: Hashes) -> RowLedger:
        """With these rows too."""
        return RowLedger(_with_run(self._held, np.sort(hashes)), self._gone)

    def removed(self, hashes: Hashes, source: str) -> RowLedger:
        """Without these rows; refuses rows that are not in, or not as often."""
        wanted, times = np.unique(hashes, return_counts=True)
        lacking = np.maximum(times - self._times(wanted), 0)
        if lacking.any():
            raise DataError(
                f"{lacking.sum()} of {len(hashes)} rows that were to be forgotten are not in the ledger; "
                "they were never learned with these values, labels and weights, or were forgotten already; "
                "nothing was changed.",
                source=source,
                hint="forget rows exactly as they were learned, and once",
            )
        gone = _with_run(self._gone, np.sort(hashes))
        if 8 * sum(map(len, gone)) > sum(map(len, self._held)):
            left = _difference(_joined(self._held), _joined(gone))
            return RowLedger((left,) if len(left) else ())
        return RowLedger(self._held, gone)

    def holds(self, other: RowLedger) -> bool:
        """Whether all rows of the other are in, as often as there."""
        wanted, times = np.unique(other.to_array(), return_counts=True)
        return bool((self._times(wanted) >= times).all())

    def merged(self, other: RowLedger) -> RowLedger:
        """With all rows of the other."""
        return self.added(other.to_array())

    def unmerged(self, other: RowLedger, source: str) -> RowLedger:
        """Without the rows of the other."""
        return self.removed(other.to_array(), source)

    def to_array(self) -> Hashes:
        """All hashes, sorted."""
        return _difference(_joined(self._held), _joined(self._gone))

    def _times(self, hashes: Hashes) -> NDArray[np.int64]:
        """How often each of some hashes is in."""
        times = np.zeros(len(hashes), dtype=np.int64)
        for sign, runs in ((1, self._held), (-1, self._gone)):
            for run in runs:
                times += sign * (np.searchsorted(run, hashes, "right") - np.searchsorted(run, hashes, "left"))
        return times


def batch_hashes(batch: Batch) -> Hashes:
    """A hash of each row with its label and weight; rows that do not count have none."""
    labels = np.array([_label_hash(label) for label in batch.labels], dtype=np.uint64)[batch.codes]
    weights = np.ones(len(batch.codes)) if batch.weights is None else batch.weights
    mixed: Hashes = _scrambled(row_hashes(batch.X) + labels) ^ weights.view(np.uint64)
    return _scrambled(mixed)[weights != 0.0]


def _scrambled(hashes: Hashes) -> Hashes:
    """Each bit reaches every other; multiplication is meant to wrap."""
    shift, factor = np.uint64(32), np.uint64(0xD6E8FEB86659FD93)
    for _ in range(2):
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> shift)


def _label_hash(label: Label) -> int:
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # a column of whole numbers is read as one or the other
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")


def _with_run(runs: tuple[Hashes, ...], run: Hashes) -> tuple[Hashes, ...]:
    if not len(run):
        return runs
    kept = list(runs)
    while kept and len(kept[-1]) < 2 * len(run):
        run = np.sort(np.concatenate([kept.pop(), run]), kind="stable")
    return (*kept, run)


def _joined(runs: tuple[Hashes, ...]) -> Hashes:
    return np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *runs]), kind="stable")


def _difference(held: Hashes, gone: Hashes) -> Hashes:
    """A sorted multiset without some of its members."""
    if not len(gone):
        return held
    values, times = np.unique(held, return_counts=True)
    taken, often = np.unique(gone, return_counts=True)
    times[np.searchsorted(values, taken)] -= often
    return np.repeat(values, times)
