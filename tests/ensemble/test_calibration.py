"""Online calibration, prediction sets and confidence intervals for rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier
from steelyard.ensemble.decision import prediction_sets
from steelyard.ensemble.mixing import OnlineCalibration
from steelyard.exceptions import ParameterError
from steelyard.metrics import expected_calibration_error, log_loss_score, rate_interval


def _labelled(n, slope, bias, seed=0):
    """Return log-odds that are distorted by ``slope`` and ``bias``, and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-2.0, 2.0, n)
    return (truth - bias) / slope, rng.random(n) < expit(truth)


def test_calibration_learns_slope_and_bias():
    z, y = _labelled(20_000, 0.5, 1.0)
    calibration = OnlineCalibration().after(z, y)
    new, labels = _labelled(20_000, 0.5, 1.0, seed=1)
    p = expit(calibration.log_odds(new))
    assert expected_calibration_error(labels.astype(int), expit(new)) > 0.04
    assert expected_calibration_error(labels.astype(int), p) < 0.01
    assert (np.diff(calibration.log_odds(np.sort(new))) >= 0.0).all()


def _labelled_with_steep_part(n, seed):
    """Return log-odds whose true slope is 4 between -3 and -1 and 1 elsewhere, and labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-3.0, 1.5, n)
    return z, rng.random(n) < expit(z + 3.0 * np.clip(z + 3.0, 0.0, 2.0))


def test_calibration_learns_slope_that_differs_between_ranges_of_log_odds():
    calibration = OnlineCalibration().after(*_labelled_with_steep_part(20_000, 0))
    new, labels = _labelled_with_steep_part(20_000, 1)
    p = expit(calibration.log_odds(new))
    assert expected_calibration_error(labels.astype(int), p) < 0.025  # 0.044 with one slope below 0
    rows = (p > 0.2) & (p < 0.8)
    assert labels[rows].mean() == pytest.approx(p[rows].mean(), abs=0.02)


def test_calibrating_calibrated_log_odds_changes_them_little():
    z, y = _labelled(5000, 1.0, 0.0)
    new, labels = _labelled(5000, 1.0, 0.0, seed=1)
    p = expit(OnlineCalibration().after(z, y).log_odds(new))
    assert log_loss_score(labels.astype(int), p) < log_loss_score(labels.astype(int), expit(new)) + 0.003


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=1, max_size=150))
def test_calibration_is_finite_and_monotone_and_can_be_restored(rows):
    z, y = (np.array(part) for part in zip(*rows, strict=True))
    calibration = OnlineCalibration().after(z, y)
    grid = np.linspace(-20.0, 20.0, 81)
    values = calibration.log_odds(grid)
    assert np.isfinite(values).all()
    assert (np.diff(values) >= -1e-9).all()
    restored = OnlineCalibration.from_state(calibration.get_state())
    assert (restored.log_odds(grid) == values).all()


def _labelled_with_high_middle(n, seed):
    """Return log-odds and labels.

    Rows with a probability near 0.5 are positive more often than it says, the others exactly as often.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, 2.0, n)
    return z, rng.random(n) < expit(z + 1.2 * np.exp(-6.0 * z * z))


def test_calibration_corrects_errors_that_slopes_cannot_represent():
    calibration = OnlineCalibration()
    for seed in range(20):
        calibration = calibration.after(*_labelled_with_high_middle(1000, seed))
    without = replace(calibration, bin_errors=np.zeros(15))
    new, labels = _labelled_with_high_middle(40_000, 100)
    before, after = (
        expected_calibration_error(labels.astype(int), expit(c.log_odds(new))) for c in (without, calibration)
    )
    assert after < 0.8 * before
    p = expit(calibration.log_odds(new))
    assert log_loss_score(labels.astype(int), p) < log_loss_score(labels.astype(int), expit(new))


def test_large_corrections_keep_the_order_of_probabilities():
    errors = np.where(np.arange(15) % 2, 1e3, -1e3)
    calibration = OnlineCalibration(bin_errors=errors, bin_variances=np.ones(15))
    grid = np.linspace(-12.0, 12.0, 801)
    assert (np.diff(calibration.log_odds(grid)) > 0.0).all()
    swapped = OnlineCalibration(bin_errors=-errors[::-1], bin_variances=np.ones(15))
    np.testing.assert_allclose(swapped.log_odds(-grid), -calibration.log_odds(grid), rtol=1e-9)


def test_calibration_of_earlier_version_has_no_corrections():
    z, y = _labelled(1000, 0.5, 1.0)
    calibration = OnlineCalibration().after(z, y)
    state = {name: values for name, values in calibration.get_state().items() if "bin_" not in name}
    restored = OnlineCalibration.from_state(state)
    assert (restored.bin_errors == 0.0).all()
    assert (restored.coefficients == calibration.coefficients).all()


def test_corrupt_calibration_raises():
    state = OnlineCalibration().get_state()
    with pytest.raises(ValueError, match="corrupt"):
        OnlineCalibration.from_state({**state, "losses": np.zeros(2)})
    assert (OnlineCalibration.from_state(None).losses == 0.0).all()


def test_stream_probabilities_have_calibration_error_below_one_percent():
    rng = np.random.default_rng(2)
    n = 6000
    y = (rng.random(n) < 0.1).astype(int)
    X = rng.normal(size=(n, 3)) + y[:, None]
    model, p = StreamClassifier(), np.zeros(n)
    for begin in range(0, n, 200):
        part = slice(begin, begin + 200)
        if begin:
            p[part] = model.predict_proba(X[part])[:, 1]
        model.partial_fit(X[part], y[part])
    assert expected_calibration_error(y[2000:], p[2000:]) < 0.015


# -- prediction sets ----------------------------------------------------------------------------------


def _members_by_definition(recent, places, new, coverage):
    """Return the prediction sets by the definition of weighted conformal p-values, row by row."""
    recent = recent - np.log(np.exp(recent).sum(axis=1, keepdims=True))
    new = new - np.log(np.exp(new).sum(axis=1, keepdims=True))
    members = np.zeros(new.shape, dtype=bool)
    for row in range(len(new)):
        for k in range(new.shape[1]):
            own = recent[places == k, k]
            weights = [0.5 ** (age / 200.0) for age in range(len(own), 0, -1)]
            below = sum(w for w, score in zip(weights, own, strict=True) if score <= new[row, k])
            members[row, k] = (below + 1.0) / (sum(weights) + 1.0) > 1.0 - coverage
    return members


def test_prediction_sets_match_definition():
    rng = np.random.default_rng(3)
    recent, new, places = rng.normal(size=(80, 3)), rng.normal(size=(30, 3)), rng.integers(0, 2, 80)
    members = prediction_sets(recent, places, new, 0.8)
    assert (members == _members_by_definition(recent, places, new, 0.8)).all()
    assert members[:, 2].all()  # a class without recent rows cannot be ruled out


@pytest.mark.parametrize(
    "make",
    [StreamClassifier, lambda: AdaptiveThresholdClassifier(ProximalSVC())],
    ids=["ensemble", "wrapper"],
)
def test_prediction_sets_of_many_classes_have_requested_coverage_for_each_class(make):
    rng = np.random.default_rng(4)
    n = 4000
    y = rng.choice(4, n, p=[0.6, 0.25, 0.1, 0.05])
    X = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[y]
    model = make()
    for begin in range(0, 2000, 200):
        model.partial_fit(X[begin : begin + 200], y[begin : begin + 200])
    members, rest = model.predict_set(X[2000:], coverage=0.9), y[2000:]
    assert members.shape == (2000, 4)
    for k in range(4):
        assert members[rest == k, k].mean() == pytest.approx(0.9, abs=0.08)
    assert members.sum(axis=1).mean() < 3.0
    assert (model.predict_set(X[2000:], coverage=0.99) >= members).all()
    for wrong in (0.0, 1.0, "much", True):
        with pytest.raises(ParameterError, match="coverage"):
            model.predict_set(X[:2], coverage=wrong)


# -- probabilities of any classifier --------------------------------------------------------------------


def test_wrapper_probabilities_are_calibrated_for_observed_shares():
    rng = np.random.default_rng(5)
    n = 6000
    y = (rng.random(n) < 0.15).astype(int)
    X = rng.normal(size=(n, 3)) + y[:, None]
    model = AdaptiveThresholdClassifier(ProximalSVC())
    for begin in range(0, 3000, 200):
        model.partial_fit(X[begin : begin + 200], y[begin : begin + 200])
    P, rest = model.predict_proba(X[3000:]), y[3000:]
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert expected_calibration_error(rest, P[:, 1]) < 0.04
    balanced = model.predict_proba(X[3000:], prior="balanced")[:, 1]
    assert balanced.mean() > P[:, 1].mean() + 0.1
    assert (np.diff(P[np.argsort(model.decision_function(X[3000:])), 1]) >= -1e-12).all()


# -- confidence intervals of rates ------------------------------------------------------------------------


def test_rate_interval_contains_drifting_mean_rate_at_all_times():
    missed = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        rates = 0.1 + 0.09 * np.sin(np.arange(1500) / 200.0 + seed)
        events = np.cumsum(rng.random(1500) < rates)
        means = np.cumsum(rates) / np.arange(1, 1501)
        at = np.unique(np.geomspace(1, 1500, 25).astype(int)) - 1
        intervals = [rate_interval(int(events[n]), int(n) + 1) for n in at]
        missed += any(not low <= means[n] <= high for n, (low, high) in zip(at, intervals, strict=True))
    assert missed <= 80 * 0.05 + 5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.integers(0, 500))
def test_rate_interval_contains_observed_rate_and_shrinks_with_lower_level(n_events, n_others):
    low, high = rate_interval(n_events, n_events + n_others)
    narrow = rate_interval(n_events, n_events + n_others, level=0.5)
    rate = n_events / max(n_events + n_others, 1)
    assert 0.0 <= low <= narrow[0] <= narrow[1] <= high <= 1.0
    assert n_events + n_others == 0 or narrow[0] <= rate <= narrow[1]
