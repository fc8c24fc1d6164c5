"""Correction of the expert weights by logistic regression."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from steelyard import StreamClassifier
from steelyard.ensemble import scores
from steelyard.ensemble.experts import EXPERTS
from steelyard.ensemble.scores import WeightCorrection
from steelyard.ensemble.settings import SETTINGS
from steelyard.persistence import from_bytes, to_bytes


def _log_odds(n, strengths, seed=0):
    """Return log-odds of independent experts (strength 0: noise), and labels of which 20 % are positive."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.2
    strengths = np.asarray(strengths)
    scores = rng.normal(size=(n, len(strengths))) + np.where(y, 1.0, -1.0)[:, None] * strengths
    return 2.0 * np.where(strengths > 0.0, strengths, 1.0) * scores, y


def _remembered(z, y, block=100):
    """Return a correction that remembers the rows ``z`` and ``y``. The hash of a row is its number."""
    correction = WeightCorrection.none(z.shape[1])
    for begin in range(0, len(y), block):
        part = slice(begin, begin + block)
        keys = np.arange(begin, begin + len(y[part])).astype(np.uint64)
        correction = correction.after(z[part], y[part].astype(np.int64), keys)
    return correction


def _solved(correction, weights, share, n_steps=5):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "_CORRECTION_STEPS", n_steps)
        patch.setattr(scores, "SETTINGS", dataclasses.replace(SETTINGS, min_correction_rows=2))
        return correction.solved(weights, share)


@pytest.mark.parametrize("share", [0.2, 0.02])
def test_many_solver_steps_converge_to_ridge_logistic_regression(share):
    z, y = _log_odds(1000, (1.0, 0.7, 0.0))
    weights = np.array([0.2, 0.4, 0.4])
    row_weights = np.where(y, share * len(y) / y.sum(), (1.0 - share) * len(y) / (~y).sum())
    ridge = SETTINGS.correction_ridge

    def loss(v):
        margin = np.where(y, 1.0, -1.0) * (z @ (weights + v) + np.log(share / (1.0 - share)))
        return row_weights @ np.logaddexp(0.0, -margin) + 0.5 * ridge * v @ v

    found = _solved(_remembered(z, y), weights, share, n_steps=500)
    np.testing.assert_allclose(found.values, minimize(loss, np.zeros(3)).x, atol=1e-4)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1e3), st.floats(1e-4, 1.0 - 1e-4))
@settings(max_examples=50, deadline=None)
def test_solver_steps_never_increase_the_loss(seed, scale, share):
    rng = np.random.default_rng(seed)
    z, y = (scale * rng.normal(size=(60, 3))).astype(np.float32), rng.random(60) < 0.3
    y[:4] = [False, True, False, True]
    weights = rng.dirichlet(np.ones(3))
    row_weights = np.where(y, share * 60 / y.sum(), (1.0 - share) * 60 / (~y).sum())

    def loss(v):
        margin = np.where(y, 1.0, -1.0) * (z @ (weights + v) + np.log(share / (1.0 - share)))
        return row_weights @ np.logaddexp(0.0, -margin) + 0.5 * SETTINGS.correction_ridge * v @ v

    correction = _remembered(z, y)
    losses = [loss(_solved(correction, weights, share, n_steps).values) for n_steps in range(5)]
    assert all(after <= before * (1.0 + 1e-9) for before, after in itertools.pairwise(losses))


def test_informative_expert_gains_weight_and_uninformative_expert_loses_it():
    z, y = _log_odds(5000, (1.0, 1.0, 0.0))
    weights = np.array([0.6, 0.1, 0.3])
    corrected = _solved(_remembered(z, y), weights, 0.2, n_steps=20).apply(weights, [0, 1, 2])
    assert corrected.sum() == pytest.approx(1.0)
    assert corrected[1] > 0.3
    assert corrected[2] < 0.05


def test_corrected_weights_are_nonnegative_and_zero_for_excluded_experts():
    correction = dataclasses.replace(WeightCorrection.none(3), values=np.array([-5.0, 0.1, 0.5]))
    np.testing.assert_array_equal(correction.apply(np.array([0.5, 0.5, 0.0]), [0, 1]), [0.0, 1.0, 0.0])
    weights = np.array([1.0, 0.0, 0.0])
    np.testing.assert_array_equal(
        correction.apply(weights, [0]), weights
    )  # the correction would make all weights zero


def test_correction_keeps_last_rows_and_last_hundred_rows_of_rare_class():
    y = np.zeros(12_000, dtype=bool)
    y[:300] = True
    correction = _remembered(np.zeros((12_000, 1)), y)
    _, places, keys = correction.log.rows
    assert np.count_nonzero(places == 1) == SETTINGS.score_rows_of_class[1]
    assert keys[places == 1].min() == 200
    assert SETTINGS.correction_rows <= np.count_nonzero(places == 0) <= 1.5 * SETTINGS.correction_rows


def test_correction_after_forget_equals_correction_without_forgotten_rows():
    z, y = _log_odds(600, (1.0, 0.5))
    weights, gone = np.array([0.5, 0.5]), np.flatnonzero(y)[:30]
    both = _solved(_remembered(z, y), weights, 0.2)
    less = _solved(both.without(1, gone.astype(np.uint64)), weights, 0.2)
    never = _remembered(np.delete(z, gone, axis=0), np.delete(y, gone))
    np.testing.assert_array_equal(less.values, _solved(never, weights, 0.2).values)
    assert both.without(0, gone.astype(np.uint64)) is both  # rows of the other class


def test_state_with_fewer_experts_loads_with_zero_correction_for_new_ones():
    z, y = _log_odds(500, (1.0, 0.5))
    correction = _solved(_remembered(z, y), np.array([0.5, 0.5]), 0.2)
    loaded = WeightCorrection.from_state(correction.get_state(), 3)
    np.testing.assert_array_equal(loaded.values, [*correction.values, 0.0])
    np.testing.assert_array_equal(loaded.log.rows[0][:, :2], correction.log.rows[0])
    np.testing.assert_array_equal(WeightCorrection.from_state({}, 3).values, np.zeros(3))


@pytest.mark.parametrize(
    "changed",
    [
        {"values": np.zeros(4)},
        {"values": np.array([0.0, np.nan])},
        {"log_odds": np.zeros((4, 2))},
        {"log_odds": np.full((5, 2), np.inf)},
        {"places": np.full(5, 2)},
        {"places": np.zeros(4, dtype=np.int64)},
    ],
)
def test_inconsistent_state_raises_value_error(changed):
    z, y = _log_odds(5, (1.0, 0.5))
    state = {**_remembered(z, y).get_state(), **changed}
    with pytest.raises(ValueError, match="correction of the weights"):
        WeightCorrection.from_state(state, 2)


def _taught(n_classes=2, n=1500):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    y = np.digitize(X[:, 0] * X[:, 1] + 0.5 * X[:, 2], np.linspace(0.8, 1.2, n_classes - 1))
    model = StreamClassifier()
    for begin in range(0, n, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    return X, y, model


def test_loaded_model_continues_with_the_same_correction():
    X, y, model = _taught()
    loaded = from_bytes(to_bytes(model))
    assert np.abs(model._ensemble.correction.values).max() > 0.0
    for one in (model, loaded):
        one.partial_fit(X, y)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded._ensemble.correction.values, model._ensemble.correction.values)


def test_third_class_resets_the_correction():
    X, _, model = _taught()
    model.partial_fit(X[:10], np.full(10, 7))
    np.testing.assert_array_equal(model._ensemble.correction.values, np.zeros(len(EXPERTS)))
    assert np.isfinite(model.predict_proba(X)).all()
