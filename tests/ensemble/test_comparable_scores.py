"""Scores of different times can be compared although a target rate moves the threshold."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.naive_bayes import GaussianNB

import steelyard
from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier
from steelyard.metrics import expected_calibration_error
from steelyard.thresholds import signed_scores, unsigned_scores


def _wrapped(**goal):
    return AdaptiveThresholdClassifier(ProximalSVC(), **goal)


def _wrapped_probabilities(**goal):
    return AdaptiveThresholdClassifier(GaussianNB(), **goal)


MODELS = pytest.mark.parametrize(
    "make", [StreamClassifier, _wrapped, _wrapped_probabilities], ids=["ensemble", "scores", "probabilities"]
)
GOALS = [{"recall": 0.9}, {"precision": 0.6}, {"alarms": 0.02}, {"alarms_per_day": 200}]
LABEL_GOALS = [{"recall": 0.9}, {"precision": 0.6}]  # goals whose alarms follow from the scores
DELAY_ROWS = 1000


def _stream(n=8000, names=(0, 1)):
    """Return rows with 4 % positives, whose share and signal change, and times in seconds."""
    rng = np.random.default_rng(3)
    rows = np.arange(n)
    positive = rng.random(n) < np.where(rows // 2000 % 2, 0.06, 0.02)
    strength = np.where(rows // 1500 % 2, 3.2, 2.4)
    X = rng.normal(size=(n, 3)) + (strength * positive)[:, None] * [1.0, 0.5, 0.0]
    return X, np.where(positive, names[1], names[0]), 20.0 * rows


def _learn(model, X, y, times, rows):
    """Learn some rows; naive Bayes must know the classes before its first row."""
    needs_classes = isinstance(getattr(model, "estimator", None), GaussianNB)
    return model.partial_fit(X[rows], y[rows], np.unique(y) if needs_classes else None, time=times[rows])


def _recorded(model, X, y, times, positive=1):
    """Return scores of the positive class, alarms and probabilities, recorded before labels arrive."""
    scores, alarms, probabilities = [], [], []
    for begin in range(0, len(y), 200):
        rows = slice(begin, begin + 200)
        known = begin - DELAY_ROWS
        if known > 0:
            place = model.classes_.tolist().index(positive)
            decided = model.decision_function(X[rows])
            scores.append(decided if place == 1 else -decided)
            alarms.append(model.predict(X[rows], time=times[rows]) == positive)
            probabilities.append(model.predict_proba(X[rows])[:, place])
        if known >= 0:
            late = slice(known, known + 200)
            _learn(model, X, y, times, late)
    is_positive = y[-sum(map(len, scores)) :] == positive
    return is_positive, *map(np.concatenate, (scores, alarms, probabilities))


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
@MODELS
def test_scores_recorded_with_a_target_rate_rank_as_well_as_with_the_default_goal(make, goal):
    stream = _stream()
    expected = average_precision_score(*_recorded(make(), *stream)[:2])
    found = average_precision_score(*_recorded(make(threshold=goal), *stream)[:2])
    assert expected > 0.8
    assert found > expected - 0.05  # alarms rank above all other rows, which costs a little


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["second", "first"])
@pytest.mark.parametrize("goal", LABEL_GOALS, ids=lambda goal: next(iter(goal)))
@MODELS
def test_scores_are_positive_exactly_for_predicted_alarms(make, goal, names):
    _, scores, alarms, _ = _recorded(make(threshold=goal, positive=names[1]), *_stream(names=names), names[1])
    assert ((scores > 0.0) == alarms).all()
    assert 0 < alarms.sum() < len(alarms) // 2


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
def test_probabilities_stay_calibrated_and_increase_with_scores_of_one_class(goal):
    is_positive, scores, _, probabilities = _recorded(StreamClassifier(threshold=goal), *_stream())
    assert expected_calibration_error(is_positive, probabilities) < 0.02
    X, y, times = _stream()
    model = StreamClassifier(threshold=goal).partial_fit(X[:2000], y[:2000], time=times[:2000])
    scores, probabilities = model.decision_function(X[2000:]), model.predict_proba(X[2000:])[:, 1]
    assert (np.diff(probabilities[np.argsort(scores)]) >= -1e-12).all()


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
@MODELS
def test_scores_of_copies_pickles_and_files_have_the_same_bits(make, goal, tmp_path):
    X, y, times = _stream(3000)
    model = make(threshold=goal)
    for begin in range(0, 2000, 200):
        rows = slice(begin, begin + 200)
        _learn(model, X, y, times, rows)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    if make is not _wrapped_probabilities:  # files cannot contain models of scikit-learn
        steelyard.save(model, tmp_path / "model.steelyard")
        copies.append(steelyard.load(tmp_path / "model.steelyard"))
    expected, probabilities = model.decision_function(X[2000:]), model.predict_proba(X[2000:])
    for other in copies:
        assert (other.decision_function(X[2000:]) == expected).all()
        assert (other.predict_proba(X[2000:]) == probabilities).all()


@MODELS
def test_score_depends_on_the_goal_only_by_its_sign(make):
    X, y, times = _stream(3000)
    models = [make(threshold=goal) for goal in LABEL_GOALS]
    for model in models:
        _learn(model, X, y, times, slice(1000))
        _learn(model, X, y, times, slice(1000, 2000))
    first, second = (model.decision_function(X[2000:]) for model in models)
    same = (first > 0.0) == (second > 0.0)
    assert 0 < np.count_nonzero(same) < len(same)
    assert first[same] == pytest.approx(second[same], rel=1e-12)


@MODELS
@pytest.mark.parametrize("goal", LABEL_GOALS, ids=lambda goal: next(iter(goal)))
def test_contributions_add_up_to_scores_with_a_target_rate(make, goal):
    X, y, times = _stream(3000)
    model = make(threshold=goal)
    _learn(model, X, y, times, slice(1000))
    _learn(model, X, y, times, slice(1000, 2000))
    explained = model.explain(X[2000:2060], changes=False)
    scores = model.decision_function(X[2000:2060])
    assert explained.score == pytest.approx(scores, abs=1e-12)
    total = explained.base + explained.contributions.sum(axis=1)
    assert total == pytest.approx(scores, abs=1e-9)
    assert (explained.labels == model.predict(X[2000:2060])).all()


def test_precision_goal_raises_no_alarm_until_it_is_tested_and_scores_are_comparable():
    X, _, _ = _stream(3000)
    model = StreamClassifier(threshold={"precision": 0.9})
    model.partial_fit(X[:40], np.arange(40) % 2)
    before = model.decision_function(X[:500])
    assert (before < 0.0).all()
    assert before.min() > -100.0
    assert (model.explain(X[:20]).labels == 0).all()
    expected = StreamClassifier().partial_fit(X[:40], np.arange(40) % 2).predict_proba(X[:500])
    assert (model.predict_proba(X[:500]) == expected).all()


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
def test_goal_set_after_learning_gives_finite_scores_until_the_threshold_is_chosen(goal):
    X, y, times = _stream(3000)
    model = StreamClassifier().partial_fit(X[:2000], y[:2000]).set_params(threshold=goal)
    model.partial_fit(X[2000:2020], y[2000:2020], time=times[2000:2020])
    assert np.isfinite(model.decision_function(X[2020:])).all()


def test_signed_scores_keep_the_order_of_each_group_and_can_be_inverted():
    scores = np.sort(
        np.concatenate([np.random.default_rng(0).normal(size=2000) * 10.0, [-1e6, -1.0, 0.0, 1.0, 1e6]])
    )
    for is_second in (np.ones(len(scores), bool), np.zeros(len(scores), bool)):
        signed = signed_scores(scores, is_second)
        assert ((signed > 0.0) == is_second).all()
        assert (np.diff(signed) > 0.0).all()
        assert unsigned_scores(signed) == pytest.approx(scores, rel=1e-9, abs=1e-12)
    large = scores[np.abs(scores) >= 1.0]
    assert (signed_scores(large, large > 0.0) == large).all()


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: next(iter(goal)))
@MODELS
def test_target_rate_with_a_third_class_warns_once(make, goal):
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 900)
    X, times = rng.normal(size=(900, 3)) + 2.0 * np.eye(3)[y], np.arange(900.0)
    two = y < 2
    model = make(threshold=goal)
    if make is not _wrapped_probabilities:  # naive Bayes knows three classes from the beginning
        _learn(model, X, y, times, two)
    with pytest.warns(UserWarning, match="two classes"):
        _learn(model, X, y, times, slice(None))
    _learn(model, X, y, times, slice(None))  # a second warning would be an error
    assert set(model.predict(X)) <= {0, 1, 2}


def test_target_rate_set_on_a_model_of_three_classes_warns():
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 3)) + 2.0 * np.eye(3)[y]
    model = StreamClassifier().partial_fit(X, y).set_params(threshold={"recall": 0.9})
    with pytest.warns(UserWarning, match="recall"):
        model.partial_fit(X, y)
    model.partial_fit(X, y)
