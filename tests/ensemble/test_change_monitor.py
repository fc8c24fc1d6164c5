"""Change monitor: conformal p-values, e-detectors, causes of events, saving and forgetting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard import StreamClassifier, _native
from steelyard.ensemble.change_monitor import ChangeMonitor
from steelyard.persistence import from_bytes, to_bytes


def make_rows(kind, seed, n=4000, n_columns=4):
    rng = np.random.default_rng(seed)
    half = n // 2
    y = (rng.random(n) < 0.1).astype(np.int64)
    if kind == "prior":
        y[half:] = rng.random(n - half) < 0.3
    X = rng.normal(size=(n, n_columns))
    X[:, 0] += y
    if kind == "features":
        X[half:, 2] += 1.0
    elif kind == "concept":
        X[half:, 3] += 2.0 * y[half:]
    return X, y


def monitored(X, y, chunk=100, **options):
    monitor = ChangeMonitor()
    for begin in range(0, len(y), chunk):
        part = slice(begin, begin + chunk)
        given = {name: values[part] for name, values in options.items()}
        monitor = monitor.after(X[part], y[part], [0, 1], **given)
    return monitor


@pytest.mark.parametrize(("kind", "column"), [("prior", None), ("features", "x2"), ("concept", "x3")])
def test_injected_drift_is_found_with_cause_and_column(kind, column):
    for seed in range(3):
        events = monitored(*make_rows(kind, seed)).event_list()
        assert len(events) == 1
        assert events[0]["cause"] == kind
        assert events[0]["row"] > 2000
        assert column is None or column == events[0]["columns"][0]


def test_exchangeable_rows_raise_no_event():
    n_events = sum(len(monitored(*make_rows("none", seed)).events) for seed in range(10))
    assert n_events == 0  # expected: at most 0.4 in 40,000 rows


def test_conformal_p_values_of_exchangeable_rows_are_uniform():
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 8, size=(4000, 3)).astype(float)
    edges = np.tile(np.arange(1.0, 8.0), (3, 1))
    p, counts = _native.conformal_p_values(bins, edges, np.zeros((3, 8)), rng.random((2, 4000, 3)))
    assert counts[1].tolist() == np.bincount(bins[:, 1].astype(int), minlength=8).tolist()
    for values in p[:, :, 0]:
        counts = np.histogram(values, bins=10, range=(0, 1))[0]
        assert np.abs(counts - 400).max() < 5 * np.sqrt(400)


def test_conformal_p_values_equal_slow_reference():
    rng = np.random.default_rng(1)
    bins = rng.integers(0, 8, size=(40, 1)).astype(float)
    uniform, edges = rng.random((2, 40, 1)), np.arange(1.0, 8.0)[None]
    before, _ = np.histogram(bins[:10], bins=np.arange(9.0))
    p, _ = _native.conformal_p_values(bins[10:], edges, before[None].astype(float), uniform[:, 10:].copy())
    for part, values in enumerate([bins[:, 0], np.abs(bins[:, 0] - 3.5)]):
        for row in range(10, 40):
            below, equal = (values[:row] < values[row]).sum(), (values[:row] == values[row]).sum()
            expected = (below + uniform[part, row, 0] * (equal + 1)) / (row + 1)
            assert p[part, row - 10, 0] == pytest.approx(expected)


def test_expected_drift_statistic_of_class_shares_is_at_most_number_of_rows():
    # The guarantee E[S] <= t, on which the false alarm rate rests, averaged over many short streams.
    sums = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        codes = (rng.random(20) < 0.3).astype(np.int64)
        counts, factors = np.array([14.0, 6.0]), np.array([0.4, 2.5])
        bets = _native.bet_on_shares(np.zeros((2, 2)), counts, codes, rng.random((20, 2)), factors, 1e60)
        sums.append(bets[0])
    assert np.mean(sums) < 20 * 1.3


def test_daily_cycle_with_times_raises_no_event():
    rng = np.random.default_rng(0)
    n = 12_000
    times = np.arange(n) * 86_400.0 / 1000
    y = (rng.random(n) < 0.1).astype(np.int64)
    X = np.column_stack([times / 3600 % 24, rng.normal(size=n)])
    assert monitored(X, y, times=times).events == ()
    assert len(monitored(X, y).events) > 0


def test_constantly_drifting_column_is_ignored_after_some_events():
    rng = np.random.default_rng(0)
    n = 40_000
    X = np.column_stack([np.sin(np.arange(n) / 500.0), rng.normal(size=n)])
    monitor = monitored(X, np.zeros(n, dtype=np.int64))
    assert np.flatnonzero(monitor.column_alarms > 3).tolist() == [0]  # further alarms are ignored
    assert len(monitor.events) <= 6


def test_stream_classifier_reports_and_saves_drift_of_named_column():
    X, y = make_rows("features", 0)
    frame = pd.DataFrame(X, columns=["a", "b", "amount", "d"])
    model = StreamClassifier()
    for begin in range(0, len(y), 400):
        model.partial_fit(frame[begin : begin + 400], y[begin : begin + 400])
    assert [event["columns"] for event in model.drift_events_] == [["amount"]]
    assert 0.0 <= model.drift_evidence_ < 1.0
    assert "amount" in str(model.drift_report())
    loaded = from_bytes(to_bytes(model))
    assert loaded.drift_events_ == model.drift_events_
    model.forget(frame[-10:], y[-10:])
    assert model._ensemble.changes.reference is None  # sums of forgotten rows are gone
    assert model.drift_events_ == loaded.drift_events_


def test_drift_report_of_unlabelled_rows_names_column_and_score():
    X, y = make_rows("none", 0)
    model = StreamClassifier().partial_fit(X, y)
    rows, _ = make_rows("none", 1, n=1000)
    assert not model.drift_report(rows).has_changed
    rows[:, 0] += 2.0
    assert set(model.drift_report(rows).columns_of("features")) >= {"x0", "score"}


def test_events_of_a_file_of_version_0_3_are_read():
    saved = {
        "row": 7,
        "causes": ["features", "prior"],
        "columns": [["x1", "features"]],
        "before": 5.0,
        "after": 2.0,
    }
    (event,) = ChangeMonitor.from_state({"rows": 9, "events": [saved]}).event_list()
    assert (event["row"], event["cause"], event["columns"]) == (7, "features", ["x1"])
    assert event["further"] == [{"cause": "prior", "columns": []}]
    again = ChangeMonitor.from_state(ChangeMonitor.from_state({"rows": 9, "events": [saved]}).get_state())
    assert again.event_list() == [event]
