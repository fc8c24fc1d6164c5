"""Comparison of cross-validation from fold statistics with explicit folds of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.proximal.model_selection import validate_folds
from steelyard.proximal.row_ledger import fold_numbers
from tests.proximal.data import imbalanced


def validated(X, y, n_folds=4, **parameters):
    probe = ProximalSVC(**{**parameters, "C": "auto", "n_folds": n_folds})
    probe.fit(X, y).set_params(C=parameters.get("C", 1.0))
    return validate_folds(probe._rule(), probe._state)


def explicit_folds(X, y, n_folds=4, **parameters):
    """Yield scores and labels of each fold of a model fitted to the other folds."""
    numbers = fold_numbers(X, n_folds)
    for fold in range(n_folds):
        test = numbers == fold
        model = ProximalSVC(**parameters).fit(X[~test], y[~test])
        yield model.decision_function(X[test]).reshape(test.sum(), -1), y[test], model


def squared_error(scores, y, model):
    planes = range(scores.shape[1]) if scores.shape[1] > 1 else [1]
    errors = []
    for column, label in enumerate(model.classes_[planes]):
        own = y == label
        errors.append(
            0.5 * np.mean((scores[own, column] - 1.0) ** 2) + 0.5 * np.mean((scores[~own, column] + 1.0) ** 2)
        )
    return np.mean(errors)


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.5, 0.3, 0.2)])
@pytest.mark.parametrize("parameters", [{"C": 0.3}, {"class_weight": None}, {"threshold": "gmean"}])
def test_squared_error_equals_that_of_explicit_folds(rng, shares, parameters):
    X, y = imbalanced(rng, 800, 5, shares)
    expected = [squared_error(*fold) for fold in explicit_folds(X, y, **parameters)]
    np.testing.assert_allclose(validated(X, y, **parameters)["test_squared_error"], expected, rtol=1e-8)


def test_auc_and_recalls_of_gaussian_classes_are_near_those_of_explicit_folds(rng):
    X, y = imbalanced(rng, 20_000, 3, (0.7, 0.3))
    result = validated(X, y)
    for fold, (scores, labels, _) in enumerate(explicit_folds(X, y)):
        positive = scores[:, 0] > 0.0
        assert abs(result["test_auc"][fold] - roc_auc_score(labels, scores[:, 0])) < 0.02
        assert abs(result["test_sensitivity"][fold] - positive[labels == 1].mean()) < 0.03
        assert abs(result["test_specificity"][fold] - (~positive[labels == 0]).mean()) < 0.03
    hits = result["test_sensitivity"] * result["test_specificity"]
    np.testing.assert_allclose(result["test_gmean"], np.sqrt(hits))


def test_rows_of_all_folds_sum_to_all_rows(rng):
    assert validated(*imbalanced(rng, 500))["test_rows"].sum() == 500


def test_message_contains_the_statistics_of_each_fold_and_of_all_rows(rng):
    X, y = imbalanced(rng, 500)
    message = ProximalSVC(C="auto", n_folds=3).fit(X, y).statistics()
    counts = np.bincount(fold_numbers(X, 3).astype(int))
    assert [fold.n_rows for fold in message.folds] == counts.tolist()
    assert message.total.digest() == message.digest()


def test_auto_C_is_selected_from_the_training_folds(rng):
    X, y = imbalanced(rng, 500)
    result = validated(X, y, C="auto")
    assert ((result["C"] >= 1e-6) & (result["C"] <= 1e6)).all()


def test_fold_without_a_class_has_nan_measures(rng):
    X, y = imbalanced(rng, 200, shares=(0.9, 0.1))
    numbers = fold_numbers(X, 4)
    keep = (y == 0) | (numbers != 2)
    result = validated(X[keep], y[keep])
    assert np.isnan(result["test_auc"]).tolist() == [False, False, True, False]


def test_cross_validate_with_one_training_class_raises(rng):
    X, y = imbalanced(rng, 200)
    with pytest.raises(DataError, match=r"rows of 1 class\(es\); at least two are needed"):
        validated(X, np.zeros_like(y))
