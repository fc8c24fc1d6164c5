"""AdaptiveThresholdClassifier around learners of this package, scikit-learn's and river's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

import steelyard
from steelyard import AdaptiveThresholdClassifier, IncrementalSVC, ProximalSVC
from steelyard.evaluation import RiverPeer
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.metrics import g_mean_score
from steelyard.thresholds import choose_threshold
from tests.safety.interruption import interrupt_at


@pytest.fixture
def stream():
    rng = np.random.default_rng(0)
    y = (rng.random(2400) < 0.04).astype(int)
    return rng.normal(size=(2400, 4)) + 0.9 * y[:, None], y


def _chunks(stream, size=100):
    X, y = stream
    return [(X[b : b + size], y[b : b + size]) for b in range(0, len(y), size)]


def test_threshold_maximizes_goal_on_out_of_sample_scores(stream):
    moved, plain, given = AdaptiveThresholdClassifier(GaussianNB()), GaussianNB(), {0: [], 1: []}
    for X, y in _chunks(stream)[:9]:
        if hasattr(plain, "classes_"):
            scores = plain.predict_proba(X)[:, 1]
            for label in (0, 1):
                given[label] += scores[y == label].tolist()
        plain.partial_fit(X, y, classes=[0, 1])
        moved.partial_fit(X, y, classes=[0, 1])
    assert len(given[0]) < 1000 * 0.9
    assert moved.thresholds_[0] == choose_threshold(np.array(given[1]), np.array(given[0]), "gmean", 0.04)


def _river():
    linear_model = pytest.importorskip("river.linear_model", reason="river is not installed")
    return RiverPeer(linear_model.LogisticRegression(), labels=[0, 1])


@pytest.mark.parametrize(
    "make",
    [
        GaussianNB,
        _river,
        lambda: ProximalSVC(class_weight=None),
        lambda: SGDClassifier(loss="log_loss", average=True, random_state=0),
    ],
    ids=["sklearn-proba", "river", "ours", "sklearn-scores"],
)
def test_adaptive_threshold_finds_rare_class_that_classifier_alone_misses(stream, make):
    moved, truth, own, better = AdaptiveThresholdClassifier(make()), [], [], []
    for number, (X, y) in enumerate(_chunks(stream)):
        if number > 8:
            truth.append(y)
            own.append(np.asarray(moved.estimator_.predict(X)).astype(int))
            better.append(moved.predict(X))
        is_sklearn = type(moved.estimator).__module__.startswith("sklearn")
        moved.partial_fit(X, y, classes=[0, 1] if is_sklearn else None)
    truth, own, better = map(np.concatenate, (truth, own, better))
    assert g_mean_score(truth, better, pos_label=1) > g_mean_score(truth, own, pos_label=1) + 0.2
    assert g_mean_score(truth, better, pos_label=1) > 0.7


def test_share_of_alarms_stays_near_alarm_budget(stream):
    moved, raised = AdaptiveThresholdClassifier(ProximalSVC(), threshold={"alarms": 0.02}), []
    for number, (X, y) in enumerate(_chunks(stream)):
        if number > 6:
            raised.append(moved.predict(X))
        moved.partial_fit(X, y)
    assert 0.005 < np.concatenate(raised).mean() < 0.04


def test_model_of_many_classes_has_one_threshold_per_class():
    rng = np.random.default_rng(1)
    y = rng.choice(3, p=[0.8, 0.15, 0.05], size=1500)
    X = rng.normal(size=(1500, 2)) + 2.5 * np.column_stack([y == 1, y == 2])
    moved = AdaptiveThresholdClassifier(ProximalSVC())
    for b in range(0, 1500, 100):
        moved.partial_fit(X[b : b + 100], y[b : b + 100])
    assert moved.thresholds_.shape == (3,)
    recall = [(moved.predict(X)[y == label] == label).mean() for label in range(3)]
    assert min(recall) > 0.6


def test_loaded_model_continues_like_uninterrupted_model(stream, tmp_path):
    chunks = _chunks(stream)
    model = AdaptiveThresholdClassifier(ProximalSVC())
    for X, y in chunks[:10]:
        model.partial_fit(X, y)
    steelyard.save(model, tmp_path / "m")
    same_history = steelyard.load(tmp_path / "m")
    for X, y in chunks[10:14]:
        model.partial_fit(X, y)
        same_history.partial_fit(X, y)
    np.testing.assert_array_equal(
        same_history.decision_function(stream[0]), model.decision_function(stream[0])
    )


@pytest.mark.parametrize("classifier", [ProximalSVC(), IncrementalSVC(gamma=0.3), GaussianNB()], ids=repr)
def test_invalid_rows_raise_and_leave_model_unchanged(stream, classifier):
    X, y = stream
    model = AdaptiveThresholdClassifier(classifier).partial_fit(X[:300], y[:300], classes=[0, 1])
    model.partial_fit(X[300:500], y[300:500])
    before, cut = model.decision_function(X), model.thresholds_.copy()
    bad = X[:5].copy()
    bad[3, 1] = np.nan
    with pytest.raises(DataError, match="NaN"):
        model.partial_fit(bad, y[:5])
    with pytest.raises(DataError, match="5 rows but y has 4 labels"):
        model.partial_fit(X[:5], y[:4])
    if isinstance(classifier, ProximalSVC):
        bad[3, 1] = 2e300
        with pytest.raises(DataError, match=r"AdaptiveThresholdClassifier.partial_fit: X has values beyond"):
            model.partial_fit(bad, y[:5])
    np.testing.assert_array_equal(model.decision_function(X), before)
    np.testing.assert_array_equal(model.thresholds_, cut)


@pytest.mark.parametrize("make", [GaussianNB, lambda: SGDClassifier(random_state=0)], ids=["bayes", "sgd"])
def test_interrupted_call_is_applied_completely_or_not_at_all(stream, make):
    X, y = stream
    taught = AdaptiveThresholdClassifier(make()).fit(X[:400], y[:400])
    done = copy.deepcopy(taught).partial_fit(X[400:500], y[400:500])
    states = [m.decision_function(X).tobytes() for m in (taught, done)]
    assert states[0] != states[1]
    found = set()
    for moment in range(0, 4000, 23):
        model = copy.deepcopy(taught)
        interrupted = interrupt_at(moment, lambda: model.partial_fit(X[400:500], y[400:500]))  # noqa: B023
        found.add(states.index(model.decision_function(X).tobytes()))
        if not interrupted:
            break
    assert found == {0, 1}


def test_adaptive_threshold_with_invalid_estimator_or_call_raises():
    with pytest.raises(NotFittedError, match="has learned no rows"):
        AdaptiveThresholdClassifier(ProximalSVC()).predict(np.zeros((1, 2)))
    with pytest.raises(ParameterError, match="partial_fit"):
        AdaptiveThresholdClassifier(RandomForestClassifier()).partial_fit(np.zeros((2, 2)), [0, 1])
    with pytest.raises(ParameterError, match="threshold must be"):
        AdaptiveThresholdClassifier(ProximalSVC(), threshold="zero").partial_fit(np.zeros((2, 2)), [0, 1])
