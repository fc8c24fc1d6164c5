"""Column batches: dictionary encoding, slicing and concatenation."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from steelyard.tables.arrow_sources import arrow_batch
from steelyard.tables.columns import ColumnBatch, erased_codes, new_values
from steelyard.tables.frames import memory_batch, table_batch
from steelyard.tables.table_stream import first_rows

WORDS = ["b", None, "a", "b", "", "a", "c", None]


def decoded(batch, name="word"):
    values, codes = batch.dictionary_encode(name)
    assert len(set(values)) == len(values)
    return [values[code] for code in codes]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS).dictionary_encode(),
        # Arrow allows repeated values in a dictionary.
        pa.DictionaryArray.from_arrays([1, None, 2, 0, 3, 2, 4, None], ["b", "b", "a", "", "c"]),
    ],
)
def test_arrow_texts_are_dictionary_encoded(column):
    batch = arrow_batch({"word": column}, {"word": "text"}, len(WORDS))
    assert decoded(batch) == batch.columns["word"].tolist() == WORDS


def test_large_integers_become_text_exactly():
    batch = arrow_batch({"word": pa.array([2**60 + 1, None, 7])}, {"word": "text"}, 3)
    assert decoded(batch) == [str(2**60 + 1), None, "7"]


def test_dictionary_encoded_batches_keep_values_when_sliced_and_concatenated():
    coded = arrow_batch({"word": pa.array(WORDS)}, {"word": "text"}, len(WORDS))
    plain = ColumnBatch({"word": np.array(["z", "a", None], dtype=object)}, 3)
    rows = ColumnBatch.concat([coded.take(2, 6), plain, coded.take(5, 99)])
    assert decoded(rows) == rows.columns["word"].tolist() == [*WORDS[2:6], "z", "a", None, *WORDS[5:]]
    assert decoded(coded.take(1, 7).take(1, 3)) == WORDS[2:4]


def test_numbers_are_dictionary_encoded_as_text():
    batch = ColumnBatch({"word": np.array([1.0, 0.5, np.nan, 1.0])}, 4)
    assert decoded(batch) == ["1", "0.5", None, "1"]


def cells():
    moments = np.array(["1970-01-01T00:00:01", "NaT", "1970-01-01T00:00:03"], dtype="datetime64[us]")
    return ColumnBatch.of_cells(
        {
            "number": np.array([1.0, np.nan, 3.0]),
            "time": moments,
            "coded": (["a", None], np.array([0, 1, 0])),
            "text": np.array(["x", "y", None], dtype=object),
            "empty": np.full(3, None),
        },
        3,
    )


def test_batch_of_cells_knows_the_kind_of_each_column():
    batch = cells()
    kinds = {name: batch.kind(name) for name in batch.columns}
    assert kinds == {
        "number": "number",
        "time": "time",
        "coded": "category",
        "text": "category",
        "empty": "unknown",
    }
    np.testing.assert_array_equal(batch.columns["time"], [1.0, np.nan, 3.0])
    assert batch.columns["coded"].tolist() == ["a", None, "a"]


@pytest.mark.parametrize("rows", [slice(1, 9), np.array([False, True, True]), np.array([1, 2])])
def test_rows_are_selected_by_slice_mask_and_index(rows):
    part = cells().select(rows)
    assert len(part) == 2
    assert decoded(part, "coded") == part.columns["coded"].tolist() == [None, "a"]
    assert part.kind("time") == "time"
    numbers = ColumnBatch.from_matrix(["a", "b"], np.arange(6.0).reshape(3, 2)).select(rows)
    assert numbers.matrix is not None
    np.testing.assert_array_equal(numbers.to_matrix(["b"]), [[3.0], [5.0]])


def test_columns_are_chosen_in_the_given_order():
    batch = cells().choose(["text", "time", "coded"])
    assert list(batch.columns) == ["text", "time", "coded"]
    assert list(batch.without("time").columns) == ["text", "coded"]
    assert decoded(batch, "coded") == ["a", None, "a"]


def test_new_values_are_in_the_order_of_their_first_rows():
    coded = ["a", None, "unused", "b", "known"], np.array([3, 1, 4, 0, 3])
    assert new_values(coded, {"known"}) == [(0, "b"), (3, "a")]


def test_erased_code_never_replaces_another_text():
    codes = {"x": 0, "(erased 0)": 1, "y": 2}
    assert erased_codes(codes, {"x"}) == {"(erased 0)'": 0, "(erased 0)": 1, "y": 2}


def test_first_rows_reads_no_batch_beyond_the_limit():
    n_read = []

    def batches():
        for k in range(9):
            n_read.append(k)
            yield ColumnBatch.from_matrix(["a"], np.full((4, 1), float(k)))

    found = [batch.columns["a"].tolist() for batch in first_rows(batches(), 6)]
    assert found == [[0.0] * 4, [1.0] * 2]
    assert n_read == [0, 1]
    assert sum(len(batch) for batch in first_rows(batches(), None)) == 36


def test_data_frame_of_numbers_becomes_one_matrix_that_does_not_change_with_the_frame():
    frame = pd.DataFrame({"a": [1.0, 2.0], 7: [3, 4], "c": [True, False], "empty": [np.nan, np.nan]})
    batch = table_batch(frame, "test")
    assert batch.matrix is not None
    frame.loc[0, "a"] = -1.0
    expected = [[1.0, 3.0, 1.0], [2.0, 4.0, 0.0]]
    np.testing.assert_array_equal(batch.to_matrix(["a", "7", "c"]), expected)
    assert batch.kind("empty") == "unknown"
    assert list(memory_batch(frame, "test").columns) == ["a", "7", "c"]
    assert memory_batch(frame, "test", ["a", "7", "c", "empty"]).matrix is not None
