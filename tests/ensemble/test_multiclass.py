"""Many classes: what the committee spares, and how it weighs and cuts."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble.evidence import Evidence
from steelyard.ensemble.experts import EXPERTS, Expert
from steelyard.ensemble.multiclass import judge_many
from steelyard.ensemble.work import Work
from steelyard.persistence import from_bytes, to_bytes

NAMES = [trade.name for trade in EXPERTS]


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


def test_a_hundred_classes_are_learned_and_told_apart(hundred):
    X, y, model = hundred
    hits = model.predict(X[3000:]) == y[3000:]
    planes = ProximalSVC().fit(X[:3000], y[:3000]).predict(X[3000:]) == y[3000:]
    assert hits.mean() > planes.mean() + 0.05
    assert model.decision_function(X[:5]).shape == (5, 100)


def test_what_is_spared_with_a_hundred_classes_is_told(hundred):
    _, _, model = hundred
    told = model.explain()
    assert model._experts[NAMES.index("kernel")].learner is None
    assert "100 planes" in told.spared["kernel"]
    assert "random features instead of 300" in told.spared["mapped"]
    assert len(told.planes) == 100
    assert "and 88 more classes" in str(told)
    assert str(told).count("\n") < 25
    assert model._experts[NAMES.index("mapped")].n_columns < 200
    assert len(model._evidence._log.places) <= 1.5 * 20 * 100 + 100


def test_planes_are_solved_by_what_they_cost_and_not_by_the_chunk(monkeypatch):
    solved = dict.fromkeys(NAMES, 0)
    answer_anew = Expert.answer_anew

    def counted(self, recent):
        solved[self.trade.name] += 1
        return answer_anew(self, recent)

    monkeypatch.setattr(Expert, "answer_anew", counted)
    X, y = _rows(4000, 60)
    _run(StreamClassifier(), X, y, size=20)
    every = Work("auto", 60).solves_every(6)
    assert every > 100
    early = 15  # when classes come and rows are few
    assert solved["linear"] <= 4000 / every + early
    assert solved["mapped"] <= 4000 / Work("auto", 60).solves_every(200) + early


def test_stopping_while_planes_wait_to_be_solved_changes_nothing():
    X, y = _rows(1500, 40, seed=3)
    model = _run(StreamClassifier(), X[:1010], y[:1010], size=70)
    linear = model._experts[0]
    assert linear.answers_upto < linear.high  # it has learned more than it answers with
    stored = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(stored.decision_function(X), model.decision_function(X))
    for learner in (model, stored):
        _run(learner, X[1010:], y[1010:], size=70)
    np.testing.assert_array_equal(stored.decision_function(X), model.decision_function(X))


def test_forgotten_rows_of_many_classes_leave_the_answers_at_once():
    X, y = _rows(1200, 40, seed=4)
    model = _run(StreamClassifier(), X, y)
    gone = y == 7
    model.forget(X[gone], y[gone])
    assert 7 not in model.classes_
    assert model._experts[0].rule.classes == model._experts[0].learner.classes_.tolist()
    assert not (model.predict(X) == 7).any()


def test_a_class_that_nobody_knows_yet_comes_last():
    X, y = _rows(800, 35, seed=5)
    early = y < 34
    model = _run(StreamClassifier(), X[early], y[early])
    late = X[~early][:1]
    model.partial_fit(late, [34])
    assert 34 in model.classes_
    assert np.isfinite(model.decision_function(X)).all()
    assert 34 not in model._experts[0].rule.classes  # its first row waits to be solved
    assert not (model.predict(X[early]) == 34).any()
    _run(model, X[~early][1:], y[~early][1:])
    _run(model, X, y)
    assert (model.predict(X[~early]) == 34).mean() > 0.5


def test_beyond_two_hundred_classes_the_planes_over_all_rows_answer():
    X, y = _rows(2500, 250, seed=6)
    model = _run(StreamClassifier(), X, y, size=500)
    linear = model._experts[0]
    planes = ProximalSVC().fit(X[: linear.answers_upto], y[: linear.answers_upto])
    np.testing.assert_allclose(
        model.decision_function(X)[:, linear.rule.classes], planes.decision_function(X), rtol=1e-6, atol=1e-8
    )
    assert "weights and cuts" in model.explain().spared
    assert sum(expert.n_rows > 0 for expert in model._experts) == 1


def _evidence(rng, n_rows, quality):
    """Scores of experts, of which each points at the right class as clearly as ``quality`` says."""
    places = np.minimum(rng.geometric(0.5, n_rows) - 1, 3)
    scores = rng.normal(size=(n_rows, len(quality), 4)) * np.array([1.0, 50.0, 0.01])[:, None]
    for e, q in enumerate(quality):
        scores[np.arange(n_rows), e, places] += q * [1.0, 50.0, 0.01][e]
    evidence = Evidence(len(quality))
    evidence.know([0, 1, 2, 3])
    evidence.push(places, scores, np.arange(n_rows, dtype=np.uint64))
    return evidence


def test_whoever_tells_classes_apart_is_heard_whatever_the_size_of_the_scores():
    rng = np.random.default_rng(0)
    evidence = _evidence(rng, 900, [0.5, 3.0, 0.5])
    judgement = judge_many(evidence, "gmean", np.ones(3))
    assert judgement.weights[1] > 0.9
    places, raw = evidence.recent()
    for expert in range(3):  # the mean over classes of the hit rates, written out
        answers = raw[:, expert].argmax(axis=1)
        rates = [(answers[places == k] == k).mean() for k in range(4)]
        assert judgement.record[expert] == pytest.approx(np.mean(rates))


def test_cuts_raise_the_mean_of_the_hit_rates():
    rng = np.random.default_rng(1)
    evidence = _evidence(rng, 1000, [1.5, 1.5, 1.5])
    places, raw = evidence.recent()
    raw[:, :, 0] += np.array([2.0, 100.0, 0.02])  # all experts favour the first class
    tilted = Evidence(3)
    tilted.know([0, 1, 2, 3])
    tilted.push(places, raw, np.arange(len(places), dtype=np.uint64))
    judgement = judge_many(tilted, "gmean", np.ones(3))

    def mean_rate(scores):
        answers = scores.argmax(axis=1)
        return np.mean([(answers[places == k] == k).mean() for k in range(4)])

    assert mean_rate(judgement.scores(raw)) > mean_rate(judgement.scores(raw) + judgement.cuts) + 0.1
    assert judgement.cuts[0] > judgement.cuts[1:].max()
