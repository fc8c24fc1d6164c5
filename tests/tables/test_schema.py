"""Schema and columns of tables in memory."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables.frames import is_table
from steelyard.tables.schema import MAX_EXACT_CATEGORIES, Schema

FRAME = pd.DataFrame(
    {
        "amount": [1.5, np.nan, 3.0, 4.0],
        "country": ["NZ", None, "AU", "NZ"],
        "kind": pd.Categorical(["web", "shop", "web", None]),
        "vip": [True, False, False, True],
        "at": pd.to_datetime(["2026-01-05 06:30", None, "2026-01-06 00:00", "2026-01-11 23:00"]),
        "n": pd.array([1, None, 3, 4], dtype="Int64"),
    }
)
NAN = np.nan
MONDAY = datetime(2026, 1, 5, 6, 30, tzinfo=UTC).timestamp()
CODED = [
    [1.5, 0.0, 0.0, 1.0, MONDAY, 6.5, 0.0, 1.0],
    [NAN, NAN, 1.0, 0.0, NAN, NAN, NAN, NAN],
    [3.0, 1.0, 0.0, 0.0, MONDAY + 17.5 * 3600, 0.0, 1.0, 3.0],
    [4.0, 0.0, NAN, 1.0, MONDAY + 6 * 86_400 + 16.5 * 3600, 23.0, 6.0, 4.0],
]


def _forms():
    records = FRAME.astype(object).where(FRAME.notna(), None).to_dict("records")
    return {
        "pandas": FRAME,
        "polars": pl.from_pandas(FRAME),
        "arrow": pa.Table.from_pandas(FRAME, preserve_index=False),
        "dicts": records,
        "mapping": {name: [record[name] for record in records] for name in FRAME},
    }


def _of_arrow_type(values, kind):
    """Return a pandas table with a column of an Arrow type."""
    return pd.DataFrame({"a": pd.Series(values, dtype=pd.ArrowDtype(kind))})


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us")])
def test_dates_of_arrow_types_in_pandas_equal_those_of_pandas(kind):
    days = [datetime(2026, 1, 5, tzinfo=UTC).replace(tzinfo=None), None]
    expected = Schema().encode(pd.DataFrame({"a": pd.to_datetime(days)}), "test", learn=True)
    found = Schema().encode(_of_arrow_type(days, kind), "test", learn=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", list(_forms()))
def test_encode_returns_the_same_codes_for_every_kind_of_table(form):
    schema = Schema()
    table = _forms()[form]
    assert is_table(table)
    np.testing.assert_array_equal(schema.encode(table, "test", learn=True), CODED)
    assert schema.names == list(FRAME.columns)
    assert schema.coded_names == ["amount", "country", "kind", "vip", "at", "at hour", "at weekday", "n"]
    assert schema.categorical == (1, 2)
    restored = Schema.from_state(schema.get_state())
    np.testing.assert_array_equal(restored.encode(table, "test", learn=False), CODED)


def test_encode_of_object_array_names_columns_by_index():
    schema = Schema()
    rows = np.array([[1, "a", None], [None, "b", 2.5]], dtype=object)
    np.testing.assert_array_equal(schema.encode(rows, "test", learn=True), [[1, 0, NAN], [NAN, 1, 2.5]])
    assert schema.names == ["x0", "x1", "x2"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([timedelta(hours=1), None], [3600.0, NAN]),
        ([time(1, 30), None], [5400.0, NAN]),
        ([Decimal("1.5"), True, None], [1.5, 1.0, NAN]),
        ([date(1970, 1, 2), np.datetime64("NaT")], [86_400.0, NAN]),
        ([b"x", "x", 2.0, 2], [0.0, 0.0, 1.0, 1.0]),
    ],
)
def test_encode_converts_python_objects_of_one_column(cells, expected):
    rows = Schema().encode([{"a": cell} for cell in cells], "test", learn=True)
    np.testing.assert_array_equal(rows[:, 0], expected)


def test_encode_matches_columns_by_name_and_fills_absent_columns():
    schema = Schema()
    schema.encode(pd.DataFrame({"a": [1.0], "b": ["x"], 7: [2]}), "test", learn=True)
    later = schema.encode(pd.DataFrame({"7": [5], "c": [0.5], "b": ["y"]}), "test", learn=True)
    np.testing.assert_array_equal(later, [[NAN, 1.0, 5.0, 0.5]])
    unseen = schema.encode(pd.DataFrame({"b": ["z"], "d": [1.0]}), "test", learn=False)
    np.testing.assert_array_equal(unseen, [[NAN, -1.0, NAN, NAN]])


def test_encode_column_gets_its_kind_from_its_first_value():
    schema = Schema()
    schema.encode(pd.DataFrame({"a": [None, None], "b": [1, 2]}), "test", learn=True)
    rows = schema.encode(pd.DataFrame({"a": ["x", None], "b": [1, 2]}), "test", learn=True)
    np.testing.assert_array_equal(rows, [[0.0, 1.0], [NAN, 2.0]])
    assert schema.categorical == (0,)


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-01-31", "2026-02-01", None],
        ["2026-01-31T09:30", "2026-02-01 09:30:15.5", None],
        ["2026-01-31T09:30:00Z", "2026-02-01T09:30:00+05:00", None],
    ],
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_encode_treats_dates_written_as_text_as_times(texts, frame):
    schema = Schema()
    coded = schema.encode(frame({"when": texts, "a": [1.0, 2.0, 3.0]}), "test", learn=True)
    expected = [pd.Timestamp(text).timestamp() for text in texts[:2]]
    assert schema.kinds["when"] == "time"
    np.testing.assert_array_equal(coded[:, 0], [*expected, np.nan])
    later = schema.encode(frame({"when": ["2027-01-01"], "a": [1.0]}), "test", learn=False)
    assert later[0, 0] == pd.Timestamp("2027-01-01").timestamp()


@pytest.mark.parametrize("text", ["2026-02-31", "31.01.2026", "2026", "2026-01", "soon", "2026-01-31 x"])
def test_encode_treats_column_of_dates_and_other_text_as_categories(text):
    schema = Schema()
    schema.encode(pd.DataFrame({"when": ["2026-01-31", text]}), "test", learn=True)
    assert schema.kinds["when"] == "category"


def test_encode_text_in_a_column_of_dates_raises():
    schema = Schema()
    schema.encode(pd.DataFrame({"when": ["2026-01-31"]}), "test", learn=True)
    with pytest.raises(DataError, match="'when' contained times before; got 'soon' in row 1"):
        schema.encode(pd.DataFrame({"when": ["2026-02-01", "soon"]}), "test", learn=True)


def test_encode_converts_text_to_numbers_in_a_numeric_column():
    schema = Schema()
    schema.encode(pd.DataFrame({"a": [1.0]}), "test", learn=True)
    assert schema.encode(pd.DataFrame({"a": ["2.5"]}), "test", learn=True).tolist() == [[2.5]]


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (pd.Series({"a": 1.0, "b": "x"}), "a table of one row"),
        (pl.Series([1.0, 2.0]), "a table of one row"),
        ({"a": 1.0, "b": 2.0}, r"a list of dictionaries: \[row\]"),
        ({"a": "x"}, r"a list of dictionaries: \[row\]"),
        (pl.LazyFrame({"a": [1.0]}), r"collect\(\)"),
    ],
)
def test_encode_single_row_or_lazy_frame_raises_with_hint(row, hint):
    with pytest.raises(DataTypeError, match=f"hint: .*{hint}"):
        Schema().encode(row, "test", learn=True)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), DataError, "two columns have the name 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), DataError, "two columns have the name '1'"),
        (pd.DataFrame({"a": []}), DataError, "no rows"),
        (pd.DataFrame(index=[1, 2]), DataError, "no columns"),
        ([{"a": {"nested": 1}}], DataTypeError, "column 'a': every argument must be a string"),
        (pd.DataFrame({"a": [1j]}), DataTypeError, "column 'a' contains complex numbers"),
        (_of_arrow_type([[1]], pa.list_(pa.int64())), DataTypeError, "neither numbers nor text"),
        ([{"a": 1}, 5], DataTypeError, "expected a list of dictionaries"),
        ({"a": [1, 2], "b": [1]}, DataError, "same number of rows"),
        (np.array([["a", "b"], [1, [2]]], dtype=object), DataTypeError, "must be a string"),
    ],
)
def test_encode_invalid_table_raises(table, error, message):
    with pytest.raises(error, match=message):
        Schema().encode(table, "test", learn=True)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"a": ["x"]}, "column 'a' contained numbers before; got 'x' in row 0"),
        ({"b": [1.0]}, "no column of the table is known"),
        ({"a": pd.to_datetime(["2026-01-01"])}, "column 'a' contained numbers before; got a time"),
    ],
)
def test_encode_changed_kind_or_unknown_columns_raises(later, message):
    schema = Schema()
    schema.encode(pd.DataFrame({"a": [1.0]}), "test", learn=True)
    with pytest.raises(DataError, match=message):
        schema.encode(pd.DataFrame(later), "test", learn=True)


def test_many_categories_share_hash_codes_that_never_change():
    schema = Schema()
    names = [f"v{k}" for k in range(MAX_EXACT_CATEGORIES + 100)]
    first = schema.encode(pd.DataFrame({"a": names}), "test", learn=True)[:, 0]
    assert first[:MAX_EXACT_CATEGORIES].tolist() == list(range(MAX_EXACT_CATEGORIES))
    assert (first[MAX_EXACT_CATEGORIES:] >= MAX_EXACT_CATEGORIES).all()
    assert first.max() < 2 * MAX_EXACT_CATEGORIES
    again = Schema.from_state(schema.get_state()).encode(pd.DataFrame({"a": names}), "test", learn=False)
    np.testing.assert_array_equal(again[:, 0], first)


def test_extending_a_copied_schema_does_not_change_the_original():
    schema = Schema()
    schema.encode([{"a": "x"}], "test", learn=True)
    state = schema.get_state()
    schema.copy().encode([{"a": "y", "b": 1}], "test", learn=True)
    assert schema.get_state() == state


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": [["a", "other"]]},
        {"places": [["a", ""], ["a", ""]]},
        {"categories": []},
        {"categories": [["a", ["x", "x"]]]},
    ],
)
def test_from_state_with_inconsistent_state_raises(change):
    schema = Schema()
    schema.encode([{"a": "x"}], "test", learn=True)
    with pytest.raises(ValueError, match="inconsistent"):
        Schema.from_state({**schema.get_state(), **change})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=20), st.integers(1, 7))
def test_category_codes_do_not_depend_on_chunk_boundaries(cells, size):
    whole, parts = Schema(), Schema()
    records = [{"a": cell, "n": 1.0} for cell in cells]
    expected = whole.encode(records, "test", learn=True)
    found = [parts.encode(records[k : k + size], "test", learn=True) for k in range(0, len(records), size)]
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_encode_column_of_sentences_warns_once():
    words = ["the", "pump", "stopped", "after", "heavy", "rain", "and", "was", "repaired"]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"note": [" ".join(rng.choice(words, 7)) for _ in range(60)]})
    schema = Schema()
    with pytest.warns(UserWarning, match="column 'note' contains sentences") as caught:
        schema.encode(frame, "test", learn=True)
    schema.encode(frame[::-1], "test", learn=True)
    assert len(caught) == 1
