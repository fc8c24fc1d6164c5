"""Thresholds from leave-one-out scores."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.proximal.planes import leave_one_out_moments
from steelyard.proximal.solver import score_moments, solve
from tests.proximal.data import imbalanced

WEIGHTS = {"balanced": "balanced", "none": None, "dict": {0: 0.5, 1: 3.0}}


def _left_out(model):
    """Return moments of training scores and of leave-one-out scores, each [[m+, v+], [m-, v-]]."""
    rule = model._rule()
    system, equations = rule._problem(model.statistics_)
    u = solve(equations, model.C)[0]
    u = u if equations.has_intercept else np.append(u, 0.0)
    learned = score_moments(system, [1], u[None])[0]
    return learned, leave_one_out_moments(
        system, equations, learned[None], rule._side_weights(system), model.C
    )[0]


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("class_weight", WEIGHTS.values(), ids=list(WEIGHTS))
def test_leave_one_out_leverages_equal_those_of_weighted_regression(rng, class_weight, penalize_intercept):
    X, y = imbalanced(rng, 120, 6)
    model = ProximalSVC(
        C=2.0, class_weight=class_weight, penalize_intercept=penalize_intercept, standardize=False
    ).fit(X, y)
    n = np.bincount(y)
    sigma = {"balanced": n[::-1] / len(y), None: np.ones(2)}.get(
        class_weight if not isinstance(class_weight, dict) else "dict", np.array([0.5, 3.0])
    )[y]
    E = np.column_stack([X, np.full(len(X), -1.0)])
    penalty = np.eye(7)
    penalty[-1, -1] = float(penalize_intercept)
    hat = np.einsum("ij,jk,ik->i", E, np.linalg.inv((E.T * sigma) @ E + penalty / 2.0), E) * sigma
    learned, left_out = _left_out(model)
    targets = np.array([1.0, -1.0])
    for side, label in enumerate([1, 0]):
        kept = 1.0 - hat[y == label].mean()
        mean = targets[side] - (targets[side] - learned[side, 0]) / kept
        np.testing.assert_allclose(left_out[side], [mean, learned[side, 1] / kept**2], rtol=1e-9)


def test_auc_objective_equals_regression_with_free_intercept(rng):
    X, y = imbalanced(rng, 150, 5)
    model = ProximalSVC(C=3.0, objective="auc", standardize=False).fit(X, y)
    sigma = 1.0 / np.bincount(y)[y]
    targets = np.where(y == 1, 1.0, -1.0)
    E = np.column_stack([X, np.full(len(X), -1.0)])
    penalty = np.diag([1.0] * 5 + [0.0])
    inverse = np.linalg.inv((E.T * sigma) @ E + penalty / 3.0)
    regression = inverse @ (E.T @ (sigma * targets))
    hat = np.einsum("ij,jk,ik->i", E, inverse, E) * sigma
    learned, left_out = _left_out(model)
    scale = np.linalg.norm(regression[:5]) / np.linalg.norm(model.coef_)
    shift = (E @ regression)[0] - scale * (X[0] @ model.coef_[0])
    origin = X @ model.coef_[0]
    for side, label in enumerate([1, 0]):
        kept = 1.0 - hat[y == label].mean()
        target = 1.0 - 2.0 * side
        mean = target - (target - (E @ regression)[y == label].mean()) / kept
        # Mean in units of the scores of the pairwise model, relative to the mean score of the class.
        expected = (mean - shift) / scale - origin[y == label].mean()
        np.testing.assert_allclose(left_out[side, 0] - learned[side, 0], expected, rtol=1e-8)
        np.testing.assert_allclose(left_out[side, 1], learned[side, 1] / kept**2, rtol=1e-9)


def test_leave_one_out_moments_are_near_those_of_refits(rng):
    """Compare with one refit per row. The mean leverage of a class approximates the leverages of its rows."""
    X, y = imbalanced(rng, 80, 12)
    model = ProximalSVC(C=1.0, standardize=False, class_weight=None).fit(X, y)
    left_out = np.empty(len(X))
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        left_out[i] = (
            ProximalSVC(C=1.0, standardize=False, class_weight=None)
            .fit(X[others], y[others])
            .decision_function(X[i : i + 1])[0]
        )
    learned, estimated = _left_out(model)
    exact = np.array([left_out[y == 1].mean(), left_out[y == 0].mean()])
    assert np.abs(estimated[:, 0] - exact).max() < 0.2 * np.abs(learned[:, 0] - exact).max()


@pytest.mark.parametrize("objective", ["margin", "auc"])
def test_leave_one_out_threshold_of_overfitted_learner_generalizes_to_new_rows(objective):
    """With twelve rows of the rare class and 300 features, training scores are far from new scores."""
    rng = np.random.default_rng(5)
    y = np.repeat([1, 0], [12, 900])
    X = rng.normal(size=(912, 8)) + 1.2 * y[:, None]
    y_new = np.repeat([1, 0], [1500, 1500])
    X_new = rng.normal(size=(3000, 8)) + 1.2 * y_new[:, None]
    model = ProximalSVC(C=1e3, objective=objective, threshold="gmean", feature_map=RandomFeatures(300))
    scores = model.fit(X, y).decision_function(X_new)

    def gmean(threshold):
        hits = [(scores[y_new == 1] > threshold).mean(), (scores[y_new == 0] <= threshold).mean()]
        return float(np.sqrt(np.prod(hits)))

    best = max(gmean(threshold) for threshold in np.quantile(scores, np.linspace(0.01, 0.99, 99)))
    assert gmean(0.0) > best - 0.06
