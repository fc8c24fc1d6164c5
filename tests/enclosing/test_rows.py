"""The stored rows of a class are distinct, weighted and independent of their order of arrival."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steelyard.enclosing.bodies import ClassRows


@given(st.integers(0, 10_000), st.integers(1, 30), st.lists(st.integers(0, 30), max_size=4))
def test_stored_rows_are_independent_of_order_and_batches(seed, n, ends):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(n, 2)).astype(float)
    weights = rng.integers(1, 4, size=n).astype(float)
    whole = ClassRows.gather(X, weights)
    order = rng.permutation(n)
    borders = sorted({0, n, *(end for end in ends if end < n)})
    parts = [(X[order[begin:end]], weights[order[begin:end]]) for begin, end in pairwise(borders)]
    pieced = ClassRows(np.empty((0, 2)), np.empty(0)).with_more(parts)
    np.testing.assert_array_equal(pieced.X, whole.X)
    np.testing.assert_array_equal(pieced.weights, whole.weights)
    assert len(np.unique(whole.X, axis=0)) == len(whole.X)
    assert whole.total == weights.sum()


def test_rows_with_negative_zero_and_zero_are_equal():
    rows = ClassRows.gather(np.array([[0.0, 1.0], [-0.0, 1.0]]), np.ones(2))
    assert rows.X.tolist() == [[0.0, 1.0]]
    assert rows.weights.tolist() == [2.0]
    assert not np.signbit(rows.X).any()


def test_rows_with_weight_zero_are_not_stored():
    rows = ClassRows.gather(np.arange(6.0).reshape(3, 2), np.array([1.0, 0.0, 2.0]))
    assert rows.total == 3.0
    assert len(rows.X) == 2


def test_moments_of_stored_rows_use_row_weights():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(10, 3)), rng.integers(1, 4, size=10)
    rows, repeated = ClassRows.gather(X, weights.astype(float)), np.repeat(X, weights, axis=0)
    np.testing.assert_allclose(rows.mean, repeated.mean(axis=0))
    np.testing.assert_allclose(rows.variance(), repeated.var())
