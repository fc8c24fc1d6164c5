"""Compare the baselines of KOIL with reference implementations and with manual calculations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from steelyard.exceptions import DataError, ParameterError
from steelyard.online import AROW, NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
from tests.online import reference
from tests.online.streams import make_stream


@pytest.fixture
def stream():
    return make_stream(800)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


# -- comparison with the reference implementations ----------------------------------------------------


@pytest.mark.parametrize("memory", [None, 1, 50])
def test_norma_matches_reference_implementation(stream, memory):
    X, y = stream
    model = NORMA(0.2, 0.05, nu=0.3, gamma=0.7, memory=memory).fit(X, y)
    K = reference.rbf(X, 0.7)
    a, b, rho = reference.norma(K, y, eta=0.2, regularization=0.05, nu=0.3, memory=memory)
    assert_close(model.decision_function(X), K @ a + b)
    assert model._expansions[0].margin == pytest.approx(rho)


@pytest.mark.parametrize("budget", [1, 2, 20])
def test_rbp_matches_reference_implementation(stream, budget):
    X, y = stream
    model = RBP(budget, gamma=0.7, random_state=4).fit(X, -y)
    K = reference.rbf(X, 0.7)
    # The scores of the reference are positive for the first label, here +1.
    assert_close(
        model.decision_function(X),
        K @ reference.random_budget_perceptron(K, -y, budget=budget, seed=model._seed),
    )


@pytest.mark.parametrize("budget", [1, 2, 20])
@pytest.mark.parametrize("degree", [1, 2])
def test_forgetron_matches_reference_implementation(stream, budget, degree):
    X, y = stream
    model = Forgetron(budget, kernel="polynomial", degree=degree, coef0=1.0).fit(X, y)
    K = reference.polynomial(X, degree, coef0=1.0)
    assert_close(model.decision_function(X), K @ reference.forgetron(K, y, budget=budget))


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("threshold", [0.05, 0.4, 5.0])
def test_projectron_matches_reference_implementation(stream, margin, threshold):
    X, y = stream
    model = Projectron(threshold, margin=margin, gamma=0.7).fit(X, y)
    K = reference.rbf(X, 0.7)
    expected = reference.projectron(K, y, threshold=threshold, margin=margin)
    assert_close(model.decision_function(X), K @ expected)
    assert len(model.support_vectors_) == np.count_nonzero(expected)


def test_perceptron_matches_reference_implementation(stream):
    X, y = stream
    model = OnlinePerceptron().fit(X, y)
    w, b = reference.perceptron(X, y)
    assert_close(model.coef_[0], w)
    assert model.intercept_[0] == b


@pytest.mark.parametrize("budget", [1, 2, 30])
def test_oam_matches_reference_implementation(stream, budget):
    X, y = stream
    model = OAM(0.1, budget=budget, random_state=2).fit(X, y)
    assert_close(model.coef_[0], reference.oam(X, y, C=0.1, budget=budget, seed=model._seed))


def test_opauc_matches_reference_implementation(stream):
    X, y = stream
    model = OPAUC(0.02, 0.001).fit(X, y)
    assert_close(model.coef_[0], reference.opauc(X, y, eta=0.02, regularization=0.001))


# -- manual calculations: a comment lists each row x (label) and the resulting state ------------------

AXIS = np.array([[1.0], [2.0], [-1.0]])
SIGNS = np.array([1, -1, -1])


def test_perceptron_matches_manual_calculation():
    # 1 (+): mistake at 0, w = 1, b = 1.  2 (-): score 3, w = -1, b = 0.  -1 (-): score 1, w = 0, b = -1.
    model = OnlinePerceptron().fit(AXIS, SIGNS)
    assert (model.coef_[0, 0], model.intercept_[0]) == (0.0, -1.0)


def test_oam_matches_manual_calculation():
    # 2 (-) with 1: loss 1, step min(1, 1 / 1), w = -1.  -1 (-) with 1: w (x - z) = 2, loss 3, step
    # min(1, 3 / 4), w = -1 - 0.75 * (-2) = 0.5.
    assert OAM(1.0, random_state=0).fit(AXIS, SIGNS).coef_[0, 0] == 0.5


def test_opauc_matches_manual_calculation():
    # 2 (-) against mean 1, spread 0: gradient (2 - 1) = 1, w = -0.1.  -1 (-): x - c = -2, gradient
    # -2 + 4 w = -2.4, w = -0.1 + 0.24 = 0.14.
    assert OPAUC(0.1, 0.0).fit(AXIS, SIGNS).coef_[0, 0] == pytest.approx(0.14)


def test_norma_matches_manual_calculation():
    # Linear kernel, eta 0.5, lambda 0.2, nu 0.5.  1 (+): 0 <= 0, a = [0.5], b = 0.5, rho = -0.25.
    # 2 (-): -(1 + 0.5) <= -0.25, a = [0.45, -0.5], b = 0, rho = -0.5.
    # -1 (-): -(-0.45 + 1) = -0.55 <= -0.5, a = [0.405, -0.45, -0.5], b = -0.5, rho = -0.75.
    model = NORMA(0.5, 0.2, nu=0.5, kernel="linear").fit(AXIS, SIGNS)
    np.testing.assert_allclose(model.dual_coef_, [0.405, -0.45, -0.5])
    assert (model._expansions[0].bias, model._expansions[0].margin) == (-0.5, -0.75)


def test_rbp_matches_manual_calculation():
    # Budget 1: every mistake replaces the only vector. 1 (+) is stored; 2 (-) scores 2, is stored; -1 (-)
    # too.
    model = RBP(1, kernel="linear", random_state=0).fit(AXIS, SIGNS)
    assert (model.support_vectors_.tolist(), model.dual_coef_.tolist()) == ([[-1.0]], [-1.0])


def test_forgetron_matches_manual_calculation():
    # Budget 1. 1 (+) is stored; 2 (-) scores 2, a mistake. f' = k(1) - k(2), margin of the oldest: 1 - 2 =
    # -1. psi = 3 phi^2 + 2 phi must stay below 15/16: phi = (-2 + sqrt(4 + 12 * 15 / 16)) / 6.
    phi = (-2 + math.sqrt(4 + 12 * 15 / 16)) / 6
    model = Forgetron(1, kernel="linear").fit(AXIS[:2], SIGNS[:2])
    np.testing.assert_allclose(model.dual_coef_, [-phi])


def test_projectron_matches_manual_calculation():
    # On a line every row is a multiple of the first: 1 (+) is stored, 2 (-) scores 2 and is projected,
    # 1 - 2 = -1, -1 (-) scores 1 and is projected, -1 + 1 = 0.
    model = Projectron(0.1, kernel="linear").fit(AXIS, SIGNS)
    assert model.support_vectors_.tolist() == [[1.0]]
    np.testing.assert_allclose(model.dual_coef_, [0.0], atol=1e-12)


def test_projectron_plus_matches_manual_calculation():
    # 1 (+) is stored. 0.5 (+) scores 0.5: loss 0.5, squared length 0.25, step min(2, 4, 1) = 1, weight 1.5.
    model = Projectron(0.1, margin=True, kernel="linear").fit(
        np.array([[1.0], [0.5], [-4.0]]), np.array([1, 1, -1])
    )
    np.testing.assert_allclose(model.dual_coef_, [1.5])


# -- properties --------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 2, 7])
@pytest.mark.parametrize("learner", [RBP, Forgetron])
def test_number_of_support_vectors_stays_within_budget(stream, learner, budget):
    assert len(learner(budget).fit(*stream).support_vectors_) <= budget


def test_oam_reservoirs_are_uniform_samples():
    n, budget, repetitions = 40, 8, 800
    X = np.arange(n, dtype=float)[:, None]
    y = np.r_[0, np.ones(n - 1, dtype=int)]
    included = np.zeros(n)
    for seed in range(repetitions):
        arrays = OAM(budget=budget, random_state=seed).fit(X, y)._targets[0]
        included[arrays["buffers"][0, :, 0].astype(int)] += 1  # the first label is the positive class
    share = budget / (n - 1)
    deviations = (included[1:] - repetitions * share) / np.sqrt(repetitions * share * (1 - share))
    assert np.abs(deviations).max() < 4.5


def test_opauc_treats_all_rows_before_a_new_class_as_its_other_class():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), np.r_[np.arange(200) % 2, np.full(100, 2)]
    late = OPAUC().fit(X, y)
    always = OPAUC().fit(X, (y == 2).astype(int))
    np.testing.assert_allclose(late.coef_[2], always.coef_[0], rtol=1e-9)


def test_norma_with_learning_rate_that_flips_signs_of_weights_raises():
    with pytest.raises(ParameterError, match="must be below 1"):
        NORMA(2.0, 0.5).fit(AXIS, SIGNS)


@pytest.mark.parametrize("learner", [AROW(), OnlinePerceptron(), OAM(), OPAUC(), Forgetron(kernel="linear")])
def test_rows_that_would_overflow_raise(learner):
    with pytest.raises(DataError, match="overflow"):
        clone(learner).fit(AXIS * 1e200, SIGNS)


@pytest.mark.parametrize("regularization", [0.1, 2.0])
def test_arow_matches_reference_implementation(stream, regularization):
    X, y = stream
    model = AROW(regularization).partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    w, b = reference.arow(X, y, regularization=regularization)
    assert_close(model.coef_[0], w)
    assert_close(model.intercept_[0], b)


def test_arow_is_bit_identical_for_sparse_and_dense_rows(stream):
    X, y = stream
    X, weights = np.where(np.abs(X) > 0.5, X, 0.0), np.arange(len(y)) % 3
    labels = np.where(X[:, 0] > 1.0, 2, y)  # three classes
    dense = AROW().fit(X, labels, sample_weight=weights)
    sparse = AROW().fit(sp.csr_matrix(X), labels, sample_weight=weights)
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    np.testing.assert_array_equal(dense.intercept_, sparse.intercept_)
    np.testing.assert_allclose(
        dense.decision_function(X), sparse.decision_function(sp.csr_matrix(X)), rtol=1e-12
    )


@pytest.mark.parametrize("learner", [NORMA(), RBP(random_state=0), Forgetron(), Projectron()])
def test_float64_rows_after_float32_rows_keep_full_precision(stream, learner):
    X, y = stream
    first = X[:300].astype(np.float32)
    learner = clone(learner)
    mixed = learner.partial_fit(first, y[:300]).partial_fit(X[300:], y[300:]).decision_function(X)
    double = learner.fit(np.concatenate([first.astype(float), X[300:]]), y).decision_function(X)
    np.testing.assert_array_equal(mixed, double)
