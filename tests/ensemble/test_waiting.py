"""Rows that come one by one wait for each other; nobody can tell but by the time it takes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble.learning import _TOGETHER
from steelyard.ensemble.rules import LabelRule, Rows
from steelyard.persistence import from_bytes, to_bytes


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = (rng.random(700) < 0.3).astype(int)
    return rng.normal(size=(700, 3)) + y[:, None], y


@pytest.fixture
def model(rows):
    """One that has learned 600 rows in one piece and three more one by one."""
    X, y = rows
    model = StreamClassifier().partial_fit(X[:600], y[:600])
    for row in range(600, 603):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert len(model._waiting) == 3
    return model


def test_rows_that_wait_count(rows, model):
    _, y = rows
    assert model.class_count_.tolist() == np.bincount(y[:603]).tolist()
    assert model.explain().n_rows == 603


def test_rows_that_wait_are_learned_together(rows, model):
    X, y = rows
    n = 600 + 4 * _TOGETHER  # a twentieth of all rows is what planes over all of them wait for
    for row in range(603, n):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert len(model._waiting) == 0
    linear = model._experts[0]
    assert linear.high == n
    fresh = ProximalSVC().fit(X[:n], y[:n])
    np.testing.assert_allclose(linear.learner.coef_, fresh.coef_, rtol=1e-9, atol=1e-12)


def followed(model):
    """How labels follow labels, as the committee knows it now."""
    (rule,) = (rule for rule in model._panel.rules if isinstance(rule, LabelRule))
    return rule


def test_labels_of_rows_that_wait_are_followed_at_once(rows, model):
    X, _ = rows
    labels = followed(model)
    model.partial_fit(X[:1], [1])
    after = followed(model)
    assert len(model._waiting) == 4
    assert after.counts[1] == pytest.approx(labels.counts[1] * after.fading + 1.0)


def test_whether_rows_were_asked_for_before_does_not_matter(rows):
    X, y = rows
    asked, silent = (StreamClassifier().partial_fit(X[:600], y[:600]) for _ in range(2))
    for row in range(600, 620):
        asked.predict(X[row : row + 1])
        for model in (asked, silent):
            model.partial_fit(X[row : row + 1], y[row : row + 1])
    assert to_bytes(asked) == to_bytes(silent)


def test_a_single_row_is_scored_in_one_go_as_by_each_expert(rows, model):
    X, y = rows
    panel = model._panel
    assert all(rule is not None for rule in panel.rules)
    for row in range(603, 640):
        model.partial_fit(X[row : row + 1], y[row : row + 1])
        panel, asked = model._panel, X[row - 300 : row - 299]
        seen, scores = panel.single.scored(panel, asked)
        each = Rows(asked, panel.views)
        np.testing.assert_array_equal(scores, panel._raw_scores(each))
        np.testing.assert_array_equal(seen.seen("ranks"), each.seen("ranks"))


def test_of_more_classes_each_expert_is_asked_about_a_single_row(rows):
    X, y = rows
    model = StreamClassifier().partial_fit(X, y + (X[:, 2] > 1.0))
    assert model._panel.single.scored(model._panel, X[:1]) is None
    assert model.predict(X[:1]) in model.classes_


def test_the_linear_expert_that_is_shown_knows_all_rows_but_those_that_wait(rows):
    X, y = rows
    model = StreamClassifier().partial_fit(X[:600], y[:600]).partial_fit(X[600:615], y[600:615])
    assert model._experts[0].high == 600  # it waits for more rows
    assert model.linear_.class_count_.tolist() == np.bincount(y[:615]).tolist()
    assert model._experts[0].high == 600


@pytest.mark.parametrize("way", ["stored", "copied"])
def test_stopping_while_rows_wait_changes_nothing(rows, model, way):
    X, y = rows
    other = from_bytes(to_bytes(model)) if way == "stored" else copy.deepcopy(model)
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    for row in range(603, 640):
        for learner in (model, other):
            learner.partial_fit(X[row : row + 1], y[row : row + 1])
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))


def test_rows_that_wait_can_be_forgotten(rows, model):
    X, y = rows
    model.forget(X[600:603], y[600:603])
    kept = StreamClassifier().partial_fit(X[:600], y[:600])
    assert model.class_count_.tolist() == kept.class_count_.tolist()
    np.testing.assert_allclose(
        model._experts[0].learner.coef_, kept._experts[0].learner.coef_, rtol=1e-9, atol=1e-12
    )


def test_a_new_class_does_not_wait(rows, model):
    X, _ = rows
    model.partial_fit(X[:1], [2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert len(model._waiting) == 0
