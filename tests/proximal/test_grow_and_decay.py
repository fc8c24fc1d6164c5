"""ProximalSVC.grow, decay and permute_features equal a fresh fit."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, NotFittedError


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=400)
    return rng.normal(size=(400, 5)) + y[:, None], y


def test_grow_equals_fit_with_zero_features_from_the_start(rows):
    X, y = rows
    X[:200, 3:] = 0.0
    grown = ProximalSVC().partial_fit(X[:200, :3], y[:200]).grow(5).partial_fit(X[200:], y[200:])
    np.testing.assert_allclose(grown.coef_, ProximalSVC().fit(X, y).coef_, rtol=1e-9, atol=1e-12)


def test_decay_gives_same_model_as_sample_weights(rows):
    X, y = rows
    faded = ProximalSVC().partial_fit(X[:200], y[:200]).decay(0.25).partial_fit(X[200:], y[200:])
    fresh = ProximalSVC().fit(X, y, sample_weight=np.repeat([0.25, 1.0], 200))
    np.testing.assert_allclose(faded.coef_, fresh.coef_, rtol=1e-9, atol=1e-12)


def test_decay_removes_classes_with_less_weight_than_drop_below(rows):
    X, y = rows
    y[y == 2] = 1
    y[0] = 2
    model = ProximalSVC().partial_fit(X, y).decay(0.5, drop_below=0.75)
    assert model.classes_.tolist() == [0, 1]


def test_grow_to_fewer_features_or_before_fit_raises(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    with pytest.raises(DataError, match="at least the current 5; got 4"):
        model.grow(4)
    with pytest.raises(NotFittedError):
        ProximalSVC().grow(4)
    assert model.n_features_in_ == 5


@pytest.mark.parametrize("n_rows", [20, 400])
def test_permute_features_equals_permuted_rows(rows, n_rows):
    X, y = rows[0][:n_rows], rows[1][:n_rows]
    moved = ProximalSVC().partial_fit(X, y).permute_features([3, 0, 6, 1, 4], 7)
    elsewhere = np.zeros((n_rows, 7))
    elsewhere[:, [3, 0, 6, 1, 4]] = X
    fresh = ProximalSVC().fit(elsewhere, y)
    np.testing.assert_allclose(moved.coef_, fresh.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved.merge(fresh).coef_, fresh.merge(fresh).coef_, rtol=1e-9, atol=1e-12)


def test_permute_features_with_duplicate_positions_raises(rows):
    with pytest.raises(DataError, match="places must be distinct and below n_features=7"):
        ProximalSVC().fit(*rows).permute_features([0, 1, 2, 3, 9], 7)
