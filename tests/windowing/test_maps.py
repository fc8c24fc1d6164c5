"""Window wrappers with feature maps: all estimators of a wrapper share one map."""

from __future__ import annotations

import numpy as np
import pytest

import steelyard
from steelyard import ProximalSVC, RandomFeatures
from steelyard.metrics import roc_auc_score
from steelyard.windowing import AdaptiveWindows, ExponentialDecay


@pytest.fixture(scope="module")
def disc():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2400, 2))
    return X, (np.square(X).sum(axis=1) < 0.3).astype(int)


def _fed(model, X, y, size=150):
    for b in range(0, len(y), size):
        model.partial_fit(X[b : b + size], y[b : b + size])
    return model


@pytest.mark.parametrize("C", [1.0, "auto"])
@pytest.mark.parametrize(
    "make", [lambda m: AdaptiveWindows(m, (500, None), block=100), lambda m: ExponentialDecay(m, 1000)]
)
def test_window_wrapper_with_feature_map_learns_disc_shaped_class(disc, make, C):
    X, y = disc
    model = _fed(make(ProximalSVC(C, feature_map=RandomFeatures(100))), X[:2000], y[:2000])
    assert roc_auc_score(y[2000:], model.decision_function(X[2000:])) > 0.98


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_adaptive_windows_with_feature_map_equal_fits_on_their_rows(disc, C):
    X, y = disc
    model = _fed(
        AdaptiveWindows(ProximalSVC(C, feature_map=RandomFeatures(60)), (500, None), block=100, shrink=False),
        X[:2000],
        y[:2000],
    )
    fitted_map = RandomFeatures(60).fit(X[:100])
    for window, rows in zip(model._windows, (slice(1500, 2000), slice(0, 2000)), strict=True):
        fresh = ProximalSVC(C, feature_map=fitted_map).fit(X[rows], y[rows])
        np.testing.assert_allclose(
            window.total.decision_function(X[:200]), fresh.decision_function(X[:200]), rtol=1e-5, atol=1e-7
        )


def test_decay_with_feature_map_equals_weighted_fit(disc):
    X, y = disc[0][:600], disc[1][:600]
    model = _fed(ExponentialDecay(ProximalSVC(feature_map=RandomFeatures(60)), 200), X, y)
    weights = 0.5 ** (np.arange(599, -1, -1) / 200)
    fresh = ProximalSVC(feature_map=RandomFeatures(60).fit(X[:150])).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda m: AdaptiveWindows(m, (300, None), block=100), lambda m: ExponentialDecay(m, 300)]
)
def test_loaded_window_wrapper_with_feature_map_continues_like_original(disc, make, tmp_path):
    X, y = disc
    model = _fed(make(ProximalSVC(feature_map=RandomFeatures(60))), X[:1000], y[:1000], 130)
    steelyard.save(model, tmp_path / "m")
    loaded = steelyard.load(tmp_path / "m")
    for learner in (model, loaded):
        _fed(learner, X[1000:1500], y[1000:1500], 130)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
