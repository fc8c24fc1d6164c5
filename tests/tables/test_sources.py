"""Sources: all formats give the same rows, and errors name the line and column."""

from __future__ import annotations

import gzip
import io
import json
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.exceptions import DataError, FileAccessError
from steelyard.tables import open_stream, table_stream, text_sources

FRAME = pd.DataFrame(
    {
        "amount": np.round(np.random.default_rng(0).normal(size=250), 3),
        "count": np.arange(250) % 7,
        "country": np.array(["NZ", "AU", "FJ"])[np.arange(250) % 3],
        "label": np.where(np.arange(250) % 10 == 0, "bad", "ok"),
    }
)


def _csv(path, **options):
    FRAME.to_csv(path, index=False, **options)
    return path


def _gzip(path):
    path.write_bytes(gzip.compress(FRAME.to_csv(index=False).encode()))
    return path


def _jsonl(path):
    path.write_text("\n".join(json.dumps(row) for row in FRAME.to_dict("records")), encoding="utf-8")
    return path


def _parquet(path):
    pq.write_table(pa.Table.from_pandas(FRAME), path, row_group_size=64)
    return path


def _arrow(path):
    table = pa.Table.from_pandas(FRAME)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=60)
    return path


def _arrow_stream(path):
    table = pa.Table.from_pandas(FRAME)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=60)
    return path


FORMATS = {
    "csv": _csv,
    "tsv": lambda path: _csv(path, sep="\t"),
    "semicolons": lambda path: _csv(path, sep=";"),
    "csv.gz": _gzip,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
    "arrow stream": _arrow_stream,
    "pandas": lambda path: FRAME,
    "polars": lambda path: pl.from_pandas(FRAME),
    "pyarrow": lambda path: pa.Table.from_pandas(FRAME),
    "binary file": lambda path: io.BytesIO(FRAME.to_csv(index=False).encode()),
}


def _rows(source, **options):
    """Return all rows of a stream, padded to the last width."""
    chunks = list(open_stream(source, "label", **options))
    width = chunks[-1].X.shape[1]
    X = np.vstack([np.pad(chunk.X, ((0, 0), (0, width - chunk.X.shape[1]))) for chunk in chunks])
    return X, np.concatenate([chunk.y for chunk in chunks])


@pytest.fixture(params=["pyarrow", "built in"])
def engine(request, monkeypatch):
    if request.param == "built in":
        for module in (text_sources, table_stream):
            monkeypatch.setattr(module, "has_pyarrow", lambda: False)
    return request.param


@pytest.mark.parametrize("name", FORMATS)
def test_all_file_formats_give_the_same_rows(name, tmp_path):
    X, y = _rows(FORMATS[name](tmp_path / "rows"), chunk=100)
    np.testing.assert_array_equal(X[:, 0], FRAME["amount"])
    np.testing.assert_array_equal(X[:, 1], FRAME["count"])
    np.testing.assert_array_equal(X[:, 2:], pd.get_dummies(FRAME["country"])[["NZ", "AU", "FJ"]])
    assert y.tolist() == FRAME["label"].tolist()


def test_csv_rows_are_the_same_with_and_without_pyarrow(tmp_path, engine):
    X, y = _rows(_csv(tmp_path / "rows.csv"), chunk=33)
    np.testing.assert_array_equal(X[:, :2], FRAME[["amount", "count"]])
    assert y.tolist() == FRAME["label"].tolist()


@pytest.mark.parametrize("chunk", [1, 7, 100, 250, 999])
def test_rows_do_not_depend_on_chunk_size(chunk, tmp_path):
    whole = _rows(FRAME, chunk=250)
    parts = _rows(_csv(tmp_path / "rows.csv"), chunk=chunk)
    np.testing.assert_array_equal(parts[0], whole[0])
    assert next(len(c) for c in open_stream(FRAME, "label", chunk=chunk)) == min(chunk, 250)


def test_limit_ends_the_stream_after_given_number_of_rows():
    assert sum(len(chunk) for chunk in open_stream(FRAME, "label", chunk=40, limit=130)) == 130


def test_features_and_drop_select_columns_by_name():
    assert _rows(FRAME, features=["count"])[0].shape[1] == 1
    assert _rows(FRAME, drop=["country", "count"])[0].shape[1] == 1


def test_categorical_treats_numbers_as_categories():
    stream = open_stream(FRAME, "label", categorical=["count"], drop=["country"])
    next(iter(stream))
    assert stream.feature_names[1:4] == ["count=0", "count=1", "count=2"]


def test_time_column_can_be_text_numbers_or_timestamps():
    days = pd.date_range("2026-01-01", periods=250, freq="D")
    expected = days.astype("int64").to_numpy() / (1e9 if days.dtype == "datetime64[ns]" else 1e6)
    for times in (days, days.strftime("%Y-%m-%d"), expected):
        chunks = list(open_stream(FRAME.assign(when=times), "label", time="when", chunk=250))
        np.testing.assert_array_equal(chunks[0].time, expected)
        assert chunks[0].X.shape[1] == 5


def test_path_of_a_dash_reads_standard_input(monkeypatch):
    class Pipe:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(FRAME.to_csv(index=False).encode())))

    monkeypatch.setattr("sys.stdin", Pipe)
    assert len(_rows("-")[1]) == 250


# -- bad input --------------------------------------------------------------------------------------


def _read_until_error(source, target="y", **options):
    sizes = []
    with pytest.raises(DataError) as caught:
        sizes.extend(len(chunk) for chunk in open_stream(source, target, **options))
    return sum(sizes), str(caught.value)


def _lines(tmp_path, *, rows=3000, bad=None, at=2500):
    lines = [f"{i},{i / 4},{i % 2}" for i in range(rows)]
    if bad is not None:
        lines.insert(at, bad)
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")
    return path


def test_missing_target_column_error_lists_existing_columns(tmp_path):
    _, message = _read_until_error(_lines(tmp_path), target="Y")
    assert "the target column 'Y' does not exist" in message
    assert "'a', 'b', 'y'" in message


def test_line_with_wrong_number_of_cells_raises_after_earlier_rows(tmp_path, engine):
    n_rows, message = _read_until_error(_lines(tmp_path, bad="1,2"), chunk=1000)
    assert n_rows == 2500
    assert "data.csv, line 2,502: expected 3 columns, as in the header; got 2" in message


def test_text_in_number_column_raises_after_earlier_rows(tmp_path, engine):
    n_rows, message = _read_until_error(_lines(tmp_path, bad="1,lots,0"), chunk=1000)
    assert n_rows == 2500
    assert "data.csv, line 2,502, column 'b': expected a number; got 'lots'" in message


def test_bad_first_line_raises(tmp_path, engine):
    n_rows, message = _read_until_error(_lines(tmp_path, bad="1,2,0,9", at=1), chunk=1000)
    assert n_rows == 1
    assert "line 3: expected 3 columns" in message


def test_bad_line_in_a_pipe_raises(tmp_path):
    n_rows, message = _read_until_error(io.BytesIO(_lines(tmp_path, bad="1,2").read_bytes()))
    assert n_rows == 2500
    assert "input, line 2,502: expected 3 columns" in message


def test_quoted_line_breaks_do_not_end_a_row(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("steelyard.tables.text_sources.BLOCK_BYTES", 64)
    rows = "".join(f'{i},"one\ntwo, ""{i % 3}""",{i % 2}\n' for i in range(40))
    path = tmp_path / "quoted.csv"
    path.write_text('a,"the\ntext",y\n' + rows, encoding="utf-8")
    stream = open_stream(path, "y", chunk=7)
    assert sum(len(chunk) for chunk in stream) == 40
    assert stream.feature_names == ["a", *(f'the\ntext=one\ntwo, "{k}"' for k in range(3))]


def test_rows_of_a_pipe_are_returned_before_it_is_closed(engine):
    """The reader must not wait for the end of an open pipe."""
    import os

    reading, writing = os.pipe()
    os.write(writing, b"a,y\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(500)))
    with os.fdopen(reading, "rb") as pipe:
        chunks = iter(open_stream(pipe, "y", chunk=100))
        assert [len(next(chunks)) for _ in range(4)] == [100] * 4
        os.close(writing)
        assert len(list(chunks)) == 1


def test_invalid_json_line_raises_with_line_number(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n{"a": 2,\n', encoding="utf-8")
    _, message = _read_until_error(path)
    assert "rows.jsonl, line 3: this is not a JSON object" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"a,b,y\n", "a header line but no rows"),
        (b"a,b,y\n1,\x00,2\n", "binary file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary file"),
        (b'[{"a": 1, "y": 0},\n {"a": 2, "y": 1}]\n', "looks like a JSON list"),
        (b"[[[[[[[[", "looks like a JSON list"),
        (b"PAR1 but not really", "damaged or cut short"),
        (b"ARROW1 but not really", "damaged or cut short"),
        (gzip.compress(b"a,b,y\n1,2,3\n" * 99, mtime=0)[:-20], "damaged or cut short"),
        (b"a,a,y\n1,2,3\n", "two columns have the name 'a'"),
        (
            b"a,b,y\n1,caf\xe9,3\n",
            "line 2, column 'b': expected text in UTF-8; got the byte 0xe9 at the end of",
        ),
        (b"a,caf\xe9,y\n1,2,3\n", "line 1: expected text in UTF-8; got the byte 0xe9"),
        (b'{"a": 1, "y": "caf\xe9"}\n', "line 1: expected text in UTF-8; got the byte 0xe9"),
        ("a,b,y\n1,2,3\n".encode("utf-16"), "this is text in UTF-16; expected UTF-8"),
        (b"y\n1\n", "no column is left as a feature"),
        (b"a,y\n1,0\n2,\n", "line 3, column 'y': the label is missing"),
        (b"a,y\n1,0.5\n2,1.25\n", "a label must be an integer or text; got 0.5"),
        (b"a,y\n1,0\n,1\n", "line 3, column 'a': a value is missing"),
        (b"a,y\n1,0\ninf,1\n", "line 3, column 'a': an infinite value cannot be used"),
    ],
)
def test_invalid_content_raises(content, message, tmp_path, engine):
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    if engine == "built in" and (b"PAR1" in content or b"ARROW1" in content):
        message = "needs pyarrow"
    assert message in _read_until_error(path, missing="refuse")[1]


def test_row_that_is_not_utf8_is_skipped_and_named(tmp_path, engine):
    rows = [b"%d,x,%d" % (k % 7, k % 2) for k in range(3000)]
    rows[2000] = b"1,caf\xe9,0"
    path = tmp_path / "latin.csv"
    path.write_bytes(b"\n".join([b"a,b,y", *rows, b""]))
    stream = open_stream(path, "y", on_bad_row="skip")
    assert sum(map(len, stream)) == 2999
    assert "line 2,002, column 'b': expected text in UTF-8" in stream.bad_rows[0]


def test_target_with_unique_values_raises(tmp_path):
    frame = pd.DataFrame({"a": np.zeros(10_000), "y": [f"id{i}" for i in range(10_000)]})
    assert "distinct labels in the first 1,000 rows" in _read_until_error(frame)[1]


def test_more_labels_than_max_classes_raise():
    frame = pd.DataFrame({"a": np.zeros(10_000), "y": np.arange(10_000) // 3})
    n_rows, message = _read_until_error(frame, max_classes=500)
    assert n_rows == 1000
    assert "at most 500 can be classes" in message


def test_missing_file_raises():
    with pytest.raises(FileAccessError, match=r"nowhere\.csv: cannot be read"):
        open_stream("nowhere.csv", "y")


def test_memory_does_not_grow_with_file_size(tmp_path):
    import tracemalloc

    def peak(rows):
        path = _lines(tmp_path, rows=rows)
        tracemalloc.start()
        for _ in open_stream(path, "y"):
            pass
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(400_000) < 6_000_000  # the file has 7 MB, a block half a megabyte


WORDS = ["", "NA", "nan", "null", "N/A", "-nan", "NULL"]


@pytest.mark.parametrize("word", WORDS)
def test_words_for_missing_values_are_recognised_in_number_columns(word, tmp_path, engine, monkeypatch):
    monkeypatch.setattr("steelyard.tables.text_sources.BLOCK_BYTES", 1 << 12)
    cells = [f"{row / 7:.4f}" for row in range(1500)]
    cells[1200], cells[1201], cells[1490] = word, "NA", ""
    lines = [f"{cell},{row % 2 == 0},{row % 3 == 0:d}" for row, cell in enumerate(cells)]
    path = tmp_path / "gaps.csv"
    path.write_text("\n".join(["x,flag,y", *lines]) + "\n", encoding="utf-8")
    rows = np.concatenate([chunk.X for chunk in open_stream(path, "y", missing="zero", chunk=70)])
    expected = [0.0 if row in (1200, 1201, 1490) else float(cell) for row, cell in enumerate(cells)]
    np.testing.assert_array_equal(rows[:, 0], expected)
    np.testing.assert_array_equal(rows[:, 1], np.arange(1500) % 2 == 0)


def test_words_for_missing_values_are_recognised_in_text_columns(tmp_path, engine):
    path = tmp_path / "gaps.csv"
    path.write_text("x,kind,y\n1,a,0\n2,NA,1\n3,b,0\n4,null,1\n", encoding="utf-8")
    chunk = next(iter(open_stream(path, "y", missing="zero")))
    np.testing.assert_array_equal(chunk.X, [[1, 1, 0], [2, 0, 0], [3, 0, 1], [4, 0, 0]])


def test_chunks_do_not_share_memory_with_later_chunks(tmp_path, engine):
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(400)), encoding="utf-8")
    kept = list(open_stream(path, "y", chunk=150))
    for chunk in kept:
        chunk.X[:] += 1.0  # changing a chunk must not change others
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in kept])[:, 0], np.arange(400) + 1.0)


def test_named_pipe_is_a_live_stream(tmp_path, engine):
    import os
    import threading

    path = tmp_path / "feed.csv"
    os.mkfifo(path)
    received = threading.Event()

    def write():
        with path.open("wb") as feed:
            feed.write(b"a,y\n" + b"1,0\n2,1\n" * 5)
            feed.flush()
            received.wait(120)
            feed.write(b"3,1\n")

    writer = threading.Thread(target=write)
    writer.start()
    stream = open_stream(path, "y", chunk=1000)
    assert stream.live
    chunks = iter(stream)
    assert len(next(chunks)) == 10  # returned while the pipe is open
    received.set()
    assert sum(len(chunk) for chunk in chunks) == 1
    writer.join(120)


def test_regular_file_is_not_a_live_stream(tmp_path):
    assert not open_stream(_csv(tmp_path / "rows.csv"), "label").live


def test_closing_a_stream_early_ends_its_reader_thread(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a,y\n" + "1.5,0\n2.5,1\n" * 400_000)  # more blocks than the reader queues
    chunks = iter(open_stream(str(path), "y", chunk=10))
    next(chunks)
    assert any(thread.name == "steelyard reader" for thread in threading.enumerate())
    chunks.close()
    assert not any(thread.name == "steelyard reader" for thread in threading.enumerate())


def test_nested_json_value_names_line_and_hint():
    file = io.BytesIO(b'{"a": 1, "y": 0}\n{"a": [1, 2], "y": 1}\n')
    with pytest.raises(DataError, match=r"line 2: the value of 'a' is a list") as raised:
        list(open_stream(file, "y"))
    assert raised.value.hint == "write each of its values into a field of its own"
