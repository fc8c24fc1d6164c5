"""How experts see a row: on a scale of ranks, through a random map, or folded to fewer columns.

A view is settled by some rows and then stays, so what an expert has learned through it can be unlearned.
Each row is seen by itself: alone it looks as it does among others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from steelyard import _native
from steelyard._types import FloatArray

__all__ = ["FoldedView", "RankView", "row_keys"]

_KNOTS = 65  # levels at which a column's distribution is known
_LEAST_SPREAD = 0.3  # of a column's normal scores; a flag that is rarely set counts no more than that


@dataclass(frozen=True)
class RankView:
    """Every column by its rank among the rows that settled the view, as a normal score of variance 1.

    What counts is the order of the values: a sentinel such as 9999 lies just beyond the largest value, and
    skewed columns are no longer skewed. Between knots the scale is linear, beyond the ends it is constant.
    """

    knots: FloatArray  # (_KNOTS, n_columns), rising; the last value is repeated where there are fewer
    values: FloatArray  # the normal score at each knot
    slopes: FloatArray  # of the piece that begins at each knot, 0 for the last

    @classmethod
    def settled(cls, X: FloatArray) -> RankView:
        """The view that these rows settle."""
        columns = [_column_knots(np.sort(column)) for column in X.T]
        knots, values = (np.column_stack(parts) for parts in zip(*columns, strict=True))
        steps = np.diff(knots, axis=0)
        slopes = np.divide(np.diff(values, axis=0), steps, out=np.zeros_like(steps), where=steps > 1e-290)
        return cls(knots, values, np.concatenate([slopes, np.zeros((1, X.shape[1]))]))

    def apply(self, X: FloatArray) -> FloatArray:
        """Rows as this view shows them."""
        # Slopes of huge ranges times huge distances stay finite: a piece never rises by more than its ends.
        return _native.rank_rows(X, self.knots, self.values, self.slopes)

    def get_state(self) -> dict[str, Any]:
        """The arrays."""
        return {"knots": self.knots, "values": self.values, "slopes": self.slopes}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RankView:
        """What such arrays describe."""
        return cls(*(np.asarray(state[name], dtype=np.float64) for name in ("knots", "values", "slopes")))


def _column_knots(sorted_column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots of a column and their normal scores, of mean 0 and about variance 1 over the rows."""
    n = len(sorted_column)
    distinct, first, counts = np.unique(sorted_column, return_index=True, return_counts=True)
    middle = (first + 0.5 * counts) / n
    if len(distinct) > _KNOTS:
        levels = np.linspace(0.0, 1.0, _KNOTS - 2)[1:-1]
        chosen = np.unique(
            np.concatenate(
                [[0], np.minimum(middle.searchsorted(levels), len(distinct) - 1), [len(distinct) - 1]]
            )
        )
        distinct, middle = distinct[chosen], middle[chosen]
    scores = ndtri(np.clip(middle, 0.5 / n, 1.0 - 0.5 / n))
    over_rows = np.interp(sorted_column, distinct, scores)
    if len(distinct) == 1:
        scores = np.zeros(1)
    else:
        scores = (scores - over_rows.mean()) / max(float(over_rows.std()), _LEAST_SPREAD)
    missing = _KNOTS - len(distinct)
    return np.append(distinct, np.full(missing, distinct[-1])), np.append(
        scores, np.full(missing, scores[-1])
    )


@dataclass(frozen=True)
class FoldedView:
    """Wide rows, sparse ones above all, folded into fewer columns by signs (a count sketch).

    Inner products keep their values on average. The folding is a matter of the seed alone.
    """

    n_features: int
    n_columns: int
    seed: int

    def apply(self, X: Any) -> FloatArray:
        """Rows as this view shows them."""
        rng = np.random.default_rng(self.seed)
        places = rng.integers(0, self.n_columns, size=self.n_features)
        signs = rng.choice([-1.0, 1.0], size=self.n_features)
        fold = sp.csr_matrix(
            (signs, (np.arange(self.n_features), places)), shape=(self.n_features, self.n_columns)
        )
        folded = X @ fold
        return np.ascontiguousarray(folded.toarray() if sp.issparse(folded) else folded, dtype=np.float64)


def row_keys(X: FloatArray) -> NDArray[np.uint64]:
    """A number for each row that equal rows share."""
    return _native.row_hashes(X)
