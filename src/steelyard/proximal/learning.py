"""What ProximalSVC keeps of the rows, and all that changes it: learning, forgetting, fading, merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from steelyard._concurrency import lock_of
from steelyard._labels import check_sortable
from steelyard._types import FloatArray
from steelyard._validation import (
    MAX_QUANTIZED_FEATURE,
    check_finite,
    check_magnitude,
    check_started,
    nonfinite_error,
)
from steelyard.base import (
    Batch,
    ForgettingMixin,
    GrowingMixin,
    MergingMixin,
    check_same_features,
    transactional,
)
from steelyard.exceptions import DataError
from steelyard.features import RandomFeatures
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.gathering import Gathered
from steelyard.proximal.state.quantizer import Quantizer
from steelyard.proximal.state.row_ledger import RowLedger, batch_hashes
from steelyard.proximal.state.statistics import ClassStatistics
from steelyard.proximal.state.waiting import GatheringStatistics

__all__ = ["StatisticsLearner"]


class StatisticsLearner(GrowingMixin, ForgettingMixin, MergingMixin):
    """A learner that keeps statistics of the rows, and a ledger of them where one is wanted.

    How statistics become answers is no affair of this class.
    """

    _max_feature: ClassVar[float] = MAX_QUANTIZED_FEATURE
    C: float | str
    feature_map: RandomFeatures | None
    quantizer: Quantizer | None
    track_rows: bool
    n_folds = 5
    _in_place = ("_state",)
    _ledger: RowLedger | None = None

    # -- learning and forgetting --------------------------------------------------------------------

    def _start_stream(self, batch: Batch) -> None:
        features = self.feature_map
        if (
            features is None
            or features.is_settled
            or not isinstance(features.gamma, str)
            or self.quantizer is not None
        ):
            self._start(batch)
            return
        self._check_range(batch.X, "partial_fit")
        n_folds = self.n_folds if self.C == "auto" else 1
        self._state = GatheringStatistics.of(Gathered.start(features, batch.X.shape[1]), n_folds)
        self._ledger = RowLedger() if self.track_rows else None

    def _start(self, batch: Batch) -> None:
        feature_map = None
        if self.feature_map is not None:
            self._check_range(batch.X, "fit")
            feature_map = self.feature_map.settled(batch.X)
        n_folds = self.n_folds if self.C == "auto" else 1
        self._state = FoldedStatistics.start(batch.X.shape[1], n_folds, feature_map, self.quantizer)
        self._ledger = RowLedger() if self.track_rows else None

    def _learn(self, batch: Batch) -> None:
        if not self._state.is_plain:  # a refusal half-way would leave some of the rows learned
            self._check_range(batch.X, "partial_fit")
        state = self._state
        if self._ledger is not None:  # both change, or neither
            state = state.copy()
            state.choice = self._state.choice
        try:
            state.add(batch)
        except DataError:
            raise nonfinite_error(self, batch.X, "partial_fit") from None
        if self._ledger is not None:
            self._state, self._ledger = state, self._ledger.added(batch_hashes(batch))

    def _check_range(self, X: Any, method: str) -> None:
        """Refuse, before anything changes, whatever could overflow on the way."""
        check_finite(self, X, method)
        check_magnitude(X, f"ProximalSVC.{method}", self._max_feature)

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        state, ledger = self._state.copy(), self._ledger
        if add is not None:
            self._check_range(add.X, method)
            ledger = ledger and ledger.added(batch_hashes(add))
            state.add(add)
        if forget is not None:
            self._check_range(forget.X, method)
            ledger = ledger and ledger.removed(batch_hashes(forget), f"ProximalSVC.{method}")
            state.remove(forget, f"ProximalSVC.{method}")
        self._state, self._ledger = state, ledger

    def _grow(self, n_features: int) -> None:
        self._state = self._state.grown(n_features)

    def permute_features(self, places: Sequence[int], n_features: int) -> Self:
        """A copy whose features stand at other places, exactly as if the rows had been so from the start.

        Parameters
        ----------
        places : sequence of int
            For each feature, its new place.
        n_features : int
            The new number of features; those that none is moved to are zero in all rows.

        Returns
        -------
        ProximalSVC
        """
        check_started(self, "rearranged")
        self._check_no_ledger("permute_features", "features of rows in a ledger cannot be moved")
        twin: Self = clone(self)
        twin.n_features_in_ = int(n_features)
        twin._state = self._state.permute_features(places, n_features)
        return twin

    @transactional
    def decay(self, factor: float, *, drop_below: float = 0.0) -> Self:
        """Multiply the weight of every row learned so far.

        Parameters
        ----------
        factor : float
            A positive number; below 1 makes old rows count less than those to come.
        drop_below : float, default=0.0
            A class whose rows together weigh less than this is forgotten.

        Returns
        -------
        self
        """
        check_started(self, "fade")
        self._check_no_ledger("decay", "rows in a ledger cannot fade")
        state = self._state.faded(factor, drop_below)
        state.choice = self._state.choice and self._state.choice.faded(factor)
        self._state = state
        return self

    def statistics(self) -> FoldedStatistics:
        """All that was learned, to be sent, added up and given to :meth:`merge` elsewhere.

        Returns
        -------
        FoldedStatistics
            With the features and the ledger, independent of the learner. ``to_bytes()`` writes it.
        """
        check_started(self, "statistics")
        with lock_of(self):
            return self._state.signed(self._features()["feature_names"], self._ledger)

    def merge(self, other: Self | FoldedStatistics | ClassStatistics) -> Self:
        """Learn what another learner has learned; it stays as it is.

        Parameters
        ----------
        other : ProximalSVC, FoldedStatistics or ClassStatistics
            A learner of the same features, with the same feature map and the same kind of C ("auto" or
            not), the :meth:`message` of one, or bare statistics.

        Returns
        -------
        self
        """
        return self._merge(_apart(other))

    @transactional
    def _merge(self, other: Any) -> Self:
        self._check_params()
        theirs = self._mergeable(other)
        check_sortable([*self._state.total.classes, *theirs.total.classes], "ProximalSVC.merge")
        if self._ledger is not None:
            self._ledger = self._ledger.merged(_ledger_of(other))
        self._state = self._state.merged(theirs)
        return self

    def subtract(self, other: Self | FoldedStatistics | ClassStatistics) -> Self:
        """Unlearn what another learner has learned, rows that this one has learned too.

        Parameters
        ----------
        other : ProximalSVC, FoldedStatistics or ClassStatistics
            As for :meth:`merge`.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If counts or the statistics show that some of the rows were never learned. Nothing changes.
        """
        return self._unmerge(_apart(other))

    @transactional
    def _unmerge(self, other: Any) -> Self:
        self._check_params()
        check_started(self, "subtract")
        theirs = self._mergeable(other)
        if self._ledger is not None:
            self._ledger = self._ledger.unmerged(_ledger_of(other), "ProximalSVC.subtract")
        self._state = self._state.unmerged(theirs, "ProximalSVC.subtract")
        return self

    def _check_no_ledger(self, method: str, message: str) -> None:
        if self._ledger is not None:
            raise DataError(
                f"{message}: it knows rows by their values as they were learned.",
                source=f"ProximalSVC.{method}",
                hint="use track_rows=False, and say yourself which rows are in",
            )

    def _mergeable(self, other: Any) -> FoldedStatistics:
        """What the other side holds, after all checks; a learner without rows adopts its shape."""
        if isinstance(other, ClassStatistics):
            if not self._is_started():
                self.n_features_in_ = other.n_features
                self._state = FoldedStatistics.start(other.n_features, 1, quantizer=self.quantizer)
                self._ledger = RowLedger() if self.track_rows else None
            if not self._state.is_plain or self.C == "auto":
                raise DataError(
                    "bare statistics have no folds and no feature map; this learner has.",
                    source="ProximalSVC.merge",
                    hint="merge the learner that the statistics belong to",
                )
            return FoldedStatistics(other)
        if not isinstance(other, FoldedStatistics):
            raise DataError(
                f"expected a ProximalSVC, FoldedStatistics or ClassStatistics; got {type(other).__name__}.",
                source="ProximalSVC.merge",
            )
        if other.left_map is not None:
            other = other.with_map(self._map_for(other.n_features))
        theirs = other.signed(None, None)  # names and ledger are kept by the learner itself
        if not self._is_started():
            if self.C == "auto":
                theirs.check_has_folds()
            self._set_features(other.features)
            self._state = theirs.empty() if self.quantizer is None else theirs.started_on(self.quantizer)
            self._ledger = RowLedger() if self.track_rows else None
        check_same_features(self._features(), other.features, "ProximalSVC.merge")
        self._state.check_same_kind(theirs)
        return theirs

    def _map_for(self, n_features: int) -> RandomFeatures | None:
        """The map of this learner, for a message that came without."""
        if self._is_started():
            return self._state.feature_map
        return None if self.feature_map is None else self.feature_map.settled_for(n_features)

    # -- what was learned ---------------------------------------------------------------------------

    @property
    def statistics_(self) -> ClassStatistics:
        """All that is kept of the rows."""
        self._need("statistics_")
        return self._state.total

    @property
    def feature_map_(self) -> RandomFeatures | None:
        """The settled feature map, if there is one."""
        self._need("feature_map_")
        return self._state.feature_map

    @property
    def quantizer_(self) -> Quantizer:
        """The steps in which values are counted; before 256 rows have come, as these so far would have it."""
        self._need("quantizer_")
        return self._state.statistics.quantizer

    def digest(self) -> str:
        """A name for all that was learned: the exact sums of all rows, and the feature map.

        Two learners whose rows are the same, on grids that round alike, have the same digest after
        whatever histories; after :meth:`forget` it is the digest of a learner that never saw those rows.
        Parameters play no part, and neither do the folds of ``C="auto"``, which follow from the rows.

        Returns
        -------
        str
            32 hexadecimal digits.
        """
        check_started(self, "digest")
        return self._state.digest()

    @property
    def class_count_(self) -> FloatArray:
        """Rows of each class now."""
        self._need("class_count_")
        with lock_of(self):
            statistics = self._state.total
            return np.array([statistics.count(label) for label in statistics.classes])


def _ledger_of(other: Any) -> RowLedger:
    """The ledger of the other side, for a learner that keeps one."""
    ledger = other.ledger if isinstance(other, FoldedStatistics) else None
    if ledger is None:
        raise DataError(
            "this learner keeps a ledger of its rows, and the other side has none; nothing was changed.",
            source="ProximalSVC.merge",
            hint="give track_rows=True to both, or to neither",
        )
    return ledger


def _apart(other: Any) -> Any:
    """Another learner at one moment, which its own lock gives: no one ever waits for two locks."""
    if not isinstance(other, StatisticsLearner):
        return other
    check_started(other, "merge")
    return other.statistics()
