"""IncrementalSVC(threshold="gmean") finds rare rows that the threshold zero misses."""

from __future__ import annotations

import numpy as np
import pytest

import steelyard
from steelyard import IncrementalSVC
from steelyard.exceptions import ParameterError
from steelyard.metrics import g_mean_score
from steelyard.thresholds import smooth_gmean_threshold


@pytest.fixture(scope="module")
def rare():
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 0.05).astype(int)
    return rng.normal(size=(900, 3)) + 1.3 * y[:, None], y


def test_gmean_threshold_finds_rare_rows(rare):
    X, y = rare
    at_zero = IncrementalSVC(gamma=0.3).fit(X[:500], y[:500])
    moved = IncrementalSVC(gamma=0.3, threshold="gmean").fit(X[:500], y[:500])
    plain, better = (g_mean_score(y[500:], m.predict(X[500:]), pos_label=1) for m in (at_zero, moved))
    assert plain < 0.6
    assert better > 0.75


def test_gmean_threshold_uses_scores_without_the_rows_own_kernel_term(rare):
    X, y = rare[0][:200], rare[1][:200]
    at_zero = IncrementalSVC(2.0, gamma=0.3).fit(X, y)
    moved = IncrementalSVC(2.0, gamma=0.3, threshold="gmean").fit(X, y)
    own = {tuple(row): z for row, z in zip(at_zero.support_vectors_, at_zero.dual_coef_[0], strict=True)}
    without = at_zero.decision_function(X) - np.array([own.get(tuple(row), 0.0) for row in X])  # k(x, x) = 1
    threshold = smooth_gmean_threshold(without[y == 0], without[y == 1])
    np.testing.assert_allclose(
        at_zero.decision_function(X) - threshold, moved.decision_function(X), atol=1e-9
    )


def test_gmean_threshold_follows_updates_and_set_params(rare):
    X, y = rare
    model = IncrementalSVC(gamma=0.3, threshold="gmean").fit(X[:300], y[:300])
    model.update(add=(X[300:400], y[300:400]), forget=(X[:200], y[:200]))
    fresh = IncrementalSVC(gamma=0.3, threshold="gmean").fit(X[200:400], y[200:400])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-5)
    model.set_params(threshold="zero")
    fresh = IncrementalSVC(gamma=0.3).fit(X[200:400], y[200:400])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-6)


def test_every_class_has_a_threshold_and_thresholds_are_saved(rare, tmp_path):
    X, y = rare[0], rare[1] + 2 * (rare[0][:, 0] < -1.5)
    model = IncrementalSVC(gamma=0.3, threshold="gmean").fit(X, y)
    assert model.decision_function(X).shape == (900, len(np.unique(y)))
    steelyard.save(model, tmp_path / "m")
    np.testing.assert_array_equal(
        steelyard.load(tmp_path / "m").decision_function(X), model.decision_function(X)
    )


def test_unknown_threshold_raises():
    with pytest.raises(ParameterError, match="threshold must be"):
        IncrementalSVC(threshold="best").fit([[0.0], [1.0]], [0, 1])
