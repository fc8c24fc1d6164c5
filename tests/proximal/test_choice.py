"""When C is chosen, and what cannot decide it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures, persistence
from steelyard.proximal.rule import rule as rules
from steelyard.proximal.rule.selection import C_GRID
from steelyard.proximal.rule.solver import _Eigen, _Tridiagonal
from steelyard.proximal.rule.system import System
from tests.proximal.data import imbalanced


@pytest.fixture
def choices(monkeypatch):
    """How many rows each choice of C was made from."""
    made = []
    choose = rules.choose_C

    def counted(parts, system, equations, make):
        made.append(int(system.n_rows))
        return choose(parts, system, equations, make)

    monkeypatch.setattr(rules, "choose_C", counted)
    return made


def test_C_is_chosen_again_when_the_rows_have_doubled(rng, choices):
    X, y = imbalanced(rng, 1000, 4)
    model = ProximalSVC(C="auto")
    for begin in range(0, 1000, 50):
        model.partial_fit(X[begin : begin + 50], y[begin : begin + 50]).predict(X[:3])
    assert choices == [50, 100, 200, 400, 800]


def test_planes_are_always_those_of_all_rows_with_the_C_in_use(rng):
    X, y = imbalanced(rng, 900, 4)
    model = ProximalSVC(C="auto").fit(X[:500], y[:500])
    model.predict(X)
    model.partial_fit(X[500:], y[500:])
    fresh = ProximalSVC(C=model.C_).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=1e-9, atol=1e-12)


def test_nothing_is_left_of_forgotten_rows_in_the_choice(rng, choices):
    X, y = imbalanced(rng, 600, 4)
    model = ProximalSVC(C="auto").fit(X, y)
    model.predict(X)
    model.forget(X[:100], y[:100])
    model.predict(X)
    assert choices == [600, 500]
    fresh = ProximalSVC(C="auto").fit(X[100:], y[100:])
    assert model.C_ == fresh.C_


def test_refresh_merging_and_parameters_choose_again(rng, choices):
    X, y = imbalanced(rng, 600, 4)
    model = ProximalSVC(C="auto").fit(X[:300], y[:300])
    assert model.C_ == model.C_
    model.partial_fit(X[300:450], y[300:450])
    assert model.C_ == model.C_
    assert choices == [300]
    assert model.reselect_C() is model
    assert model.C_ == ProximalSVC(C="auto").fit(X[:450], y[:450]).C_
    assert choices == [300, 450, 450]
    assert model.merge(ProximalSVC(C="auto").fit(X[450:], y[450:])).C_ > 0.0
    assert model.set_params(objective="auc").C_ > 0.0
    assert choices[3:] == [600, 600]


@pytest.mark.parametrize(
    "copied",
    [
        lambda model: persistence.from_bytes(persistence.to_bytes(model)),
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["saved", "pickled"],
)
def test_a_choice_is_kept_in_files(rng, choices, copied):
    X, y = imbalanced(rng, 500, 4)
    model = ProximalSVC(C="auto").fit(X[:300], y[:300])
    model.predict(X)
    model.partial_fit(X[300:], y[300:])
    other = copied(model)
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    assert choices == [300]


def test_a_choice_of_rows_that_fade_holds_until_as_much_is_new(rng, choices):
    X, y = imbalanced(rng, 3000, 4)
    model = ProximalSVC(C="auto").fit(X[:400], y[:400])
    model.predict(X[:1])
    for begin in range(400, 3000, 100):
        model.decay(0.75).partial_fit(X[begin : begin + 100], y[begin : begin + 100]).predict(X[:1])
    assert 5 < len(choices) < 13


@pytest.mark.parametrize("objective", ["margin", "auc"])
def test_one_sentinel_row_does_not_decide_C(rng, objective):
    X, y = imbalanced(rng, 2000, 6)
    clean = ProximalSVC(C="auto", objective=objective).fit(X, y).C_
    X[1234, 2] = 9999.9
    spoilt = ProximalSVC(C="auto", objective=objective).fit(X, y).C_
    assert abs(np.log10(spoilt / clean)) < 1.6
    assert spoilt > 1e-3


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("n_features", [5, 40])
def test_tridiagonal_systems_give_the_paths_that_eigenvectors_give(
    rng, objective, penalize_intercept, n_features
):
    X, y = imbalanced(rng, 300, n_features)
    model = ProximalSVC(objective=objective, penalize_intercept=penalize_intercept).fit(X, y)
    equations = model._rule()._equations(System(model.statistics_))
    matrix, rhs = equations.matrix(0), equations.rhs[0]
    expected = _Eigen(matrix, equations).solve_rhs(rhs, C_GRID)
    given = _Tridiagonal(matrix, equations).solve_rhs(rhs, C_GRID)
    np.testing.assert_allclose(given, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("n_rows", [4, 30, 70])
@pytest.mark.parametrize("repeated", [False, True])
def test_fewer_rows_than_features_give_the_paths_that_eigenvectors_give(
    rng, objective, penalize_intercept, n_rows, repeated
):
    X, y = imbalanced(rng, n_rows, 120)
    X[:, 100:] = X[:, :20] + X[:, 20:40] if repeated else X[:, 100:]
    y[:2] = 0, 1
    rule = {"objective": objective, "penalize_intercept": penalize_intercept}
    model = ProximalSVC(standardize=False, **rule).fit(X, y)
    equations = model._rule()._equations(System(model.statistics_))
    matrix, rhs = equations.matrix(0), equations.rhs[0]
    tridiagonal = _Tridiagonal(matrix, equations)
    assert tridiagonal._factor is not None
    Cs = C_GRID[C_GRID <= 1e4]  # beyond, what rounding leaves of zeros decides
    expected = _Eigen(matrix, equations).solve_rhs(rhs, Cs)
    given = tridiagonal.solve_rhs(rhs, Cs)
    np.testing.assert_allclose(given, expected, rtol=0.0, atol=1e-7 * np.abs(expected).max())


def test_heavy_rows_that_span_few_dimensions_are_no_reason_for_a_factor_nor_light_ones_against_it(rng):
    X, y = imbalanced(rng, 90, 100)
    y[:2] = 0, 1
    for weight, few in ((0.1, False), (10.0, False)):
        model = ProximalSVC(standardize=False).fit(X, y, sample_weight=np.full(90, weight))
        equations = model._rule()._equations(System(model.statistics_))
        tridiagonal = _Tridiagonal(equations.matrix(0), equations)
        assert (tridiagonal._factor is not None) == few
        expected = _Eigen(equations.matrix(0), equations).solve_rhs(equations.rhs[0], [0.1, 10.0])
        given = tridiagonal.solve_rhs(equations.rhs[0], [0.1, 10.0])
        np.testing.assert_allclose(given, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


def test_a_mapped_learner_keeps_its_choice_too(rng, choices):
    X, y = imbalanced(rng, 700, 3)
    features = RandomFeatures(40).fit(X)
    model = ProximalSVC(C="auto", feature_map=features).fit(X[:400], y[:400])
    model.predict(X)
    model.partial_fit(X[400:], y[400:]).predict(X)
    assert choices == [400]
