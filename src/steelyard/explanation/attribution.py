"""Contributions of columns to scores: Shapley values of linear, kernel and arbitrary decision functions.

The contribution of a column is its Shapley value: the change of the score when the value of the row replaces
the reference value of the column, averaged over all orders in which the columns can be replaced. The
contributions of a row add up to the difference between its score and the score of the reference, ``base``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray, IntArray
from steelyard.kernels import Kernel

# Up to this number of columns (1,024 sets), all sets are enumerated; above it, orders are sampled.
_MAX_EXACT_COLUMNS = 10
_MAX_SCORED_ROWS = 1 << 16  # maximum number of rows that are scored in one call
_SCORED_ROWS_FOR_ORDERS = 1 << 17  # maximum number of rows that are scored for all sampled orders
_MAX_ORDER_PAIRS = 32
_MAX_FACTORS = 1 << 18  # maximum number of kernel factors in memory at a time
_BACKGROUND_ROWS = 100
_SOFTMAX_NODES = 16  # number of Gauss-Legendre nodes of the path integral

Scores = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Attribution:
    """Decomposition of scores: a score is ``contributions.sum(axis=1) + base``."""

    # Contribution of each column to each score of each row, shape (n_rows, n_columns, n_scores).
    contributions: FloatArray
    base: FloatArray  # scores of the reference, shape (n_scores,)

    def adjusted(self, scores: FloatArray) -> Attribution:
        """Return contributions that add up exactly to the given scores.

        Rounding and quadrature errors are distributed over the columns in proportion to their contributions.
        """
        contributions = self.contributions
        for _ in range(2):  # the second pass removes the rounding errors of the first
            error = scores - self.base - contributions.sum(axis=1)
            size = np.abs(contributions)
            total = size.sum(axis=1, keepdims=True)
            even = np.full_like(size, 1.0 / size.shape[1])
            share = np.divide(size, total, out=even, where=total > 0.0)
            contributions = contributions + share * error[:, None, :]
        return Attribution(contributions, self.base)

    def shifted(self, difference: Any) -> Attribution:
        """Return the attribution of the scores after a constant is added."""
        return Attribution(self.contributions, self.base + difference)

    def by_source(self, sources: IntArray, n_columns: int) -> Attribution:
        """Return contributions of original columns, where ``sources[c]`` is the original of column ``c``."""
        if len(sources) == n_columns and np.array_equal(sources, np.arange(n_columns)):
            return self
        n, _, p = self.contributions.shape
        summed = np.zeros((n, n_columns, p))
        for column, source in enumerate(sources.tolist()):
            summed[:, source] += self.contributions[:, column]
        return Attribution(summed, self.base)


# -- attribution of linear functions ------------------------------------------------------------------


def explain_linear(
    X: Any, coef: FloatArray, intercept: FloatArray, mean: FloatArray | None = None
) -> Attribution:
    """Return the contributions ``coef * (x - mean)``. Without a mean, the reference is a row of zeros."""
    X = np.asarray(X, dtype=np.float64)
    mean = np.zeros(X.shape[1]) if mean is None else mean
    contributions = (X - mean)[:, :, None] * coef.T
    return Attribution(contributions, coef @ mean + intercept)


# -- attribution of sums of product kernels -----------------------------------------------------------


def sampled_rows(X: FloatArray, n_rows: int = _BACKGROUND_ROWS) -> FloatArray:
    """Return at most ``n_rows`` evenly spaced rows."""
    return X if len(X) <= n_rows else X[np.arange(n_rows) * len(X) // n_rows]


def product_factors(kernel: str, gamma: float, X: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the factors of kernel values by column, shape (n_rows, n_vectors, n_columns)."""
    difference = X[:, None, :] - vectors[None]
    size = np.abs(difference, out=difference) if kernel == "laplacian" else np.square(difference, difference)
    size *= -gamma
    return np.exp(size, out=size)


def explain_kernel_sum(
    X: FloatArray,
    kernel: Kernel,
    vectors: FloatArray,
    coef: FloatArray,
    intercept: FloatArray,
    *,
    background: FloatArray | None = None,
) -> Attribution:
    """Return contributions to ``kernel(X, vectors) @ coef.T + intercept``.

    For the kernels "rbf" and "laplacian", which are products over the columns, the Shapley values are exact
    up to 16 columns and accurate to about six digits with more. Their reference replaces a column by values
    drawn from the background, by default the vectors, independently of the other columns. The reference of
    other kernels is the mean of the background.
    """
    X, vectors = (np.ascontiguousarray(part, dtype=np.float64) for part in (X, vectors))
    coef, name = np.ascontiguousarray(coef), kernel.kernel
    if not len(vectors):
        return Attribution(np.zeros((*X.shape, len(intercept))), np.array(intercept, dtype=np.float64))
    background = sampled_rows(vectors if background is None else background)
    if name == "linear":
        return explain_linear(X, coef @ vectors, intercept, background.mean(axis=0))
    if name not in {"rbf", "laplacian"}:
        return explain_function(
            lambda rows: kernel.block(rows, vectors) @ coef.T + intercept, X, background.mean(axis=0)
        )
    gamma = float(kernel.gamma)
    reference = np.zeros(vectors.shape)
    step = max(1, _MAX_FACTORS // vectors.size)
    for begin in range(0, len(background), step):
        reference += product_factors(name, gamma, background[begin : begin + step], vectors).sum(axis=0)
    reference /= len(background)
    parts = [
        _native.product_shapley(
            product_factors(name, gamma, X[begin : begin + step], vectors), reference, coef, num_threads()
        )
        for begin in range(0, len(X), step)
    ]
    return Attribution(np.concatenate(parts), coef @ reference.prod(axis=1) + intercept)


# -- attribution of arbitrary functions ---------------------------------------------------------------


def explain_function(
    scores: Scores, X: FloatArray, reference: FloatArray, columns: Sequence[int] | None = None
) -> Attribution:
    """Return the Shapley values of any function of rows, relative to one reference row.

    Up to 10 columns all sets of columns are enumerated, so the values are exact. With more columns, the
    average is taken over sampled orders of the columns, each together with its reverse. The values still add
    up to the score. ``scores`` returns an array of shape (n_rows, n_scores), which depends on ``columns``
    only, by default on all; the contributions of other columns are zero.
    """
    used = np.arange(X.shape[1]) if columns is None else np.asarray(columns, dtype=np.int64)
    base = scores(np.array(reference, dtype=np.float64)[None])[0]
    out = np.zeros((*X.shape, len(base)))
    is_exact = len(used) <= _MAX_EXACT_COLUMNS
    step = max(1, _MAX_SCORED_ROWS // (2 ** len(used) if is_exact else len(used) + 1))
    for begin in range(0, len(X), step):
        rows = slice(begin, begin + step)
        if is_exact:
            masks, weights = _all_sets(len(used))
            values = _mixed_scores(scores, X[rows], reference, used, masks)
            out[rows, used] = np.einsum("cs,nsp->ncp", weights, values)
        else:
            out[rows, used] = _by_orders(scores, X[rows], reference, used, len(X))
    return Attribution(out, base)


def _mixed_scores(
    scores: Scores, X: FloatArray, reference: FloatArray, columns: IntArray, masks: NDArray[np.bool_]
) -> FloatArray:
    """Return the scores of rows of which only the columns in each mask differ from the reference row."""
    is_own = np.ones((len(masks), X.shape[1]), dtype=bool)
    is_own[:, columns] = masks
    mixed = np.where(is_own, X[:, None, :], reference).reshape(-1, X.shape[1])
    return scores(mixed).reshape(len(X), len(masks), -1)


@cache
def _all_sets(n: int) -> tuple[NDArray[np.bool_], FloatArray]:
    """Return all subsets of n columns as masks, and the weight of each subset in each Shapley value."""
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    size = masks.sum(axis=1)
    # Weights by set size, for sets that contain the column and for sets that do not.
    joining = np.array([0.0, *(1.0 / (n * comb(n - 1, s)) for s in range(n))])
    leaving = np.append(joining[1:], 0.0)
    return masks, np.where(masks.T, joining[size], -leaving[size])


def _by_orders(
    scores: Scores, X: FloatArray, reference: FloatArray, columns: IntArray, n_rows: int
) -> FloatArray:
    """Return Shapley values averaged over sampled orders, fewer if there are many rows in all."""
    n = len(columns)
    n_pairs = int(np.clip(_SCORED_ROWS_FOR_ORDERS // (2 * n_rows * (n + 1)), 1, _MAX_ORDER_PAIRS))
    rng = np.random.default_rng(0)
    total: Any = 0.0
    for _ in range(n_pairs):
        order = rng.permutation(n)
        for one in (order, order[::-1]):
            place = np.empty(n, dtype=np.int64)
            place[one] = np.arange(n)
            steps = np.diff(
                _mixed_scores(scores, X, reference, columns, place < np.arange(n + 1)[:, None]), axis=1
            )
            total = total + steps[:, place]
    return np.asarray(total / (2.0 * n_pairs))


# -- attribution of functions of scores ---------------------------------------------------------------


def explain_softmax(part: Attribution) -> Attribution:
    """Return contributions to the logarithm of the softmax of the scores.

    The change of ``logsumexp`` is integrated along the straight line from the scores of the reference to
    those of the row. Every column contributes its share of each score times the average softmax on this line.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_SOFTMAX_NODES)
    change = part.contributions.sum(axis=1)
    average = np.zeros_like(change)
    for at, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
        along = part.base + at * change
        powers = np.exp(along - along.max(axis=1, keepdims=True))
        average += weight * powers / powers.sum(axis=1, keepdims=True)
    common = np.einsum("ncp,np->nc", part.contributions, average)
    largest = part.base.max()
    base = part.base - largest - np.log(np.exp(part.base - largest).sum())
    return Attribution(part.contributions - common[:, :, None], base)
