"""Precision and recall at k for each day of a stream with times."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.metrics.score_measures import BoolArray, Ranking

DAY_SECONDS = 86_400.0
_MAX_DAYS = 4000  # maximum number of days; older days are dropped


@dataclass(frozen=True, slots=True)
class DayLine:
    """Measures of one day.

    Each pair has the value for the scored class as the positive class, and the value for the other class.
    """

    day: int  # days since 1970-01-01, UTC
    n_rows: int
    n_positive: tuple[int, int]
    precision_at_k: tuple[float, float]
    recall_at_k: tuple[float, float]


class DayMeasures:
    """Precision and recall of the ``k`` highest scores of each day.

    Only the rows of the current day are stored. Late rows of an earlier day produce a second entry for that
    day.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        self._closed: deque[DayLine] = deque(maxlen=_MAX_DAYS)
        self._day: int | None = None
        self._parts: list[tuple[BoolArray, FloatArray]] = []

    def update(self, time: FloatArray, is_positive: BoolArray, scores: FloatArray) -> None:
        """Add rows with their times in seconds since 1970."""
        days: NDArray[np.int64] = np.floor(time / DAY_SECONDS).astype(np.int64)
        borders = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for begin, end in pairwise(borders):
            if begin == end:
                continue
            if self._day != days[begin] and self._parts:
                self._closed.append(self._line())
                self._parts = []
            self._day = int(days[begin])
            self._parts.append((is_positive[begin:end].copy(), scores[begin:end].copy()))

    def lines(self) -> list[DayLine]:
        """Return the measures of each day. The last day may be incomplete."""
        return [*self._closed, self._line()] if self._parts else list(self._closed)

    def _line(self) -> DayLine:
        is_positive, scores = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        ranking = Ranking.of(is_positive, scores)
        pairs = zip(ranking.at_k(self.k), ranking.of_other_class().at_k(self.k), strict=True)
        n_positive = int(is_positive.sum())
        assert self._day is not None  # set by update()
        return DayLine(self._day, len(scores), (n_positive, len(scores) - n_positive), *pairs)
