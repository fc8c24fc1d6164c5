"""Columns of a batch: values told apart, however the rows are cut."""

import numpy as np
import pyarrow as pa
import pytest

from steelyard.tables.arrow_sources import arrow_batch
from steelyard.tables.columns import ColumnBatch

WORDS = ["b", None, "a", "b", "", "a", "c", None]


def told(batch, name="word"):
    values, codes = batch.numbered(name)
    assert len(set(values)) == len(values)
    return [values[code] for code in codes]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS).dictionary_encode(),
        # Arrow allows a dictionary to hold a value twice.
        pa.DictionaryArray.from_arrays([1, None, 2, 0, 3, 2, 4, None], ["b", "b", "a", "", "c"]),
    ],
)
def test_texts_of_arrow_are_told_apart(column):
    batch = arrow_batch({"word": column}, {"word": "text"}, len(WORDS))
    assert told(batch) == batch.columns["word"].tolist() == WORDS


def test_whole_numbers_become_text_exactly():
    batch = arrow_batch({"word": pa.array([2**60 + 1, None, 7])}, {"word": "text"}, 3)
    assert told(batch) == [str(2**60 + 1), None, "7"]


def test_parts_and_joined_rows_are_told_apart_alike():
    coded = arrow_batch({"word": pa.array(WORDS)}, {"word": "text"}, len(WORDS))
    plain = ColumnBatch({"word": np.array(["z", "a", None], dtype=object)}, 3)
    joined = ColumnBatch.joined([coded.take(2, 6), plain, coded.take(5, 99)])
    assert told(joined) == joined.columns["word"].tolist() == [*WORDS[2:6], "z", "a", None, *WORDS[5:]]
    assert told(coded.take(1, 7).take(1, 3)) == WORDS[2:4]


def test_numbers_are_told_apart_as_text():
    batch = ColumnBatch({"word": np.array([1.0, 0.5, np.nan, 1.0])}, 4)
    assert told(batch) == ["1", "0.5", None, "1"]
