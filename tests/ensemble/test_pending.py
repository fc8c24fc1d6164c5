"""Single rows are learned several at a time, which affects predictions only by a delay."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble.experts.lookup import LabelFrequencyRule
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import TransformedRows
from steelyard.persistence import from_bytes, to_bytes


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = (rng.random(700) < 0.3).astype(int)
    return rng.normal(size=(700, 3)) + y[:, None], y


@pytest.fixture
def model(rows):
    """Return a model that has learned 600 rows in one call and has three pending rows."""
    X, y = rows
    model = StreamClassifier().partial_fit(X[:600], y[:600])
    for row in range(600, 603):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert model._ensemble.pending.n_rows == 3
    return model


def test_pending_rows_are_counted(rows, model):
    _, y = rows
    assert model.class_count_.tolist() == np.bincount(y[:603]).tolist()
    assert model.explain().n_rows == 603


def test_pending_rows_are_learned_together(rows, model):
    X, y = rows
    n = 600 + 4 * SETTINGS.pending_rows  # the linear expert waits for a twentieth of all rows
    for row in range(603, n):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert model._ensemble.pending.n_rows == 0
    linear = model._ensemble.experts[0]
    assert linear.n_seen_at_update == n
    fresh = ProximalSVC().fit(X[:n], y[:n])
    np.testing.assert_allclose(linear.learner().coef_, fresh.coef_, rtol=1e-9, atol=1e-12)


def label_rule(model):
    """Return the rule (the prediction function) of the first label frequency expert."""
    return next(rule for rule in model._ensemble.snapshot.rules if isinstance(rule, LabelFrequencyRule))


def test_labels_of_pending_rows_update_label_frequencies_immediately(rows, model):
    X, _ = rows
    labels = label_rule(model)
    model.partial_fit(X[:1], [1])
    after = label_rule(model)
    assert model._ensemble.pending.n_rows == 4
    assert after.counts[1] == pytest.approx(labels.counts[1] * after.decay + 1.0)


def test_predicting_a_row_before_learning_it_does_not_change_the_model(rows):
    X, y = rows
    asked, silent = (StreamClassifier().partial_fit(X[:600], y[:600]) for _ in range(2))
    for row in range(600, 620):
        asked.predict(X[row : row + 1])
        for model in (asked, silent):
            model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert to_bytes(asked) == to_bytes(silent)


def test_native_scorer_equals_scores_of_every_rule_for_single_rows_and_batches(rows, model):
    X, y = rows
    assert sum(rule is not None for rule in model._ensemble.snapshot.rules) >= 6
    for row in range(603, 640):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
        snapshot = model._ensemble.snapshot
        expected = np.full((len(X), len(snapshot.rules), 1), np.nan)
        for number, rule in enumerate(snapshot.rules):
            if rule is not None:
                expected[:, number] = rule.scores(TransformedRows(X, snapshot.views))
        np.testing.assert_array_equal(snapshot.raw_scores(X), expected)
        np.testing.assert_array_equal(snapshot.raw_scores(X[row : row + 1]), expected[row : row + 1])


def test_single_row_is_predicted_by_model_of_three_classes(rows):
    X, y = rows
    model = StreamClassifier().partial_fit(X, y + (X[:, 2] > 1.0))
    assert model.predict(X[:1]) in model.classes_


def test_linear_attribute_is_fitted_to_all_rows_except_pending_ones(rows):
    X, y = rows
    model = StreamClassifier().partial_fit(X[:600], y[:600]).partial_fit(X[600:615], y[600:615])
    assert model._ensemble.experts[0].n_seen_at_update == 600  # the expert waits for more rows
    assert model.linear_.class_count_.tolist() == np.bincount(y[:615]).tolist()
    assert model._ensemble.experts[0].n_seen_at_update == 600


@pytest.mark.parametrize("way", ["saved", "copied"])
def test_saved_and_copied_models_with_pending_rows_continue_identically(rows, model, way):
    X, y = rows
    other = from_bytes(to_bytes(model)) if way == "saved" else copy.deepcopy(model)
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    for row in range(603, 640):
        for learner in (model, other):
            learner.partial_fit(X[row : row + 1], y[row : row + 1])
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))


def test_pending_rows_can_be_forgotten(rows, model):
    X, y = rows
    model.forget(X[600:603], y[600:603])
    kept = StreamClassifier().partial_fit(X[:600], y[:600])
    assert model.class_count_.tolist() == kept.class_count_.tolist()
    linear, expected = (one._ensemble.experts[0].learner() for one in (model, kept))
    np.testing.assert_allclose(linear.coef_, expected.coef_, rtol=1e-9, atol=1e-12)


def test_row_of_a_new_class_is_learned_immediately(rows, model):
    X, _ = rows
    model.partial_fit(X[:1], [2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model._ensemble.pending.n_rows == 0
