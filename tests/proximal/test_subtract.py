"""ProximalSVC.subtract, and pickled statistics."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics
from tests.proximal.data import assert_same_planes, imbalanced


def statistics_of(X, y):
    statistics = ClassStatistics(X.shape[1])
    statistics.add(X, y)
    return statistics


@pytest.mark.parametrize("n_rows", [40, 400])  # stored as rows, and as matrices
@pytest.mark.parametrize("n_other", [5, 30, 150])
@pytest.mark.parametrize("C", [2.0, "auto"])
def test_subtract_equals_a_fit_on_the_remaining_rows(rng, n_rows, n_other, C):
    X, y = imbalanced(rng, n_rows + n_other, 6, (0.6, 0.3, 0.1))
    model = ProximalSVC(C=C).fit(X, y).subtract(ProximalSVC(C=C).fit(X[n_rows:], y[n_rows:]))
    fresh = ProximalSVC(C=C).fit(X[:n_rows], y[:n_rows])
    assert_same_planes(model, fresh.coef_, fresh.intercept_, 1e-9)


def test_subtract_all_rows_of_a_class_removes_the_class(rng):
    X, y = imbalanced(rng, 300, 4, (0.6, 0.3, 0.1))
    forgotten = y == 2
    model = ProximalSVC().fit(X, y).subtract(ProximalSVC().fit(X[forgotten], y[forgotten]))
    np.testing.assert_array_equal(model.classes_, [0, 1])


def test_subtract_everything_leaves_no_classes(rng):
    X, y = imbalanced(rng)
    statistics = statistics_of(X, y)
    other = ClassStatistics(X.shape[1], quantizer=statistics.quantizer)
    other.add(X[::-1], y[::-1])
    statistics.subtract(other)
    assert statistics.classes == []
    assert statistics.digest() == ClassStatistics(X.shape[1]).digest()


def test_subtract_of_rows_far_from_the_mean_restores_the_precision(rng):
    X, y = imbalanced(rng, 1000, 3)
    far = X + 1e6
    statistics = statistics_of(X, y).merge(statistics_of(far, y)).subtract(statistics_of(far, y))
    np.testing.assert_allclose(statistics.gram(0), statistics_of(X, y).gram(0), rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("n_rows", [20, 400])
@pytest.mark.parametrize("n_other", [5, 150])
def test_subtract_unknown_rows_raises_and_changes_nothing(rng, n_rows, n_other):
    X, y = imbalanced(rng, n_rows)
    strange, labels = imbalanced(rng, n_other, 5)
    model = ProximalSVC().fit(X, y)
    before = model.statistics_.to_bytes()
    with pytest.raises(DataError, match=r"were never learned|are learned"):
        model.subtract(ProximalSVC().fit(10.0 * strange, labels))
    assert model.statistics_.to_bytes() == before


def test_subtract_more_rows_than_learned_raises_with_both_counts(rng):
    X, y = imbalanced(rng, 100)
    more = ProximalSVC().fit(np.concatenate([X, X]), np.concatenate([y, y]))
    with pytest.raises(DataError, match=r"subtract: .* rows of class 0 .* but only .* are learned"):
        ProximalSVC().fit(X, y).subtract(more)


def test_pickled_statistics_are_equal_and_compact(rng):
    X, y = imbalanced(rng, 2000, 50)
    statistics = statistics_of(X, y)
    message = pickle.dumps(statistics)
    again = pickle.loads(message)
    assert again.to_bytes() == statistics.to_bytes()
    triangle = 12 * 51 * 52 // 2  # bytes; numbers have 96 bits
    assert len(message) < 2 * triangle + 4000
