"""Codes of the labels of a stream, in order of appearance, and labels from scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard._labels import LabelEncoder
from steelyard.cli.registry import LEARNERS, make_models
from steelyard.streams import ArrayStream
from steelyard.streams.chunks import Chunk
from steelyard.streams.predictions import learn_chunk, predict_chunk
from steelyard.tables import open_stream

whole = st.lists(st.lists(st.integers(-5, 20_000) | st.sampled_from([0, 1]), max_size=20), max_size=6)
texts = st.lists(st.lists(st.sampled_from(["a", "b", "cc", "", "ü"]), max_size=20), max_size=6)


@given(whole | texts)
def test_label_codes_follow_order_of_first_appearance_for_any_chunks(parts):
    table = LabelEncoder()
    codes = [table.codes(np.array(part)).tolist() if part else [] for part in parts]
    flat = [label for part in parts for label in part]
    assert table.labels == list(dict.fromkeys(flat))
    assert [code for part in codes for code in part] == [table.labels.index(label) for label in flat]


@given(texts)
def test_label_codes_of_lists_equal_those_of_string_arrays(parts):
    one, other = LabelEncoder(), LabelEncoder()
    for part in parts:
        if part:
            assert one.codes(np.array(part)).tolist() == other.numbers(part).tolist()


def test_learning_chunks_with_codes_equals_learning_labels(rng):
    X = rng.normal(size=(90, 3))
    y = rng.choice(["x", "yy", "z"], size=90)
    table = LabelEncoder()
    by_numbers, by_labels = ProximalSVC(), ProximalSVC()
    for begin in range(0, 90, 30):
        part = slice(begin, begin + 30)
        learn_chunk(by_numbers, Chunk(X[part], y[part], begin, codes=table.codes(y[part]), table=table))
        by_labels.partial_fit(X[part], y[part])
    np.testing.assert_array_equal(by_numbers.coef_, by_labels.coef_)
    assert by_numbers.classes_.tolist() == by_labels.classes_.tolist()


def test_table_stream_encodes_labels():
    frame = {"a": [1.0, 2.0, 3.0, 4.0], "y": ["ok", "bad", "ok", "odd"]}
    first, second = open_stream(frame, "y", chunk=2)
    assert first.codes.tolist() == [0, 1]
    assert second.codes.tolist() == [0, 2]
    assert second.table.labels == ["ok", "bad", "odd"]
    assert second.take(1, 2).codes.tolist() == [2]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_labels_derived_from_scores_equal_predict_of_every_learner(name, n_classes):
    """This includes rows far from the training data and models with a single class."""
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, size=120)
    X = rng.normal(size=(120, 3)) + y[:, None]
    model = make_models([name], {})[name].fit(X, y)
    probe = np.vstack([X, 30.0 * rng.normal(size=(50, 3)), np.zeros((1, 3))])
    (chunk,) = ArrayStream(probe, np.zeros(len(probe), dtype=int))
    np.testing.assert_array_equal(predict_chunk(model, chunk).labels, model.predict(probe))
