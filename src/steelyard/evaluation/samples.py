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
        self._kept: dict[Any, list[tuple[FloatArray, FloatArray]]] = {}  # parts: keys and scores
        self._n_kept: dict[Any, int] = {}
        self._limits: FloatArray = np.zeros(0)  # by class: only rows with keys below may stay
        self._rng = np.random.default_rng(seed)

    def update(self, codes: NDArray[np.integer[Any]], scores: FloatArray) -> None:
        """Take in rows, their classes as numbers; which ones stay does not depend on how they are cut."""
        keys = self._rng.random(len(codes))
        rows = np.bincount(codes, minlength=len(self._limits))
        if len(rows) > len(self._limits):
            self._limits = np.append(self._limits, np.ones(len(rows) - len(self._limits)))
        staying = np.flatnonzero(keys < self._limits[codes])
        staying_codes = codes[staying]
        for code in np.flatnonzero(rows).tolist():
            self.counts[code] = self.counts.get(code, 0) + int(rows[code])
            mine = staying[staying_codes == code]
            if len(mine):
                self._kept.setdefault(code, []).append((keys[mine], scores[mine]))
                self._n_kept[code] = self._n_kept.get(code, 0) + len(mine)
                if self._n_kept[code] > 2 * self.size:
                    self._trim(code)

    def _trim(self, code: Any) -> tuple[FloatArray, FloatArray]:
        """The sample of a class: the rows with the smallest keys."""
        keys, scores = (np.concatenate(parts) for parts in zip(*self._kept[code], strict=True))
        if len(keys) > self.size:
            smallest = np.sort(np.argpartition(keys, self.size)[: self.size])
            keys, scores = keys[smallest], scores[smallest]
            self._limits[code] = keys.max()
        self._kept[code], self._n_kept[code] = [(keys, scores)], len(keys)
        return keys, scores

    def read_as(self, names: list[Any], sign: float = 1.0) -> Self:
        """The same sample with names for the classes, and scores that speak for the other side if asked."""
        other = type(self)(self.size)
        other.counts = {names[code]: n for code, n in self.counts.items()}
        for code in self._kept:
            keys, scores = self._trim(code)
            other._kept[names[code]] = [(keys, sign * scores)]
        return other

    def scores(self, label: Any) -> FloatArray:
        """The sampled scores of a class."""
        return self._trim(label)[1] if label in self._kept else np.zeros(0)

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
