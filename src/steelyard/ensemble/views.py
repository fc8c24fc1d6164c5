"""Input of StreamClassifier and the transformations of rows that its experts share.

:class:`RowInput` converts tables, sparse matrices and wide rows to coded rows. A coded row has one number per
column, see :mod:`steelyard.tables.schema`. Rows with more than ``SETTINGS.max_columns`` columns are hashed.

The transformations are ranks, a random feature map, and feature hashing. A transformation is fitted on some
rows and then frozen, so that rows learned through it can be forgotten exactly. Every row is transformed
independently of the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_finite, check_not_infinite
from steelyard.ensemble.layout import Layout
from steelyard.ensemble.settings import SETTINGS
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution
from steelyard.features import RandomFeatures
from steelyard.tables.frames import is_table
from steelyard.tables.schema import Schema

if TYPE_CHECKING:
    from steelyard.ensemble.stream_classifier import StreamClassifier

_N_KNOTS = 65  # number of quantiles that represent the distribution of a column
_MAX_STATISTICS = 3  # maximum number of transformed columns for one categorical column
_SMOOTHING_ROWS = 2.0  # number of pseudo-rows with the overall class shares that are added to every category
_SHRINKAGE = 0.05  # shrinkage of the covariance of normal scores towards the identity
_IMPUTATION_SWEEPS = 3
_MIN_GAP_DEVIATION = 3.0  # minimum z-score at which missing values depend on the class and get an indicator
_MIN_SPREAD = 0.3  # minimum standard deviation by which a column is divided
MAX_MAPPED = 300  # maximum number of random features
_MAPPED_BYTES = 32e6  # memory limit of the sums over pairs of random features, at 12 bytes per class and pair
_MISSING_KEY = 1.5e-310  # value that is hashed in place of a missing value


@dataclass(frozen=True)
class RankView:
    """Rank transformation, which converts each column to normal scores with variance of about 1.

    Only the order of the values matters: a sentinel such as 9999 comes just beyond the largest other value,
    and skewed columns lose their skew. The function is linear between knots and constant beyond both ends.
    """

    knots: FloatArray  # shape (_N_KNOTS, n_columns), ascending; the last knot of a column may be repeated
    values: FloatArray  # the normal score at each knot
    slopes: FloatArray  # slope of the linear piece that begins at each knot, 0 for the last knot

    @classmethod
    def fit(cls, X: FloatArray) -> RankView:
        """Return a transformation fitted on the given rows."""
        if not X.shape[1]:
            return cls(*(np.zeros((_N_KNOTS, 0)) for _ in range(3)))
        columns = [_column_knots(np.sort(column[~np.isnan(column)])) for column in X.T]
        knots, values = (np.column_stack(parts) for parts in zip(*columns, strict=True))
        steps = np.diff(knots, axis=0)
        slopes = np.divide(np.diff(values, axis=0), steps, out=np.zeros_like(steps), where=steps > 1e-290)
        return cls(knots, values, np.concatenate([slopes, np.zeros((1, X.shape[1]))]))

    def apply(self, X: FloatArray) -> FloatArray:
        """Return the transformed rows."""
        if X.shape[1] > self.knots.shape[1]:  # columns that were added later have no ranks
            X = np.ascontiguousarray(X[:, : self.knots.shape[1]])
        # Slope times distance stays finite, because it is at most the difference of two knot values.
        if not _native.all_finite(X):
            missing = np.isnan(X)
            known = np.where(missing, self.knots[0], X)
            return np.where(missing, 0.0, _native.rank_rows(known, self.knots, self.values, self.slopes))
        return _native.rank_rows(X, self.knots, self.values, self.slopes)

    def get_state(self) -> dict[str, Any]:
        """Return the arrays of the transformation."""
        return {"knots": self.knots, "values": self.values, "slopes": self.slopes}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RankView:
        """Restore a transformation from the result of :meth:`get_state`."""
        return cls(*(np.asarray(state[name], dtype=np.float64) for name in ("knots", "values", "slopes")))


@dataclass(frozen=True)
class CodedView:
    """Rank transformation of coded rows, which contain missing values and category codes.

    A missing normal score becomes its conditional mean given the other numeric columns (a Gaussian copula),
    and columns whose missing values depend on the class get an indicator. A category becomes its smoothed
    class log-odds, computed from the counts of the rows on which the view was fitted.
    """

    numeric: IntArray  # numeric columns
    ranks: RankView  # rank transformation of the numeric columns
    regressions: FloatArray  # shape (n_numeric, n_numeric); row k predicts column k from the other columns
    gaps: IntArray  # columns with an indicator of missing values
    gap_scales: FloatArray  # mean and scale of each indicator, shape (2, n_gaps)
    categorical: IntArray  # columns of category codes
    # One table per categorical column, shape (n_codes + 1, n_statistics); the last row is for unknown codes.
    tables: list[FloatArray]

    @classmethod
    def fit(cls, X: FloatArray, codes: IntArray, layout: Layout) -> CodedView:
        """Return a transformation fitted on the given rows."""
        is_category = np.zeros(X.shape[1], dtype=bool)
        is_category[list(layout.categorical)] = True
        missing = np.isnan(X)
        numeric = np.flatnonzero(~is_category & ~missing.all(axis=0))
        gaps = np.flatnonzero(_depends_on_class(missing, codes) & ~missing.all(axis=0))
        means = missing[:, gaps].mean(axis=0)
        scales = np.stack([means, np.maximum(np.sqrt(means * (1.0 - means)), _MIN_SPREAD)])
        categorical = np.flatnonzero(is_category & ~missing.all(axis=0))
        tables = [_category_table(X[:, column], codes) for column in categorical.tolist()]
        numbers = np.ascontiguousarray(X[:, numeric])
        ranks = RankView.fit(numbers)
        regressions = _regressions(ranks.apply(numbers), missing[:, numeric])
        return cls(numeric, ranks, regressions, gaps, scales, categorical, tables)

    def apply(self, X: FloatArray) -> FloatArray:
        """Return the transformed rows."""
        parts = [self._numbers(np.ascontiguousarray(X[:, self.numeric]))] if len(self.numeric) else []
        if len(self.gaps):
            parts.append((np.isnan(X[:, self.gaps]) - self.gap_scales[0]) / self.gap_scales[1])
        for column, table in zip(self.categorical.tolist(), self.tables, strict=True):
            values = np.nan_to_num(X[:, column], nan=-1.0).astype(np.int64)
            is_known = (values >= 0) & (values < len(table) - 1)
            parts.append(table[np.where(is_known, values, len(table) - 1)])
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(X), 1))

    @property
    def sources(self) -> IntArray:
        """Index of the original column of each transformed column."""
        widths = [table.shape[1] for table in self.tables]
        sources = np.concatenate([self.numeric, self.gaps, np.repeat(self.categorical, widths)])
        return sources.astype(np.int64) if len(sources) else np.zeros(1, dtype=np.int64)

    def _numbers(self, X: FloatArray) -> FloatArray:
        """Return the normal scores of numeric columns, with missing scores replaced by conditional means."""
        scores = np.ascontiguousarray(self.ranks.apply(X))
        missing = np.isnan(X)
        columns = np.flatnonzero(missing.any(axis=0)).tolist()
        for _ in range(_IMPUTATION_SWEEPS if columns else 0):  # Gauss-Seidel iterations
            for column in columns:
                rows = np.flatnonzero(missing[:, column])
                # linear_scores() is bit-identical for a single row and for a batch.
                filled = np.empty((len(rows), 1))
                weights = self.regressions[column : column + 1]
                _native.linear_scores(scores[rows], weights, np.zeros(1), filled, 1)
                scores[rows, column] = filled[:, 0]
        return scores

    def get_state(self) -> dict[str, Any]:
        """Return the arrays of the transformation."""
        names = ("numeric", "regressions", "gaps", "gap_scales", "categorical", "tables")
        return {"coded": {name: getattr(self, name) for name in names}, **self.ranks.get_state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CodedView:
        """Restore a transformation from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        coded = state["coded"]
        numeric, gaps, categorical = (
            np.asarray(coded[name], dtype=np.int64) for name in ("numeric", "gaps", "categorical")
        )
        scales = np.asarray(coded["gap_scales"], dtype=np.float64)
        tables = [np.asarray(table, dtype=np.float64) for table in coded["tables"]]
        regressions = np.ascontiguousarray(coded["regressions"], dtype=np.float64)
        if regressions.shape != (len(numeric), len(numeric)):
            raise ValueError("corrupt view: every column of numbers needs a regression")
        if scales.shape != (2, len(gaps)) or len(tables) != len(categorical):
            raise ValueError("corrupt view: every column needs a scale or a table")
        return cls(numeric, RankView.from_state(state), regressions, gaps, scales, categorical, tables)


def _regressions(scores: FloatArray, missing: NDArray[np.bool_]) -> FloatArray:
    """Return coefficients that predict each column from the others. Missing values are left out."""
    known = np.where(missing, 0.0, scores)
    n_pairs = (~missing).T.astype(np.float64) @ ~missing
    covariance = known.T @ known / np.maximum(n_pairs, 1.0)
    shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * np.eye(len(covariance))
    values, vectors = np.linalg.eigh(0.5 * (shrunk + shrunk.T))
    precision = (vectors / np.maximum(values, _SHRINKAGE)) @ vectors.T
    coefficients = -precision / np.diag(precision)[:, None]
    np.fill_diagonal(coefficients, 0.0)
    return np.ascontiguousarray(coefficients)


def _depends_on_class(missing: NDArray[np.bool_], codes: IntArray) -> NDArray[np.bool_]:
    """Return whether the share of missing values of each column depends on the class (a z-test)."""
    share, is_dependent = missing.mean(axis=0), np.zeros(missing.shape[1], dtype=bool)
    for code in np.unique(codes).tolist():
        rows = missing[codes == code]
        deviation = np.sqrt(np.maximum(share * (1.0 - share), 1e-12) / len(rows))
        is_dependent |= np.abs(rows.mean(axis=0) - share) > _MIN_GAP_DEVIATION * deviation
    return is_dependent


def _category_table(values: FloatArray, codes: IntArray) -> FloatArray:
    """Return the class statistics of each category; the last row is for an unknown category.

    The statistics are smoothed log-ratios of the frequency of a category within a class and within the other
    classes, standardized to mean 0 and about variance 1. There is one statistic for each of the rarest
    classes: for all but the most frequent class, at most `_MAX_STATISTICS`.
    """
    is_known = values >= 0
    categories, classes = values[is_known].astype(np.int64), codes[is_known]
    n_codes, n_classes = int(categories.max(initial=-1)) + 1, int(codes.max(initial=0)) + 1
    counts = np.zeros((n_codes, n_classes))
    np.add.at(counts, (categories, classes), 1.0)
    totals = counts.sum(axis=0)
    order = [code for code in np.argsort(totals, kind="stable").tolist() if totals[code]]
    table = np.zeros((n_codes + 1, max(1, min(len(order) - 1, _MAX_STATISTICS))))
    n_rows = counts.sum(axis=1)
    for k, code in enumerate(order[: table.shape[1]] if len(order) > 1 else ()):
        share = totals[code] / totals.sum()
        own = counts[:, code] + _SMOOTHING_ROWS * share
        other = n_rows - counts[:, code] + _SMOOTHING_ROWS * (1.0 - share)
        log_ratio = np.log(own / other) - np.log(share / (1.0 - share))
        mean = float((n_rows * log_ratio).sum() / n_rows.sum())
        spread = float(np.sqrt((n_rows * (log_ratio - mean) ** 2).sum() / n_rows.sum()))
        table[:-1, k] = np.where(n_rows > 0, (log_ratio - mean) / max(spread, _MIN_SPREAD), 0.0)
    return table


def _column_knots(sorted_column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return knots of a column and their normal scores, which have mean 0 and variance of about 1."""
    n = len(sorted_column)
    distinct, first, counts = np.unique(sorted_column, return_index=True, return_counts=True)
    middle = (first + 0.5 * counts) / n
    if len(distinct) > _N_KNOTS:
        levels = np.linspace(0.0, 1.0, _N_KNOTS - 2)[1:-1]
        inner = np.minimum(middle.searchsorted(levels), len(distinct) - 1)
        chosen = np.unique(np.concatenate([[0], inner, [len(distinct) - 1]]))
        distinct, middle = distinct[chosen], middle[chosen]
    scores = ndtri(np.clip(middle, 0.5 / n, 1.0 - 0.5 / n))
    over_rows = np.interp(sorted_column, distinct, scores)
    if len(distinct) == 1:
        scores = np.zeros(1)
    else:
        scores = (scores - over_rows.mean()) / max(float(over_rows.std()), _MIN_SPREAD)
    last = np.minimum(np.arange(_N_KNOTS), len(distinct) - 1)
    return distinct[last], scores[last]


@dataclass(frozen=True)
class HashedView:
    """Feature hashing (count sketch) of wide rows, which preserves inner products on average."""

    n_features: int
    n_columns: int
    seed: int
    keeps_wide: bool = True  # False for files of version 0.3, which contain only hashed rows

    def sketch(self) -> tuple[IntArray, FloatArray]:
        """Return the hashed column and the sign of each original column."""
        rng = np.random.default_rng(self.seed)
        places = rng.integers(0, self.n_columns, size=self.n_features)
        return places, rng.choice([-1.0, 1.0], size=self.n_features)

    def apply(self, X: Any) -> FloatArray:
        """Return the hashed rows. A missing value is 0 and has an indicator, which is also hashed."""
        if isinstance(X, np.ndarray) and not _native.all_finite(X):
            missing = np.isnan(X)
            gaps = sp.csr_matrix(missing.astype(np.float64))
            indicators = HashedView(self.n_features, self.n_columns, self.seed + 1)
            return self.apply(np.where(missing, 0.0, X)) + indicators.apply(gaps)
        places, signs = self.sketch()
        sketch = sp.csr_matrix(
            (signs, (np.arange(self.n_features), places)), shape=(self.n_features, self.n_columns)
        )
        hashed = X @ sketch
        return np.ascontiguousarray(hashed.toarray() if sp.issparse(hashed) else hashed, dtype=np.float64)

    def wide(self, X: Any) -> sp.csr_matrix | None:
        """Return the rows before hashing as a sparse matrix, with 0 for missing values."""
        if not self.keeps_wide:
            return None
        return sp.csr_matrix(X if sp.issparse(X) else np.nan_to_num(X), dtype=np.float64)


@dataclass(frozen=True)
class HashedTable:
    """Feature hashing of coded rows: numbers are hashed by column, other values by column and code."""

    n_columns: int
    seed: int
    # Number of columns of the first rows. Missing values in later columns do not change the hash of a row.
    n_first: int

    def apply(self, X: FloatArray, categorical: tuple[int, ...]) -> FloatArray:
        """Return the hashed rows. New columns and categories do not change the hashes of earlier rows."""
        missing = np.isnan(X)
        # Code of a cell: 0 for a number, 1 if it is missing, 2 for an unknown category, 3 or more otherwise.
        codes, values = np.where(missing, 1.0, 0.0), np.where(missing, 1.0, X)
        columns = list(categorical)
        codes[:, columns] = np.where(missing[:, columns], 1.0, X[:, columns] + 3.0)
        values[:, columns] = 1.0
        values[:, self.n_first :][missing[:, self.n_first :]] = 0.0
        cells = np.stack([np.broadcast_to(np.arange(1.0, X.shape[1] + 1.0), X.shape), codes], axis=2)
        hashes = _native.row_hashes(cells.reshape(-1, 2) + float(self.seed)).reshape(X.shape)
        places = (hashes % np.uint64(self.n_columns)).astype(np.int64)
        signs = np.where(hashes >> np.uint64(63), 1.0, -1.0)
        out = np.zeros((len(X), self.n_columns))
        np.add.at(out, (np.arange(len(X))[:, None], places), signs * values)
        return out


@dataclass(frozen=True)
class Views:
    """Fitted transformations, each of which is None before enough rows are seen.

    The layout is None as long as all rows are plain numbers without missing values.
    """

    ranks: RankView | CodedView | None = None
    map: RandomFeatures | None = None
    layout: Layout | None = None

    def fit(self, X: FloatArray, codes: IntArray, n_classes: int, seed: int) -> Views:
        """Return views whose rank transformation and random feature map are fitted on the given rows."""
        ranks = RankView.fit(X) if self.layout is None else CodedView.fit(X, codes, self.layout)
        feature_map = RandomFeatures(n_mapped(n_classes), random_state=seed).fit(ranks.apply(X))
        return Views(ranks, feature_map, self.layout)

    def with_layout(self, layout: Layout) -> Views:
        """Return the transformations for rows with another layout."""
        return replace(self, layout=None if layout.is_plain else layout)

    def row_experts(self, n_experts: int, n_features: int) -> _native.RowExperts:
        """Return a native scorer of rows of plain numbers with these transformations and no experts yet."""
        assert not isinstance(self.ranks, CodedView)
        ranks = None if self.ranks is None else (self.ranks.knots, self.ranks.values, self.ranks.slopes)
        intermediates = None if self.map is None else self.map.map_.native_intermediates
        return _native.RowExperts(n_experts, n_features, ranks, intermediates)

    def get_state(self) -> dict[str, Any]:
        """Return the fitted transformations."""
        fitted = {} if self.ranks is None else {"ranks": self.ranks.get_state(), "map": self.map}
        return fitted if self.layout is None else {**fitted, "layout": self.layout.get_state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Views:
        """Restore the transformations from the result of :meth:`get_state`."""
        layout = Layout.from_state(state["layout"]) if "layout" in state else None
        if "ranks" not in state:
            return cls(layout=layout)
        ranks: Any = CodedView if "coded" in state["ranks"] else RankView
        return cls(ranks.from_state(state["ranks"]), state["map"], layout)


def n_mapped(n_classes: int) -> int:
    """Return the number of random features, limited by the memory of sums over their pairs."""
    return int(min(MAX_MAPPED, math.sqrt(_MAPPED_BYTES / 12.0 / max(n_classes, 1))))


@dataclass(eq=False)
class TransformedRows:
    """Rows and their transformations, each computed on first use."""

    X: FloatArray
    views: Views
    wide: sp.csr_matrix | None = None  # the rows before hashing, if there are too many columns

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def linear(self) -> FloatArray:
        """Features of linear experts, which are the rows themselves if all columns are plain numbers."""
        return self.X if self.views.layout is None else self.views.layout.expand(self.X)

    @cached_property
    def ranks(self) -> FloatArray:
        """Rank-transformed rows, without missing values; they may have more or fewer columns than ``X``."""
        assert self.views.ranks is not None
        return self.views.ranks.apply(self.X)

    @cached_property
    def map_intermediates(self) -> FloatArray:
        """Intermediate values of the random feature map, on which mapped linear rules are evaluated."""
        assert self.views.map is not None
        return self.views.map.map_.intermediates(self.ranks)

    @property
    def mapped(self) -> FloatArray:
        """Rows after the rank transformation and the random feature map."""
        assert self.views.map is not None
        return self.views.map.map_.apply_without_blas(self.ranks)

    def explain_mapped(
        self, coef: FloatArray, intercept: FloatArray, background: TransformedRows
    ) -> Attribution:
        """Return contributions of the columns to ``map_intermediates @ coef.T + intercept``."""
        assert self.views.map is not None
        part = self.views.map.explain_intermediates(self.ranks, coef, intercept, background.ranks)
        return self.by_ranked_column(part)

    def by_linear_column(self, part: Attribution) -> Attribution:
        """Return contributions of columns, given contributions of the features of linear experts."""
        if self.views.layout is None:
            return part
        sources = np.array(self.views.layout.columns_of_features[: part.contributions.shape[1]])
        return part.by_source(sources, self.X.shape[1])

    def by_ranked_column(self, part: Attribution) -> Attribution:
        """Return contributions of columns, given contributions of the rank-transformed columns."""
        ranks = self.views.ranks
        # Columns that were added after the fit of the ranks have no ranks, so they contribute nothing.
        n_ranked = part.contributions.shape[1]
        sources = ranks.sources if isinstance(ranks, CodedView) else np.arange(n_ranked)
        return part.by_source(sources, self.X.shape[1])


@dataclass(frozen=True)
class RowInput:
    """Columns that a model has learned, and the conversion of rows to these columns; immutable."""

    schema: Schema | None = None  # columns of the learned tables; None for arrays of numbers
    first_width: int = 0  # number of coded columns of the first rows
    hashed: HashedView | HashedTable | None = None  # hash function of rows with too many columns
    feature_names: list[str] | None = None  # names of the columns of arrays, in models of version 0.2

    def started(
        self, width: int, seed: int, feature_names: Any = None, *, keeps_wide: bool = True
    ) -> RowInput:
        """Return the input of a model whose first rows have ``width`` coded columns."""
        hashed: HashedView | HashedTable | None = None
        if width > SETTINGS.max_columns:
            hashed = HashedView(width, SETTINGS.max_columns, seed, keeps_wide)
            if self.schema is not None:
                hashed = HashedTable(SETTINGS.max_columns, seed, width)
        names = None if feature_names is None else list(map(str, feature_names))
        return RowInput(self.schema, width, hashed, names)

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the columns of category codes; empty if the columns are hashed."""
        return () if self.schema is None or self.hashed is not None else self.schema.categorical

    # -- conversion of tables -----------------------------------------------------------------------

    def encode(
        self, X: Any, n_features: int | None, source: str, *, learn: bool
    ) -> tuple[RowInput, FloatArray | None]:
        """Convert a table to numbers. Returns a RowInput that knows the new columns of X, and the rows.

        ``n_features`` features were learned before; None for the first rows. With ``learn``, new columns and
        categories extend the schema. The returned rows are None if the model learns arrays and X is an array.
        """
        if not is_table(X):
            return self, None if self.schema is None else _positional(X, self.schema, source)
        if self.schema is None and n_features is not None:
            return self, _unnamed(X, n_features, source)
        schema = Schema() if self.schema is None else self.schema.copy() if learn else self.schema
        coded = schema.encode(X, source, learn=learn)
        return replace(self, schema=schema) if learn else self, coded

    def check_known_categories(self, X: FloatArray) -> None:
        """Raise DataError for categories that were never learned."""
        for column in self.categorical:
            if (X[:, column] < 0).any():
                assert self.schema is not None
                name, row = self.schema.coded_names[column], int((X[:, column] < 0).argmax())
                raise DataError(
                    f"row {row} has a value in column {name!r} that was never learned; nothing was changed."
                )

    # -- conversion of coded rows -------------------------------------------------------------------

    def dense(
        self, X: Any, learner: StreamClassifier, method: str
    ) -> tuple[FloatArray, sp.csr_matrix | None]:
        """Return dense rows of finite numbers or NaN with at most ``SETTINGS.max_columns`` columns.

        The second result has the rows before hashing, or is None if rows are not hashed or come from a table.
        Rows with fewer columns than those that ``learner`` has learned are padded with missing values.
        ``learner`` and ``method`` are named in error messages.
        """
        is_sparse = type(X) is not np.ndarray and sp.issparse(X)
        if is_sparse:
            X = check_finite(learner, X, method)
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
            if not _native.all_finite(X):
                check_not_infinite(learner, X, method)
        if isinstance(self.hashed, HashedTable):
            assert self.schema is not None
            return self.hashed.apply(X, self.schema.categorical), None
        if self.hashed is not None:
            return self.hashed.apply(X), self.hashed.wide(X)
        if is_sparse:
            X = np.ascontiguousarray(X.toarray(), dtype=np.float64)
        n_columns = learner._ensemble.rows.n_columns
        if X.shape[1] < n_columns:  # an array is passed after tables were learned
            X = np.pad(X, ((0, 0), (0, n_columns - X.shape[1])), constant_values=np.nan)
        return X, None

    @property
    def keeps_wide(self) -> bool:
        """Whether an expert also learns the columns before hashing."""
        return isinstance(self.hashed, HashedView) and self.hashed.keeps_wide

    def monitored(self, X: FloatArray, *, has_gaps: bool) -> tuple[FloatArray, list[str] | None]:
        """Return the columns of X that are tested for drift: those that the first learned rows had.

        The second result has their names, or is None if they have no names or are hashed. Missing values
        become 0. Columns of times become 0 too, because their values always increase.
        """
        X = X[:, : min(self.first_width, X.shape[1])]
        X = np.nan_to_num(X) if has_gaps else X
        schema = self.schema
        if schema is not None and self.hashed is None and "time" in schema.kinds.values():
            times = [place for (name, _), place in schema.places.items() if schema.kinds[name] == "time"]
            X = X.copy()
            X[:, [place for place in times if place < X.shape[1]]] = 0.0
        names = self.feature_names if schema is None else schema.coded_names[: self.first_width]
        return np.ascontiguousarray(X), None if self.hashed is not None else names


def row_keys(
    X: FloatArray, layout: Layout | None = None, wide: sp.csr_matrix | None = None
) -> NDArray[np.uint64]:
    """Return a hash of each row, which ignores missing values in columns that the first rows did not have.

    A row therefore keeps its hash when columns are added to the table. The layout is None if all rows are
    plain numbers. If the columns are hashed, the values before feature hashing are used, because different
    rows may have the same hashed columns.
    """
    if wide is not None:
        return _native.sparse_row_hashes(wide.data, wide.indices, wide.indptr)
    n_first = X.shape[1] if layout is None else layout.n_first
    if not _native.all_finite(X):
        missing = np.isnan(X)
        known = np.where(missing, _MISSING_KEY, X)
        if n_first < X.shape[1]:
            late = X[:, n_first:]  # row_hashes() ignores zeros
            late = np.where(late == 0.0, _MISSING_KEY, late)
            known[:, n_first:] = np.where(missing[:, n_first:], 0.0, late)
        X = known
    elif n_first < X.shape[1]:
        X = X.copy()
        X[:, n_first:][X[:, n_first:] == 0.0] = _MISSING_KEY
    return _native.row_hashes(X)


def has_feature_names(X: Any) -> bool:
    """Return whether a table has named columns. Arrays of objects and lists of lists have none."""
    return not isinstance(X, np.ndarray | list | tuple) or isinstance(X[0], Mapping)


def _positional(X: Any, schema: Schema, source: str) -> FloatArray:
    """Convert an array for a model that has learned tables; columns are matched by position."""
    rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != schema.width or schema.width != len(schema.names):
        raise DataError(
            f"the model has learned tables with the columns {', '.join(map(repr, schema.names[:8]))}"
            f"{', ...' if len(schema.names) > 8 else ''}; got an array of shape {rows.shape}.",
            source=source,
            hint="pass a table with these columns",
        )
    if schema.categorical:
        raise DataError(
            f"column {schema.coded_names[schema.categorical[0]]!r} contains categories; got an array of "
            "numbers.",
            source=source,
            hint="pass a table with the same columns",
        )
    return np.ascontiguousarray(rows)


def _unnamed(X: Any, n_features: int, source: str) -> FloatArray:
    """Convert a table for a model that has learned arrays; columns are matched by position."""
    schema = Schema()
    coded = schema.encode(X, source, learn=True)
    text = next((name for name, kind in schema.kinds.items() if kind not in {"number", "unknown"}), None)
    if text is not None:
        raise DataError(
            f"the model has learned arrays of numbers; column {text!r} contains no numbers.",
            source=source,
            hint="learn tables from the first call on",
        )
    if coded.shape[1] != n_features:
        raise DataError(
            f"X has {coded.shape[1]} features, but {source.partition('.')[0]} is expecting "
            f"{n_features} features as input.",
            source=source,
        )
    return coded
