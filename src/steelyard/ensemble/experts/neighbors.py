"""Nearest neighbor expert: a nonlinear model with a short memory, for fast concept drift."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import ExpertConfig, Rule, Stream, WindowExpert
from steelyard.ensemble.row_buffer import Block, last_rows
from steelyard.ensemble.views import TransformedRows, Views
from steelyard.explanation.attribution import Attribution, explain_function
from steelyard.kernels import Kernel

__all__ = ["NearestNeighborExpert", "NearestNeighborRule"]

_ROWS_OF_CLASS = 20


class NearestNeighborExpert(WindowExpert):
    """Weighted vote of the 5 nearest rows (by ranks) among the last 200 and the last 20 of each class."""

    uses_ranks = True
    min_new_rows = 10
    window_rows: int = 200
    n_neighbors: ClassVar[int] = 5

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        # The rank transformation, row numbers and ranks of the last rule.
        self._last_ranks: tuple[Any, IntArray, FloatArray] = (None, self.held, np.empty((0, 0)))

    def select(self, stream: Stream) -> IntArray:
        per_class = min(_ROWS_OF_CLASS, 2 * self.window_rows // max(stream.budget.n_classes, 1))
        rows = stream.rows
        return last_rows(rows.numbers, rows.codes, self.window_rows, per_class, stream.window_start)

    def make_rule(self, stream: Stream) -> Rule | None:
        block = stream.rows.at(self.held)
        classes = np.unique(block.codes)
        if len(classes) < 2:
            return None
        ranks = self._ranks(block, stream.views)
        return NearestNeighborRule(
            classes.tolist(), ranks, classes.searchsorted(block.codes), self.n_neighbors
        )

    def _ranks(self, block: Block, views: Views) -> FloatArray:
        """Return the ranks of the remembered rows. Rows of the last rule are not transformed again."""
        fitted, numbers, known = self._last_ranks
        if fitted is not views.ranks:
            ranks = np.ascontiguousarray(TransformedRows(block.X, views).ranks)
        else:
            places = np.minimum(numbers.searchsorted(block.numbers), len(numbers) - 1)
            is_new = numbers[places] != block.numbers
            ranks = known[places]
            ranks[is_new] = TransformedRows(block.X[is_new], views).ranks
        self._last_ranks = views.ranks, block.numbers, ranks
        return ranks


@dataclass(frozen=True)
class NearestNeighborRule(Rule):
    """Vote of the nearest rows, each weighted by exp(-L1 distance / n_columns)."""

    classes: list[int]
    vectors: FloatArray
    places: IntArray  # index in `classes` of the class of each row
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
        scorer.add_neighbors(number, kernel, self.vectors, self.places, self.n_neighbors)
        return True

    def _rank_scores(self, ranks: FloatArray) -> FloatArray:
        kernel, ranks = _laplacian(self.vectors.shape[1]), np.ascontiguousarray(ranks)
        return _native.neighbor_scores(
            kernel, ranks, self.vectors, self.places, len(self.classes), self.n_neighbors
        )


@cache
def _laplacian(n_columns: int) -> _native.KernelSpec:
    return Kernel("laplacian", gamma=1.0 / n_columns).spec()
