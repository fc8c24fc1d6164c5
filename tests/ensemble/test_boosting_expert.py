"""Boosted trees as experts of the ensemble."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.ensemble.experts import EXPERTS, boosting
from steelyard.ensemble.experts.boosting import fit_trees
from steelyard.persistence import from_bytes, to_bytes

TREES = [config.name for config in EXPERTS].index("trees")


def _rows(n, d, n_classes, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, ::3] = np.round(X[:, ::3])  # columns with few distinct values
    X[:, d - 1] = 1.0  # a constant column
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


def _fitted_like(expert, X, y):
    """Return trees with the settings of ``expert``, fitted on the rows that the expert remembers."""
    settings = {"n_trees": 40, "learning_rate": 6.0 / 40, "max_leaves": 16, "max_bins": 255}
    assert len(expert.held) > 2000
    return fit_trees(X[expert.held], y[expert.held], **settings, min_rows_per_leaf=20, pack_sums=True)


def _scores(expert, X):
    return expert.rule.scores(type("Rows", (), {"X": X}))


def test_boosting_expert_gets_weight_on_data_it_predicts_well(taught):
    _, _, model = taught
    record = {expert.name: expert for expert in model.explain().experts}["trees"]
    assert record.weight > 0.1
    assert record.n_rows > 1500
    assert "refitted every" in record.limits


def test_trees_equal_trees_fitted_on_the_remembered_rows(taught):
    X, y, model = taught
    expert = model._ensemble.experts[TREES]
    fresh = _fitted_like(expert, X, y)
    for ours, theirs in zip(expert.trees.forest, fresh.forest, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_forget_refits_the_trees_without_the_forgotten_rows(taught):
    X, y, model = copy.deepcopy(taught)
    gone = np.arange(1000, 1040)
    model.forget(X[gone], y[gone])
    expert = model._ensemble.experts[TREES]
    assert not np.isin(gone, expert.held).any()
    rule = _fitted_like(expert, X, y)
    np.testing.assert_array_equal(_scores(expert, X), rule.scores(type("Rows", (), {"X": X})))


def test_copied_and_loaded_models_have_the_same_trees(taught):
    X, _, model = taught
    expected = _scores(model._ensemble.experts[TREES], X)
    for same_history in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        from_bytes(to_bytes(model)),
    ):
        np.testing.assert_array_equal(_scores(same_history._ensemble.experts[TREES], X), expected)
        np.testing.assert_array_equal(same_history.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_model_state_without_boosting_experts_loads(n_classes):
    X, y = _rows(1200, 5, n_classes, seed=3)
    model = StreamClassifier()
    for begin in range(0, 1000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    model.partial_fit(X[1000:1003], y[1000:1003])  # pending rows
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
    assert older._ensemble.experts[TREES].n_rows > 0
    assert older.explain().n_rows == 1200


def test_trees_use_only_rows_of_the_window():
    X, y = _rows(1500, 4, 2, seed=4)
    model = StreamClassifier(window=500)
    for begin in range(0, 1500, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    # Trees are refitted at the latest when a tenth of their rows has left the window.
    assert model._ensemble.experts[TREES].held.min() >= 1000 - 70


def test_explain_reports_that_trees_are_disabled_with_60_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 60, size=900)
    model = StreamClassifier().partial_fit(rng.normal(size=(900, 3)), y)
    assert model._ensemble.experts[TREES].n_rows == 0
    assert "disabled" in model.explain().limits["trees"]


def _as_version_0_2(state):
    """Return a saved state in the form that version 0.2 wrote: six experts, marked rows, no calibration."""
    n = 6
    kernel = next(expert for expert in state["experts"] if "sampled" in expert)
    state["recent"]["offered"] = np.isin(state["recent"]["numbers"], kernel["sampled"])
    state["experts"] = [
        {"low": 0, "rebuilt": 0, "held": np.zeros(0, np.int64), "learner": None, "rule": None, **expert}
        for expert in state["experts"][:n]
    ]
    for expert in state["experts"]:
        for name in ("sampled", "memory", "observed"):
            expert.pop(name, None)
    state["evidence"]["scores"] = state["evidence"]["scores"][:, :n]
    if state["waiting"]:
        state["waiting"]["scores"] = state["waiting"]["scores"][:, :n]
    state["judgement"].pop("slope")
    state["judgement"].pop("bias", None)
    for name in ("tables", "auc", "record", "weights", "scales"):
        if name in state["judgement"]:
            state["judgement"][name] = state["judgement"][name][:n]
    return state


@pytest.mark.parametrize("n_classes", [2, 3])
def test_state_of_version_0_2_loads_and_continues_learning(n_classes):
    X, y = _rows(1300, 5, n_classes, seed=5)
    model = StreamClassifier()
    for begin in range(0, 1200, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    older = StreamClassifier()
    older._set_state(_as_version_0_2(model._get_state()))
    # Version 0.2 had no trees over all rows, so the weights of the experts differ.
    assert (older.predict(X) == model.predict(X)).mean() > 0.9
    for name in ("kernel", "trees", "linear"):
        number = [config.name for config in EXPERTS].index(name)
        assert older._ensemble.experts[number].n_rows == model._ensemble.experts[number].n_rows > 0
    older.partial_fit(X[1200:], y[1200:]).forget(X[1200:1210], y[1200:1210])
    assert older.explain().n_rows == 1300


def _long_model(X, y):
    model = StreamClassifier(compute_budget=1000.0)
    for begin in range(0, len(y), 1000):
        model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000])
    return model


@pytest.mark.parametrize(("n_fine", "max_bins"), [(5, 255), (12, 64)])
def test_number_of_bins_depends_on_columns_with_many_values_alone(n_fine, max_bins, monkeypatch):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(1200, 30))
    X[:, n_fine:] = X[:, n_fine:] > 0.0
    y = (X[:, 0] > 1.0).astype(np.int64)
    model = StreamClassifier()
    for begin in range(0, 1200, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    expert = model._ensemble.experts[TREES]
    assert expert.columns == (30, n_fine, 2 * (30 - n_fine))
    settings = {}
    monkeypatch.setattr(boosting, "fit_trees", lambda *_, **given: settings.update(given))
    expert._fitted(expert.held, model._ensemble.stream(), is_sampled=False)
    assert settings["max_bins"] == max_bins


def test_trees_of_columns_with_few_values_are_refitted_more_often_in_the_first_rows_only():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(1200, 20))
    y = (X[:, 0] > 1.0).astype(np.int64)
    waits = []
    for rows in (X, np.where(np.arange(20) < 2, X, X > 0.0)):
        model = StreamClassifier()
        for begin in range(0, 1200, 100):
            model.partial_fit(rows[begin : begin + 100], y[begin : begin + 100])
        ensemble = model._ensemble
        expert, budget = ensemble.experts[TREES], ensemble.stream().budget
        waits.append([expert._refit_rows(budget, n_seen) for n_seen in (1200, 50_000)])
    (early, late), (early_with_few_values, late_with_few_values) = waits
    assert early_with_few_values < 0.8 * early
    assert late_with_few_values == pytest.approx(late, rel=0.1)  # the numbers of remembered rows differ
    assert early < late


def test_forget_in_large_buffer_refits_trees_on_sample_first_and_on_all_rows_later():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(24_000, 4))
    y = ((X[:, 0] > 0.5) ^ (rng.random(24_000) < 0.1)).astype(np.int64)
    model = _long_model(X, y)
    longest = [config.name for config in EXPERTS].index("trees all")
    weight = model.explain().experts[longest].weight
    model.forget(X[:1], y[:1])
    expert = model._ensemble.experts[longest]
    assert expert.is_sampled
    assert 0 not in expert.held
    assert model._ensemble.snapshot.weights.weights[longest] > 0.0 or weight == 0.0
    assert np.mean((_scores(expert, X)[:, 0] > 0.0) == (X[:, 0] > 0.5)) > 0.95

    restored = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(_scores(restored._ensemble.experts[longest], X), _scores(expert, X))

    for known in (model, restored):
        known.partial_fit(X[:100] + 0.1, y[:100])
        assert not known._ensemble.experts[longest].is_sampled
        assert 0 not in known._ensemble.experts[longest].held
    np.testing.assert_array_equal(restored.decision_function(X), model.decision_function(X))

    model.forget(X[1:2], y[1:2]).partial_fit(X[100:200] + 0.1, y[100:200])
    assert model._ensemble.experts[longest].is_sampled  # one extra refit between two regular ones


def test_trees_after_forget_in_large_buffer_do_not_depend_on_forgotten_row():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(12_000, 4))
    y = ((X[:, 0] > 0.5) ^ (rng.random(12_000) < 0.1)).astype(np.int64)
    other = X.copy()
    other[11_500] += 3.0
    longest = [config.name for config in EXPERTS].index("trees all")
    scores = []
    for rows in (X, other):
        model = _long_model(rows, y)
        model.forget(rows[11_500:11_501], y[11_500:11_501])
        assert model._ensemble.experts[longest].is_sampled
        scores.append(_scores(model._ensemble.experts[longest], X))
    np.testing.assert_array_equal(*scores)
