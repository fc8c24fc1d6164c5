"""After any history of updates, the solution is the optimum for the remaining rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from sklearn.svm import SVC

from steelyard import IncrementalSVC
from steelyard.kernels import Kernel
from tests.svm import reference
from tests.svm.histories import cases


def solution(model):
    """Return rows, signs and coefficients of the state of a model."""
    state = model._state
    rows = state._solver.rows(np.arange(len(state._solver)))
    positive = state._solver.positive(0)
    return rows, np.where(state._solver.codes() == positive, 1.0, -1.0), state._solver.coefficients(0)


def learner(case, kernel=None):
    return IncrementalSVC(
        case.C,
        kernel=kernel or case.kernel.kernel,
        gamma=case.kernel.gamma,
        degree=case.kernel.degree,
        coef0=case.kernel.coef0,
        class_weight=case.class_weight,
    )


@given(cases())
@settings(max_examples=150)
def test_optimality_conditions_hold_after_every_update(case):
    model = learner(case)
    for add, forget, have in case.steps():
        model.update(add=case.rows(add), forget=case.rows(forget))
        if len(set(case.y[have])) < 2:
            continue
        rows, y, z = solution(model)
        K = case.kernel.block(rows)
        bounds = reference.limits(y, case.C, case.class_weight)
        found = reference.violation(K, y, z, model.intercept_[0], bounds)
        rounding = 1e-15 * np.abs(K).max() * np.abs(z).sum()
        assert found <= 1e-8 + rounding
        assert model.kkt_violation() <= 1e-8 + rounding
        assert model.intercept_[0] == pytest.approx(
            reference.middle_bias(K, y, z, bounds), abs=1e-8 + rounding
        )


def rounded(X, Z):
    """Return an rbf kernel with the precision of LIBSVM."""
    return Kernel("rbf", gamma=0.5).block(X, Z).astype(np.float32).astype(np.float64)


@given(cases(half_steps=True, largest=90))
@settings(max_examples=60)
def test_decision_function_equals_that_of_svc(case):
    function = rounded if case.kernel.kernel == "rbf" else None
    kernel = Kernel(function) if function else case.kernel
    model = learner(case, function)
    *_, (_, _, have) = list(case.steps())
    for add, forget, _ in case.steps():
        model.update(add=case.rows(add), forget=case.rows(forget))
    X, y = case.X[have], np.where(case.y[have] == 1, 1.0, -1.0)
    assume(len(set(y)) == 2)
    K = kernel.block(X)
    svc = reference.tight_svc(K, y, case.C, case.class_weight)
    assume(svc is not None)
    z, bias = svc
    # For a nearly singular matrix, the error of SVC may exceed its tolerance.
    bounds = reference.limits(y, case.C, case.class_weight)
    assume(reference.violation(K, y, z, bias, bounds, at_bound=1e-9) < 1e-8)
    np.testing.assert_allclose(model.decision_function(X), K @ z + bias, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_fit_agrees_with_svc_at_its_default_tolerance(rng, kernel, class_weight):
    y = (rng.random(400) < 0.2).astype(int)
    X = rng.normal(size=(400, 4)) + y[:, None]
    ours = IncrementalSVC(0.1, kernel=kernel, class_weight=class_weight).fit(X, y)
    svc = SVC(C=0.1, kernel=kernel, class_weight=class_weight, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), svc.decision_function(X), atol=1e-6)


def test_intercept_without_free_support_vectors_is_the_middle_of_its_interval():
    X = np.array([[-2.0], [-1.0], [1.0], [3.0]])
    y = np.array([0, 0, 1, 1])
    model = IncrementalSVC(0.01, kernel="linear").fit(X, y)
    w = 0.01 * (1.0 + 3.0 + 1.0 + 2.0)  # all samples are at their bounds, because y f < 1
    assert model.margin_size_ == 0
    # For the positives, y f <= 1 means b <= 1 - 3w and b <= 1 - w; for the negatives, b >= 2w - 1 and b >= w
    # - 1.
    assert model.intercept_[0] == pytest.approx(0.5 * ((1 - 3 * w) + (-1 + 2 * w)))


def test_intercept_differs_from_svc_only_within_its_interval(rng):
    n_pinned = 0
    for _ in range(60):
        y = np.where(np.arange(7) < rng.integers(1, 6), 1.0, -1.0)
        X = np.round(rng.normal(size=(7, 2)) + y[:, None])
        model = IncrementalSVC(0.002, kernel="linear", class_weight="balanced").fit(X, y)
        svc = SVC(C=0.002, kernel="linear", class_weight="balanced", tol=1e-10).fit(X, y)
        if abs(model.intercept_[0] - svc.intercept_[0]) < 1e-6:
            continue
        n_pinned += 1
        lower, upper = reference.limits(y, 0.002, "balanced")
        z = np.zeros(7)
        z[svc.support_] = svc.dual_coef_[0]
        free = (z > lower) & (z < upper)
        assert free.any()  # according to LIBSVM, because of rounding
        assert (np.minimum(z - lower, upper - z)[free] < 1e-12 * 0.002).all()
        middle = reference.middle_bias(X @ X.T, y, z, (lower, upper))
        assert model.intercept_[0] == pytest.approx(middle, abs=1e-9)
    assert n_pinned > 0


def test_coefficients_of_duplicates_with_opposite_labels_are_at_their_bounds():
    X, y = np.zeros((6, 2)), np.array([0, 1, 0, 1, 0, 1])
    model = IncrementalSVC(2.0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), 0.0, atol=1e-9)
    model.forget(X[:3], y[:3])
    assert model.kkt_violation() <= 1e-8


def test_balanced_class_weights_follow_changed_class_counts(rng):
    y = (np.arange(300) % 20 == 0).astype(int)
    X = rng.normal(size=(300, 3)) + y[:, None]
    model = IncrementalSVC(0.5, gamma=0.3, class_weight="balanced").fit(X[:100], y[:100])
    for begin in range(0, 200, 7):
        rows, old = slice(100 + begin, 107 + begin), slice(begin, begin + 7)
        model.update(add=(X[rows], y[rows]), forget=(X[old], y[old]))
        now = slice(begin + 7, min(107 + begin, 300))
        svc = SVC(C=0.5, gamma=0.3, class_weight="balanced", tol=1e-10).fit(X[now], y[now])
        np.testing.assert_allclose(model.decision_function(X), svc.decision_function(X), atol=1e-6)


def test_changed_C_takes_effect_at_the_next_update(rng):
    y = (rng.random(150) < 0.4).astype(int)
    X = rng.normal(size=(150, 2)) + y[:, None]
    model = IncrementalSVC(1.0, gamma=0.5).fit(X[:149], y[:149])
    for C in (7.0, 0.02, 0.5):
        model.set_params(C=C).partial_fit(X[149:], y[149:])
        fresh = IncrementalSVC(C, gamma=0.5).fit(X, y)
        np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)
        model.forget(X[149:], y[149:])
