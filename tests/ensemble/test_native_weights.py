"""Native loops of weights, calibration, tests for changes and row selection, compared with slow formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from steelyard import _native
from tests.ensemble import weights_reference as reference


def _scores(seed, n_positive, n_negative, n_experts, *, unknown=0.0, step=0.0):
    """Return scores of experts of different quality and scale, with ties if ``step`` is positive."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_positive + n_negative, n_experts)) + rng.normal(size=n_experts)
    scores[:n_positive] += rng.uniform(-0.5, 2.0, n_experts)
    scores *= 10.0 ** rng.uniform(-3, 3, n_experts)
    if step:
        scores = step * np.round(scores / step)
    scores[rng.random(scores.shape) < unknown] = np.nan
    return scores


def _check_calibrations(scores, n_positive, share=0.05):
    known = ~np.isnan(scores)
    enough = (known[:n_positive].sum(axis=0) >= 2) & (known[n_positive:].sum(axis=0) >= 2)
    fitted = _native.ExpertCalibrations(scores, n_positive, np.ones(scores.shape[1], dtype=bool), 2, 6.0)
    assert len(fitted) == enough.sum()
    if not enough.any():
        return
    expected = reference.calibrate_experts(scores[:, enough], n_positive)
    np.testing.assert_allclose(fitted.auc()[enough], expected.auc, rtol=1e-14)
    assert np.isnan(fitted.auc()[~enough]).all()
    for expert, table in zip(np.flatnonzero(enough).tolist(), expected.tables, strict=True):
        knots, values = fitted.table(expert)
        np.testing.assert_allclose(knots, table[0], rtol=1e-5, atol=1e-9 * np.abs(table[0]).min())
        np.testing.assert_allclose(values, table[1], rtol=1e-7, atol=1e-8)
    priors = np.linspace(0.5, 5.0, scores.shape[1])
    weights = fitted.weights(share, (15.0, 5.0, 10.0), 0.01, priors)
    wanted = reference.expert_weights(expected, n_positive, share, priors[enough])
    np.testing.assert_allclose(weights[enough], wanted, atol=1e-6)
    assert (weights[~enough] == 0.0).all()
    total = (weights[enough, None] * expected.log_odds).sum(axis=0)
    np.testing.assert_allclose(fitted.totals(weights), total, atol=1e-6)
    scaling = _native.platt_scaling(total, n_positive)
    np.testing.assert_allclose(scaling, reference.platt_scaling(total, n_positive), rtol=1e-8, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 150), st.integers(1, 900), st.integers(1, 12)),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([0.0, 0.5]),
)
def test_calibrations_and_weights_equal_the_slow_formulas(seed_and_sizes, unknown, step):
    _check_calibrations(_scores(*seed_and_sizes, unknown=unknown, step=step), seed_and_sizes[1])


@pytest.mark.parametrize("case", ["constant", "separated", "reversed", "two values", "signed zeros"])
def test_calibrations_of_degenerate_scores_equal_the_slow_formulas(case):
    y = np.arange(300) < 40
    scores = {
        "constant": np.zeros(300),
        "separated": np.where(y, 5.0, -5.0) + np.linspace(0.0, 1.0, 300),
        "reversed": np.where(y, -5.0, 5.0) + np.linspace(0.0, 1.0, 300),
        "two values": np.where(y, 1.0, np.arange(300) % 2),
        "signed zeros": np.where(y, 0.0, -0.0) + (np.arange(300) % 7 == 0),
    }[case]
    _check_calibrations(scores[:, None], 40)


def test_calibrations_of_real_scores_equal_the_slow_formulas():
    X, y = load_breast_cancer(return_X_y=True)
    scores = np.concatenate([-X[y == 0], -X[y == 1]])[:, :12]
    _check_calibrations(np.ascontiguousarray(scores), int((y == 0).sum()), share=0.4)


@pytest.mark.parametrize("copies", [2, 4, 10, 40])
def test_calibrations_do_not_depend_on_the_share_of_a_rare_class(copies):
    # Scores like those of trees: most negative rows differ little. Both classes have equal weight in the fit.
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(-2.0, 2.0, 100), -6.0 + 0.01 * rng.exponential(size=1000)
    negative[:20] = rng.normal(-2.0, 1.0, 20)

    def log_odds(negative):
        scores = np.concatenate([positive, negative])[:, None]
        fitted = _native.ExpertCalibrations(scores, len(positive), np.ones(1, dtype=bool), 2, 6.0)
        return fitted.totals(np.ones(1))[:1100]

    np.testing.assert_allclose(log_odds(np.tile(negative, copies)), log_odds(negative), atol=0.05)


def test_calibrations_leave_out_experts_that_are_no_candidates():
    scores = _scores(0, 30, 200, 3)
    fitted = _native.ExpertCalibrations(scores, 30, np.array([True, False, True]), 2, 6.0)
    assert np.isnan(fitted.auc()).tolist() == [False, True, False]
    assert fitted.weights(0.1, (15.0, 5.0, 10.0), 0.0, np.ones(3))[1] == 0.0
    assert [len(fitted.table(expert)[0]) for expert in range(3)] == [29, 1, 29]
    with pytest.raises(ValueError, match="shapes"):
        fitted.totals(np.ones(2))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 500), st.floats(1e-4, 0.5), st.floats(0.1, 1e3))
def test_correction_equals_the_slow_formula(seed, n_rows, share, scale):
    rng = np.random.default_rng(seed)
    log_odds = (scale * rng.normal(size=(n_rows, 4))).astype(np.float32).astype(np.float64)
    log_odds[:, 2] = 0.0  # an expert without scores
    places = (np.arange(n_rows) % 5 == 1).astype(np.int64)
    weights = rng.dirichlet(np.ones(4))
    found = _native.solve_correction(log_odds, places, weights, share, 100.0, 5)
    expected = reference.solve_correction(log_odds, places, weights, share=share, ridge=100.0, n_steps=5)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert found[2] == 0.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 350), st.sampled_from([1.0, 5.0, 1e4]))
def test_online_calibration_equals_the_slow_formula(seed, n_rows, scale):
    rng = np.random.default_rng(seed)
    log_odds, y = scale * rng.normal(-1.0, 1.0, n_rows), rng.random(n_rows) < 0.3
    start = np.tile(reference.IDENTITY, (4, 1)), np.tile(np.eye(7), (4, 1, 1)), np.zeros(4)
    rates = 4000.0, 1.0, 0.5, 0.05, 100
    found = _native.learn_calibration(*start, log_odds, y, reference.EDGES, reference.HALF_LIVES, *rates)
    expected = reference.learn_calibration(*start, log_odds, y)
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-9, atol=1e-9)
    new = np.linspace(-20.0, 20.0, 101)
    values = _native.calibrate(found[0], found[2], new, reference.EDGES)
    np.testing.assert_allclose(values, reference.calibrated(*expected[::2], new), rtol=1e-9, atol=1e-9)


def test_sums_of_bets_equal_the_slow_formulas():
    rng = np.random.default_rng(0)
    p, sums = rng.random((2, 250, 5)), 100.0 * rng.random((4, 5))
    gain = 1.6 * (p - 0.5)
    bets = np.moveaxis(np.concatenate([1.0 + gain, 1.0 - gain]), 1, 0)
    found = _native.bet_on_columns(sums, p, 1.6, 1e60)
    np.testing.assert_allclose(found, reference.shiryaev_roberts(sums, bets), rtol=1e-12)
    assert _native.bet_on_columns(sums, np.ones((2, 2000, 5)), 1.6, 1e60).max() == 1e60

    codes, counts, factors = rng.integers(0, 3, 250), np.array([10.0, 0.0, 5.0]), np.array([0.4, 2.5])
    uniform, sums = rng.random((250, 3)), rng.random((3, 2))
    found, after = _native.bet_on_shares(sums, counts, codes, uniform, factors, 1e60)
    bets = reference.share_bets(counts, codes, uniform, factors)
    np.testing.assert_allclose(found, reference.shiryaev_roberts(sums, bets), rtol=1e-12)
    np.testing.assert_array_equal(after, counts + np.bincount(codes, minlength=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 70), st.integers(0, 20))
def test_last_rows_equal_a_selection_class_by_class(codes, n_last, per_class):
    codes = np.array(codes, dtype=np.int64)
    wanted = set(range(max(0, len(codes) - n_last), len(codes)))
    for code in range(4):
        own = np.flatnonzero(codes == code).tolist()
        wanted.update(own[max(0, len(own) - per_class) :])
    assert _native.last_rows(codes, n_last, per_class).tolist() == sorted(wanted)
    limits = np.full(4, per_class)
    assert _native.last_rows(codes, n_last, limits).tolist() == sorted(wanted)


def test_hit_rates_equal_the_slow_formula():
    rng = np.random.default_rng(0)
    rows = hits = expected_rows = expected_hits = np.zeros((2, 3))
    keep, found = 0.5 ** (40 / np.array([75.0, 1000.0])), []
    for step in range(80):
        codes = (rng.random(40) < 0.2).astype(np.int64) * rng.integers(1, 3, 40)
        hit = rng.random(40) < (0.9 if step < 40 else 0.5)
        rows, hits, has_fallen = _native.add_hits(rows, hits, codes, hit, keep, 5.0, 4.0, 0.05)
        expected_rows, expected_hits, expected = reference.hit_rates(expected_rows, expected_hits, codes, hit)
        np.testing.assert_allclose(rows, expected_rows, rtol=1e-13)
        np.testing.assert_allclose(hits, expected_hits, rtol=1e-13)
        assert has_fallen == expected
        found.append(has_fallen)
    assert not any(found[:40])
    assert any(found[40:])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 400),
    st.integers(1, 400),
    st.sampled_from([0.0, 0.25, 1e-300, 1e300]),
)
def test_error_rates_equal_the_slow_formula(seed, n_positive, n_negative, step):
    rng = np.random.default_rng(seed)
    sides = [rng.normal(size=n) for n in (n_positive, n_negative)]
    if step:
        sides = [step * np.round(4.0 * side) for side in sides]
    expected = reference.error_rates(*sides)
    for found, wanted in zip(_native.error_rates(*sides), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert np.isfinite(_native.error_rates(np.array([np.nan]), np.arange(200.0))[1]).all()
    with pytest.raises(ValueError, match="no rows"):
        _native.error_rates(sides[0], np.zeros(0))
