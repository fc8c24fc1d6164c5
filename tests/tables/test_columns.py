"""Column batches: dictionary encoding, slicing and concatenation."""

import numpy as np
import pyarrow as pa
import pytest

from steelyard.tables.arrow_sources import arrow_batch
from steelyard.tables.columns import ColumnBatch

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
