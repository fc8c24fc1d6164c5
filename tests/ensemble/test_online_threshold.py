"""Target rates: the theorems of docs/guarantees.md on adversarial streams, and both classifiers."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import steelyard
from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier
from steelyard.ensemble.online_threshold import (
    ERROR,
    LEVELS,
    AlarmLog,
    OnlineThreshold,
    PrecisionLevels,
    balance_limits,
    event_level,
    plain_scores,
)
from steelyard.exceptions import DataError, ParameterError
from steelyard.streams import ArrayStream
from steelyard.streams.predictions import learn_chunk, predict_chunk
from steelyard.thresholds import ThresholdChoice, choose_threshold
from steelyard.windowing import SlidingWindow


def _wrapped(**goal):
    return AdaptiveThresholdClassifier(ProximalSVC(), **goal)


def _windowed(**goal):
    return SlidingWindow(StreamClassifier(**goal), size=500)


MAX_EXCESS = 20  # maximum deviation from the target number of alarms in any interval of rows


def _alarms(model, scores, time=None):
    keys = np.arange(len(scores), dtype=np.uint64)
    return model.alarms(scores[:, None, None], keys, plain_scores, time)


def _largest_deviation(alarms, due):
    """Return the largest difference between actual and expected alarms over all intervals of rows."""
    balance = np.concatenate([[0.0], np.cumsum(alarms - due)])
    return balance.max() - balance.min()


def _adversary(kind, n, rng):
    """Return scores chosen by an adversary, which are hard for a tracker of quantiles."""
    at, noise = np.arange(n, dtype=float), rng.normal(size=n)
    return {
        "rising": at,
        "falling": -at,
        "constant": 0.0 * at,
        "jumps": noise + 100.0 * (at // 300 % 2),
        "bursts": noise + np.where(at % 1000 < 200, 50.0, 0.0),
        "heavy tails": rng.standard_cauchy(n) * 1e6,
        "ties": np.round(noise),
    }[kind]


KINDS = ["rising", "falling", "constant", "jumps", "bursts", "heavy tails", "ties"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [0.0, 0.01, 0.3])
def test_number_of_alarms_in_any_window_is_within_20_of_target_for_adversarial_scores(kind, target):
    rng = np.random.default_rng(0)
    scores, model = _adversary(kind, 6000, rng), OnlineThreshold({"alarms": target})
    sizes = rng.integers(1, 400, 100)
    parts = [_alarms(model, part) for part in np.split(scores, np.cumsum(sizes)) if len(part)]
    alarms = np.concatenate(parts)
    assert len(alarms) == 6000
    assert _largest_deviation(alarms, target) <= MAX_EXCESS
    assert model.realised()[0].n_events == alarms.sum()


@settings(max_examples=40, deadline=None)
@given(
    limits=st.lists(st.floats(-9.5, 9.5, exclude_max=True), min_size=1, max_size=60),
    target=st.floats(0.0, 0.9),
)
def test_alarm_balance_stays_within_tolerance_for_any_sequence_of_rows(limits, target):
    log = AlarmLog()
    for repeat in range(20):
        log.decide(np.array(limits if repeat % 3 else limits[::-1]), np.full(len(limits), target), 9.5)
        assert -9.5 - target <= log.balance <= 10.5 - target


def test_adversary_that_sees_the_controller_state_cannot_exceed_alarm_bound():
    rng = np.random.default_rng(1)
    model, alarms = OnlineThreshold({"alarms": 0.05}), []
    for _ in range(3000):
        # The worst case: high scores while the balance is above -2, and very low scores otherwise.
        score = 1e6 + rng.random() if model.log.balance > -2.0 else -1e6 * rng.random()
        alarms.append(bool(_alarms(model, np.array([score]))[0]))
    assert _largest_deviation(np.array(alarms), 0.05) <= MAX_EXCESS


def test_level_and_limits_of_rate_control_are_inverse_functions():
    for balance in np.linspace(-9.0, 9.0, 25):
        level = event_level(balance, 0.05, 9.5)
        if 1e-12 < level < 1.0 - 1e-12:
            assert balance_limits(np.array([level]), 0.05, 9.5)[0] == pytest.approx(balance, abs=1e-6)
    assert event_level(9.5, 0.05, 9.5) == 0.0
    assert event_level(-9.5, 0.05, 9.5) == 1.0
    assert event_level(0.0, 0.05, 9.5) == pytest.approx(0.05)


def test_alarms_per_day_stay_below_bound_in_every_period():
    rng = np.random.default_rng(2)
    hours = np.sort(rng.uniform(0.0, 24.0 * 20, 20_000))
    hours = hours[(hours % 24 > 6) & ((hours < 200) | (hours > 300))]  # no rows at night and during four days
    model = OnlineThreshold({"alarms_per_day": 50})
    scores = rng.normal(size=len(hours)) + 2.0 * (rng.random(len(hours)) < 0.02) + 3.0 * (hours > 350)
    parts = np.array_split(np.arange(len(hours)), 200)
    alarms = np.concatenate([_alarms(model, scores[part], 3600.0 * hours[part]) for part in parts])
    days = hours / 24.0
    excess = np.cumsum(alarms) - 50.0 * (days - days[0])
    rise = np.max(excess - np.minimum.accumulate(excess))
    assert rise <= 2 * 5.0 + 3
    counts = np.bincount(days.astype(int), alarms)
    assert np.median(counts[counts > 0]) == pytest.approx(50, abs=10)


def test_alarms_per_day_without_any_times_raises_with_hint():
    with pytest.raises(DataError, match="pass time="):
        _alarms(OnlineThreshold({"alarms_per_day": 10}), np.zeros(3))


# -- recall -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 500, 5000])
def test_observed_recall_on_drifting_scores_matches_target_recall(delay):
    rng = np.random.default_rng(3)
    n, share = 40_000, 0.1
    positive = rng.random(n) < share
    drift = 2.0 * np.sin(np.arange(n) / 6000.0)
    scores = rng.normal(size=n) + np.where(positive, 1.5 + drift, drift)
    keys = np.arange(n, dtype=np.uint64)
    model, threshold, found = OnlineThreshold({"recall": 0.9}), float("nan"), np.zeros(n, dtype=bool)
    for begin in range(0, n, 100):
        part = slice(begin, begin + 100)
        model.record(scores[part, None, None], keys[part], plain_scores, threshold)
        found[part] = scores[part] > threshold
        end = begin + 100 - delay
        if end >= 100:
            late = slice(end - 100, end)
            model.learn(scores[late], threshold, keys[late], positive[late])
            recent = slice(max(0, end - 1000), end)
            sides = [scores[recent][positive[recent] == flag] for flag in (True, False)]
            threshold = choose_threshold(sides[0], sides[1], model, share)
    used = np.arange(n) >= 2 * delay + 1000
    recall = found[used & positive].mean()
    assert recall == pytest.approx(0.9, abs=0.01 if delay < 5000 else 0.1)
    balance = np.cumsum((~found - 0.1)[used & positive])
    outstanding = 1.3 * share * (delay + 100)
    assert np.ptp(balance) <= 2 * (8.0 + 2 * outstanding) + 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_recall_is_mostly_kept_when_all_scores_fall_before_their_labels_arrive(sign):
    rng = np.random.default_rng(6)
    n, share, delay = 8000, 0.1, 2000
    positive, rows = rng.random(n) < share, np.arange(n)
    scores = rng.normal(size=n) + 2.0 * positive - 1.5 * (rows >= 5500)
    scores *= sign
    keys, model = rows.astype(np.uint64), OnlineThreshold({"recall": 0.9}, sign)
    threshold, found = float("nan"), np.zeros(n, dtype=bool)
    for begin in range(0, n, 100):
        part = slice(begin, begin + 100)
        model.record(scores[part, None, None], keys[part], plain_scores, threshold)
        found[part] = (scores[part] > threshold) == (sign > 0.0)
        end = begin + 100 - delay
        if end >= 100:
            late, recent = slice(end - 100, end), slice(max(0, end - 1000), end)
            model.learn(scores[late], threshold, keys[late], positive[late])
            model.choose(*(sign * scores[recent][positive[recent] == flag] for flag in (True, False)), share)
            threshold = model.decision_threshold(plain_scores)
    after = slice(6500, 7500)  # 1,000 rows after the change, and no label of a row after it has arrived
    assert found[after][positive[after]].mean() > 0.8  # the scores of labelled positives alone give 0.53


def _recall_adversary(kind, threshold, balance, rng):
    """Return the score of a positive, chosen by an adversary who sees the threshold and the balance."""
    just_below = {
        "always missed": True,
        "always found": False,
        "against the balance": balance < 0.0,
        "with the balance": balance > 0.0,
        "random": rng.random() < 0.5,
    }[kind]
    if np.isnan(threshold):
        return rng.normal()
    return float(np.clip(threshold + (-0.01 if just_below else 0.01), -100.0, 100.0))


@pytest.mark.parametrize("delay", [0, 700])
@pytest.mark.parametrize(
    "kind", ["always missed", "always found", "against the balance", "with the balance", "random"]
)
def test_number_of_misses_with_adversarial_scores_stays_within_the_bound(kind, delay):
    rng = np.random.default_rng(4)
    n, share, size = 12_000, 0.1, 50
    keys = np.arange(n, dtype=np.uint64)
    positive = np.arange(n) % 10 == 0
    scores, found = np.zeros(n), np.zeros(n, dtype=bool)
    model, threshold = OnlineThreshold({"recall": 0.9}), float("nan")
    for begin in range(0, n, size):
        part = slice(begin, begin + size)
        scores[part] = [
            _recall_adversary(kind, threshold, model.balance, rng) if flag else rng.normal()
            for flag in positive[part]
        ]
        model.record(scores[part, None, None], keys[part], plain_scores, threshold)
        found[part] = scores[part] > threshold
        end = begin + size - delay
        if end >= size:
            late = slice(end - size, end)
            model.learn(scores[late], threshold, keys[late], positive[late])
            recent = slice(max(0, end - 1000), end)
            sides = [scores[recent][positive[recent] == flag] for flag in (True, False)]
            threshold = choose_threshold(sides[0], sides[1], model, share)
    begin = delay + size  # rows predicted before the first threshold do not count
    balance = np.cumsum((~found - 0.1)[begin:][positive[begin:]])
    waiting = share * (delay + size)
    assert balance.max() <= 8.0 + 2.0 * waiting + 1.0


def _oracle_recall(share, n_windows, rng):
    """Return recalls in windows of 2,000 rows of a rule that knows all probabilities, and the bound.

    The rule raises the fewest alarms with an expected recall of 0.9. The bound is the smallest possible
    standard deviation of the recall (theorem 4).
    """
    recalls, bounds = [], []
    for _ in range(n_windows):
        q = rng.beta(share, 1.0 - share, 2000)
        order = np.argsort(-q)
        n_alarms = int(np.searchsorted(np.cumsum(q[order]), 0.9 * q.sum())) + 1
        y = rng.random(2000) < q
        recalls.append(y[order[:n_alarms]].sum() / max(y.sum(), 1))
        rest = 1.0 - q[order[n_alarms]]  # 1 - tau
        bounds.append(0.9 * np.sqrt(0.1 * rest / q.sum()))
    return np.array(recalls), float(np.mean(bounds))


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_rule_that_knows_all_probabilities_cannot_keep_windows_of_recall(share):
    recalls, bound = _oracle_recall(share, 1500, np.random.default_rng(9))
    assert recalls.mean() == pytest.approx(0.9, abs=0.02)
    assert recalls.std() >= 0.93 * bound
    kept = np.mean(np.abs(recalls - 0.9) <= 0.01 + 1e-9)
    assert kept < 0.95
    assert kept <= 2.0 * ndtr(0.01 / bound) - 1.0 + 0.12  # normal approximation, and integer counts


def test_windows_of_few_positives_often_have_no_possible_recall_near_the_goal():
    impossible = [m for m in range(1, 50) if min(abs(k - 0.9 * m) for k in range(m + 1)) > 0.01 * m + 1e-9]
    assert len(impossible) == 25
    assert impossible[-1] == 45


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_observed_recall_of_both_classifiers_matches_target_despite_drift(make):
    X, y = _stream(4000, seed=11)
    model = make(threshold={"recall": 0.9})
    _run(model, X, y)
    recall = {rate.name: rate for rate in model.realised_rates_}["recall"]
    assert recall.target == 0.9
    # Theorem 2: at most 8 + 2 * (positives of a chunk) + 1 misses more or fewer than the target.
    assert abs(recall.n_rows - recall.n_events - 0.1 * recall.n_rows) <= 8.0 + 2.0 * 20.0 + 1.0
    assert recall.rate == pytest.approx(0.9, abs=0.03)


# -- precision ----------------------------------------------------------------------------------------


def test_levels_with_lower_precision_than_the_target_are_rarely_accepted():
    accepted = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        levels = PrecisionLevels(0.8)
        tails, labels = rng.random(1500), rng.random(1500) < 0.78
        for part in np.array_split(np.arange(1500), 30):
            levels = levels.after(tails[part], labels[part])
            if levels.largest() is not None:
                accepted += 1
                break
    assert accepted <= 60 * ERROR + 4


def test_imprecise_level_is_rarely_accepted_even_for_adaptive_adversary():
    n_runs, accepted = 60, 0
    for seed in range(n_runs):
        rng, levels = np.random.default_rng([seed, 1]), PrecisionLevels(0.8)
        for _ in range(300):
            # The adversary sends rows of the level with the highest wealth, with the highest precision that
            # the hypothesis allows, and stops sending as soon as the level is accepted.
            best = int(levels.wealth.mean(axis=1).argmax())
            levels = levels.after(LEVELS[[best]], np.array([rng.random() < 0.8]))
            if levels.largest() is not None:
                accepted += 1
                break
    assert accepted <= 9  # if 5 % are accepted, more than 9 of 60 have a probability of .001


def test_precise_level_is_accepted_and_rejected_again_after_drift():
    rng = np.random.default_rng(5)
    tails = rng.random(4000)
    levels = PrecisionLevels(0.8).after(tails, rng.random(4000) < np.where(tails < 0.25, 0.97, 0.02))
    assert levels.largest() == 0.25
    after = levels.after(rng.random(200), np.zeros(200, dtype=bool))
    assert after.largest() is None or after.largest() <= LEVELS[2]


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_precision_goal_raises_no_alarm_if_labels_are_random(make):
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(2000, 3)), (rng.random(2000) < 0.3).astype(int)
    model, alarms = make(threshold={"precision": 0.9}), 0
    for begin in range(0, 2000, 200):
        part = slice(begin, begin + 200)
        if begin:
            alarms += int((model.predict(X[part]) == 1).sum())
        model.partial_fit(X[part], y[part])
    assert alarms == 0
    assert np.isfinite(model.decision_function(X[:5])).all()
    assert np.isfinite(model.predict_proba(X[:5])).all()


# -- classifiers --------------------------------------------------------------------------------------


def _stream(n, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.1).astype(int)
    X = rng.normal(size=(n, 3)) + np.where(np.arange(n) < n // 2, 1.5, -1.5)[:, None] * y[:, None]
    return X, np.where(y == 1, "rare", "ok")


def _run(model, X, y, size=100):
    alarms = []
    for begin in range(0, len(y), size):
        part = slice(begin, begin + size)
        if begin:
            alarms.append(model.predict(X[part]) == "rare")
        model.partial_fit(X[part], y[part])
    return np.concatenate(alarms)


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_observed_alarm_rate_matches_target_rate_despite_drift(make):
    X, y = _stream(3000)
    model = make(threshold={"alarms": 0.1})
    alarms = _run(model, X, y)
    assert _largest_deviation(alarms, 0.1) <= MAX_EXCESS
    realised = {rate.name: rate for rate in model.realised_rates_}
    assert (realised["alarms"].n_events, realised["alarms"].n_rows) == (alarms.sum(), len(alarms))
    low, high = realised["alarms"].interval
    assert low < alarms.mean() < high
    truth = y[100:] == "rare"
    assert realised["recall"].rate == pytest.approx(alarms[truth].mean(), abs=0.03)
    assert realised["precision"].rate == pytest.approx(truth[alarms].mean(), abs=0.03)
    assert not model.labels_follow_scores


@pytest.mark.parametrize("goal", [{"alarms": 0.1}, {"recall": 0.9}, {"precision": 0.6}])
@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_saved_and_copied_models_continue_with_the_same_state(make, goal, tmp_path):
    X, y = _stream(1500, seed=1)
    model = make(threshold=goal)
    _run(model, X[:1000], y[:1000])
    steelyard.save(model, tmp_path / "model.steelyard")
    loaded, copied = steelyard.load(tmp_path / "model.steelyard"), copy.deepcopy(model)
    expected = _run(model, X[1000:], y[1000:])
    for other in (loaded, copied):
        assert (_run(other, X[1000:], y[1000:]) == expected).all()
        assert other.realised_rates_ == model.realised_rates_


def test_decision_function_and_failed_calls_are_not_counted_as_predictions():
    X, y = _stream(1000, seed=2)
    model = StreamClassifier(threshold={"alarms": 0.1}).partial_fit(X[:500], y[:500])
    before = model.realised_rates_
    model.decision_function(X[500:])
    model.predict_proba(X[500:])
    with pytest.raises(DataError):
        model.predict(np.full((2, 3), np.inf))
    with pytest.raises(DataError):
        model.partial_fit(np.full((2, 3), np.inf), ["ok", "ok"])
    assert model.realised_rates_ == before
    assert "Observed alarms: no rows yet, target 0.1." in str(model.explain())
    model.predict(X[500:])
    assert model.explain().promise[0].n_rows == 500


def test_forget_removes_scores_from_alarm_log():
    X, y = _stream(1200, seed=3)
    model = StreamClassifier(threshold={"alarms": 0.1})
    _run(model, X, y)
    n_before = len(model._ensemble.decision.online_threshold.log.raw)
    model.forget(X[1000:1050], y[1000:1050])
    assert len(model._ensemble.decision.online_threshold.log.raw) == n_before - 50
    assert model.realised_rates_[0].n_rows == 1100


def test_alarms_of_concurrent_predictions_are_all_counted():
    X, y = _stream(2000, seed=4)
    model = StreamClassifier(threshold={"alarms": 0.1}).partial_fit(X[:1000], y[:1000])
    found = []

    def predict():
        found.extend(
            int((model.predict(X[begin : begin + 20]) == "rare").sum()) for begin in range(1000, 2000, 20)
        )

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    realised = model.realised_rates_[0]
    assert (realised.n_rows, realised.n_events) == (3000, sum(found))
    assert abs(sum(found) - 300) <= MAX_EXCESS


def test_changing_the_goal_changes_the_target_rate():
    X, y = _stream(1000, seed=5)
    model = StreamClassifier(threshold={"alarms": 0.1})
    _run(model, X, y)
    model.set_params(threshold={"recall": 0.8}).partial_fit(X[:100], y[:100])
    assert model.realised_rates_[1].target == 0.8
    model.set_params(threshold="gmean").partial_fit(X[:100], y[:100])
    assert model.realised_rates_ == []


@pytest.mark.parametrize(
    "goal", [{"recall": 0.9}, {"precision": 0.6}, {"alarms": 0.2}, {"alarms_per_day": 5}]
)
def test_goal_with_three_classes_gives_one_threshold_per_class(goal):
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 3)) + 2.0 * np.eye(3)[y]
    with pytest.warns(UserWarning, match="without a guarantee"):
        model = StreamClassifier(threshold=goal).partial_fit(X[:600], y[:600])
    assert set(model.predict(X[600:])) <= {0, 1, 2}
    assert np.isfinite(model.decision_function(X[600:])).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"recall": 1.0},
        {"recall": 0.0},
        {"precision": 1.5},
        {"alarms_per_day": 0},
        {"recall": 0.9, "alarms": 0.1},
    ],
)
def test_invalid_goal_raises(wrong):
    assert not ThresholdChoice().accepts(wrong)
    with pytest.raises(ParameterError, match="target rate"):
        StreamClassifier(threshold=wrong).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("labels", [("fraud", "ok"), ("ok", "suspicious")])
def test_goal_set_after_learning_keeps_the_positive_class(labels):
    rng = np.random.default_rng(0)
    is_rare = rng.random(2000) < 0.05
    rare, frequent = labels if labels[1] == "ok" else labels[::-1]
    X, y = rng.normal(size=(2000, 3)) + is_rare[:, None], np.where(is_rare, rare, frequent)
    model = StreamClassifier().fit(X, y).set_params(threshold={"alarms": 0.02})
    model.partial_fit(X[:20], y[:20])
    assert 0.01 < (model.predict(X) == rare).mean() < 0.03


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
@pytest.mark.parametrize("goal", [{"recall": 0.9}, {"precision": 0.6}])
def test_predictions_do_not_depend_on_the_order_of_the_labels(make, goal):
    X, y = _stream(3000, seed=5)
    alarms = []
    for frequent in ("a", "z"):  # "b", the positive class, is the second or the first class
        model, found, counted = make(threshold=goal, positive="b"), [], []
        labels = np.where(y == "rare", "b", frequent)
        for begin in range(0, len(y), 100):
            part = slice(begin, begin + 100)
            if begin >= 1000:
                found.append(model.predict(X[part]) == "b")
                counted.append(model.realised_rates_[0].n_events)
            model.partial_fit(X[part], labels[part])
        assert counted == np.cumsum(np.sum(found, axis=1)).tolist()
        alarms.append(np.concatenate(found))
    assert 0 < np.count_nonzero(alarms[0]) < len(alarms[0])
    assert np.mean(alarms[0] == alarms[1]) > 0.95


@pytest.mark.parametrize(
    "make", [StreamClassifier, _wrapped, _windowed], ids=["ensemble", "wrapper", "window"]
)
def test_prequential_evaluation_uses_the_alarms_of_predict(make):
    X, y = _stream(800, seed=10)
    model = make(threshold={"alarms": 0.1})
    first, *others = ArrayStream(X, y, time=60.0 * np.arange(800), chunk=100)
    learn_chunk(model, first)
    parts = []
    for chunk in others:
        parts.append(predict_chunk(model, chunk).labels)
        learn_chunk(model, chunk)
    alarms = np.concatenate(parts) == "rare"
    assert len(alarms) == 700
    assert _largest_deviation(alarms, 0.1) <= MAX_EXCESS


# -- costs per row --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_rows_with_high_miss_cost_raise_alarms_at_lower_probability(make):
    X, y = _stream(1000, seed=8)
    model = make(threshold={"miss": 1.0, "alarm": 10.0}).partial_fit(X[:200], y[:200])
    model.partial_fit(X[200:800], y[200:800])
    cost = np.where(np.arange(200) % 2, 1000.0, 1.0)
    p = model.predict_proba(X[800:])[:, 1]
    assert ((model.predict(X[800:], sample_cost=cost) == "rare") == (p * cost > (1.0 - p) * 10.0)).all()
    gap = np.where(np.arange(200) == 7, np.nan, cost)
    for wrong, found in ((cost[:5], "shape"), (-cost, "got -1 in row 0"), (gap, "got nan in row 7")):
        with pytest.raises(DataError, match=f"sample_cost must contain .* {found}"):
            model.predict(X[800:], sample_cost=wrong)


@pytest.mark.parametrize("make", [StreamClassifier, _wrapped], ids=["ensemble", "wrapper"])
def test_threshold_uses_mean_cost_of_recent_positive_rows(make, tmp_path):
    X, y = _stream(600, seed=9)
    prices = {"miss": 1.0, "alarm": 10.0}
    amounts = np.where(y == "rare", 200.0, 7.0)
    plain, costly, equal = (make(threshold=prices) for _ in range(3))
    equal.set_params(threshold={"miss": 200.0, "alarm": 10.0})
    for begin in range(0, 600, 100):
        part = slice(begin, begin + 100)
        plain.partial_fit(X[part], y[part])
        equal.partial_fit(X[part], y[part])
        costly.partial_fit(X[part], y[part], sample_cost=amounts[part])
    predicted = copy.deepcopy(costly).predict(X)  # the model itself must not count these rows as unlabelled
    assert (predicted == equal.predict(X)).all()
    assert (predicted == "rare").sum() > (plain.predict(X) == "rare").sum()
    steelyard.save(costly, tmp_path / "model.steelyard")
    loaded = steelyard.load(tmp_path / "model.steelyard")
    for model in (costly, loaded):
        model.partial_fit(X[:100], y[:100])
    assert (loaded.decision_function(X) == costly.decision_function(X)).all()
    with pytest.raises(ParameterError, match="needs costs"):
        StreamClassifier().fit(X, y).predict(X, sample_cost=amounts)
