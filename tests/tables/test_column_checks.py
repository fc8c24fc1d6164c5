"""Checks for columns that are unlikely to be features name the column and the option that helps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard.cli import main
from steelyard.exceptions import DataError
from steelyard.tables import open_stream
from tests.runner import cli_runner

N = 1500


def frame(n=N, **more):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=n), "kind": rng.choice(["x", "z"], n)})
    for name, values in more.items():
        table[name] = values
    table["y"] = np.where(table["a"] > 1, "bad", "ok")
    return table


def noticed(table, **options):
    stream = open_stream(table, "y", **options)
    for _ in stream:
        pass
    return stream.notices


def test_table_of_plausible_features_has_no_notices():
    rng = np.random.default_rng(1)
    more = {
        "count": rng.poisson(3, N),
        "flag": rng.integers(0, 2, N),
        "city": rng.choice(list("abcdefghij"), N),
    }
    assert noticed(frame(**more)) == []


@pytest.mark.parametrize("chunk", [1, 7, 200, 999, 1000, 5000])
def test_notices_do_not_depend_on_chunks(chunk):
    table = frame(index=np.arange(N), clock=np.cumsum(np.random.default_rng(2).random(N)), same=7.0, word="w")
    assert noticed(table, chunk=chunk) == [
        "column 'index' counts the rows, as an index does (--drop index)",
        "column 'clock' increases from row to row, like a clock or counter (--time or --drop clock)",
        "columns 'same', 'word': each is constant in all 1,500 rows (--drop)",
    ]


DAYS = pd.date_range("2020-01-01", periods=N, freq="D")
TEXTS = {
    "months": (pd.period_range("1900-01", periods=N, freq="M").astype(str), "contains dates", "--time when"),
    "other dates": (DAYS.strftime("%d/%m/%Y"), "dates", "--drop when"),
    "ids": ([f"tx-{k * 7919:x}" for k in range(N)], "like an identifier", "--drop when"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("chunk", [50, 1000])
def test_text_column_with_unique_values_raises_within_200_rows(name, chunk):
    values, what, option = TEXTS[name]
    stream = open_stream(frame(when=values), "y", chunk=chunk)
    learned = 0
    with pytest.raises(DataError, match=what) as error:  # noqa: PT012  earlier rows may be returned
        for part in stream:
            learned += len(part)
    assert learned <= 200
    assert option in error.value.hint


DATES = {
    "hours": pd.date_range("2025-01-01", periods=N, freq="h").astype(str),
    "days": DAYS.strftime("%Y-%m-%d"),
    "few days": [f"2025-01-{1 + k % 12:02}" for k in range(N)],
}


@pytest.mark.parametrize("name", DATES)
def test_text_dates_are_times_and_give_a_notice(name):
    stream = open_stream(frame(when=DATES[name]), "y")
    chunks = list(stream)
    assert stream.notices == [
        "column 'when' contains times, which become seconds as a feature (--time or --drop when)"
    ]
    assert stream.encoder.times_ == ["when"]
    expected = pd.to_datetime(pd.Series(DATES[name])).astype("datetime64[s]").astype(np.int64)
    place = stream.feature_names.index("when")
    assert np.concatenate([chunk.X[:, place] for chunk in chunks]).tolist() == expected.tolist()


def test_later_value_that_is_no_date_raises_with_its_row():
    days = [*DATES["few days"][:120], "soon", *DATES["few days"][121:]]
    with pytest.raises(DataError, match=r"row 120, column 'when': expected a date .* got 'soon'"):
        list(open_stream(frame(when=days), "y", chunk=100))


def test_columns_named_by_the_user_are_not_checked():
    table = frame(900, when=TEXTS["ids"][0][:900])
    assert noticed(table, categorical="when") == []
    assert noticed(table, features=["a", "when"]) == []


def test_time_and_dropped_columns_are_not_checked():
    table = frame(when=DATES["hours"], same=1.0)
    assert noticed(table, time="when", drop="same") == []


def test_short_table_is_checked_at_its_end():
    assert noticed(frame(150, index=np.arange(150))) == [
        "column 'index' counts the rows, as an index does (--drop index)"
    ]
    assert noticed(frame(9, index=np.arange(9))) == []


def test_very_short_table_is_checked_only_for_dates_and_counters():
    days = DAYS[:12].strftime("%Y-%m-%d")
    assert noticed(frame(12, index=np.arange(12), when=days, same=1.0, id=[f"k{n}" for n in range(12)])) == [
        "column 'when' contains times, which become seconds as a feature (--time or --drop when)",
        "column 'index' counts the rows, as an index does (--drop index)",
    ]
    grows = np.cumsum(np.random.default_rng(2).random(40))
    table = frame(40, clock=grows, same=1.0, id=[f"k{n * 7919:x}" for n in range(40)])
    assert [message.split(" (")[0] for message in noticed(table)] == [
        "column 'id' has a different value in nearly every row, like an identifier",
        "column 'clock' increases from row to row, like a clock or counter",
        "column 'same' is constant in all 40 rows",
    ]


@pytest.mark.parametrize("type_", ["timestamp", "date"])
def test_timestamps_of_parquet_file_in_any_order_give_a_notice(type_, tmp_path):
    moments = pd.Series(DAYS).sample(frac=1.0, random_state=0).to_numpy()
    table = frame(when=moments if type_ == "timestamp" else pd.Series(moments).dt.date)
    table.to_parquet(tmp_path / "rows.parquet")
    assert noticed(tmp_path / "rows.parquet") == [
        "column 'when' contains times, which become seconds as a feature (--time or --drop when)"
    ]
    assert noticed(tmp_path / "rows.parquet", time="when") == []
    assert noticed(tmp_path / "rows.parquet", drop="when") == []


def test_fitted_encoder_skips_the_checks(tmp_path):
    table = frame(index=np.arange(N))
    stream = open_stream(table, "y")
    list(stream)
    again = open_stream(table, "y", encoder=stream.encoder)
    list(again)
    assert again.notices == []


def test_fit_command_error_names_column_and_option(tmp_path):
    table = frame(when=TEXTS["months"][0])
    table.to_csv(tmp_path / "rows.csv")  # with an index, as pandas writes it by default
    words = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "-o", str(tmp_path / "m")]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 1
    assert "column 'when' contains dates" in result.stderr
    assert "--drop when" in result.stderr
    result = cli_runner().invoke(main, [*words, "--time", "when"])
    assert result.exit_code == 0, result.output
    assert "note:" in result.stderr
    assert "column '' counts the rows, as an index does (--drop '')" in result.stderr


@pytest.mark.parametrize("chunk", [1, 300, 5000])
def test_column_constant_in_first_thousand_rows_only_is_not_reported_as_constant(chunk):
    late = np.where(np.arange(N) < 1200, 0.003467, np.random.default_rng(0).random(N))
    assert noticed(frame(late=late, never=1.0), chunk=chunk) == [
        f"column 'never' is constant in all {N:,} rows (--drop never)"
    ]


def test_column_of_sentences_raises_with_hint_about_text_features():
    words = ["the", "pump", "stopped", "after", "heavy", "rain", "and", "was", "repaired"]
    rng = np.random.default_rng(0)
    notes = [" ".join(rng.choice(words, 7)) for _ in range(N)]
    with pytest.raises(DataError, match="contains sentences") as caught:
        noticed(frame(note=notes))
    assert "--drop note" in caught.value.hint
    assert "TfidfVectorizer" in caught.value.hint
