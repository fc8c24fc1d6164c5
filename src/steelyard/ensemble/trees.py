"""Gradient-boosted trees that are refitted periodically and depend only on the remembered rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import Rule
from steelyard.explanation.attribution import Attribution

__all__ = ["TreeRule", "fit_cost_us", "fit_trees", "trees_per_output"]

_MIN_TREES = 12  # minimum number of trees per output
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


def fit_trees(
    X: FloatArray,
    y: IntArray,
    weights: FloatArray | None = None,
    *,
    n_trees: int,
    learning_rate: float,
    max_leaves: int = 16,
    l2_regularization: float = 1.0,
    min_rows_per_leaf: int = 5,
    max_columns: int = _MAX_COLUMNS,
    max_bins: int = 64,
    categories: tuple[int, ...] = (),
    balance_classes: bool = False,
    pack_sums: bool = False,
) -> TreeRule:
    """Fit gradient-boosted decision trees for the logistic loss, one-vs-rest for more than two classes.

    The same rows give bit-identical trees on any machine. NaN is a missing value: each split learns to which
    child missing values go. Infinite values are allowed. Rows of a single class give no trees.

    Parameters
    ----------
    X, y, weights : ndarray
        Rows, class codes and weights (1 by default).
    n_trees : int
        Number of trees per output.
    learning_rate : float
        Factor of the value of each leaf.
    max_leaves, min_rows_per_leaf : int
        Largest number of leaves of a tree, and smallest number of rows in a leaf.
    l2_regularization : float, default=1.0
        Constant added to the sum of hessians of a leaf.
    max_columns : int, default=24
        Largest number of columns that a tree uses, drawn at random.
    max_bins : int, default=64
        Bins per numeric column, at most 256. More bins find finer thresholds and take longer.
    categories : tuple of int, default=()
        Columns of category codes: integers from 0 to 65,534. Splits are sets of categories. NaN, negative,
        unknown and rare codes share one side of a split.
    balance_classes : bool, default=False
        Give all classes the same total weight. Otherwise, scores start from the log-odds of the class shares.
    pack_sums : bool, default=False
        Round gradients to fewer bits, up or down at random, so that sums over rows fit into one word. A fit
        is faster and hardly less accurate. Ignored with more than 131,071 rows or very different weights.
    """
    classes, codes = np.unique(y, return_inverse=True)
    n_features = X.shape[1]
    if len(classes) < 2:
        return TreeRule(classes.tolist(), (), n_features)
    is_category = np.zeros(n_features, dtype=np.uint8)
    is_category[list(categories)] = 1
    forest = _native.fit_gradient_boosting(
        X,
        codes.astype(np.int64, copy=False),
        np.ones(len(codes)) if weights is None else np.ascontiguousarray(weights, np.float64),
        len(classes),
        is_category,
        n_trees=n_trees,
        max_leaves=max_leaves,
        learning_rate=learning_rate,
        l2_regularization=l2_regularization,
        min_rows_per_leaf=min_rows_per_leaf,
        max_columns=max(1, min(max_columns, n_features)),
        seed=0,
        row_fraction=1.0,
        max_bins=max_bins,
        balance_classes=balance_classes,
        start_from_prior=not balance_classes,
        pack_sums=pack_sums,
        n_threads=1,
    )
    return TreeRule(classes.tolist(), forest, n_features)


@dataclass(frozen=True)
class TreeRule(Rule):
    """Decision function of fitted trees. Forests of version 0.2 have only the first four arrays."""

    classes: list[int]
    forest: tuple[Any, ...]
    n_features: int
    _trees: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arrays: list[Any] = list(self.forest)
        if len(arrays) == 4:
            n, n_outputs = len(arrays[0]), len(self.classes) if len(self.classes) > 2 else 1
            arrays += [
                np.zeros(n, dtype=np.uint8),  # in version 0.2, missing values always go to the right
                np.empty(0, dtype=np.int32),
                np.full(n, -1, dtype=np.int32),
                np.zeros(1, dtype=np.int64),
                np.empty(0, dtype=np.uint64),
                np.zeros(n_outputs),
            ]
        trees = _native.TreeEnsemble(*[*arrays, self.n_features]) if arrays else None
        object.__setattr__(self, "_trees", trees)

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
