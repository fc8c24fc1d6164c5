"""More than two classes: budget restrictions, weights and thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble.experts import EXPERTS, Expert
from steelyard.ensemble.experts.base import CostBudget
from steelyard.ensemble.multiclass import weigh_classes
from steelyard.ensemble.scores import ScoreBuffer
from steelyard.ensemble.settings import SETTINGS
from steelyard.persistence import from_bytes, to_bytes

NAMES = [config.name for config in EXPERTS]


def _rows(n_rows, n_classes, seed=0, d=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    return rng.normal(size=(n_rows, d)) + 3.0 * np.random.default_rng(99).normal(size=(n_classes, d))[y], y


def _run(model, X, y, size=100):
    for begin in range(0, len(y), size):
        model.partial_fit(X[begin : begin + size], y[begin : begin + size])
    return model


@pytest.fixture(scope="module")
def hundred():
    X, y = _rows(4000, 100)
    return X, y, _run(StreamClassifier(), X[:3000], y[:3000])


def test_ensemble_is_more_accurate_than_proximal_svc_with_100_classes(hundred):
    X, y, model = hundred
    hits = model.predict(X[3000:]) == y[3000:]
    planes = ProximalSVC().fit(X[:3000], y[:3000]).predict(X[3000:]) == y[3000:]
    assert hits.mean() > planes.mean() + 0.05
    assert model.decision_function(X[:5]).shape == (5, 100)


def test_explain_with_100_classes_lists_restricted_experts(hundred):
    _, _, model = hundred
    explanation = model.explain()
    assert model._ensemble.experts[NAMES.index("kernel")].state is None
    assert "100 planes" in explanation.limits["kernel"]
    assert "random features instead of 300" in explanation.limits["mapped"]
    assert len(explanation.classes) == 100
    assert "and 88 more classes" in str(explanation)
    assert str(explanation).count("\n") < 40
    assert model._ensemble.experts[NAMES.index("mapped")].learner().n_features_in_ < 200
    assert model._ensemble.recent_scores._log.n <= 1.5 * 20 * 100 + 100


def test_linear_expert_is_solved_as_often_as_compute_budget_allows(monkeypatch):
    solved = dict.fromkeys(NAMES, 0)
    refresh_rule = Expert.refresh_rule

    def counted(self, stream):
        solved[self.config.name] += 1
        return refresh_rule(self, stream)

    monkeypatch.setattr(Expert, "refresh_rule", counted)
    X, y = _rows(4000, 60)
    _run(StreamClassifier(), X, y, size=20)
    budget = CostBudget("auto", 60)

    def interval(n_columns):
        return budget.interval_rows(60 * (60.0 + n_columns**3 / 20_000.0), SETTINGS.solve_share)

    assert interval(6) > 100
    early = 15  # additional solves at the beginning of the stream
    assert solved["linear"] <= 4000 / interval(6) + early
    assert solved["mapped"] <= 4000 / interval(200) + early


def test_save_and_load_between_two_solves_does_not_change_predictions():
    X, y = _rows(1500, 40, seed=3)
    model = _run(StreamClassifier(), X[:1010], y[:1010], size=70)
    linear = model._ensemble.experts[0]
    assert linear.n_seen_at_rule < linear.n_seen_at_update  # the planes were solved before the last rows
    stored = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(stored.decision_function(X), model.decision_function(X))
    for learner in (model, stored):
        _run(learner, X[1010:], y[1010:], size=70)
    np.testing.assert_array_equal(stored.decision_function(X), model.decision_function(X))


def test_forgotten_class_is_not_predicted():
    X, y = _rows(1200, 40, seed=4)
    model = _run(StreamClassifier(), X, y)
    gone = y == 7
    model.forget(X[gone], y[gone])
    assert 7 not in model.classes_
    assert model._ensemble.experts[0].rule.classes == model._ensemble.experts[0].learner().classes_.tolist()
    assert not (model.predict(X) == 7).any()


def test_class_unknown_to_all_experts_gets_the_lowest_score():
    X, y = _rows(800, 35, seed=5)
    early = y < 34
    model = _run(StreamClassifier(), X[early], y[early])
    late = X[~early][:1]
    model.partial_fit(late, [34])
    assert 34 in model.classes_
    assert np.isfinite(model.decision_function(X)).all()
    linear = model._ensemble.experts[0]
    assert 34 not in linear.rule.classes  # the planes do not include the first row of this class yet
    assert not (model.predict(X[early]) == 34).any()
    _run(model, X[~early][1:], y[~early][1:])
    _run(model, X, y)
    assert (model.predict(X[~early]) == 34).mean() > 0.5


def test_linear_expert_predicts_alone_with_more_than_200_classes():
    X, y = _rows(2500, 250, seed=6)
    model = _run(StreamClassifier(), X, y, size=500)
    linear = model._ensemble.experts[0]
    planes = ProximalSVC().fit(X[: linear.n_seen_at_rule], y[: linear.n_seen_at_rule])
    np.testing.assert_allclose(
        model.decision_function(X)[:, linear.rule.classes], planes.decision_function(X), rtol=1e-6, atol=1e-8
    )
    assert "weights and thresholds" in model.explain().limits
    assert sum(expert.n_rows > 0 for expert in model._ensemble.experts) == 1


def _recent_scores(rng, n_rows, quality):
    """Return scores of experts whose score of the true class is larger by ``quality``."""
    places = np.minimum(rng.geometric(0.5, n_rows) - 1, 3)
    scores = rng.normal(size=(n_rows, len(quality), 4)) * np.array([1.0, 50.0, 0.01])[:, None]
    for e, q in enumerate(quality):
        scores[np.arange(n_rows), e, places] += q * [1.0, 50.0, 0.01][e]
    buffer = ScoreBuffer(len(quality))
    buffer.set_classes([0, 1, 2, 3])
    buffer.push(places, scores, np.arange(n_rows, dtype=np.uint64))
    return buffer


def test_expert_weight_depends_on_recall_and_not_on_scale_of_scores():
    rng = np.random.default_rng(0)
    buffer = _recent_scores(rng, 900, [0.5, 3.0, 0.5])
    weights = weigh_classes(buffer, "gmean", np.ones(3))
    assert weights.weights[1] > 0.9
    places, raw = buffer.recent()
    for expert in range(3):
        answers = raw[:, expert].argmax(axis=1)
        rates = [(answers[places == k] == k).mean() for k in range(4)]
        assert weights.recall[expert] == pytest.approx(np.mean(rates))


def test_per_class_thresholds_increase_the_mean_recall():
    rng = np.random.default_rng(1)
    buffer = _recent_scores(rng, 1000, [1.5, 1.5, 1.5])
    places, raw = buffer.recent()
    raw[:, :, 0] += np.array([2.0, 100.0, 0.02])  # all experts favour the first class
    tilted = ScoreBuffer(3)
    tilted.set_classes([0, 1, 2, 3])
    tilted.push(places, raw, np.arange(len(places), dtype=np.uint64))
    weights = weigh_classes(tilted, "gmean", np.ones(3))

    def mean_rate(scores):
        answers = scores.argmax(axis=1)
        return np.mean([(answers[places == k] == k).mean() for k in range(4)])

    assert (
        mean_rate(weights.scores(raw))
        > mean_rate(weights.scores(raw) + weights.slope * weights.thresholds) + 0.1
    )
    assert weights.thresholds[0] > weights.thresholds[1:].max()
