"""Shapley values of linear, kernel and arbitrary functions against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import _native
from steelyard.explanation.attribution import (
    Attribution,
    explain_function,
    explain_kernel_sum,
    explain_linear,
    explain_softmax,
)
from steelyard.kernels import Kernel
from tests.explanation.reference import independent_columns, one_reference, shapley_values

RNG = np.random.default_rng(3)
VECTORS, COEF, INTERCEPT = RNG.normal(size=(7, 4)), RNG.normal(size=(2, 7)), np.array([0.3, -1.0])
ROWS, BACKGROUND = 2.0 * RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))


def kernel_scores(kernel):
    return lambda rows: kernel.block(np.ascontiguousarray(rows), VECTORS) @ COEF.T + INTERCEPT


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_kernel_sum_contributions_with_background_match_definition(name):
    kernel = Kernel(name, gamma=0.4)
    found = explain_kernel_sum(ROWS, kernel, VECTORS, COEF, INTERCEPT, background=BACKGROUND)
    for row, contributions in zip(ROWS, found.contributions, strict=True):
        expected = shapley_values(independent_columns(kernel_scores(kernel), row, BACKGROUND), 4)
        np.testing.assert_allclose(contributions, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["linear", "polynomial", "sigmoid", "rbf", "laplacian"])
def test_kernel_sum_contributions_with_one_background_row_match_definition(name):
    kernel = Kernel(name, gamma=0.4, coef0=0.5)
    found = explain_kernel_sum(ROWS, kernel, VECTORS, COEF, INTERCEPT, background=BACKGROUND[:1])
    for row, contributions in zip(ROWS, found.contributions, strict=True):
        expected = shapley_values(one_reference(kernel_scores(kernel), row, BACKGROUND[0]), 4)
        np.testing.assert_allclose(contributions, expected, atol=1e-12)
    np.testing.assert_allclose(found.base, kernel_scores(kernel)(BACKGROUND[:1])[0], atol=1e-12)


def test_kernel_sum_without_vectors_has_no_contributions():
    found = explain_kernel_sum(ROWS, Kernel("rbf"), np.zeros((0, 4)), np.zeros((2, 0)), INTERCEPT)
    assert not found.contributions.any()
    assert found.base.tolist() == INTERCEPT.tolist()


@pytest.mark.parametrize("n_columns", [16, 40])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_contributions_of_kernel_sum_of_many_columns_add_up(n_columns, scale):
    rng = np.random.default_rng(0)
    rows, vectors = scale * rng.normal(size=(5, n_columns)), rng.normal(size=(30, n_columns))
    coef, kernel = rng.normal(size=(1, 30)), Kernel("laplacian", gamma=1.0 / n_columns)
    found = explain_kernel_sum(rows, kernel, vectors, coef, np.zeros(1))
    scores = kernel.block(rows, vectors) @ coef.T
    error = np.abs(found.contributions.sum(axis=1) + found.base - scores).max()
    assert error < (1e-12 if n_columns == 16 else 1e-2)  # 8 nodes are exact up to 16 columns
    closed = found.adjusted(scores)
    np.testing.assert_allclose(closed.contributions.sum(axis=1) + closed.base, scores, atol=1e-12)


def test_every_simd_level_gives_the_same_shapley_values():
    rng = np.random.default_rng(1)
    arguments = rng.random((4, 9, 11)), rng.random((9, 11)), rng.normal(size=(3, 9))
    before = _native.simd_level()
    try:
        found = []
        for level in _native.simd_levels():
            _native.use_simd_level(level)
            found += [_native.product_shapley(*arguments, n_threads=n) for n in (1, 3)]
    finally:
        _native.use_simd_level(before)
    for values in found[1:]:
        np.testing.assert_allclose(values, found[0], rtol=1e-12, atol=1e-15)


def interacting(rows):
    return np.column_stack([np.sin(rows[:, 0]) * rows[:, 1], rows.max(axis=1)])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=5, max_size=5), st.lists(st.floats(-3, 3), min_size=5, max_size=5))
def test_shapley_values_of_function_of_few_columns_match_definition(row, reference):
    found = explain_function(interacting, np.array([row]), np.array(reference))
    expected = shapley_values(one_reference(interacting, row, reference), 5)
    np.testing.assert_allclose(found.contributions[0], expected, atol=1e-9)


def test_sampled_shapley_values_add_up_and_approximate_kernel_sum():
    rng = np.random.default_rng(2)
    rows, vectors, coef = rng.normal(size=(6, 14)), rng.normal(size=(20, 14)), rng.normal(size=(1, 20))
    kernel = Kernel("laplacian", gamma=1.0 / 14)

    def scores(X):
        return kernel.block(np.ascontiguousarray(X), vectors) @ coef.T

    found = explain_function(scores, rows, np.zeros(14))
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, scores(rows), atol=1e-12)
    exact = explain_kernel_sum(rows, kernel, vectors, coef, np.zeros(1), background=np.zeros((1, 14)))
    np.testing.assert_allclose(found.contributions, exact.contributions, atol=0.01)


def test_columns_that_are_not_listed_have_zero_contributions():
    found = explain_function(interacting, ROWS, np.zeros(4), columns=[1, 3])
    assert not found.contributions[:, [0, 2]].any()


def test_linear_contributions_are_weights_times_differences_from_mean():
    coef, mean = RNG.normal(size=(3, 4)), np.arange(4.0)
    found = explain_linear(ROWS, coef, np.zeros(3), mean)
    np.testing.assert_allclose(found.contributions, (ROWS - mean)[:, :, None] * coef.T)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, ROWS @ coef.T)


def test_log_softmax_contributions_add_up():
    part = explain_linear(ROWS, RNG.normal(size=(3, 4)), np.zeros(3))
    scores = part.contributions.sum(axis=1) + part.base
    expected = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    found = explain_softmax(part)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, expected, atol=1e-9)


def test_contributions_of_encoded_columns_are_summed_by_original_column():
    part = Attribution(np.arange(12.0).reshape(1, 4, 3), np.zeros(3))
    summed = part.by_source(np.array([0, 2, 2, 0]), 3)
    assert summed.contributions[0].tolist() == [[9.0, 11.0, 13.0], [0.0, 0.0, 0.0], [9.0, 11.0, 13.0]]
    assert part.by_source(np.arange(4), 4) is part


def test_adjusted_spreads_difference_evenly_if_all_contributions_are_zero():
    found = Attribution(np.zeros((1, 4, 1)), np.zeros(1)).adjusted(np.array([[2.0]]))
    assert found.contributions[0, :, 0].tolist() == [0.5] * 4
