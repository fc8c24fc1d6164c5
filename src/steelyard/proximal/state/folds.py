"""What ProximalSVC keeps of its rows: statistics by folds, of rows as they are or mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard.base import Batch
from steelyard.exceptions import DataError
from steelyard.features import RandomFeatures
from steelyard.proximal.state import messages
from steelyard.proximal.state.statistics import ClassStatistics, check_statistics_fit

__all__ = ["FoldedStatistics", "fold_numbers"]

_BLOCK_ROWS = 2048  # rows that are mapped to random features at a time
_MAPPED_TOLERANCE = 1e-10  # a product of matrices may round differently for other numbers of rows

T = TypeVar("T")


class FoldedStatistics:
    """Class statistics of rows that may pass through a feature map and fall into folds by their values.

    Parameters
    ----------
    folds : list of ClassStatistics
        One for each fold, all of one width; a single one where no folds are needed.
    feature_map : RandomFeatures, optional
        A settled map that every row passes through first.
    """

    def __init__(self, folds: list[ClassStatistics], feature_map: RandomFeatures | None = None) -> None:
        self.folds = folds
        self.feature_map = feature_map
        self.is_plain = feature_map is None and len(folds) == 1  # rows go into a single fold as they are
        self.choice: Any = None  # of C, as long as rows only come: what is made of these statistics has none
        self._derived: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def start(cls, n_features: int, n_folds: int, feature_map: RandomFeatures | None = None) -> Self:
        """Folds without any rows."""
        if feature_map is None:
            empty = ClassStatistics(n_features)
        else:
            empty = ClassStatistics(feature_map.n_components, row_tolerance=_MAPPED_TOLERANCE)
        return cls([empty.empty() for _ in range(n_folds)], feature_map)

    def empty(self) -> FoldedStatistics:
        """The same folds and map without any rows."""
        return self._with([fold.empty() for fold in self.folds])

    def copy(self) -> FoldedStatistics:
        """An independent copy; the map, which never changes, is the same."""
        return self._with([fold.copy() for fold in self.folds])

    def _with(self, folds: list[ClassStatistics]) -> FoldedStatistics:
        return FoldedStatistics(folds, self.feature_map)

    @property
    def version(self) -> tuple[int, ...]:
        """Tells apart what has been changed in place."""
        return tuple(fold.version for fold in self.folds)

    # -- rows ---------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Take in rows that were checked before; if memory is short, nothing changes."""
        if self.is_plain:  # a stream of single rows pays for every call
            self.folds[0].add_batch(batch)
            return
        new = sum(label not in fold.classes for fold in self.folds for label in batch.labels)
        check_statistics_fit(self.folds[0].n_features, new)
        for fold, part in self._parts(batch):
            fold.add_batch(part)

    def remove(self, batch: Batch, who: str) -> None:
        """Take out rows that were added before; a refusal may leave other folds changed."""
        for fold, part in self._parts(batch):
            fold.remove_batch(part, who)

    def _parts(self, batch: Batch) -> Iterator[tuple[ClassStatistics, Batch]]:
        """Cut a batch into folds and blocks of mapped rows."""
        if self.is_plain:
            yield self.folds[0], batch
            return
        numbers = fold_numbers(batch.X, len(self.folds))
        for number, fold in enumerate(self.folds):
            mine = np.flatnonzero(numbers == number)
            step = len(mine) if self.feature_map is None else _BLOCK_ROWS
            for begin in range(0, len(mine), max(step, 1)):
                yield fold, self._part(batch, mine[begin : begin + step])

    def _part(self, batch: Batch, rows: NDArray[np.intp]) -> Batch:
        X = batch.X if len(rows) == batch.X.shape[0] else batch.X[rows]
        if self.feature_map is not None:
            X = self.feature_map.map_rows(X)
        used, codes = np.unique(batch.codes[rows], return_inverse=True)
        labels = [batch.labels[code] for code in used]
        weights = None if batch.weights is None else batch.weights[rows]
        return Batch(X, labels, codes.astype(np.int32), weights)

    def blocks(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """Rows as the statistics see them: as they are, or mapped some at a time."""
        if self.feature_map is None:
            yield slice(None), X
            return
        for begin in range(0, X.shape[0], _BLOCK_ROWS):
            part = slice(begin, begin + _BLOCK_ROWS)
            yield part, self.feature_map.map_rows(X[part])

    # -- whole statistics ---------------------------------------------------------------------------

    @property
    def total(self) -> ClassStatistics:
        """The statistics of all rows."""
        if len(self.folds) == 1:
            return self.folds[0]
        return self.derived("total", None, self._merged_folds, nullcontext())

    def _merged_folds(self) -> ClassStatistics:
        total = self.folds[0].empty()
        for fold in self.folds:
            total.merge(fold)
        return total

    def derived(self, name: str, key: Any, make: Callable[[], T], lock: AbstractContextManager[Any]) -> T:
        """What ``make`` derives from the statistics and ``key``, remembered until one of them changes.

        Whoever asks for something that is remembered does not wait for the lock, under which rows come in.
        """
        full_key = (self.version, key)
        kept = self._derived.get(name)
        if kept is None or kept[0] != full_key:
            with lock:
                kept = (self.version, key), make()
                self._derived[name] = kept
        value: T = kept[1]
        return value

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_derived": {}}  # remembered answers are no part of a copy

    def merged(self, other: FoldedStatistics) -> FoldedStatistics:
        """What both hold together."""
        return self._with([mine + theirs for mine, theirs in self._pairs(other)])

    def unmerged(self, other: FoldedStatistics, who: str) -> FoldedStatistics:
        """What is left without the rows of the other; refuses rows that were never here."""
        return self._with([mine.copy().unmerge(theirs, who) for mine, theirs in self._pairs(other)])

    def _pairs(self, other: FoldedStatistics) -> Iterator[tuple[ClassStatistics, ClassStatistics]]:
        return zip(self.folds, other.folds, strict=True)

    def grown(self, n_features: int) -> FoldedStatistics:
        """The same with more features at the end, zero in all rows so far."""
        if self.feature_map is not None:
            raise DataError(
                "a feature map has settled the width of the rows, so it cannot grow.",
                who="ProximalSVC.grow",
                hint="give new categories places among the features before the map, such as hashed ones",
            )
        return self._with([fold.copy().grow(n_features) for fold in self.folds])

    def rearranged(self, places: Sequence[int], n_features: int) -> FoldedStatistics:
        """The same with features at other places."""
        if self.feature_map is not None:
            raise DataError("features behind a feature map cannot be moved.", who="ProximalSVC.rearranged")
        return self._with([fold.rearranged(places, n_features) for fold in self.folds])

    def fade(self, factor: float, drop_below: float) -> None:
        """Multiply all weights, then drop classes that weigh too little."""
        for fold in self.folds:
            fold.scale(factor)
        total = self.total
        for label in [label for label in total.classes if total.count(label) < drop_below]:
            for fold in self.folds:
                fold.forget_class(label)

    def check_same_kind(self, other: FoldedStatistics) -> None:
        """Refuse to bring together what passed through different maps, or was sorted differently."""
        mine, theirs = self.feature_map, other.feature_map
        if not (theirs is None if mine is None else mine.same_map(theirs)):
            raise DataError(
                "the two learners have different feature maps; nothing was changed.",
                who="ProximalSVC.merge",
                hint="settle one map first, RandomFeatures(...).fit(X), and give it to all learners",
            )
        if len(self.folds) != len(other.folds):
            raise _different_folds()

    def check_has_folds(self) -> None:
        """Refuse to serve a learner that chooses C by folds, where there are none."""
        if len(self.folds) == 1:
            raise _different_folds()

    # -- files --------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        return {"map": self.feature_map, "folds": [messages.get_state(fold) for fold in self.folds]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_features: int) -> Self:
        """What such values describe; ValueError if they make no sense for rows of this width."""
        folds = [messages.from_state(fold, ClassStatistics) for fold in state["folds"]]
        width = n_features if state["map"] is None else state["map"].n_components
        if {fold.n_features for fold in folds} != {width}:
            raise ValueError("the statistics do not have the width of the features")
        return cls(folds, state["map"])


def _different_folds() -> DataError:
    return DataError(
        'ProximalSVC.merge: one learner keeps fold statistics (C="auto") and the other does not.',
        hint='start both with C="auto" or both with a number',
    )


def fold_numbers(X: Any, n_folds: int) -> NDArray[np.uint64]:
    """The fold of each row: a matter of its values alone, so a row is forgotten where it was learned."""
    if n_folds == 1:
        return np.zeros(X.shape[0], dtype=np.uint64)
    if sp.issparse(X):
        hashes = _native.sparse_row_hashes(X.data, X.indices, X.indptr)
    else:
        hashes = _native.row_hashes(X)
    return hashes % np.uint64(n_folds)
