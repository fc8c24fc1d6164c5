"""Boosted trees over the last rows: grown anew now and then, a function of the rows that they know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray, IntArray

__all__ = ["BoostedTrees", "TreeRule", "growing_cost", "n_trees"]

_TREES = (30, 12)  # of one plane, and at least of each if there are many
_STEPS = 6.0  # of all trees together, in whole steps of boosting
_LEAVES = 16
_RIDGE = 1.0  # rows' worth of curvature
_LEAST_ROWS = 5  # in a leaf
_COLUMNS = 24  # that a tree looks at; which, is drawn for each tree if there are more
_COST = (0.03, 0.0033)  # microseconds of a tree for each row, and for each value of it


def n_trees(n_planes: int) -> int:
    """Trees of each plane: fewer, with larger steps, if there are many planes."""
    most, least = _TREES
    return max(least, most // n_planes)


def growing_cost(n_planes: int, n_rows: int, n_columns: int) -> float:
    """Microseconds that growing takes on a common machine."""
    row, value = _COST
    return n_planes * n_trees(n_planes) * n_rows * (row + value * min(n_columns, _COLUMNS))


class BoostedTrees:
    """Logistic boosting, all classes counted alike; the same rows give the same trees, bit by bit."""

    classes_: IntArray
    forest: tuple[Any, ...]
    n_features: int

    def fit(self, X: FloatArray, y: IntArray, sample_weight: FloatArray | None = None) -> Self:
        """Grow trees from these rows; none if they are of one class."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_features = X.shape[1]
        n = len(self.classes_)
        if n < 2:
            self.forest = ()
            return self
        weights = (
            np.ones(len(y)) if sample_weight is None else np.ascontiguousarray(sample_weight, np.float64)
        )
        trees = n_trees(n if n > 2 else 1)
        self.forest = _native.grow_forest(
            X,
            codes.astype(np.int64, copy=False),
            weights,
            n,
            n_trees=trees,
            n_leaves=_LEAVES,
            rate=_STEPS / trees,
            ridge=_RIDGE,
            least_rows=_LEAST_ROWS,
            n_columns=_COLUMNS,
            seed=0,
        )
        return self


@dataclass(frozen=True)
class TreeRule:
    """Sums of trees over rows as they are."""

    classes: list[int]
    forest: tuple[Any, ...]
    n_features: int
    _trees: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n_planes = len(self.classes) if len(self.classes) > 2 else 1
        feature, left, number, roots = self.forest
        trees = _native.Trees(feature, left, number, roots, n_planes, self.n_features)
        object.__setattr__(self, "_trees", trees)

    def scores(self, rows: Any) -> FloatArray:
        """Scores of rows."""
        scores: FloatArray = self._trees.scores(rows.X)
        return scores

    def join(self, experts: _native.RowExperts, number: int) -> bool:
        """Score single rows together with others."""
        experts.add_trees(number, self._trees)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeRule, (self.classes, self.forest, self.n_features)
