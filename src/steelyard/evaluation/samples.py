"""A fair sample of the scores of a stream, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.base import encode_labels

__all__ = ["ScoreSample"]


class ScoreSample:
    """Scores of each class, at most ``size`` a class, every row with the same chance to be in.

    Classes are sampled apart, so that the few rows of a rare class are all there. What counts rows must
    use ``counts``.

    Parameters
    ----------
    size : int, default=4000
        Rows kept of each class.
    seed : int, default=0
        For the sampling.
    """

    def __init__(self, size: int = 4000, seed: int = 0) -> None:
        self.size = size
        self.counts: dict[Any, int] = {}
        self._kept: dict[Any, tuple[FloatArray, FloatArray]] = {}  # keys and scores
        self._rng = np.random.default_rng(seed)

    def update(self, labels: NDArray[Any], scores: FloatArray) -> None:
        """Take in rows; which ones stay does not depend on how they are cut."""
        keys = self._rng.random(len(labels))
        distinct, codes = encode_labels(labels)
        for code, label in enumerate(distinct):
            mine = codes == code
            old_keys, old_scores = self._kept.get(label, (np.zeros(0), np.zeros(0)))
            self.counts[label] = self.counts.get(label, 0) + int(np.count_nonzero(mine))
            if len(old_keys) == self.size:  # the rows with the smallest keys stay
                mine &= keys < old_keys.max()
            all_keys, all_scores = np.append(old_keys, keys[mine]), np.append(old_scores, scores[mine])
            if len(all_keys) > self.size:
                smallest = np.sort(np.argpartition(all_keys, self.size)[: self.size])
                all_keys, all_scores = all_keys[smallest], all_scores[smallest]
            self._kept[label] = all_keys, all_scores

    def scores(self, label: Any) -> FloatArray:
        """The sampled scores of a class."""
        return self._kept[label][1] if label in self._kept else np.zeros(0)

    @property
    def labels(self) -> list[Any]:
        """Classes that have rows, sorted."""
        return sorted(self._kept)

    def against(self, positive: Any) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Sampled scores, whether each is of the positive class, and how many rows each stands for."""
        labels = self.labels
        scores = [self.scores(label) for label in labels]
        is_positive = [
            np.full(len(part), label == positive) for label, part in zip(labels, scores, strict=True)
        ]
        weights = [
            np.full(len(part), self.counts[x] / len(part)) for x, part in zip(labels, scores, strict=True)
        ]
        return np.concatenate(scores), np.concatenate(is_positive), np.concatenate(weights)
