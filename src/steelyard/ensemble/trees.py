"""Gradient-boosted trees that are refitted periodically and depend only on the remembered rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import Rule
from steelyard.explanation.attribution import Attribution

__all__ = ["BoostedTrees", "TreeRule", "fit_cost_us", "trees_per_output"]

_MAX_TREES, _MIN_TREES = 30, 12  # maximum and minimum number of trees per output
_TOTAL_LEARNING_RATE = 6.0  # sum of the learning rates of all trees of an output
_MAX_COLUMNS = 24
# Cost of a tree in microseconds per row, per value, per value with sampled columns, and per bin and leaf.
_COST_US = (0.02, 0.0013, 0.0033, 0.0053)


def trees_per_output(n_trees: int, n_outputs: int) -> int:
    """Return the number of trees per output. Many outputs have fewer trees with a larger learning rate."""
    return max(min(_MIN_TREES, n_trees), n_trees // n_outputs)


def fit_cost_us(
    n_trees: int, n_outputs: int, n_rows: int, n_columns: int, *, n_bins: int, max_leaves: int = 16
) -> float:
    """Return the microseconds that one fit takes on a typical machine.

    ``n_trees`` counts the trees of a model with one output, ``n_columns`` the columns that are not constant,
    and ``n_bins`` the bins of all these columns together.
    """
    row, value, sampled_value, bin_ = _COST_US
    columns = min(n_columns, _MAX_COLUMNS)
    per_row = row + columns * (value if n_columns <= _MAX_COLUMNS else sampled_value)
    per_row *= 0.9 + 0.1 * max_leaves / 16.0
    per_tree = n_rows * per_row + max_leaves * n_bins * columns / max(n_columns, 1) * bin_
    return n_outputs * trees_per_output(n_trees, n_outputs) * per_tree


@dataclass(eq=False)
class BoostedTrees:
    """Gradient-boosted decision trees for the logistic loss; more than two classes are learned one-vs-rest.

    The same rows give bit-identical trees on any machine and with any number of threads. NaN is a missing
    value: each split learns to which child missing values go. Infinite values are allowed.

    Parameters
    ----------
    n_trees : int or None, default=None
        Number of trees per output. None means 30 for one output, down to 12 for many.
    learning_rate : float or None, default=None
        Factor of the value of each leaf. None means ``6 / n_trees``.
    max_leaves : int, default=16
        Largest number of leaves of a tree.
    l2_regularization : float, default=1.0
        Constant added to the sum of hessians of a leaf.
    min_rows_per_leaf : int, default=5
        Smallest number of rows in a leaf.
    max_columns, column_fraction : int and float, default=24 and 1.0
        Largest number and largest fraction of the columns that a tree uses, drawn at random.
    row_fraction : float, default=1.0
        Probability with which a tree uses each row.
    max_bins : int, default=64
        Bins per numeric column, at most 256. More bins find finer thresholds and take longer.
    class_weight : "balanced" or None, default="balanced"
        With "balanced", all classes have the same total weight. With None, rows count by their weights, and
        scores start from the log-odds of the class shares.
    categories : tuple of int, default=()
        Columns of category codes: integers from 0 to 65,534. Splits are sets of categories. NaN, negative,
        unknown and rare codes share one side of a split.
    pack_sums : bool, default=False
        Round gradients to fewer bits, up or down at random, so that sums over rows fit into one word. A fit
        is faster and hardly less accurate. Ignored with more than 131,071 rows or very different weights.
    seed : int, default=0
        Seed of the random choice of columns and rows, and of random rounding.
    n_threads : int, default=1
        Number of threads; the result does not depend on it.
    """

    n_trees: int | None = None
    learning_rate: float | None = None
    max_leaves: int = 16
    l2_regularization: float = 1.0
    min_rows_per_leaf: int = 5
    max_columns: int = _MAX_COLUMNS
    column_fraction: float = 1.0
    row_fraction: float = 1.0
    max_bins: int = 64
    class_weight: str | None = "balanced"
    categories: tuple[int, ...] = ()
    pack_sums: bool = False
    seed: int = 0
    n_threads: int = 1

    classes_: IntArray = field(init=False, repr=False)
    forest: tuple[Any, ...] = field(init=False, repr=False)
    n_features: int = field(init=False, repr=False)

    def fit(self, X: FloatArray, y: IntArray, sample_weight: FloatArray | None = None) -> Self:
        """Fit trees to the given rows. Rows of a single class give no trees."""
        if self.class_weight not in {"balanced", None}:
            raise ValueError(f"class_weight must be 'balanced' or None, not {self.class_weight!r}")
        classes, codes = np.unique(y, return_inverse=True)
        forest = self._fit_forest(X, codes.astype(np.int64, copy=False), len(classes), sample_weight)
        self.classes_, self.n_features, self.forest = classes, X.shape[1], forest
        return self

    def _fit_forest(
        self, X: FloatArray, codes: IntArray, n_classes: int, sample_weight: FloatArray | None
    ) -> tuple[Any, ...]:
        if n_classes < 2:
            return ()
        n_features = X.shape[1]
        weights = (
            np.ones(len(codes)) if sample_weight is None else np.ascontiguousarray(sample_weight, np.float64)
        )
        is_category = np.zeros(n_features, dtype=np.uint8)
        is_category[list(self.categories)] = 1
        trees = self.n_trees or trees_per_output(_MAX_TREES, n_classes if n_classes > 2 else 1)
        forest: tuple[Any, ...] = _native.fit_gradient_boosting(
            X,
            codes,
            weights,
            n_classes,
            is_category,
            n_trees=trees,
            max_leaves=self.max_leaves,
            learning_rate=_TOTAL_LEARNING_RATE / trees if self.learning_rate is None else self.learning_rate,
            l2_regularization=self.l2_regularization,
            min_rows_per_leaf=self.min_rows_per_leaf,
            max_columns=max(1, min(self.max_columns, round(self.column_fraction * n_features))),
            seed=self.seed,
            row_fraction=self.row_fraction,
            max_bins=self.max_bins,
            balance_classes=self.class_weight == "balanced",
            start_from_prior=self.class_weight is None,
            pack_sums=self.pack_sums,
            n_threads=self.n_threads,
        )
        return forest


def _ensemble(forest: tuple[Any, ...], n_outputs: int, n_features: int) -> _native.TreeEnsemble:
    """Return the native ensemble. Forests of version 0.2 have only the first four arrays."""
    arrays: list[Any] = list(forest)
    if len(arrays) == 4:
        n = len(arrays[0])
        arrays += [
            np.zeros(n, dtype=np.uint8),  # in version 0.2, missing values always go to the right
            np.empty(0, dtype=np.int32),
            np.full(n, -1, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.empty(0, dtype=np.uint64),
            np.zeros(n_outputs),
        ]
    return _native.TreeEnsemble(*[*arrays, n_features])


@dataclass(frozen=True)
class TreeRule(Rule):
    """Decision function of fitted trees."""

    classes: list[int]
    forest: tuple[Any, ...]
    n_features: int
    _trees: Any = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, trees: BoostedTrees) -> TreeRule:
        """Return the rule of fitted trees."""
        return cls(trees.classes_.tolist(), trees.forest, trees.n_features)

    def __post_init__(self) -> None:
        n_outputs = len(self.classes) if len(self.classes) > 2 else 1
        object.__setattr__(self, "_trees", _ensemble(self.forest, n_outputs, self.n_features))

    def scores(self, rows: Any) -> FloatArray:
        """Return the scores of rows, one column per output."""
        scores: FloatArray = self._trees.scores(self._columns(rows.X))
        return scores

    def contributions(self, rows: Any) -> FloatArray:
        """Return SHAP values of shape (n_rows, n_outputs, n_features + 1); the last is the expected score."""
        values: FloatArray = self._trees.contributions(self._columns(rows.X), num_threads())
        return values

    def attribution(self, rows: Any, background: Any) -> Attribution:  # noqa: ARG002  for TreeSHAP
        """Return SHAP values; the base is the average score of the rows that the trees were fitted on."""
        values = self.contributions(rows).transpose(0, 2, 1)
        known = np.arange(self.n_features)  # columns added after the fit of the trees are ignored
        return Attribution(values[:, :-1], values[0, -1]).by_source(known, rows.X.shape[1])

    def _columns(self, X: FloatArray) -> FloatArray:
        """Return the columns that the trees know; a table may have gained columns since the fit."""
        return X if X.shape[1] == self.n_features else np.ascontiguousarray(X[:, : self.n_features])

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:
        scorer.add_trees(number, self._trees)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeRule, (self.classes, self.forest, self.n_features)
