"""Boosted trees as an expert of the ensemble."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.ensemble.experts import EXPERTS
from steelyard.ensemble.trees import BoostedTrees, TreeRule
from steelyard.persistence import from_bytes, to_bytes

TREES = [trade.name for trade in EXPERTS].index("trees")


def _rows(n, d, n_classes, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, ::3] = np.round(X[:, ::3])  # few values
    X[:, d - 1] = 1.0  # one value
    y = np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n), np.linspace(-0.5, 1.0, n_classes - 1))
    y[:n_classes] = np.arange(n_classes)
    return X, y.astype(np.int64)


@pytest.fixture(scope="module")
def taught():
    X, y = _rows(2500, 6, 2, seed=0)
    model = StreamClassifier()
    for begin in range(0, 2500, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    return X, y, model


def _scores(expert, X):
    return expert.rule.scores(type("Rows", (), {"X": X}))


def test_the_ensemble_hears_trees_where_they_are_right(taught):
    _, _, model = taught
    told = {expert.name: expert for expert in model.explain().experts}["trees"]
    assert told.weight > 0.1
    assert told.n_rows > 1500
    assert "grown anew every" in told.spared


def test_trees_are_a_function_of_the_rows_that_they_remember(taught):
    X, y, model = taught
    expert = model._experts[TREES]
    fresh = BoostedTrees().fit(X[expert.held], y[expert.held])
    for ours, theirs in zip(expert.learner.forest, fresh.forest, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_forgotten_rows_leave_the_trees_at_once(taught):
    X, y, model = copy.deepcopy(taught)
    gone = np.arange(1000, 1040)
    model.forget(X[gone], y[gone])
    expert = model._experts[TREES]
    assert not np.isin(gone, expert.held).any()
    fresh = BoostedTrees().fit(X[expert.held], y[expert.held])
    rule = TreeRule([0, 1], fresh.forest, 6)
    np.testing.assert_array_equal(_scores(expert, X), rule.scores(type("Rows", (), {"X": X})))


def test_copies_and_files_have_the_same_trees(taught):
    X, _, model = taught
    expected = _scores(model._experts[TREES], X)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), from_bytes(to_bytes(model))):
        np.testing.assert_array_equal(_scores(twin._experts[TREES], X), expected)
        np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_files_from_before_there_were_trees_are_read(n_classes):
    X, y = _rows(1200, 5, n_classes, seed=3)
    model = StreamClassifier()
    for begin in range(0, 1000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    model.partial_fit(X[1000:1003], y[1000:1003])  # they wait
    state = model._get_state()
    state["experts"] = state["experts"][:TREES]
    state["evidence"]["scores"] = state["evidence"]["scores"][:, :TREES]
    state["waiting"]["scores"] = state["waiting"]["scores"][:, :TREES]
    for name in ("tables", "auc", "record", "weights", "scales"):
        if name in state["judgement"]:
            state["judgement"][name] = state["judgement"][name][:TREES]
    older = StreamClassifier()
    older._set_state(state)
    assert older.predict(X[:50]).shape == (50,)
    older.partial_fit(X[1003:], y[1003:])
    assert older._experts[TREES].n_rows > 0
    assert older.explain().n_rows == 1200


def test_a_memory_of_rows_holds_for_trees_too():
    X, y = _rows(1500, 4, 2, seed=4)
    model = StreamClassifier(memory=500)
    for begin in range(0, 1500, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    # Rows that left go when trees are grown, at the latest when a tenth of theirs has left.
    assert model._experts[TREES].held.min() >= 1000 - 70


def test_trees_are_left_out_of_very_many_classes_and_explain_says_so():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 60, size=900)
    model = StreamClassifier().partial_fit(rng.normal(size=(900, 3)), y)
    assert model._experts[TREES].n_rows == 0
    assert "left out" in model.explain().spared["trees"]
