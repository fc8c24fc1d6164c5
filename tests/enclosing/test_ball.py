"""Tests of the native solver of the smallest enclosing ball."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import OneClassSVM

from steelyard import _native
from steelyard.enclosing.bodies import CACHE_BYTES, MAX_STEPS, weight_bounds
from steelyard.kernels import Kernel
from tests.enclosing.reference import dual_value, kernel_matrix, solve_dual, squared_distances

KERNELS = [
    Kernel("linear"),
    Kernel("rbf", gamma=0.3),
    Kernel("polynomial", gamma=0.5, degree=2, coef0=1.0),
    Kernel("laplacian", gamma=0.2),
]


def solve(kernel, X, bounds, *, tolerance=1e-10, cache_bytes=CACHE_BYTES, n_threads=1):
    return _native.enclosing_ball(kernel.spec(), X, bounds, tolerance, cache_bytes, MAX_STEPS, n_threads)


def assert_optimal(G, bounds, answer, tolerance):
    """Assert the conditions (8) of the paper: weight 0 inside, weight at its bound outside."""
    alpha, radius = answer["alpha"], answer["squared_radius"]
    distances = squared_distances(G, alpha)
    np.testing.assert_allclose(answer["squared_distances"], distances, atol=1e-9 * np.abs(G).max())
    assert alpha.sum() == pytest.approx(1.0, abs=1e-12)
    assert (alpha >= 0).all()
    assert (alpha <= bounds).all()
    slack = tolerance * radius + 1e-12 * np.abs(G).max()
    assert (distances[alpha == 0] <= radius + slack).all()
    assert (distances[alpha == bounds] >= radius - slack).all()
    free = (alpha > 0) & (alpha < bounds)
    np.testing.assert_allclose(distances[free], radius, atol=slack)


@pytest.mark.parametrize("outliers", [0.0, 0.2])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kernel)
@pytest.mark.parametrize("seed", range(3))
def test_ball_matches_general_quadratic_solver(kernel, outliers, seed):
    X = np.random.default_rng(seed).normal(size=(24, 3))
    bounds = weight_bounds(np.ones(24), None, outliers)
    G = kernel.block(X)
    answer, expected = solve(kernel, X, bounds), solve_dual(G, bounds)
    assert dual_value(G, answer["alpha"]) == pytest.approx(dual_value(G, expected), rel=1e-6)
    np.testing.assert_allclose(
        G @ answer["alpha"], G @ expected, rtol=1e-4, atol=1e-4
    )  # the accuracy of SLSQP
    assert_optimal(G, bounds, answer, 1e-8)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kernel)
@pytest.mark.parametrize("outliers", [0.0, 0.01, 0.3, 1.0])
def test_optimality_conditions_hold_after_refinement_from_coarse_problem(kernel, outliers):
    X = np.random.default_rng(0).normal(size=(1700, 4))
    bounds = weight_bounds(np.ones(len(X)), None, outliers)
    answer = solve(kernel, X, bounds, tolerance=1e-8)
    assert answer["gap"] <= 1.1e-8
    assert_optimal(kernel.block(X), bounds, answer, 1e-7)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.5, 0.9]))
@settings(max_examples=60, deadline=None)
def test_optimality_conditions_hold_with_ties_duplicates_and_weights(seed, n, d, outliers):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(n, d)).astype(float)  # few distinct values give many ties
    bounds = weight_bounds(rng.integers(1, 4, size=n).astype(float), None, outliers)
    for kernel in KERNELS[:2]:
        assert_optimal(kernel.block(X), bounds, solve(kernel, X, bounds), 1e-8)


def test_kernel_cache_size_does_not_change_ball():
    X = np.random.default_rng(1).normal(size=(900, 5))
    bounds = weight_bounds(np.ones(900), None, 0.1)
    cached, uncached = (solve(KERNELS[1], X, bounds, cache_bytes=size) for size in (CACHE_BYTES, 0))
    np.testing.assert_array_equal(cached["alpha"], uncached["alpha"])
    assert cached["steps"] == uncached["steps"]


def test_shrinking_preserves_the_optimum():
    # A narrow kernel makes many rows support vectors, which takes thousands of steps.
    X = np.random.default_rng(2).normal(size=(3000, 2))
    kernel, bounds = Kernel("rbf", gamma=5.0), weight_bounds(np.ones(3000), None, 0.2)
    answer = solve(kernel, X, bounds, tolerance=1e-5)
    assert answer["steps"] > 3000
    assert_optimal(kernel.block(X), bounds, answer, 1e-5)


def test_ball_is_bitwise_independent_of_threads():
    X = np.random.default_rng(3).normal(size=(2500, 20))
    bounds = weight_bounds(np.ones(2500), None, 0.05)
    one, two = (solve(KERNELS[1], X, bounds, n_threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one["alpha"], two["alpha"])
    np.testing.assert_array_equal(one["squared_distances"], two["squared_distances"])


def test_all_simd_levels_give_same_ball():
    X = np.random.default_rng(4).normal(size=(501, 7))
    bounds = weight_bounds(np.ones(501), None, 0.1)
    level = _native.simd_level()
    try:
        for name in _native.simd_levels():
            _native.use_simd_level(name)
            assert_optimal(KERNELS[1].block(X), bounds, solve(KERNELS[1], X, bounds), 1e-8)
    finally:
        _native.use_simd_level(level)


def test_ball_is_translation_invariant_far_from_origin():
    X = np.random.default_rng(5).normal(size=(60, 3))
    near = solve(KERNELS[0], X, np.ones(60))
    far = solve(KERNELS[1], X + 1e6, np.ones(60))  # the rbf kernel depends on differences only
    assert_optimal(KERNELS[1].block(X + 1e6), np.ones(60), far, 1e-8)
    assert near["squared_radius"] > 0


def test_rbf_sphere_matches_one_class_svm():
    X = np.random.default_rng(6).normal(size=(800, 4))
    nu, gamma = 0.1, 0.2
    answer = solve(Kernel("rbf", gamma=gamma), X, weight_bounds(np.ones(800), None, nu))
    svm = OneClassSVM(nu=nu, gamma=gamma, tol=1e-8).fit(X)
    alpha = np.zeros(800)
    alpha[svm.support_] = svm.dual_coef_[0] / (nu * 800)
    np.testing.assert_allclose(answer["alpha"], alpha, atol=1e-7)
    inside = answer["squared_distances"] <= answer["squared_radius"] * (1 - 1e-6)
    assert (svm.decision_function(X)[inside] > 0).all()


def test_upper_bounds_of_row_weights_are_raised_until_they_sum_to_one():
    bounds = weight_bounds(np.ones(5), 0.1, 0.0)
    np.testing.assert_allclose(bounds, 0.2)
    assert bounds.sum() >= 1.0
    X = np.random.default_rng(7).normal(size=(5, 2))
    np.testing.assert_allclose(solve(KERNELS[0], X, bounds)["alpha"], 0.2)


def test_solver_arguments_of_mismatched_shapes_raise():
    with pytest.raises(ValueError, match="array shapes disagree"):
        solve(KERNELS[0], np.zeros((3, 2)), np.ones(2))
    with pytest.raises(ValueError, match="expected 1 to"):
        solve(KERNELS[0], np.zeros((0, 2)), np.ones(0))


def test_reference_kernel_matches_library_kernel():
    X = np.random.default_rng(8).normal(size=(9, 3))
    for kernel in KERNELS[:3]:
        parameters = {name: getattr(kernel, name) for name in ("gamma", "degree", "coef0")}
        np.testing.assert_allclose(
            kernel.block(X), kernel_matrix(X, X, kernel.kernel, **parameters), rtol=1e-12
        )
