"""Statistics of the first rows of a stream, which wait for their feature map."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.base import Batch
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.gathering import Gathered
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["GatheringStatistics"]


class GatheringStatistics(FoldedStatistics):
    """Statistics of the first rows of a stream, whose map is not settled for good yet.

    The rows are kept beside the statistics, which are those of the rows under a map for the time being. Where
    the stream is cut into batches does not matter, and neither does what was forgotten on the way.
    """

    @classmethod
    def of(cls, gathered: Gathered, n_folds: int) -> FoldedStatistics:
        """What such rows make, for good if they are enough."""
        feature_map = gathered.settled() if len(gathered) else gathered.unsettled.settled(_no_row(gathered))
        state = cls.start(gathered.X.shape[1], n_folds, feature_map)
        if len(gathered):
            FoldedStatistics.add(state, gathered.batch())
        state.gathered = None if gathered.is_enough else gathered
        return state

    def _with(self, statistics: ClassStatistics) -> FoldedStatistics:
        if self.gathered is None:
            return super()._with(statistics)
        twin = GatheringStatistics(statistics, self.n_folds, self.feature_map)
        twin.gathered = self.gathered
        return twin

    def empty(self) -> FoldedStatistics:
        if self.gathered is None:
            return super().empty()
        return self.of(Gathered.start(self.gathered.unsettled, self.gathered.X.shape[1]), self.n_folds)

    def add(self, batch: Batch) -> None:
        if self.gathered is None:
            super().add(batch)
            return
        # Enough rows settle the map, wherever in a batch they come; those after them are not gathered.
        room = min(self.gathered.room, batch.X.shape[0])
        gathered = self.gathered.with_rows(_rows_of(batch, slice(0, room)))
        if gathered.is_enough or gathered.n_settling != self.gathered.n_settling:
            after = self.of(gathered, self.n_folds)
        else:
            after = self.copy()
            FoldedStatistics.add(after, _rows_of(batch, slice(0, room)))
            after.gathered = gathered
        if room < batch.X.shape[0]:
            after.add(_rows_of(batch, slice(room, None)))
        self._become(after)

    def remove(self, batch: Batch, source: str) -> None:
        if self.gathered is None:
            super().remove(batch, source)
        else:
            self._become(self.of(self.gathered.without(batch, source), self.n_folds))

    def faded(self, factor: float, drop_below: float) -> FoldedStatistics:
        result = super().faded(factor, drop_below)
        if result.gathered is not None:
            kept = set(result.total.classes)
            lost = {label for label in result.gathered.labels if label not in kept}
            result.gathered = result.gathered.faded(factor).without_classes(lost)
        return result

    def get_state(self) -> dict[str, Any]:
        gathered = None if self.gathered is None else self.gathered.get_state()
        return {**super().get_state(), "gathered": gathered}

    def _become(self, other: FoldedStatistics) -> None:
        choice = self.choice if other.feature_map is self.feature_map else None
        self.__dict__ = {**other.__dict__, "choice": choice}  # the one moment


def _rows_of(batch: Batch, part: slice) -> Batch:
    weights = None if batch.weights is None else batch.weights[part]
    return Batch(batch.X[part], batch.labels, batch.codes[part], weights)


def _no_row(gathered: Gathered) -> Any:
    """Settles a map for rows of this width before any has come."""
    return np.zeros((1, gathered.X.shape[1]))
