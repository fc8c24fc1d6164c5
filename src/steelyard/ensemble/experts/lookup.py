"""Experts without a fitted model, which look up their last rows: label frequencies, nearest neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import ExpertConfig, Rule, Stream, WindowExpert
from steelyard.ensemble.views import TransformedRows
from steelyard.explanation.attribution import Attribution, explain_function
from steelyard.kernels import Kernel

__all__ = ["LabelFrequencyExpert", "LabelFrequencyRule", "NearestNeighborExpert", "NearestNeighborRule"]


class LabelFrequencyExpert(WindowExpert):
    """Decayed frequencies of the last labels, whose weights halve after ``half_life_rows`` rows.

    The features are not used.
    """

    uses_features = False

    def __init__(self, config: ExpertConfig, half_life_rows: float) -> None:
        super().__init__(config)
        self._decay = float(np.exp2(-1.0 / half_life_rows))

    def make_rule(self, stream: Stream) -> Rule | None:
        codes = stream.rows.codes_at(self.held)[::-1]
        counts: FloatArray = np.bincount(codes, _powers(self._decay, len(codes))).astype(np.float64)
        classes = np.flatnonzero(counts)
        return LabelFrequencyRule(classes.tolist(), counts[classes], self._decay) if len(classes) else None


@lru_cache(maxsize=16)
def _powers(decay: float, n: int) -> FloatArray:
    return np.power(decay, np.arange(n))


@dataclass(frozen=True)
class LabelFrequencyRule(Rule):
    """Frequency of each class among the last labels, which is the same score for all rows."""

    classes: list[int]
    counts: FloatArray  # decayed number of labels of each class
    decay: float  # factor by which the counts are multiplied at each new label

    def scores(self, rows: TransformedRows) -> FloatArray:
        counts = self.counts[1:] if len(self.classes) == 2 else self.counts
        scores = np.empty((len(rows.X), len(counts)))
        scores[:] = counts / self.counts.sum()
        return scores

    def constant(self, classes: list[int]) -> float:
        if classes == self.classes:
            first, second = self.counts.tolist()
            return second / (first + second)
        if not set(classes) <= set(self.classes):
            return float("nan")
        return float(self.counts[self.classes.index(classes[1])] / self.counts.sum())

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return zero contributions, because the score is the same for all rows and belongs to the base."""
        base = self.scores(background)[0]
        return Attribution(np.zeros((*rows.X.shape, len(base))), base)

    def after_labels(self, codes: list[int]) -> LabelFrequencyRule:
        classes, counts = self.classes, self.counts
        for code in codes:
            counts = counts * self.decay
            if code not in classes:
                index = int(np.searchsorted(classes, code))
                classes = [*classes[:index], code, *classes[index:]]
                counts = np.insert(counts, index, 0.0)
            counts[classes.index(code)] += 1.0
        return LabelFrequencyRule(classes, counts, self.decay)


class NearestNeighborExpert(WindowExpert):
    """Weighted vote of the 5 nearest rows (by ranks) among the last 200 and the last 20 of each class."""

    uses_ranks = True
    min_new_rows = 10
    window_rows = WindowExpert.n_last_rows
    n_rows_per_class, max_class_rows = 20, 400
    n_neighbors: ClassVar[int] = 5

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        # The rank transformation, row numbers and ranks of the last rule.
        self._last_ranks: tuple[Any, IntArray, FloatArray] = (None, self.held, np.empty((0, 0)))

    def make_rule(self, stream: Stream) -> Rule | None:
        block = stream.rows.at(self.held)
        classes = np.unique(block.codes)
        if len(classes) < 2:
            return None
        fitted, numbers, known = self._last_ranks
        if fitted is not stream.views.ranks:
            ranks = np.ascontiguousarray(TransformedRows(block.X, stream.views).ranks)
        else:  # rows of the last rule are not transformed again
            nearest = np.minimum(numbers.searchsorted(block.numbers), len(numbers) - 1)
            is_new = numbers[nearest] != block.numbers
            ranks = known[nearest]
            ranks[is_new] = TransformedRows(block.X[is_new], stream.views).ranks
        self._last_ranks = stream.views.ranks, block.numbers, ranks
        return NearestNeighborRule(
            classes.tolist(), ranks, classes.searchsorted(block.codes), self.n_neighbors
        )


@dataclass(frozen=True)
class NearestNeighborRule(Rule):
    """Vote of the nearest rows, each weighted by exp(-L1 distance / n_columns)."""

    classes: list[int]
    vectors: FloatArray
    class_indices: IntArray  # index in `classes` of the class of each row
    n_neighbors: int = 5

    def scores(self, rows: TransformedRows) -> FloatArray:
        """Return smoothed log-odds of two classes, or one smoothed log-share per class."""
        return self._rank_scores(rows.ranks)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return Shapley values of the rank-transformed features, relative to the mean of the background."""
        part = explain_function(self._rank_scores, rows.ranks, background.ranks.mean(axis=0))
        return rows.by_ranked_column(part)

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:
        kernel = _laplacian(self.vectors.shape[1])
        scorer.add_neighbors(number, kernel, self.vectors, self.class_indices, self.n_neighbors)
        return True

    def _rank_scores(self, ranks: FloatArray) -> FloatArray:
        kernel, ranks = _laplacian(self.vectors.shape[1]), np.ascontiguousarray(ranks)
        return _native.neighbor_scores(
            kernel, ranks, self.vectors, self.class_indices, len(self.classes), self.n_neighbors
        )


@cache
def _laplacian(n_columns: int) -> _native.KernelSpec:
    return Kernel("laplacian", gamma=1.0 / n_columns).spec()
