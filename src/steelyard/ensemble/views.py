"""Transformations of rows that experts share: ranks, a random feature map, and feature hashing.

A transformation is fitted on some rows and then frozen, so that rows learned through it can be forgotten
exactly. Every row is transformed independently of the other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.explanation.attribution import Attribution
from steelyard.features import RandomFeatures

__all__ = ["HashedView", "RankView", "TransformedRows", "Views"]

_N_KNOTS = 65  # quantiles that represent the distribution of a column
_MIN_SPREAD = 0.3  # standard deviation of normal scores below which a column is not scaled up


@dataclass(frozen=True)
class RankView:
    """Rank transformation: each column becomes normal scores with about variance 1.

    Only the order of the values matters: a sentinel such as 9999 comes just beyond the largest other value,
    and skewed columns lose their skew. The scale is linear between knots and constant beyond both ends.
    """

    knots: FloatArray  # (_N_KNOTS, n_columns), ascending; the last value is repeated where there are fewer
    values: FloatArray  # the normal score at each knot
    slopes: FloatArray  # slope of the linear piece that begins at each knot, 0 for the last knot

    @classmethod
    def fit(cls, X: FloatArray) -> RankView:
        """Return the transformation fitted on these rows."""
        columns = [_column_knots(np.sort(column)) for column in X.T]
        knots, values = (np.column_stack(parts) for parts in zip(*columns, strict=True))
        steps = np.diff(knots, axis=0)
        slopes = np.divide(np.diff(values, axis=0), steps, out=np.zeros_like(steps), where=steps > 1e-290)
        return cls(knots, values, np.concatenate([slopes, np.zeros((1, X.shape[1]))]))

    def apply(self, X: FloatArray) -> FloatArray:
        """Return the transformed rows."""
        # The product of slope and distance stays finite: it is at most the difference of two knot values.
        return _native.rank_rows(X, self.knots, self.values, self.slopes)

    def get_state(self) -> dict[str, Any]:
        """Return the arrays."""
        return {"knots": self.knots, "values": self.values, "slopes": self.slopes}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RankView:
        """Return the transformation with these arrays."""
        return cls(*(np.asarray(state[name], dtype=np.float64) for name in ("knots", "values", "slopes")))


def _column_knots(sorted_column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return knots of a column and their normal scores, with mean 0 and about variance 1 over the rows."""
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
    padding = (0, _N_KNOTS - len(distinct))
    return np.pad(distinct, padding, mode="edge"), np.pad(scores, padding, mode="edge")


@dataclass(frozen=True)
class HashedView:
    """Feature hashing (count sketch): wide rows become narrower, inner products are kept on average."""

    n_features: int
    n_columns: int
    seed: int

    def sketch(self) -> tuple[IntArray, FloatArray]:
        """Return the hashed column and the sign of each original column."""
        rng = np.random.default_rng(self.seed)
        places = rng.integers(0, self.n_columns, size=self.n_features)
        return places, rng.choice([-1.0, 1.0], size=self.n_features)

    def apply(self, X: Any) -> FloatArray:
        """Return the hashed rows."""
        places, signs = self.sketch()
        sketch = sp.csr_matrix(
            (signs, (np.arange(self.n_features), places)), shape=(self.n_features, self.n_columns)
        )
        hashed = X @ sketch
        return np.ascontiguousarray(hashed.toarray() if sp.issparse(hashed) else hashed, dtype=np.float64)


@dataclass(frozen=True)
class Views:
    """The fitted transformations; None before enough rows were seen."""

    ranks: RankView | None = None
    map: RandomFeatures | None = None

    @classmethod
    def fit(cls, X: FloatArray, n_mapped: int, seed: int) -> Views:
        """Return the rank transformation and the random feature map fitted on these rows."""
        ranks = RankView.fit(X)
        return cls(ranks, RandomFeatures(n_mapped, random_state=seed).fit(ranks.apply(X)))

    def sources(self, n_columns: int) -> IntArray:
        """Return for each column of a view the column of the row that it was computed from."""
        return np.arange(n_columns)

    def row_experts(self, n_experts: int, n_features: int) -> _native.RowExperts:
        """Return a native scorer of single rows with these transformations and no experts yet."""
        ranks = None if self.ranks is None else (self.ranks.knots, self.ranks.values, self.ranks.slopes)
        inside = None if self.map is None else self.map.native_inside()
        return _native.RowExperts(n_experts, n_features, ranks, inside)

    def get_state(self) -> dict[str, Any]:
        """Return the fitted transformations."""
        return {} if self.ranks is None else {"ranks": self.ranks.get_state(), "map": self.map}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Views:
        """Return the transformations that :meth:`get_state` described."""
        return cls(RankView.from_state(state["ranks"]), state["map"]) if state else cls()


class TransformedRows:
    """Rows with their transformations, each computed once, on first use."""

    def __init__(self, X: FloatArray, views: Views) -> None:
        self.X = X
        self._views = views
        self._ranks: FloatArray | None = None
        self._inside: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def ranks(self) -> FloatArray:
        """The rank-transformed rows."""
        if self._ranks is None:
            assert self._views.ranks is not None
            self._ranks = self._views.ranks.apply(self.X)
        return self._ranks

    @property
    def inside(self) -> FloatArray:
        """The inner values of the random map, over which mapped linear rules are evaluated."""
        if self._inside is None:
            assert self._views.map is not None
            self._inside = self._views.map.inside(self.ranks)
        return self._inside

    def mapped(self) -> FloatArray:
        """Return the rows after ranks and random map."""
        assert self._views.map is not None
        return self._views.map.map_from_inside(self.ranks)

    def explain_mapped(
        self, coef: FloatArray, intercept: FloatArray, background: TransformedRows
    ) -> Attribution:
        """Return contributions of the ranks to ``inside @ coef.T + intercept``."""
        assert self._views.map is not None
        return self._views.map.explain_inside(self.ranks, coef, intercept, background.ranks)
