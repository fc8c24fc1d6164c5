"""The shrinkage of a covariance, estimated from one class alone."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.enclosing.covariance import Covariance, Spread, _noise_over_signal, estimate_shrinkage


def spread_of(X, weights=None):
    weights = np.ones(len(X)) if weights is None else weights
    centred = X - weights @ X / weights.sum()
    spectrum, directions = np.linalg.eigh((centred * weights[:, None]).T @ centred / weights.sum())
    return Spread(np.maximum(spectrum, 0.0), (centred @ directions) ** 2, weights, X.shape[1])


def noise_by_leaving_out(X, shrinkage):
    """Noise over signal with a covariance computed afresh without each row."""
    n, d = X.shape
    S = np.cov(X.T, bias=True)
    keep, floor = 1 - shrinkage, shrinkage * np.trace(S) / d
    fitted = keep * S + floor * np.eye(d)
    distances = [(x - X.mean(0)) @ np.linalg.solve(fitted, x - X.mean(0)) for x in X]
    unseen = []
    for i in range(n):
        rest = np.delete(X, i, axis=0)
        scatter = (rest - rest.mean(0)).T @ (rest - rest.mean(0)) / n  # as heavy as in the whole
        away = X[i] - rest.mean(0)
        unseen.append(away @ np.linalg.solve(keep * scatter + floor * np.eye(d), away))
    noise = np.sqrt(np.mean((np.array(unseen) - np.mean(distances)) ** 2))
    return noise / np.trace(np.linalg.inv(fitted))


@pytest.mark.parametrize("shrinkage", [0.02, 0.5, 1.0])
def test_leaving_out_in_closed_form_equals_fitting_without_each_row(shrinkage):
    rng = np.random.default_rng(0)
    X = rng.standard_t(4, size=(30, 5)) @ rng.normal(size=(5, 5))
    assert _noise_over_signal(spread_of(X), shrinkage) == pytest.approx(noise_by_leaving_out(X, shrinkage))


def test_many_rows_of_a_long_ellipsoid_are_hardly_shrunk():
    X = np.random.default_rng(1).normal(size=(2000, 4)) * [1, 10, 0.1, 3]
    assert estimate_shrinkage(spread_of(X)) < 0.01


def test_sparse_heavy_tailed_rows_in_many_dimensions_become_a_sphere():
    rng = np.random.default_rng(2)
    X = rng.exponential(size=(60, 100)) * (rng.random((60, 100)) < 0.05)
    assert estimate_shrinkage(spread_of(X)) > 0.9


def test_shrinkage_does_not_depend_on_scale_or_rotation():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 4)) * [1, 2, 3, 4]
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert estimate_shrinkage(spread_of(1000 * X @ turn)) == pytest.approx(estimate_shrinkage(spread_of(X)))


def test_a_weight_counts_as_repetitions():
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(15, 3)), rng.integers(1, 4, size=15).astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert estimate_shrinkage(spread_of(X, weights)) == pytest.approx(estimate_shrinkage(spread_of(repeated)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_have_a_shrinkage_between_its_ends(n):
    spread = spread_of(np.random.default_rng(5).normal(size=(n, 3)))
    covariance = Covariance.settle("auto", spread)
    assert covariance.floor > 0.0
    assert 0.0 <= covariance.keep <= 1.0


def test_a_number_is_added_to_every_eigenvalue():
    covariance = Covariance.settle(0.5, spread_of(np.eye(3)))
    np.testing.assert_allclose(covariance.stretch(np.array([0.0, 3.5])), [np.sqrt(0.5), 2.0])
