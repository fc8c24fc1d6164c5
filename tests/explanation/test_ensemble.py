"""``StreamClassifier.explain(X)``: sums over experts, planted features, hashed and delayed rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier
from steelyard.ensemble.explanation import Explanation, explain_snapshot
from steelyard.ensemble.views import TransformedRows
from steelyard.explanation.rows import mean_contributions
from tests.explanation.reference import independent_columns, shapley_values


def learned(X, y, chunk=200):
    model = StreamClassifier()
    for begin in range(0, len(X), chunk):
        model.partial_fit(X[begin : begin + chunk], y[begin : begin + chunk])
    return model


def ring(X):
    radius = X[:, 3] ** 2 + X[:, 7] ** 2
    return (radius > 2.0) & (radius < 4.5)


def interaction(X):
    return X[:, 3] * X[:, 7] > 0.9


def rare_rule(X):
    return (X[:, 3] > 1.0) & (X[:, 7] > 0.5)


@pytest.mark.parametrize("concept", [ring, interaction, rare_rule])
def test_informative_columns_have_the_largest_mean_contributions(concept):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(3000, 12))
    model = learned(X, concept(X).astype(int))
    new = rng.normal(size=(400, 12))
    strengths = model.explain(new, changes=False).feature_importances
    assert set(np.argsort(-strengths)[:2].tolist()) == {3, 7}
    assert strengths[[3, 7]].min() > 2.0 * np.delete(strengths, [3, 7]).max()
    np.testing.assert_allclose(mean_contributions(model, new), strengths, rtol=0.01)
    alarms = new[concept(new)]
    found = model.explain(alarms, changes=False)
    largest = [found.largest(row, 1)[0][0] for row in range(len(found))]
    assert np.mean([name in {"x3", "x7"} for name in largest]) > 0.9


@pytest.mark.parametrize("n_rows", [3, 30, 120, 1500])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_contributions_add_up_at_every_stage_of_a_stream(n_rows, n_classes):
    rng = np.random.default_rng(n_rows)
    X = rng.normal(size=(n_rows, 5))
    y = np.arange(n_rows) % n_classes
    X[:, 0] += y
    model = learned(X, y, chunk=50)
    rows = np.concatenate([rng.normal(size=(30, 5)), 1e4 * rng.normal(size=(5, 5)), np.zeros((1, 5))])
    scores = model.decision_function(rows)
    found = model.explain(rows)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, scores, rtol=0, atol=1e-9)


GOALS = ["gmean", "f1", {"miss": 50, "alarm": 1}, {"precision": 0.999}, {"recall": 0.9}]


@pytest.mark.parametrize("goal", GOALS)
def test_contributions_add_up_and_decisions_have_the_sign_of_the_prediction(goal):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1200, 4))
    y = (X[:, 0] + rng.normal(size=1200) > 1.5).astype(int)
    model = StreamClassifier(threshold=goal)
    for begin in range(0, 900, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    found, scores = model.explain(X[900:], changes=False), model.decision_function(X[900:])
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, scores, rtol=1e-12, atol=1e-9)
    assert ((scores > 0.0) == (model.predict(X[900:]) == 1)).all()
    size = np.abs(found.contributions).sum(axis=1)
    assert np.median(size) > 0.1  # a threshold above all scores leaves the contributions visible


def test_experts_with_fewer_classes_are_explained():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 3)), rng.integers(0, 2, 1500)
    X[:, 0] += y
    model = learned(X, y)
    model.partial_fit(X[:40] + 4.0, np.full(40, 2))
    rows = rng.normal(size=(50, 3)) + 2.0
    found = model.explain(rows)
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, model.decision_function(rows), rtol=0, atol=1e-9)


@pytest.mark.parametrize("expert", ["linear", "mapped", "kernel"])
def test_contributions_of_expert_match_definition(expert):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 4))
    model = learned(X, (X[:, 0] * X[:, 1] > 0.2).astype(int))
    place = [one.config.name for one in model._ensemble.experts].index(expert)
    rule, views = model._ensemble.snapshot.rules[place], model._ensemble.views
    background = X[:4]
    found = rule.attribution(TransformedRows(X[:2], views), TransformedRows(background, views))
    for row, contributions in zip(X[:2], found.contributions, strict=True):
        game = independent_columns(lambda Z: rule.scores(TransformedRows(Z, views)), row, background)
        # The random map rounds kernel values to 23 bits.
        np.testing.assert_allclose(contributions, shapley_values(game, 4), atol=1e-4)


def test_base_value_includes_weight_of_label_frequencies():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(600, 3)), np.repeat([0, 1] * 3, 100)
    model = learned(X, y, chunk=1)  # labels come in runs, and the columns are noise
    weights = {one.name: one.weight for one in model.explain().experts}
    assert weights["labels"] + weights["last labels"] > 0.8
    found = model.explain(X[:50])
    assert np.abs(found.contributions).mean() < 0.1 * abs(found.base)


def test_explain_does_not_affect_later_learning():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 4))
    y = (X[:, 0] > 1.0).astype(int)
    asked, other = learned(X[:600], y[:600]), learned(X[:600], y[:600])
    asked.explain(X[600:])
    asked.partial_fit(X[600:], y[600:])
    other.partial_fit(X[600:], y[600:])
    assert np.array_equal(asked.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("goal", [{"recall": 0.8}, {"precision": 0.6}, {"alarms": 0.05}])
@pytest.mark.parametrize("kind", [StreamClassifier, partial(AdaptiveThresholdClassifier, ProximalSVC())])
def test_explained_rows_do_not_count_as_predictions(kind, goal):
    rng = np.random.default_rng(1)
    y = (rng.random(1500) < 0.1).astype(int)
    X = rng.normal(size=(1500, 3)) + 1.2 * y[:, None]
    asked, other = kind(threshold=goal), kind(threshold=goal)
    for begin in range(0, 1500, 100):
        rows = slice(begin, begin + 100)
        if begin:
            labels = asked.predict(X[rows])
            asked.explain(X[rows][:5] + 0.5)
            np.testing.assert_array_equal(labels, other.predict(X[rows]))
        asked.partial_fit(X[rows], y[rows])
        other.partial_fit(X[rows], y[rows])
    assert asked.realised_rates_ == other.realised_rates_


def test_explain_without_rows_describes_the_model():
    X = np.random.default_rng(0).normal(size=(100, 2))
    assert isinstance(learned(X, (X[:, 0] > 0).astype(int)).explain(), Explanation)


def test_nearest_rows_of_stream_have_numbers_and_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = np.where(X[:, 0] > 1.0, "yes", "no")
    model = learned(X, y)
    for near, number in zip(model.explain(X[640:645]).nearest, range(640, 645), strict=True):
        assert {row.label for row in near} == {"no", "yes"}
        assert (near[0].number, near[0].distance) == (number, 0.0)
        assert all(np.array_equal(row.values, X[row.number]) and row.label == y[row.number] for row in near)


def test_forgotten_row_is_no_longer_a_nearest_row():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = (X[:, 0] > 1.0).astype(int)
    model = learned(X, y).forget(X[640:641], y[640:641])
    assert model.explain(X[640:641]).nearest[0][0].distance > 0.0


def test_hashed_rows_are_explained_by_original_columns():
    rng = np.random.default_rng(3)
    X = np.where(rng.random((500, 300)) < 0.05, rng.normal(size=(500, 300)), 0.0)
    X[:, 17] = rng.normal(size=500)
    model = learned(X, (X[:, 17] > 1.0).astype(int))
    rows = X[:20]
    found = model.explain(rows)
    assert found.contributions.shape == (20, 300)
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, model.decision_function(rows), rtol=0, atol=1e-9)
    assert found.feature_importances.argmax() == 17
    assert found.nearest[0][0].values is None


def test_base_value_depends_on_the_reference_rows():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(800, 3))
    model = learned(X, (X[:, 0] > 1.0).astype(int))
    snapshot = model._ensemble.snapshot
    raw = snapshot.raw_scores(X[:20])
    one = explain_snapshot(snapshot, X[:20], X[:1], raw)
    many = explain_snapshot(snapshot, X[:20], X[:100], raw)
    assert one.base.shape == many.base.shape == (1,)
    assert one.base[0] != many.base[0]
