"""Unusual tables are read correctly or raise an error."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.tables import open_stream, table_stream, text_sources


@pytest.fixture(params=["pyarrow", "built in"])
def engine(request, monkeypatch):
    if request.param == "built in":
        for module in (text_sources, table_stream):
            monkeypatch.setattr(module, "has_pyarrow", lambda: False)


def _read(source, target="y", **options):
    """Return all chunks of a stream and the names of its features."""
    if isinstance(source, str):
        source = io.BytesIO(source.encode())
    stream = open_stream(source, target, **options)
    return list(stream), stream.feature_names


def _until_error(source, **options):
    rows, message = 0, ""
    try:
        for chunk in open_stream(io.BytesIO(source.encode()), "y", **options):
            rows += len(chunk)
    except DataError as error:
        message = str(error)
    return rows, message


# -- rows before a bad one ---------------------------------------------------------------------------

LINES = [f"{i % 7},2024-01-01,{'ab'[i % 2]},{i % 3}" for i in range(300)]


@pytest.mark.parametrize("chunk", [40, 1000])
@pytest.mark.parametrize("missing", ["refuse", "mean", "indicator"])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("inf,2024-01-01,a,0", "an infinite value"),
        ("1,2024-01-01,a,", "the label is missing"),
        ("1,2024-01-01,a,0.5", "a label must be an integer"),
        ("1,,a,0", "the time is missing"),
        ("1,soon,a,0", "expected a time"),
        ("red,2024-01-01,a,0", "expected a number"),
    ],
)
def test_rows_before_a_bad_row_are_returned_first(chunk, missing, line, message, engine):
    table = "\n".join(["x,when,colour,y", *LINES[:250], line, *LINES[250:]])
    rows, found = _until_error(table, time="when", chunk=chunk, missing=missing)
    assert rows == 250
    assert message in found
    assert "line 252" in found


@pytest.mark.parametrize("line", [",2024-01-01,a,0", "1,2024-01-01,,0"], ids=["number", "category"])
def test_rows_before_a_missing_value_are_returned_first(line, engine):
    table = "\n".join(["x,when,colour,y", *LINES[:250], line, *LINES[250:]])
    rows, found = _until_error(table, time="when", missing="refuse")
    assert rows == 250
    assert "line 252" in found


def test_first_of_two_bad_rows_raises(engine):
    rows, found = _until_error("a,b,y\n1,2,0\n,2,1\n3,4,\n", missing="refuse")
    assert rows == 1
    assert "line 3, column 'a': a value is missing" in found


def test_means_for_missing_values_count_rows_before_a_bad_row_once():
    stream = open_stream(io.BytesIO(b"a,y\n2,0\n4,1\n,0\ninf,1\n"), "y", missing="mean")
    rows = iter(stream)
    np.testing.assert_array_equal(next(rows).X[:, 0], [2.0, 4.0, 3.0])
    with pytest.raises(DataError, match="infinite"):
        next(rows)
    np.testing.assert_array_equal(stream.encoder._seen, [2.0])


# -- numbers, categories and labels -------------------------------------------------------------------


def test_single_text_in_number_column_raises(engine):
    rows, found = _until_error("a,y\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(60)) + "oops,1\n")
    assert rows == 60
    assert "line 62, column 'a': expected a number; got 'oops'" in found
    assert "--categorical" in found


def test_single_text_in_json_number_field_raises():
    lines = [f'{{"a": {i}.5, "y": {i % 2}}}' for i in range(60)]
    rows, found = _until_error("\n".join([*lines, '{"a": "oops", "y": 1}']))
    assert rows == 60
    assert "line 61, column 'a': expected a number; got 'oops'" in found


def test_single_text_in_target_column_is_a_label(engine):
    (chunk,), _ = _read("a,y\n" + "1,0\n" * 60 + "2,fraud\n")
    assert set(chunk.y) == {"0", "fraud"}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_categories_of_large_integers_are_exact(frame):
    table = frame({"a": [1234567, 1234568], "b": [1.2345678, 1.2345679], "y": [0, 1]})
    _, names = _read(table, categorical=["a", "b"])
    assert names == ["a=1234567", "b=1.2345678", "a=1234568", "b=1.2345679"]


def test_category_names_of_files_and_tables_are_equal():
    from_text = _read("a,y\n1234567,0\n7,1\n", categorical=["a"])[1]
    assert _read(pd.DataFrame({"a": [1234567, 7], "y": [0, 1]}), categorical=["a"])[1] == from_text


@pytest.mark.parametrize("labels", [[2**53 + 1, 2**53], [10**22 + 1, 0]])
def test_integer_labels_beyond_float_precision_raise(labels, engine):
    found = _until_error("a,y\n1,{}\n2,{}\n".format(*labels))[1]
    assert "line 2, column 'y': integer labels must be within" in found


def test_integer_labels_of_a_table_beyond_float_precision_raise():
    with pytest.raises(DataError, match="row 0, column 'y': integer labels must be within"):
        _read(pd.DataFrame({"a": [1, 2], "y": [2**53 + 1, 2**53]}))


def test_large_integer_features_are_rounded():
    (chunk,), _ = _read(pd.DataFrame({"a": [2**60 + 1, 2], "y": [0, 1]}))
    assert chunk.X[0, 0] == 2.0**60


# -- data frames -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [[5, 3], pd.Index([7, 8], name="id"), pd.Index(["u", "v"])])
def test_index_of_data_frame_is_not_a_feature(index):
    assert _read(pd.DataFrame({"a": [1, 2], "y": [0, 1]}, index=index))[1] == ["a"]


def test_index_of_pandas_parquet_file_is_not_a_feature(tmp_path):
    pd.DataFrame({"a": [1, 2], "y": [0, 1]}, index=[5, 3]).to_parquet(tmp_path / "rows.parquet")
    assert _read(tmp_path / "rows.parquet")[1] == ["a"]


def test_named_index_can_be_feature_or_time():
    frame = pd.DataFrame({"a": [1, 2], "y": [0, 1]}, index=pd.Index([7, 8], name="id"))
    assert _read(frame, features=["a", "id"])[1] == ["a", "id"]
    (chunk,), names = _read(frame, time="id")
    assert (chunk.time.tolist(), names) == ([7.0, 8.0], ["a"])


def test_polars_categories_and_enums_are_read():
    schema = {"a": pl.Categorical, "y": pl.Enum(["p", "q"])}
    (chunk,), names = _read(pl.DataFrame({"a": ["u", "v"], "y": ["p", "q"]}, schema=schema))
    assert (chunk.y.tolist(), names) == (["p", "q"], ["a=u", "a=v"])


@pytest.mark.parametrize("table", [pd.DataFrame({"a": [1, "x"], "y": [0, 1]}), {"a": [1, 2, 3], "y": [0, 1]}])
def test_invalid_table_raises(table):
    with pytest.raises(DataError, match="the columns of the table cannot be read"):
        _read(table)


def test_integer_column_name_raises_with_hint():
    with pytest.raises(DataError, match=r"(?s)target column 1 does not exist.*'0', '1'.*did you mean '1'"):
        _read(pd.DataFrame({0: [1, 2], 1: [0, 1]}), target=1)


# -- times, marks and options -----------------------------------------------------------------------------


def test_durations_and_times_of_day_are_read_in_seconds():
    duration = pa.array([90, None], type=pa.duration("s"))
    time = pa.array([3_600_000, 60_000], type=pa.time32("ms"))
    (chunk,), names = _read(pa.table({"duration": duration, "time": time, "y": ["a", "b"]}), missing="zero")
    assert names[:2] == ["duration", "time"]
    np.testing.assert_array_equal(chunk.X[:, :2], [[90.0, 3600.0], [0.0, 60.0]])


def test_times_with_and_without_time_zone_are_utc_seconds():
    (chunk,), _ = _read(
        "t,a,y\n1970-01-02,1,0\n1970-01-01T02:00:00+02:00,1,1\n1970-01-01 00:00:01.5Z,1,0\n1970-02,1,1\n",
        time="t",
    )
    assert chunk.time.tolist() == [86400.0, 0.0, 1.5, 31 * 86400.0]


def test_json_with_byte_order_mark_is_read():
    (chunk,), _ = _read('\ufeff{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n')
    assert chunk.X.tolist() == [[1.0], [2.0]]


def test_column_options_accept_a_single_name_as_string():
    table = "ab,cd,y\n1,2,0\n3,4,1\n"
    assert _read(table, features="ab")[1] == _read(table, drop="cd")[1] == ["ab"]
    assert _read(table, categorical="cd")[1] == ["ab", "cd=2", "cd=4"]


@pytest.mark.parametrize("limit", [0, -1, 2.5])
def test_invalid_limit_raises(limit):
    with pytest.raises(ParameterError, match="limit must be a whole number of at least 1"):
        _read("a,y\n1,0\n", limit=limit)


def test_text_mode_file_raises():
    with pytest.raises(DataTypeError, match="binary mode"):
        open_stream(io.StringIO("a,y\n1,0\n"), "y")


@pytest.mark.parametrize("chunk", [10, 100, 1000])
def test_target_with_100_classes_is_accepted_but_target_of_identifiers_raises(chunk):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=3000), "y": rng.integers(0, 100, size=3000)})
    assert sum(len(part) for part in open_stream(frame, "y", chunk=chunk)) == 3000
    for n in (300, 3000):
        numbered = pd.DataFrame({"a": np.arange(n) * 1.0, "y": np.arange(n)})
        with pytest.raises(DataError, match="distinct labels"):
            list(open_stream(numbered, "y", chunk=chunk))


def test_infinite_time_is_refused(engine):
    rows, found = _until_error("x,when,y\n1,10,0\n2,20,1\n3,inf,0\n", time="when")
    assert rows == 2
    assert "line 4, column 'when': the time is missing" in found
