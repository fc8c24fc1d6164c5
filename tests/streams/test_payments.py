"""Built-in payments: determinism, chunks, labels, patterns, features and the data frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard.exceptions import ParameterError
from steelyard.streams import Payments
from steelyard.streams.payments import FEATURES, RAW_COLUMNS, SECONDS_PER_DAY


@pytest.fixture(scope="module")
def columns():
    parts = list(Payments(30_000, payments_per_day=1000, seed=3).tables())
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_rows_do_not_depend_on_chunk_size_and_end_at_n_rows():
    few, many = (list(Payments(9001, chunk=chunk, seed=5)) for chunk in (700, 5000))
    assert [len(chunk) for chunk in few] == [700] * 12 + [601]
    for name in ("X", "y", "time"):
        one, other = (np.concatenate([getattr(c, name) for c in chunks]) for chunks in (few, many))
        np.testing.assert_array_equal(one, other)
    assert [chunk.first_row for chunk in many] == [0, 5000]


def test_rows_are_reproducible_and_depend_on_the_seed():
    first, again, other = (next(iter(Payments(500, seed=seed))).X for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_fraud_share_is_near_one_percent_every_week(columns):
    week = (columns["time"] - columns["time"][0]) // (7 * SECONDS_PER_DAY)
    shares = [np.mean(columns["label"][week == number] == "fraud") for number in range(4)]
    assert np.allclose(shares, 0.01, atol=0.003)


def test_fraud_patterns_start_and_end_near_the_listed_drifts(columns):
    day = ((columns["time"] - columns["time"][0]) // SECONDS_PER_DAY).astype(int)
    gift_days = set(day[columns["pattern"] == "gift cards"].tolist())
    assert gift_days <= set(range(5, 14)) | set(range(25, 34))
    assert len(gift_days) > 6
    drifts = Payments(30_000, payments_per_day=1000, seed=3).drifts
    begin = int(np.flatnonzero(columns["pattern"] == "gift cards")[0])
    assert min(abs(begin - row) for row, _ in drifts) < 1000


def test_times_ascend_and_features_are_finite(columns):
    assert (np.diff(columns["time"]) >= 0).all()
    assert all(np.isfinite(columns[name]).all() for name in FEATURES)


def test_history_features_equal_slow_reference(columns):
    frame = pd.DataFrame({name: columns[name] for name in ("customer", "time", "amount", "payments_1h")})
    customer = frame["customer"].iloc[-1]
    rows = frame[frame["customer"] == customer]
    for _, row in rows.iloc[5:].iterrows():
        before = rows[(rows["time"] < row["time"]) & (rows["time"] >= row["time"] - 3600.0)]
        assert row["payments_1h"] == len(before)


def test_terminal_fraud_rate_uses_only_labels_known_at_that_time():
    early, late = (next(Payments(12_000, label_days=days, chunk=12_000).tables()) for days in (0, 5))
    assert np.array_equal(early["amount"], late["amount"])
    fraud = early["label"] == "fraud"
    assert early["terminal_fraud_rate"][fraud].mean() > late["terminal_fraud_rate"][fraud].mean()


def test_to_frame_has_text_columns_missing_values_and_label_times():
    stream = Payments(3000, label_days=2)
    frame = stream.to_frame()
    assert len(frame) == 3000
    assert set(RAW_COLUMNS) | set(FEATURES) | {"time", "label_time", "fraud"} == set(frame.columns)
    assert 0.02 < frame["device"].isna().mean() < 0.2
    assert (frame["label_time"] - frame["time"] == pd.Timedelta(days=2)).all()
    chunk = next(iter(stream))
    np.testing.assert_array_equal(frame[stream.feature_names].to_numpy()[: len(chunk)], chunk.X)


@pytest.mark.parametrize("name", ["n_rows", "payments_per_day", "label_days", "seed"])
def test_invalid_parameter_is_named_in_error(name):
    with pytest.raises(ParameterError, match=name):
        Payments(**{name: -1})
