"""Compare z-SVM and weights of rows and classes with their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from papers.dcil.weights import ZSVM, PartitionEnsemble, membership_weights, spread_weights
from steelyard import ProximalSVC, RandomFeatures
from steelyard.metrics import g_mean_score


@pytest.fixture
def rows(rng):
    y = (rng.random(400) < 0.08).astype(int)
    return rng.normal(size=(400, 2)) + 1.3 * y[:, None], y


def test_z_svm_with_best_z_matches_equation_2_24(rows, rng):
    X, y = rows
    model = ZSVM().fit(X, y)
    svc = SVC(gamma=model.kernel.gamma).fit(X, y)

    def predictions(z, new_rows):
        """Return the predictions of equation (2.24), summed over the support vectors."""
        total = np.zeros(len(new_rows))
        for weight, vector in zip(svc.dual_coef_[0], svc.support_vectors_, strict=True):
            sigma = z if weight > 0 else 1.0
            total += sigma * weight * np.exp(-svc.gamma * np.square(new_rows - vector).sum(axis=1))
        return total > 0

    fresh = rng.normal(size=(100, 2))
    np.testing.assert_array_equal(model.predict(fresh), predictions(model.z, fresh))
    own = g_mean_score(y, model.predict(X))
    assert own >= max(g_mean_score(y, predictions(z, X)) for z in np.geomspace(0.2, 50.0, 120)) - 1e-9
    assert own > g_mean_score(y, svc.predict(X))


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0])
def test_spread_weights_match_formula(rng, power):
    y = np.repeat([0, 1], [300, 60])
    X = rng.normal(size=(360, 3)) * np.where(y == 0, 1.0, 3.0)[:, None]
    weights = spread_weights(X, y, power)
    spreads = [np.sqrt(X[y == label].var(axis=0).mean()) for label in (0, 1)]
    expected = [
        360 / (2 * n) * (2 * s / sum(spreads)) ** power for n, s in zip((300, 60), spreads, strict=True)
    ]
    assert [weights[0], weights[1]] == pytest.approx(expected)


def test_esvm_matches_equation_12_linear_and_nonlinear(rows):
    X, y = rows
    layer = RandomFeatures(30, kind="sigmoid", gamma=1.0, random_state=1).fit(X[:1])
    for mapped in (X, layer.transform(X)):
        E, D = np.column_stack([mapped, -np.ones(len(X))]), np.where(y == 1, 1.0, -1.0)
        expected = np.linalg.solve(np.eye(E.shape[1]) + E.T @ E, E.T @ D)  # equation (12) with C = 1
        model = ProximalSVC(class_weight=None, standardize=False).fit(mapped, y)
        np.testing.assert_allclose(np.append(model.coef_[0], -model.intercept_), expected, rtol=1e-6)


def test_membership_weights_fall_linearly_with_the_distance_to_the_class_centre():
    X = np.array([[0.0], [1.0], [2.0], [5.0], [7.0]])  # centres 1 and 6
    y = np.array([0, 0, 0, 1, 1])
    np.testing.assert_allclose(membership_weights(X, y), [0.0, 2 / 3, 0.0, 0.0, 0.0], atol=1e-5)
    wider = np.array([[0.0], [3.0], [9.0], [5.0], [6.0], [10.0]])  # centres 4 and 7
    expected = [1 - 4 / 5, 1 - 1 / 5, 0.0, 1 - 2 / 3, 1 - 1 / 3, 0.0]
    np.testing.assert_allclose(membership_weights(wider, np.array([0, 0, 0, 1, 1, 1])), expected, atol=1e-5)


def test_partition_ensemble_uses_every_frequent_row_once_and_all_rare_rows(rng):
    y = np.repeat([1, 0], [10, 45])
    X = rng.normal(size=(55, 2)) + 2.0 * y[:, None]
    model = PartitionEnsemble().fit(X, y)
    sizes = [member.shape_fit_[0] for member in model.members]
    assert len(sizes) == 4
    assert sum(size - 10 for size in sizes) == 45
    votes = [member.predict(X) for member in model.members]
    np.testing.assert_array_equal(model.predict(X), np.sum(votes, axis=0) >= 2)
