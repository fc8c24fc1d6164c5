"""Boosting experts: gradient-boosted trees that remember stream periods of different lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from steelyard import _native
from steelyard._threads import BackgroundTask, num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import (
    CostBudget,
    ExpertConfig,
    Rule,
    Stream,
    WindowExpert,
    restored_rows,
)
from steelyard.ensemble.row_buffer import Block, last_rows, union_of_rows, without_rows
from steelyard.explanation.attribution import Attribution

__all__ = ["BoostingExpert", "TreeRule", "fit_trees"]

# Minimum number of sampled rows of a frequent class, unless the memory limit requires fewer.
_MIN_FREQUENT_ROWS = 30_000
_MAX_RARE_ROWS = 10_000  # maximum number of remembered rows of the rarest class; the newest are kept
_MAX_ROWS = 80_000
_MAX_BYTES = 64e6  # maximum memory of the rows of one expert
# Number of new rows after which the memory is compacted; must be smaller than the row buffer.
_COMPACT_ROWS = 500
_DEFER_AFTER_ROWS = 2000  # number of rows after which fits may be deferred
_DEFERRED_SHARE = 0.1  # the trees of a deferred fit are used after this share of a refit interval
_FIRST_ROWS = 500  # number of rows in the first phase of `_UNPAID_GROWTH`
_EARLY_ROWS = 5000  # number of rows in which fits take `_EARLY_BUDGET` times their share of the budget
_EARLY_BUDGET = 1.5
# Growth of the stream after which trees are refitted although the budget allows fewer fits: in the first
# `_FIRST_ROWS`, in the next rows up to `_EARLY_ROWS`, and later.
_UNPAID_GROWTH = (0.05, 0.18, 0.25)
_REFIT_GROWTH = 0.1  # refit when the memory has grown by this share
_DISABLE_ABOVE_ROWS = 5000  # an expert with more rows between two refits is disabled
_TOTAL_LEARNING_RATE = 6.0  # sum of the learning rates of all trees of an output
_MIN_LEARNING_RATE = 0.1
_MIN_LEAF_ROWS = (5, 20)  # minimum rows per leaf: with up to `_SMALL_ROWS` training rows, and with more
_SMALL_ROWS = 2000
_COARSE_BINS, _FINE_BINS = 64, 255  # numbers of bins per column
# Fine bins are used for at most this many columns with more than `_COARSE_BINS` values: in fits of fewer
# than `_MANY_ROWS` rows, and of more.
_MAX_FINE_COLUMNS = (8, 24)
_MANY_ROWS = 5000
_COUNTED_ROWS = 256  # number of rows in which the values of a column are counted
_MIN_CATEGORIES = 5  # a column with fewer categories is split as a column of numbers
_FORGET_COST_US = 8_000.0  # if a refit takes longer, forget() fits fewer trees to a sample of the rows
_SAMPLE_ROWS = 3000  # number of rows in the sample that forget() uses
_SAMPLE_TREES = 20
_SAMPLE_LEAVES = 16
_MIN_TREES = 12  # minimum number of trees per output
_MAX_COLUMNS = 24
# Cost of a tree in microseconds per row, per value, per value with sampled columns, and per bin and leaf.
_COST_US = (0.02, 0.0013, 0.0033, 0.0053)


class _ColumnCounts(NamedTuple):
    """Numbers of columns and of their values, counted in the rows of a fit."""

    n_varying: int  # number of columns that are not constant
    n_fine: int  # number of columns with more than `_COARSE_BINS` values
    n_coarse_values: int  # number of values of the other columns, together

    @classmethod
    def of(cls, X: FloatArray) -> _ColumnCounts:
        """Return the numbers for the given rows; values are counted in some of the rows."""
        ascending = np.sort(X[:: -(-len(X) // _COUNTED_ROWS)], axis=0)
        n_values = 1 + np.count_nonzero(ascending[1:] > ascending[:-1], axis=0)
        is_fine, n_varying = n_values > _COARSE_BINS, int(np.count_nonzero((X[0] != X).any(axis=0)))
        return cls(n_varying, int(np.count_nonzero(is_fine)), int(n_values[~is_fine].sum()))

    def bins_per_column(self, max_bins: int, n_rows: int) -> int:
        """Return the number of bins per column; many bins of many columns would not fit into the cache.

        ``max_bins`` is the maximum for many rows. Few rows are fitted fast with any number of bins.
        """
        has_many_rows = n_rows >= _MANY_ROWS
        if self.n_fine > _MAX_FINE_COLUMNS[has_many_rows]:
            return _COARSE_BINS
        return max_bins if has_many_rows else _FINE_BINS


class _FittedTrees(NamedTuple):
    """Trees, and the columns of the rows that they were fitted to."""

    trees: TreeRule
    columns: _ColumnCounts


@dataclass(frozen=True)
class DeferredFit:
    """Trees that are fitted in another thread, and replace those of the expert after a known number of rows.

    Meanwhile the expert predicts with its earlier trees. The new trees and the moment of the replacement
    depend on the rows alone, so results do not depend on threads: the block that needs the trees waits for
    them.
    """

    held: IntArray  # numbers of the rows that the trees are fitted to
    n_seen: int  # number of rows seen when the fit began
    ends_at: int  # number of rows seen after which a block replaces the earlier trees
    task: BackgroundTask[_FittedTrees]


class BoostingExpert(WindowExpert):
    """Gradient-boosted trees, refitted as often as the budget allows.

    The memory holds the recent rows of the rarest class and a random sample of the other classes, so a rare
    class is remembered for much longer than the last few thousand rows. The sample is a function of the seed
    and the row numbers.

    Trees depend on every row of the memory, so a forgotten row requires a refit. If that takes long, a few
    trees are fitted to a sample of the remaining rows. All trees are then refitted with the next rows, but at
    most once between two regular refits.

    A regular refit that takes longer than the other work for a block runs in another thread while later
    blocks are learned, see :class:`DeferredFit`. This begins after some thousand rows.
    """

    is_expensive = True
    refits = True

    def __init__(
        self,
        config: ExpertConfig,
        *,
        window_rows: int | None,
        n_rows_per_class: int = 0,
        frequent_per_rare: int = 20,
        starts_at: int = 0,
        n_trees: int,
        max_leaves: int = 16,
        max_bins: int = _COARSE_BINS,
        share: float,
    ) -> None:
        super().__init__(config)
        self.window_rows = window_rows  # number of the last rows that the memory covers, or None for all rows
        self.n_rows_per_class = n_rows_per_class  # number of the last rows of each class that are always kept
        # Number of sampled rows of a frequent class per row of the rarest class, if `n_rows_per_class` is 0.
        self.frequent_per_rare = frequent_per_rare
        # Number of rows after which the expert starts to learn. Before that, an expert with a shorter memory
        # remembers the same rows.
        self.starts_at = starts_at
        # Numbers of trees per output and of leaves per tree. Two classes have one output, more classes have
        # one output each.
        self.n_trees, self.max_leaves = n_trees, max_leaves
        # Number of bins per column in fits of `_MANY_ROWS` rows or more, unless too many columns have many
        # values; smaller fits may use 255.
        self.max_bins = max_bins
        self.share = share  # share of the budget for refits
        self.memory: IntArray = self.held  # ascending numbers of the rows for the next fit
        self.memory_codes: IntArray = self.held
        self.columns = _ColumnCounts(1, 1, 0)  # columns at the last fit
        self.observed = 0  # number of rows seen when the memory was last compacted
        self.trees: TreeRule | None = None
        self.next_fit: DeferredFit | None = None
        self.is_sampled = False  # whether the trees were fitted to a sample by forget()
        self.is_extra_fit = False  # whether the last fit was an additional one after forget()

    def is_affordable(self, budget: CostBudget) -> bool:
        cost = fit_cost_us(40, budget.n_planes, 5000, 10, n_bins=10 * _COARSE_BINS)
        return budget.weighs_experts and cost <= _DISABLE_ABOVE_ROWS * 0.2 * budget.first_microseconds

    def limits(self, budget: CostBudget) -> str:
        if not self.is_affordable(budget):
            return f"disabled: {budget.n_planes} planes would cost more than {budget}"
        if self.n_seen_at_update < self.starts_at:
            return f"starts after {self.starts_at:,} rows"
        return f"refitted every {max(self._refit_rows(budget, self.n_seen_at_update), 1.0):.0f} rows or so"

    def disable(self) -> None:
        super().disable()
        self.memory = self.memory_codes = self.held
        self.trees, self.next_fit, self.is_sampled, self.is_extra_fit = None, None, False, False

    def observe(self, block: Block, stream: Stream) -> bool:  # noqa: ARG002  the rows are in the buffer
        if stream.n_seen - self.observed >= _COMPACT_ROWS:
            self._remember(stream)
        is_outdated = self.is_outdated(stream)
        if self.next_fit is not None:
            return stream.n_seen >= self.next_fit.ends_at or is_outdated
        is_due, is_extra = self._is_regular_refit_due(stream), self.is_sampled and not self.is_extra_fit
        is_late = self.starts_at > 0 and stream.n_seen >= _DEFER_AFTER_ROWS
        may_end_later = is_late and stream.may_defer and not stream.new_class
        is_urgent = self.trees is None or self.is_sampled or is_outdated
        if is_due and may_end_later and not is_urgent:
            self._remember(stream)
            n_rows = int(_DEFERRED_SHARE * self._refit_rows(stream.budget, stream.n_seen))
            if n_rows > 0:
                self.next_fit = self._deferred(self.memory, stream.n_seen, stream.n_seen + n_rows, stream)
                return False
            is_due = self._is_regular_refit_due(stream)  # the size of the memory has changed
        return is_extra or is_due

    def _deferred(
        self, held: IntArray, n_seen: int, ends_at: int, stream: Stream, *, starts: bool = True
    ) -> DeferredFit:
        """Return a fit to the rows ``held`` whose trees are used after row ``ends_at``."""
        fit = partial(self._fitted, held, stream, is_sampled=False)
        return DeferredFit(held, n_seen, ends_at, BackgroundTask(fit, starts=starts))

    def _remember(self, stream: Stream) -> None:
        """Add the rows since the last call to the memory, and drop rows that are no longer needed."""
        new = stream.rows.between(self.observed, stream.n_seen)
        numbers = np.concatenate([self.memory, new.numbers])
        codes = np.concatenate([self.memory_codes, new.codes])
        keep = self._kept(numbers, codes, stream)
        self.memory, self.memory_codes, self.observed = numbers[keep], codes[keep], stream.n_seen

    def _kept(self, numbers: IntArray, codes: IntArray, stream: Stream) -> Any:
        """Return a mask of the rows to remember, given row numbers and class codes."""
        # The memory covers the rows with ``number >= low``.
        low = max(stream.window_start, stream.n_seen - self.window_rows if self.window_rows else 0)
        if self.n_rows_per_class:
            wanted = last_rows(
                numbers, codes, int(stream.n_seen - low), self.n_rows_per_class, stream.window_start
            )
            return np.isin(numbers, wanted, assume_unique=True)
        keep = np.zeros(len(numbers), dtype=bool)
        counts = np.bincount(codes[numbers >= low])
        present = np.flatnonzero(counts)
        if not len(present):
            return keep
        rarest = int(present[np.argmin(counts[present])])
        limit = int(min(_MAX_ROWS, _MAX_BYTES / (8.0 * stream.rows.n_columns)))
        n_rare = min(int(counts[rarest]), _MAX_RARE_ROWS, limit // len(present))
        n_frequent = max(self.frequent_per_rare * n_rare, _MIN_FREQUENT_ROWS)
        n_frequent = min(n_frequent, (limit - n_rare) // max(len(present) - 1, 1))
        for code in present.tolist():
            rows = np.flatnonzero((codes == code) & (numbers >= low))
            if code == rarest:
                keep[rows[-n_rare:]] = True
            elif len(rows) <= n_frequent:
                keep[rows] = True
            else:
                order = np.argpartition(_priorities(numbers[rows], stream.seed), n_frequent)
                keep[rows[order[:n_frequent]]] = True
        return keep

    def _is_regular_refit_due(self, stream: Stream) -> bool:
        """Return whether a refit is due even if no rows were forgotten."""
        waiting = stream.n_seen - self.n_seen_at_update
        if not waiting or stream.n_seen < self.starts_at:
            return False
        if self.is_outdated(stream):
            return True
        if not stream.completes_batch:
            return False
        first, early, later = _UNPAID_GROWTH
        n_seen = stream.n_seen
        growth = first if n_seen <= _FIRST_ROWS else early if n_seen <= _EARLY_ROWS else later
        return waiting >= min(self._refit_rows(stream.budget, n_seen), 1 + int(growth * n_seen))

    def _refit_rows(self, budget: CostBudget, n_seen: int) -> float:
        """Return the number of rows between two fits, at least a tenth of the length of a long memory."""
        growth = _REFIT_GROWTH * min(n_seen, self.window_rows or n_seen)
        is_early = n_seen <= _EARLY_ROWS
        cost = self._fit_cost(budget, len(self.memory), is_early=is_early)
        share = self.share * (_EARLY_BUDGET if is_early else 1.0)
        return max(growth if self.starts_at else 0.0, budget.interval_rows(cost, share))

    def _fit_cost(self, budget: CostBudget, n_rows: int, *, is_early: bool = False) -> float:
        """Return the estimated cost of a fit.

        Columns of few values have fewer bins, but count like `_COARSE_BINS` bins in long streams, which
        limits the number of refits.
        """
        columns = self.columns
        bins_per_column = columns.bins_per_column(self.max_bins, n_rows)
        n_bins = bins_per_column * columns.n_fine + columns.n_coarse_values
        if not is_early:
            n_bins = max(n_bins, _COARSE_BINS * columns.n_varying)
        sizes = {"n_bins": n_bins, "max_leaves": self.max_leaves}
        return fit_cost_us(self.n_trees, budget.n_planes, n_rows, columns.n_varying, **sizes)

    def update(self, stream: Stream) -> None:
        if stream.n_seen < self.starts_at:
            return
        fit, self.next_fit = self.next_fit, None
        if fit is None or stream.new_class:
            self.is_extra_fit, self.is_sampled = not self._is_regular_refit_due(stream), False
            super().update(stream)
        else:
            self.held, self.n_seen_at_update, self.is_extra_fit = fit.held, fit.n_seen, False
            self.trees, self.columns = fit.task.result()

    def select(self, stream: Stream) -> IntArray:
        self._remember(stream)
        return self.memory

    def learn(self, before: IntArray, forgotten: Block | None, stream: Stream) -> None:  # noqa: ARG002
        if not np.array_equal(before, self.held):
            self._fit(stream)

    def _fit(self, stream: Stream) -> None:
        self.trees = None
        if len(self.held):
            self.trees, self.columns = self._fitted(self.held, stream, is_sampled=self.is_sampled)

    def _fitted(self, numbers: IntArray, stream: Stream, *, is_sampled: bool) -> _FittedTrees:
        """Return trees fitted to the rows with the given numbers, or to a sample of them."""
        n_trees, max_leaves, factors = self.n_trees, self.max_leaves, None
        if is_sampled:
            n_trees, max_leaves = min(n_trees, _SAMPLE_TREES), min(max_leaves, _SAMPLE_LEAVES)
            rows, factors = _sample(numbers, stream.rows.codes_at(numbers), stream.seed)
            numbers = numbers[rows]
        block = stream.rows.at(numbers)
        X, y, weights = block.X, block.codes, block.weights
        columns = _ColumnCounts.of(X)
        if factors is not None:
            weights = factors * weights
        n_trees = trees_per_output(n_trees, stream.budget.n_planes)
        trees = fit_trees(
            X,
            y,
            weights,
            n_trees=n_trees,
            learning_rate=max(_MIN_LEARNING_RATE, _TOTAL_LEARNING_RATE / n_trees),
            max_leaves=max_leaves,
            max_bins=_COARSE_BINS if is_sampled else columns.bins_per_column(self.max_bins, len(y)),
            min_rows_per_leaf=_MIN_LEAF_ROWS[len(y) > _SMALL_ROWS],
            categories=_category_columns(X, stream),
            pack_sums=True,
        )
        return _FittedTrees(trees, columns)

    def forget(self, block: Block, stream: Stream) -> None:
        keep = ~np.isin(self.memory, block.numbers)
        self.memory, self.memory_codes = self.memory[keep], self.memory_codes[keep]
        fit = self.next_fit
        fitted_rows = self.held if fit is None else union_of_rows([self.held, fit.held])
        if np.isin(block.numbers, fitted_rows).any():
            if fit is not None:  # its rows are fitted again, without the forgotten ones
                self.held, self.n_seen_at_update = fit.held, fit.n_seen
                self.is_extra_fit, self.next_fit = False, None
            self.held = without_rows(self.held, block.numbers)
            self.is_sampled = self._fit_cost(stream.budget, len(self.held)) > _FORGET_COST_US
            self._fit(stream)

    def make_rule(self, stream: Stream) -> Rule | None:  # noqa: ARG002
        return None if self.trees is None or len(self.trees.classes) < 2 else self.trees

    def held_rows(self) -> list[IntArray]:
        rows = [self.held, self.memory]
        return rows if self.next_fit is None else [*rows, self.next_fit.held]

    def get_state(self) -> dict[str, Any]:
        fit = self.next_fit
        next_fit = {} if fit is None else {"held": fit.held, "high": fit.n_seen, "ends_at": fit.ends_at}
        return {
            **super().get_state(),
            "memory": self.memory,
            "observed": self.observed,
            "is_sampled": self.is_sampled,
            "is_extra_fit": self.is_extra_fit,
            "next_fit": next_fit,
        }  # trees are not saved, because they are refitted from the rows

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        self.memory = restored_rows(state["memory"], stream)
        self.memory_codes, self.observed = stream.rows.codes_at(self.memory), int(state["observed"])
        self.is_sampled, self.is_extra_fit = (
            bool(state.get(name, False)) for name in ("is_sampled", "is_extra_fit")
        )
        if self.is_ready(stream.views):
            self._fit(stream)
            self.refresh_rule(stream)
        if next_fit := state.get("next_fit"):
            held, n_seen = restored_rows(next_fit["held"], stream), int(next_fit["high"])
            if not self.n_seen_at_update <= n_seen <= stream.n_seen:
                raise ValueError("an expert is fitted to rows that have not been seen yet")
            # The trees are fitted when they are needed, so that loading takes no longer.
            self.next_fit = self._deferred(held, n_seen, int(next_fit["ends_at"]), stream, starts=False)


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


def _category_columns(X: FloatArray, stream: Stream) -> tuple[int, ...]:
    """Return the columns that are split by sets of categories. Few categories are treated as numbers."""
    columns = () if stream.views.layout is None else stream.views.layout.categorical
    return tuple(c for c in columns if np.nanmax(X[:, c], initial=-1.0) >= _MIN_CATEGORIES - 1)


def _sample(numbers: IntArray, codes: IntArray, seed: int) -> tuple[IntArray, FloatArray]:
    """Return the indices of a sample of rows, and weights that preserve the total weight of each class.

    Every class has the same number of rows in the sample, if it has enough rows.
    """
    priorities, counts = _priorities(numbers, seed), np.bincount(codes)
    present = np.flatnonzero(counts)
    chosen, n_left = list[IntArray](), _SAMPLE_ROWS
    for place, code in enumerate(present[np.argsort(counts[present], kind="stable")].tolist()):
        rows = np.flatnonzero(codes == code)
        n = min(len(rows), n_left // (len(present) - place))
        order = np.argpartition(priorities[rows], n) if n < len(rows) else np.arange(n)
        chosen.append(rows[order[:n]])
        n_left -= n
    indices = np.sort(np.concatenate(chosen))
    factors = counts / np.maximum(np.bincount(codes[indices], minlength=len(counts)), 1)
    return indices, factors[codes[indices]]


def _priorities(numbers: IntArray, seed: int) -> FloatArray:
    """Return a pseudorandom number in [0, 1) for each row number (the splitmix64 hash)."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(seed + 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.astype(np.float64) * 2.0**-64
