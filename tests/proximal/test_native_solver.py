"""Comparison of the native solver with the reference solver."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType, SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from steelyard import ProximalSVC, _native
from steelyard.proximal.planes import PlaneRule

CHOICES = list(
    product(
        ["balanced", None, {0: 2.5, 1: 0.3, 4: 0.05}],
        [True, False],
        [("margin", "zero"), ("margin", "gmean"), ("auc", "zero")],
        [True, False],
    )
)


def _rows(rng, n_rows, n_features, n_classes):
    y = rng.integers(0, n_classes, n_rows) if n_classes > 1 else np.zeros(n_rows, dtype=int)
    X = rng.normal(size=(n_rows, n_features)) * np.exp(rng.normal(size=n_features)) + 0.7 * y[:, None]
    X[:, 0] += 1000.0
    return X, y


def _both(model, C):
    rule, statistics = model._rule(), model.statistics_
    assert rule.native_arguments(statistics, C, statistics.classes) is not None
    expected = rule.reference_planes(statistics, C)
    with mock.patch.object(PlaneRule, "reference_planes", side_effect=AssertionError):
        return rule.planes(statistics, C), expected


@pytest.mark.parametrize("level", _native.simd_levels())
@pytest.mark.parametrize("n_classes", [1, 2, 3, 7])
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_native_planes_equal_the_reference_planes(rng, level, n_classes, choices):
    class_weight, standardize, (objective, threshold), penalize_intercept = choices
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        for n_features in (1, 6, 37):
            X, y = _rows(rng, 400, n_features, n_classes)
            model = ProximalSVC(
                class_weight=class_weight, standardize=standardize, objective=objective,
                threshold=threshold, penalize_intercept=penalize_intercept,
            ).fit(X, y)  # fmt: skip
            for C in (0.01, 10.0):
                given, expected = _both(model, C)
                size = np.abs(expected.coef).max() + 1e-3 * (n_classes == 1)
                np.testing.assert_allclose(given.coef, expected.coef, rtol=0.0, atol=TOLERANCE * size)
                moved = given.coef @ X[0] + given.intercept, expected.coef @ X[0] + expected.intercept
                np.testing.assert_allclose(*moved, rtol=0.0, atol=TOLERANCE * (1.0 + size * 1000.0))
                np.testing.assert_allclose(given.slope, expected.slope, rtol=1e-6)
                assert given.C == C
    finally:
        _native.use_simd_level(before)


TOLERANCE = 1e-12


def test_native_planes_of_wide_systems_equal_the_reference_planes(rng):
    X, y = _rows(rng, 900, 260, 2)
    given, expected = _both(ProximalSVC().fit(X, y), 1.0)
    size = np.abs(expected.coef).max()
    np.testing.assert_allclose(given.coef, expected.coef, rtol=0.0, atol=10.0 * TOLERANCE * size)


@pytest.mark.parametrize("n_features", [3, 64, 101, 200])
def test_native_leave_one_out_thresholds_equal_the_reference(rng, n_features):
    """With few rows per feature, leverages are large and the threshold of training scores differs."""
    X, y = _rows(rng, 250, n_features, 2)
    y[rng.random(len(y)) < 0.4] = 0
    given, expected = _both(ProximalSVC(threshold="gmean").fit(X, y), 1.0)
    scores = [planes.coef @ X[:9].T + planes.intercept[:, None] for planes in (given, expected)]
    np.testing.assert_allclose(*scores, rtol=0.0, atol=1e-9 * np.abs(scores[1]).max())
    assert np.abs(given.intercept - ProximalSVC().fit(X, y).intercept_).max() > 1e-3


def test_native_coefficient_of_a_constant_feature_is_zero(rng):
    X, y = _rows(rng, 300, 4, 2)
    X[:, 2] = 5.0
    given, expected = _both(ProximalSVC().fit(X, y), 1.0)
    assert given.coef[0, 2] == expected.coef[0, 2] == 0.0


def test_numerically_singular_matrix_is_solved_by_the_reference():
    X = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]) * 1e8
    model = ProximalSVC(C=1e40, standardize=False).fit(X, [0, 1, 0, 1])
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(
    ("parameters", "n_features", "n_classes", "native"),
    [
        ({}, 2000, 30, True),
        ({}, 2001, 2, False),
        ({}, 64, 31, True),
        ({}, 65, 31, False),
        ({"objective": "auc"}, 2000, 30, True),
        ({"objective": "auc"}, 3, 31, False),
        ({"threshold": "gmean"}, 200, 2, True),
        ({"threshold": "gmean"}, 201, 2, False),
        ({"threshold": "gmean"}, 201, 3, True),
        ({"threshold": "gmean", "objective": "auc"}, 3, 2, False),
    ],
)
def test_use_of_native_solver_depends_on_parameters_and_sizes(parameters, n_features, n_classes, native):
    rule = ProximalSVC(**parameters).fit([[0.0], [1.0]], [0, 1])._rule()
    statistics = SimpleNamespace(n_features=n_features, slots_of=lambda _: (None, []))
    arguments = rule.native_arguments(statistics, 1.0, list(range(n_classes)))
    assert (arguments is not None) == native


def test_settings_unsupported_by_native_solver_use_reference_solver(rng):
    X, y = _rows(rng, 200, 3, 2)
    model = ProximalSVC(threshold="gmean", objective="auc").fit(X, y)
    expected = model._rule().reference_planes(model.statistics_, 1.0)
    np.testing.assert_array_equal(model.coef_, expected.coef)


@pytest.mark.parametrize("level", _native.simd_levels())
@pytest.mark.parametrize("class_weight", ["balanced", None, {3: 7.0, 20: 0.0, 44: 0.2}], ids=str)
@pytest.mark.parametrize("threshold", ["zero", "gmean"])
def test_vectorized_native_planes_equal_the_reference_planes(rng, level, class_weight, threshold):
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        X, y = _rows(rng, 900, 12, 45)
        model = ProximalSVC(class_weight=class_weight, threshold=threshold).fit(X, y)
        given, expected = _both(model, 1.0)
        size = np.abs(expected.coef).max()
        np.testing.assert_allclose(given.coef, expected.coef, rtol=0.0, atol=TOLERANCE * size)
        moved = given.coef @ X[0] + given.intercept, expected.coef @ X[0] + expected.intercept
        np.testing.assert_allclose(*moved, rtol=0.0, atol=TOLERANCE * (1.0 + size * 1000.0))
        np.testing.assert_allclose(given.slope, expected.slope, rtol=1e-6)
    finally:
        _native.use_simd_level(before)


@pytest.mark.parametrize("n_features", [20, 90])
def test_model_of_many_classes_is_bit_identical_after_any_history(rng, n_features):
    X, y = _rows(rng, 40 * 5, n_features, 1), np.repeat(np.arange(40), 5)
    X = X[0] * 1.0
    more = rng.normal(size=(40 * 100, n_features)) * 3.0
    labels = np.repeat(np.arange(40), 100)
    fresh = ProximalSVC().fit(X, y)
    grown = ProximalSVC(quantizer=fresh.quantizer_)
    for begin in range(0, len(more), 1000):
        grown.partial_fit(more[begin : begin + 1000], labels[begin : begin + 1000])
    grown.partial_fit(X[::-1], y[::-1])
    grown.forget(more, labels)
    assert grown.digest() == fresh.digest()
    np.testing.assert_array_equal(grown.coef_, fresh.coef_)
    np.testing.assert_array_equal(grown.intercept_, fresh.intercept_)


def test_class_of_weight_zero_does_not_change_other_probabilities(rng):
    """Scores of a class of weight 0 are constant; their slope must not be a quotient of rounding errors."""
    X, y = _rows(rng, 600, 4, 3)
    model = ProximalSVC(class_weight={2: 0.0}, penalize_intercept=False).fit(X, y)
    for planes in _both(model, 1.0):
        assert 0.1 < planes.slope < 10.0
    chances = model.predict_proba(X)[:, :2]
    assert ((chances > 1e-4) & (chances < 1.0 - 1e-4)).mean() > 0.9


def test_class_weight_accepts_any_mapping(rng):
    X, y = _rows(rng, 200, 3, 2)
    weights = {0: 1.0, 1: 4.0}
    model = ProximalSVC(class_weight=MappingProxyType(weights)).fit(X, y)
    for _ in range(3):
        model.predict(X[:1])
    weights[1] = 0.5
    expected = ProximalSVC(class_weight={0: 1.0, 1: 0.5}).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))
    np.testing.assert_array_equal(model.predict(X[:1]), expected.predict(X[:1]))
