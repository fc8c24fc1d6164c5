"""A fair sample of the scores of a stream, in bounded memory."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

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
        self._limits: FloatArray = np.zeros(0)  # by class: rows with keys below stay
        self._rng = np.random.default_rng(seed)

    def update(self, codes: NDArray[np.integer[Any]], scores: FloatArray) -> None:
        """Take in rows, their classes as numbers; which ones stay does not depend on how they are cut."""
        keys = self._rng.random(len(codes))
        rows = np.bincount(codes, minlength=len(self._limits))
        if len(rows) > len(self._limits):
            self._limits = np.append(self._limits, np.ones(len(rows) - len(self._limits)))
        for code in np.flatnonzero(rows).tolist():
            self.counts[code] = self.counts.get(code, 0) + int(rows[code])
        staying = np.flatnonzero(keys < self._limits[codes])
        staying_codes = codes[staying]
        for code in np.unique(staying_codes).tolist():
            self._keep(code, *(part[staying[staying_codes == code]] for part in (keys, scores)))

    def _keep(self, code: int, keys: FloatArray, scores: FloatArray) -> None:
        old_keys, old_scores = self._kept.get(code, (np.zeros(0), np.zeros(0)))
        keys, scores = np.append(old_keys, keys), np.append(old_scores, scores)
        if len(keys) > self.size:  # the rows with the smallest keys stay
            smallest = np.sort(np.argpartition(keys, self.size)[: self.size])
            keys, scores = keys[smallest], scores[smallest]
        if len(keys) == self.size:
            self._limits[code] = keys.max()
        self._kept[code] = keys, scores

    def read_as(self, names: list[Any], sign: float = 1.0) -> Self:
        """The same sample with names for the classes, and scores that speak for the other side if asked."""
        other = type(self)(self.size)
        other.counts = {names[code]: n for code, n in self.counts.items()}
        other._kept = {names[code]: (keys, sign * scores) for code, (keys, scores) in self._kept.items()}
        return other

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
