"""Native parser of numbers: the same values as Python and pyarrow."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.tables import open_stream
from steelyard.tables.text_sources import NumberParser

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CELLS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(lambda value: f"{value:.4f}"),
    FLOATS.map(lambda value: f"{value:.12e}"),
    st.integers(-(10**25), 10**25).map(str),
    st.just(""),
)


def read(text, names=("a", "b"), wanted=("a", "b"), delimiter=","):
    return NumberParser(names, delimiter, wanted)(text.encode())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=20))
def test_parsed_numbers_equal_python_and_pyarrow(rows):
    pa = pytest.importorskip("pyarrow", reason="the reference reader")
    from pyarrow import csv

    text = "".join(f"{a},{b}\n" for a, b in rows)
    X = read(text).to_matrix(["a", "b"])
    expected = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows])
    np.testing.assert_array_equal(X, expected)
    np.testing.assert_array_equal(np.signbit(X), np.signbit(expected))
    parsed = csv.read_csv(
        pa.BufferReader(text.encode()),
        csv.ReadOptions(column_names=["a", "b"]),
        convert_options=csv.ConvertOptions(
            column_types={"a": pa.float64(), "b": pa.float64()}, null_values=[""]
        ),
    )
    for column, name in enumerate("ab"):
        np.testing.assert_array_equal(X[:, column], parsed[name].to_numpy())


def test_columns_and_matrix_can_be_read_in_any_order():
    batch = read("1,x,2\n3,y,4\n", names=("a", "b", "c"), wanted=("c", "a"))
    np.testing.assert_array_equal(batch.columns["c"], [2.0, 4.0])
    np.testing.assert_array_equal(batch.to_matrix(["c"]), [[2.0], [4.0]])
    np.testing.assert_array_equal(batch.to_matrix(["a", "c"]), [[1.0, 2.0], [3.0, 4.0]])
    assert batch.matrix is not None


def test_number_parser_is_disabled_after_eight_failures():
    parse = NumberParser(["a", "b"], ",", ["a", "b"])
    assert parse(b"1,2\n").n_rows == 1
    for _ in range(8):
        assert parse(b"1,NA\n") is None
    assert parse(b"1,2\n") is None


def test_csv_block_with_quoted_number_gives_same_rows_as_unquoted():
    plain = [f"{row % 7},{row / 8},{row % 2}" for row in range(60_000)]
    odd = [*plain]
    odd[30_000] = f'"{30_000 % 7}",{30_000 / 8},0'  # a quoted number has the same value
    parts = []
    for lines in (plain, odd):
        file = io.BytesIO("\n".join(["a,b,y", *lines, ""]).encode())
        parts.append([(chunk.X, chunk.y) for chunk in open_stream(file, "y")])
    for (X, y), (X2, y2) in zip(*parts, strict=True):
        np.testing.assert_array_equal(X, X2)
        np.testing.assert_array_equal(y, y2)
