"""Selection of C: when it happens, and that outliers do not determine the result."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures, persistence
from steelyard.proximal.model_selection import C_GRID
from steelyard.proximal.planes import PlaneRule
from steelyard.proximal.solver import _Eigen, _Tridiagonal
from tests.proximal.data import imbalanced


@pytest.fixture
def selections(monkeypatch):
    """Record the number of rows of each selection of C."""
    made = []
    select = PlaneRule.select_C

    def counted(rule, statistics, state, folds=None):
        made.append(int(statistics.n_rows))
        return select(rule, statistics, state, folds)

    monkeypatch.setattr(PlaneRule, "select_C", counted)
    return made


def test_C_is_selected_again_when_the_rows_have_doubled(rng, selections):
    X, y = imbalanced(rng, 1000, 4)
    model = ProximalSVC(C="auto")
    for begin in range(0, 1000, 50):
        model.partial_fit(X[begin : begin + 50], y[begin : begin + 50]).predict(X[:3])
    assert selections == [50, 100, 200, 400, 800]


def test_planes_are_fitted_to_all_rows_with_the_selected_C(rng):
    X, y = imbalanced(rng, 900, 4)
    model = ProximalSVC(C="auto").fit(X[:500], y[:500])
    model.predict(X)
    model.partial_fit(X[500:], y[500:])
    fresh = ProximalSVC(C=model.C_).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=1e-9, atol=1e-12)


def test_C_is_selected_again_after_forget(rng, selections):
    X, y = imbalanced(rng, 600, 4)
    model = ProximalSVC(C="auto").fit(X, y)
    model.predict(X)
    model.forget(X[:100], y[:100])
    model.predict(X)
    assert selections == [600, 500]
    fresh = ProximalSVC(C="auto").fit(X[100:], y[100:])
    assert model.C_ == fresh.C_


def test_C_is_selected_again_after_reselect_merge_and_set_params(rng, selections):
    X, y = imbalanced(rng, 600, 4)
    model = ProximalSVC(C="auto").fit(X[:300], y[:300])
    assert model.C_ == model.C_
    model.partial_fit(X[300:450], y[300:450])
    assert model.C_ == model.C_
    assert selections == [300]
    assert model.reselect_C() is model
    assert model.C_ == ProximalSVC(C="auto").fit(X[:450], y[:450]).C_
    assert selections == [300, 450, 450]
    assert model.merge(ProximalSVC(C="auto").fit(X[450:], y[450:])).C_ > 0.0
    assert model.set_params(objective="auc").C_ > 0.0
    assert selections[3:] == [600, 600]


@pytest.mark.parametrize(
    "copied",
    [
        lambda model: persistence.from_bytes(persistence.to_bytes(model)),
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["saved", "pickled"],
)
def test_selected_C_is_saved(rng, selections, copied):
    X, y = imbalanced(rng, 500, 4)
    model = ProximalSVC(C="auto").fit(X[:300], y[:300])
    model.predict(X)
    model.partial_fit(X[300:], y[300:])
    other = copied(model)
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    assert selections == [300]


def test_selected_C_of_decayed_rows_is_valid_until_the_weight_doubles(rng, selections):
    X, y = imbalanced(rng, 3000, 4)
    model = ProximalSVC(C="auto").fit(X[:400], y[:400])
    model.predict(X[:1])
    for begin in range(400, 3000, 100):
        model.decay(0.75).partial_fit(X[begin : begin + 100], y[begin : begin + 100]).predict(X[:1])
    assert 5 < len(selections) < 13


@pytest.mark.parametrize("objective", ["margin", "auc"])
def test_single_outlier_does_not_determine_selected_C(rng, objective):
    X, y = imbalanced(rng, 2000, 6)
    clean = ProximalSVC(C="auto", objective=objective).fit(X, y).C_
    X[1234, 2] = 9999.9
    spoilt = ProximalSVC(C="auto", objective=objective).fit(X, y).C_
    assert abs(np.log10(spoilt / clean)) < 1.6
    assert spoilt > 1e-3


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("n_features", [5, 40])
def test_tridiagonal_path_equals_eigenvector_path(rng, objective, penalize_intercept, n_features):
    X, y = imbalanced(rng, 300, n_features)
    model = ProximalSVC(objective=objective, penalize_intercept=penalize_intercept).fit(X, y)
    _, equations = model._rule()._problem(model.statistics_)
    matrix, rhs = equations.matrix(0), equations.rhs[0]
    expected = _Eigen(matrix, equations).solve_rhs(rhs, C_GRID)
    given = _Tridiagonal(matrix, equations).solve_rhs(rhs, C_GRID)
    np.testing.assert_allclose(given, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("n_rows", [4, 30, 70])
@pytest.mark.parametrize("repeated", [False, True])
def test_tridiagonal_path_with_fewer_rows_than_features_equals_eigenvector_path(
    rng, objective, penalize_intercept, n_rows, repeated
):
    X, y = imbalanced(rng, n_rows, 120)
    X[:, 100:] = X[:, :20] + X[:, 20:40] if repeated else X[:, 100:]
    y[:2] = 0, 1
    rule = {"objective": objective, "penalize_intercept": penalize_intercept}
    model = ProximalSVC(standardize=False, **rule).fit(X, y)
    _, equations = model._rule()._problem(model.statistics_)
    matrix, rhs = equations.matrix(0), equations.rhs[0]
    tridiagonal = _Tridiagonal(matrix, equations)
    assert tridiagonal._factor is not None
    Cs = C_GRID[C_GRID <= 1e4]  # for larger C, rounding errors of zero eigenvalues decide
    expected = _Eigen(matrix, equations).solve_rhs(rhs, Cs)
    given = tridiagonal.solve_rhs(rhs, Cs)
    np.testing.assert_allclose(given, expected, rtol=0.0, atol=1e-7 * np.abs(expected).max())


def test_low_rank_factor_is_correct_with_large_and_small_weights(rng):
    X, y = imbalanced(rng, 90, 100)
    y[:2] = 0, 1
    for weight, few in ((0.1, False), (10.0, False)):
        model = ProximalSVC(standardize=False).fit(X, y, sample_weight=np.full(90, weight))
        _, equations = model._rule()._problem(model.statistics_)
        tridiagonal = _Tridiagonal(equations.matrix(0), equations)
        assert (tridiagonal._factor is not None) == few
        expected = _Eigen(equations.matrix(0), equations).solve_rhs(equations.rhs[0], [0.1, 10.0])
        given = tridiagonal.solve_rhs(equations.rhs[0], [0.1, 10.0])
        np.testing.assert_allclose(given, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


def test_learner_with_feature_map_keeps_selected_C(rng, selections):
    X, y = imbalanced(rng, 700, 3)
    features = RandomFeatures(40).fit(X)
    model = ProximalSVC(C="auto", feature_map=features).fit(X[:400], y[:400])
    model.predict(X)
    model.partial_fit(X[400:], y[400:]).predict(X)
    assert selections == [400]
