"""Tests of the estimated shrinkage of a class covariance."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.enclosing.bodies import (
    Covariance,
    Spread,
    _distances,
    _noise_over_signal,
    estimate_shrinkage,
    median_kurtosis,
)


def spread_of(X, weights=None):
    weights = np.ones(len(X)) if weights is None else weights
    centred = X - weights @ X / weights.sum()
    spectrum, directions = np.linalg.eigh((centred * weights[:, None]).T @ centred / weights.sum())
    squares, tails = (centred @ directions) ** 2, median_kurtosis(centred, weights)
    return Spread(np.maximum(spectrum, 0.0), squares, weights, X.shape[1], tails)


def distances_by_leaving_out(X, shrinkage):
    """Return the squared Mahalanobis distance of each row to all rows, and to all rows without this row."""
    n, d = X.shape
    S = np.cov(X.T, bias=True)
    keep, floor = 1 - shrinkage, shrinkage * np.trace(S) / d
    fitted = keep * S + floor * np.eye(d)
    distances = [(x - X.mean(0)) @ np.linalg.solve(fitted, x - X.mean(0)) for x in X]
    unseen = []
    for i in range(n):
        rest = np.delete(X, i, axis=0)
        scatter = (rest - rest.mean(0)).T @ (rest - rest.mean(0)) / n  # divided by n, as with all rows
        away = X[i] - rest.mean(0)
        unseen.append(away @ np.linalg.solve(keep * scatter + floor * np.eye(d), away))
    return np.array(distances), np.array(unseen)


def texts(rng, n=60, d=100):
    """Return sparse rows of unit length."""
    X = rng.exponential(size=(n, d)) * (rng.random((n, d)) < rng.uniform(0.01, 0.2, d))
    X[:, 0] += 0.1
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("shrinkage", [0.02, 0.5, 1.0])
def test_closed_form_leave_one_out_distances_match_refitting(shrinkage):
    rng = np.random.default_rng(0)
    X = rng.standard_t(4, size=(30, 5)) @ rng.normal(size=(5, 5))
    spread = spread_of(X)
    ours = _distances(spread, Covariance.shrunk(spread, shrinkage))
    np.testing.assert_allclose(ours, distances_by_leaving_out(X, shrinkage))


@pytest.mark.parametrize("shrinkage", [0.02, 1.0])
def test_noise_to_signal_ratio_matches_formula(shrinkage):
    X = np.random.default_rng(1).normal(size=(30, 4)) * [1, 2, 3, 4]
    distances, unseen = distances_by_leaving_out(X, shrinkage)
    variances = np.linalg.eigvalsh(np.cov(X.T, bias=True))
    shrunk = (1 - shrinkage) * variances + shrinkage * variances.mean()
    expected = np.abs(unseen - distances.mean()).mean() / np.sum(np.sqrt(variances) / shrunk)
    assert _noise_over_signal(spread_of(X), shrinkage) == pytest.approx(expected)


def test_covariance_of_many_rows_is_not_shrunk():
    X = np.random.default_rng(1).normal(size=(2000, 4)) * [1, 10, 0.1, 3]
    assert estimate_shrinkage(spread_of(X)) == 1e-9


def test_leave_one_out_distances_at_estimated_shrinkage_are_twice_training_distances():
    X = np.random.default_rng(2).normal(size=(60, 40)) * np.geomspace(1, 30, 40)
    shrinkage = estimate_shrinkage(spread_of(X))
    distances, unseen = distances_by_leaving_out(X, shrinkage)
    assert 1e-9 < shrinkage < 0.1
    assert unseen.mean() == pytest.approx(2 * distances.mean(), rel=1e-6)


def test_covariance_of_fewer_rows_than_features_is_shrunk_by_a_tenth():
    X = np.random.default_rng(3).normal(size=(10, 40)) * np.geomspace(1, 30, 40)
    assert estimate_shrinkage(spread_of(X)) == 0.1


def test_constant_feature_shrinks_covariance_like_one_additional_row():
    X = np.column_stack([np.random.default_rng(4).normal(size=(99, 3)), np.ones(99)])
    assert estimate_shrinkage(spread_of(X)) == pytest.approx(0.01)


def test_covariance_of_sparse_heavy_tailed_rows_is_shrunk_to_a_sphere():
    assert estimate_shrinkage(spread_of(texts(np.random.default_rng(2)))) == 1.0


def test_median_kurtosis_matches_formula():
    X = np.random.default_rng(5).laplace(size=(500, 3))
    centred = X - X.mean(axis=0)
    expected = np.median((centred**4).mean(axis=0) / X.var(axis=0) ** 2)
    assert median_kurtosis(np.column_stack([centred, np.zeros(500)]), np.ones(500)) == pytest.approx(expected)
    assert median_kurtosis(np.zeros((4, 2)), np.ones(4)) == 0.0


def test_shrinkage_is_scale_invariant():
    X = texts(np.random.default_rng(3), n=150, d=30)
    assert estimate_shrinkage(spread_of(1000 * X)) == pytest.approx(estimate_shrinkage(spread_of(X)))


def test_shrinkage_of_light_tails_is_rotation_invariant():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 20)) * np.geomspace(1, 5, 20)
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    assert estimate_shrinkage(spread_of(X @ turn)) == pytest.approx(estimate_shrinkage(spread_of(X)))


def test_sample_weight_equals_repetition_of_rows():
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(15, 8)), rng.integers(1, 4, size=15).astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert estimate_shrinkage(spread_of(X, weights)) == pytest.approx(estimate_shrinkage(spread_of(repeated)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_shrinkage_of_few_rows_is_between_zero_and_one(n):
    spread = spread_of(np.random.default_rng(5).normal(size=(n, 3)))
    covariance = Covariance.from_ridge("auto", lambda: spread)
    assert covariance.floor > 0.0
    assert 0.0 <= covariance.keep <= 1.0


def test_numeric_ridge_is_added_to_every_eigenvalue():
    covariance = Covariance.from_ridge(0.5, lambda: spread_of(np.eye(3)))
    np.testing.assert_allclose(covariance.stretch(np.array([0.0, 3.5])), [np.sqrt(0.5), 2.0])
