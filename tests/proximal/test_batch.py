"""Comparison of a fit with the textbook formulas."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.preprocessing import StandardScaler

from steelyard import ProximalSVC
from tests.proximal import reference
from tests.proximal.data import as_learned, assert_same_planes, imbalanced, relative_difference

WEIGHTS = ["balanced", None, {0: 2.0, 1: 5.0}]
OPTIONS = [
    {"standardize": standardize, "penalize_intercept": penalize}
    for standardize in (True, False)
    for penalize in (True, False)
]


@pytest.mark.parametrize("class_weight", WEIGHTS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.6, 0.3, 0.1), tuple([0.5] + [0.02] * 20)])
@pytest.mark.parametrize("shape", [(300, 5), (60, 90)])
def test_fit_equals_the_textbook_formula(rng, class_weight, options, shares, shape):
    X, y = imbalanced(rng, *shape, shares)
    model = ProximalSVC(C=0.7, class_weight=class_weight, **options).fit(X, y)
    expected = reference.proximal(as_learned(model, X), y, 0.7, class_weight, **options)
    # The intercept is a small difference of large terms, for which the reference itself loses a digit.
    assert_same_planes(model, *expected, tolerance=1e-9)
    assert_same_planes(model, *reference.proximal(X, y, 0.7, class_weight, **options), tolerance=1e-8)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_digits])
@pytest.mark.parametrize("class_weight", ["balanced", None])
def test_fit_equals_the_textbook_formula_on_real_data(load, class_weight):
    X, y = load(return_X_y=True)
    model = ProximalSVC(C=10.0, class_weight=class_weight).fit(X, y)
    assert_same_planes(model, *reference.proximal(X, y, 10.0, class_weight))


def test_decision_function_is_the_affine_map_of_the_raw_features(rng):
    X, y = imbalanced(rng, shares=(0.5, 0.3, 0.2))
    model = ProximalSVC().fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_.T + model.intercept_, rtol=1e-12)


def test_balanced_class_weights_give_same_model_when_a_class_is_repeated(rng):
    X, y = imbalanced(rng)
    rare = y == 1
    many = ProximalSVC(C=1e9).fit(np.concatenate([X, X[rare]]), np.concatenate([y, y[rare]]))
    once = ProximalSVC(C=1e9).fit(X, y)
    # Repeated rows change mean and scale, and thereby the penalty. With a large C, the penalty is negligible.
    assert relative_difference(many.coef_, once.coef_) < 1e-6


def test_auc_objective_equals_the_minimiser_over_all_pairs(rng):
    X, y = imbalanced(rng, 120, 4)
    model = ProximalSVC(C=3.0, objective="auc", standardize=False).fit(X, y)
    assert relative_difference(model.coef_[0], reference.auc_direction(X, y == 1, 3.0)) < 1e-10


def test_auc_objective_on_standardized_rows_equals_the_minimiser_over_all_pairs(rng):
    X, y = imbalanced(rng, 120, 4)
    scaler = StandardScaler().fit(X)
    model = ProximalSVC(C=3.0, objective="auc").fit(X, y)
    direction = reference.auc_direction(scaler.transform(X), y == 1, 3.0) / scaler.scale_
    assert relative_difference(model.coef_[0], direction) < 1e-10


def test_direction_with_free_intercept_and_inverse_count_weights_equals_auc_solution(rng):
    X, y = imbalanced(rng, 200, 4)
    counts = np.bincount(y)
    weights = {label: 1.0 / counts[label] for label in (0, 1)}
    margin = ProximalSVC(C=1e12, class_weight=weights, penalize_intercept=False).fit(X, y).coef_[0]
    auc = ProximalSVC(C=1e12, objective="auc").fit(X, y).coef_[0]
    cosine = margin @ auc / (np.linalg.norm(margin) * np.linalg.norm(auc))
    assert cosine > 1.0 - 1e-9


@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("class_weight", ["balanced", None])
@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.5, 0.3, 0.1, 0.02)])
def test_planes_of_regularization_path_equal_single_fits(
    rng, objective, penalize_intercept, class_weight, shares
):
    X, y = imbalanced(rng, 150, 70, shares)
    options = {"objective": objective, "penalize_intercept": penalize_intercept, "class_weight": class_weight}
    quantizer = [1e-3, 1.0, 50.0]
    coefs, intercepts = ProximalSVC(**options).fit(X, y).regularization_path(quantizer)
    for C, coef, intercept in zip(quantizer, coefs, intercepts, strict=True):
        assert_same_planes(ProximalSVC(C=C, **options).fit(X, y), coef, intercept, 1e-9)


def test_many_small_classes_of_different_counts_equal_the_textbook_formula(rng):
    """With many distinct class counts, the solver uses one eigendecomposition for all planes."""
    counts = np.arange(2, 42)
    y = np.repeat(np.arange(40), counts)
    X = rng.normal(size=(len(y), 130)) + rng.normal(size=(40, 130))[y]
    assert_same_planes(ProximalSVC(C=2.0).fit(X, y), *reference.proximal(X, y, 2.0))


def test_sample_weight_equals_repetition(rng):
    X, y = imbalanced(rng, 80, 3)
    weights = rng.integers(0, 4, size=80)
    repeated = ProximalSVC().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    weighted = ProximalSVC().fit(X, y, sample_weight=weights)
    assert_same_planes(weighted, repeated.coef_, repeated.intercept_)


def test_set_params_after_fit_equals_fit_with_these_parameters(rng):
    X, y = imbalanced(rng)
    model = ProximalSVC(C=1.0).fit(X, y)
    model.coef_
    changed = model.set_params(C=20.0, class_weight=None, threshold="gmean")
    fresh = ProximalSVC(C=20.0, class_weight=None, threshold="gmean").fit(X, y)
    assert_same_planes(changed, fresh.coef_, fresh.intercept_)
