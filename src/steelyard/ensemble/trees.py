"""Gradient-boosted trees: a function of their rows, with the same bits on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.score_buffer import n_planes

__all__ = ["BoostedTrees", "TreeRule", "fit_cost_us"]

_N_LEAVES = 16
_LEARNING_RATE = 0.1
_MAX_PLANE_TREES = 12  # with many classes each class has fewer trees with larger steps, at least this many
_L2_REGULARIZATION = 1.0
_MIN_LEAF_ROWS = (5, 20)  # with fewer and with more than `_SMALL_ROWS` rows
_SMALL_ROWS = 2000
_MAX_COLUMNS = 24  # columns per tree, drawn at random if there are more
_COST_US = (0.03, 0.0033)  # of a tree: per row, and per row and column


def trees_of_plane(n_trees: int, planes: int) -> int:
    """Return the number of trees of each plane."""
    return max(min(_MAX_PLANE_TREES, n_trees), n_trees // planes)


def fit_cost_us(n_trees: int, planes: int, n_rows: int, n_columns: int) -> float:
    """Return the microseconds of a fit on a common machine."""
    row, value = _COST_US
    columns = min(n_columns, _MAX_COLUMNS)
    return planes * trees_of_plane(n_trees, planes) * n_rows * (row + value * columns)


class BoostedTrees:
    """Histogram gradient boosting for the logistic loss, one ensemble of trees per plane.

    Parameters
    ----------
    n_trees : int
        Trees of one plane.
    """

    classes_: IntArray
    forest: tuple[Any, ...]
    n_features: int

    def __init__(self, n_trees: int) -> None:
        self.n_trees = n_trees

    def fit(self, X: FloatArray, y: IntArray, sample_weight: FloatArray | None = None) -> Self:
        """Fit trees to these rows; with a single class there are none."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_features, n = X.shape[1], len(self.classes_)
        self.forest = ()
        if n < 2:
            return self
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        trees = trees_of_plane(self.n_trees, n_planes(n))
        self.forest = _native.grow_forest(
            X,
            codes.astype(np.int64, copy=False),
            np.ascontiguousarray(weights, np.float64),
            n,
            n_trees=trees,
            n_leaves=_N_LEAVES,
            rate=_LEARNING_RATE * max(1.0, 60.0 / trees),
            ridge=_L2_REGULARIZATION,
            least_rows=_MIN_LEAF_ROWS[len(y) > _SMALL_ROWS],
            n_columns=_MAX_COLUMNS,
            seed=0,
        )
        return self


@dataclass(frozen=True)
class TreeRule:
    """Sum of the trees of each plane."""

    classes: list[int]
    forest: tuple[Any, ...]
    n_features: int
    _trees: Any = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, trees: BoostedTrees) -> TreeRule:
        """Return the rule of fitted trees."""
        return cls(trees.classes_.tolist(), trees.forest, trees.n_features)

    def __post_init__(self) -> None:
        trees = _native.Trees(*self.forest, n_planes(len(self.classes)), self.n_features)
        object.__setattr__(self, "_trees", trees)

    def scores(self, rows: Any) -> FloatArray:
        """Return the scores of rows."""
        scores: FloatArray = self._trees.scores(rows.X)
        return scores

    def join(self, scorer: _native.RowExperts, number: int) -> bool:
        """Add the trees to a native scorer of single rows."""
        scorer.add_trees(number, self._trees)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeRule, (self.classes, self.forest, self.n_features)
