"""Wide expert: a linear SVM on the original columns of rows that are hashed for all other experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import CostBudget, ExpertConfig, Rule, Stream, WindowExpert
from steelyard.ensemble.experts.incremental import LinearRule
from steelyard.ensemble.row_buffer import Block, wide_from_state, wide_state
from steelyard.ensemble.scores import n_planes
from steelyard.ensemble.views import TransformedRows
from steelyard.explanation.attribution import Attribution, explain_linear
from steelyard.online.linear_baselines import sparse_arrays

__all__ = ["WideExpert", "WideRule"]

_MAX_VALUES = 4_000_000  # maximum number of remembered nonzero values (48 MB)
_MAX_ROWS = 20_000
# Maximum number of nonzero values that one fit visits per hyperplane, if 2 passes are possible.
_MAX_WORK = 6_000_000
_PASSES = (2, 5)  # minimum and maximum number of passes over the rows
_VALUE_COST_US = 0.004  # cost of visiting one nonzero value
_REFIT_SHARE = 0.2  # share of the budget for refits
_COST = 1.0  # factor C of the losses, for rows scaled to a mean squared norm of 1
_MIN_DENSITY = 0.5  # columns with a larger share of nonzero values are standardized


class WideExpert(WindowExpert):
    """Linear SVM on the rows before hashing, refitted on remembered rows as often as the budget allows.

    The expert remembers the last rows, and the last rows of each class, up to a limit on the number of
    nonzero values. The coefficients are a function of these rows alone, so a forgotten row leaves no trace.
    """

    uses_wide_rows = True
    is_expensive = True
    refits = True

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.blocks: tuple[Block, ...] = ()  # the remembered rows, without hashed columns

    def limits(self, budget: CostBudget) -> str | None:
        if not self.blocks:
            return None
        return f"refitted every {max(self._refit_rows(budget), 1.0):.0f} rows or so"

    def disable(self) -> None:
        super().disable()
        self.blocks = ()

    def observe(self, block: Block, stream: Stream) -> bool:
        if block.wide is not None:
            self.blocks = (*self.blocks, replace(block, X=np.empty((len(block), 0))))
            self.held = np.concatenate([self.held, block.numbers])
        waiting = stream.n_seen - self.n_seen_at_update
        if not waiting or not self.blocks:
            return False
        if self.is_outdated(stream) or self._n_values() > 2 * _MAX_VALUES:
            return True
        return waiting >= min(self._refit_rows(stream.budget), 1 + stream.n_seen // 20)

    def _n_values(self) -> int:
        return sum(block.wide.nnz for block in self.blocks if block.wide is not None)

    def _refit_rows(self, budget: CostBudget) -> float:
        n_values = self._n_values()
        cost = _VALUE_COST_US * n_values * _n_passes(n_values) * budget.n_planes
        return budget.interval_rows(cost, _REFIT_SHARE)

    def update(self, stream: Stream) -> None:
        self.n_seen_at_update = stream.n_seen
        if self.blocks:
            rows = self._together()
            self._remember(rows.take(_kept(rows, stream.window_start)))

    def forget(self, block: Block, stream: Stream) -> None:  # noqa: ARG002
        if np.isin(block.numbers, self.held).any():
            rows = self._together()
            self._remember(rows.take(~np.isin(rows.numbers, block.numbers)))

    def _together(self) -> Block:
        return self.blocks[0].joined(*self.blocks[1:])

    def _remember(self, rows: Block) -> None:
        self.blocks, self.held = ((rows,) if len(rows) else ()), rows.numbers

    def make_rule(self, stream: Stream) -> Rule | None:  # noqa: ARG002
        if not self.blocks:
            return None
        rows = self._together()
        self._remember(rows)
        classes = np.unique(rows.codes)
        return None if len(classes) < 2 else _fit(rows, classes)

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        if not self.blocks:
            return state
        rows = self._together()
        arrays = {"codes": rows.codes, "weights": rows.weights, "rows": wide_state(rows.wide)}
        rule = self.rule.get_state() if isinstance(self.rule, WideRule) else None
        return {**state, **arrays, "rule": rule, "rule_rows": self.n_seen_at_rule}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        if "rows" not in state:
            return
        n = len(self.held)
        codes, weights = (np.asarray(state[name]) for name in ("codes", "weights"))
        if (
            codes.shape != (n,)
            or weights.shape != (n,)
            or not np.array_equal(codes, stream.rows.codes_at(self.held))
        ):
            raise ValueError("the labels of wide rows do not match the buffer")
        wide = wide_from_state(state["rows"], n)
        empty, keys = np.zeros((n, 0)), stream.rows.at(self.held).keys
        self._remember(Block(empty, codes, weights, np.zeros(n), self.held, keys, wide))
        if state["rule"] is not None:
            self.rule, self.n_seen_at_rule = WideRule.from_state(state["rule"]), int(state["rule_rows"])


def _kept(rows: Block, low: int) -> IntArray:
    """Return the indices of the rows to remember: the last rows, and the last rows of each class."""
    newest_first = np.flatnonzero(rows.numbers >= low)[::-1]
    n_values = np.diff(rows.wide.indptr)[newest_first]
    if len(newest_first) <= _MAX_ROWS and n_values.sum() <= _MAX_VALUES:
        return newest_first[::-1]
    keep = _fits(n_values, 2)
    codes = rows.codes[newest_first]
    classes = np.unique(codes)
    for code in classes.tolist():
        of_class = np.flatnonzero(codes == code)
        keep[of_class[_fits(n_values[of_class], 2 * len(classes))]] = True
    return newest_first[keep][::-1]


def _fits(n_values: IntArray, n_parts: int) -> Any:
    """Return a mask of the first rows that fit into ``1 / n_parts`` of the memory."""
    n_rows = np.arange(1, len(n_values) + 1)
    return (n_values.cumsum() <= _MAX_VALUES // n_parts) & (n_rows <= _MAX_ROWS // n_parts)


def _n_passes(n_values: int) -> int:
    return int(np.clip(_MAX_WORK // max(n_values, 1), *_PASSES))


def _fit(rows: Block, classes: IntArray) -> WideRule:
    """Fit a rule by a few passes of dual coordinate descent on scaled rows, with balanced classes.

    Columns with many nonzero values are standardized. Then all rows are divided by the root of their mean
    squared norm, so that the regularization suits rows of any scale.
    """
    X, n_columns = rows.wide, rows.wide.shape[1]
    mean = np.asarray(X.mean(axis=0)).ravel()
    shift, scale = _standardization(X, mean)
    X = _transformed(X, shift, scale)
    norm = np.sqrt((X.data**2).sum() / len(rows)) or 1.0
    X.data /= norm
    positives = classes[1:] if len(classes) == 2 else classes
    signs = np.where(rows.codes == positives[:, None], 1, -1).astype(np.int8)
    totals = np.stack([(rows.weights * (signs < 0)).sum(axis=1), (rows.weights * (signs > 0)).sum(axis=1)])
    balance = 0.5 * rows.weights.sum() / totals
    costs = _COST * rows.weights * np.where(signs < 0, *balance[:, :, None])
    planes = _native.sparse_linear_svm(*sparse_arrays(X), signs, costs, n_columns, _n_passes(X.nnz))
    coef = planes[:, :-1] * (scale / norm)
    intercept = planes[:, -1] - (coef * shift).sum(axis=1)
    return WideRule(classes.tolist(), coef, intercept, mean)


def _standardization(X: sp.csr_matrix, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shift and the factor that standardize each column (0 and 1 for sparse columns).

    A standardized dense column has mean 0. Its standard deviation is the root mean square of the nonzero
    values in sparse columns.
    """
    n_rows, n_columns = X.shape
    is_dense = np.bincount(X.indices, minlength=n_columns) > _MIN_DENSITY * n_rows
    squares = np.bincount(X.indices, X.data**2, minlength=n_columns) / n_rows
    deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
    is_dense &= deviation > 1e-9 * np.abs(mean)
    others = X.data[~is_dense[X.indices]]
    size = np.sqrt((others**2).mean()) if len(others) else 1.0
    factor = np.divide(size, deviation, out=np.ones(n_columns), where=is_dense)
    return np.where(is_dense, mean, 0.0), factor


def _transformed(X: sp.csr_matrix, shift: FloatArray, factor: FloatArray) -> sp.csr_matrix:
    others = sp.csr_matrix((X.data * factor[X.indices], X.indices, X.indptr), shape=X.shape, copy=True)
    columns = np.flatnonzero(shift)
    if not len(columns):
        return others
    others.data[shift[others.indices] != 0.0] = 0.0
    others.eliminate_zeros()
    dense = (X[:, columns].toarray() - shift[columns]) * factor[columns]
    places = sp.csr_matrix(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), X.shape[1])
    )
    return sp.csr_matrix(others + sp.csr_matrix(dense) @ places)


@dataclass(frozen=True)
class WideRule(LinearRule):
    """Linear decision functions on the columns before hashing."""

    uses_wide_rows = True

    mean: FloatArray  # mean of the remembered rows

    def scores(self, rows: TransformedRows) -> FloatArray:
        """Return the scores of rows; NaN if only their hashed columns are known."""
        if rows.wide is None:
            return np.full((len(rows), len(self.intercept)), np.nan)
        return np.ascontiguousarray(rows.wide @ self.coef.T + self.intercept)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:  # noqa: ARG002
        """Return coefficients times the differences from the mean of the remembered rows."""
        assert rows.wide is not None
        return explain_linear(rows.wide.toarray(), self.coef, self.intercept, self.mean)

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:  # noqa: ARG002
        return False

    def get_state(self) -> dict[str, Any]:
        """Return classes, coefficients, intercepts and the mean row."""
        return {**super().get_state(), "mean": self.mean}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> WideRule:
        """Restore the rule from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        planes, mean = LinearRule.from_state(state), np.array(state["mean"], dtype=np.float64)
        if mean.shape != planes.coef.shape[1:] or len(planes.coef) != n_planes(len(planes.classes)):
            raise ValueError("a rule over wide rows needs one mean per column")
        return cls(planes.classes, planes.coef, planes.intercept, mean)
