"""TableEncoder: growing and fixed width, missing values, saving."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.tables import TableEncoder, TableModel, open_stream


def _frame(values, **columns):
    return pd.DataFrame({"a": values, **columns, "y": np.arange(len(values)) % 2})


def _read(frame, **options):
    stream = open_stream(frame, "y", **options)
    return stream, list(stream)


def test_new_category_adds_a_feature_at_the_end():
    stream, chunks = _read(_frame([1.0, 2.0, 3.0], c=["x", "x", "z"]), chunk=2)
    assert [chunk.X.shape[1] for chunk in chunks] == [2, 3]
    assert stream.feature_names == ["a", "c=x", "c=z"]


def test_fixed_width_encoding_of_many_categories_has_constant_width():
    _, chunks = _read(_frame(np.zeros(60), c=[f"v{i}" for i in range(60)]), chunk=7)
    assert {chunk.fixed.shape[1] for chunk in chunks} == {1 + 32}
    assert all((np.abs(chunk.fixed).sum(axis=1) == 1).all() for chunk in chunks)


def test_table_of_numbers_has_no_fixed_width_encoding():
    _, chunks = _read(_frame([1.0, 2.0]))
    assert chunks[0].fixed is None


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.sampled_from([None, "p", "q", "r", "s"]), min_size=4, max_size=40),
    chunk=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_encoding_does_not_depend_on_chunks(values, chunk, seed):
    rng = np.random.default_rng(seed)
    numbers = np.where(rng.random(len(values)) < 0.3, np.nan, rng.normal(size=len(values)))
    frame = _frame(numbers, c=pd.Series(values, dtype=object), d=pd.Series(values[::-1], dtype=object))
    if frame["c"].isna().all():
        return
    whole_stream, (whole,) = _read(frame, missing="mean")
    stream, chunks = _read(frame, missing="mean", chunk=chunk)
    width = whole.X.shape[1]
    X = np.vstack([np.pad(c.X, ((0, 0), (0, width - c.X.shape[1]))) for c in chunks])
    np.testing.assert_array_equal(X, whole.X)
    np.testing.assert_array_equal(np.vstack([c.fixed for c in chunks]), whole.fixed)
    assert stream.feature_names == whole_stream.feature_names


def test_missing_value_raises_with_row_and_column():
    with pytest.raises(DataError, match="row 2, column 'a': a value is missing"):
        _read(_frame([1.0, 2.0, np.nan, 4.0]), missing="refuse")
    with pytest.raises(DataError, match="row 1, column 'c': a value is missing"):
        _read(_frame([1.0, 2.0], c=["x", None]), missing="refuse")


def test_missing_mean_replaces_missing_values_by_mean_of_earlier_values():
    _, (chunk,) = _read(_frame([np.nan, 2.0, np.nan, 6.0, np.nan]), missing="mean")
    assert chunk.X[:, 0].tolist() == [0.0, 2.0, 2.0, 6.0, 4.0]


def test_missing_zero_replaces_missing_values_by_zero():
    _, (chunk,) = _read(_frame([np.nan, 2.0], c=["x", None]), missing="zero")
    assert chunk.X.tolist() == [[0.0, 1.0], [2.0, 0.0]]


def test_too_many_categories_raise_even_if_categorical_is_given():
    with pytest.raises(DataError, match="column 'c' has more than 1,000 distinct values"):
        _read(_frame(np.zeros(1500), c=[f"id{i}" for i in range(1500)]), chunk=500, categorical="c")


def test_loaded_encoder_continues_like_original():
    frame = _frame([1.0, np.nan, 3.0, np.nan], c=["x", "z", "w", "x"])
    stream, _ = _read(frame, missing="mean")
    again = from_bytes(to_bytes(stream.encoder))
    assert again.feature_names == stream.encoder.feature_names
    rows = pd.DataFrame({"c": ["w", "new"], "a": [np.nan, 5.0]})
    (chunk,) = open_stream(rows, None, encoder=again)
    assert chunk.X.tolist() == [[2.0, 0.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]]
    assert again.feature_names == stream.encoder.feature_names


def test_text_in_column_fitted_as_numbers_raises():
    stream, _ = _read(_frame([1.0, 2.0]))
    with pytest.raises(DataError, match="row 0, column 'a': expected a number; got 'lots'"):
        list(open_stream(pd.DataFrame({"a": ["lots"]}), None, encoder=stream.encoder))


def test_text_in_column_of_numbers_raises_with_its_row_even_after_missing_values():
    model = TableModel(ProximalSVC()).fit(pd.DataFrame({"a": [1.0, 2.0]}), ["n", "y"])
    with pytest.raises(DataError, match="row 2, column 'a': expected a number; got 'lots'"):
        model.predict([{"a": None}, {"a": "1"}, {"a": "lots"}])


def test_erased_category_that_looks_like_a_placeholder_keeps_its_feature():
    stream, _ = _read(_frame([1.0, 2.0, 3.0], c=["x", "(erased 0)", "z"]))
    encoder = stream.encoder.copy()
    encoder.erase_categories([("c", "x"), ("c", "z")])
    assert encoder.categories_ == [("c", "(erased 0)'"), ("c", "(erased 0)"), ("c", "(erased 2)")]
    assert stream.encoder.categories_ == [("c", "x"), ("c", "(erased 0)"), ("c", "z")]


def test_invalid_missing_parameter_raises():
    with pytest.raises(ValueError, match="missing must be 'indicator', 'refuse', 'mean' or 'zero'; got"):
        list(open_stream(_frame([1.0]), "y", encoder=TableEncoder(missing="guess")))


def test_failing_merge_leaves_table_model_unchanged():
    def taught(C, kind):
        table = pd.DataFrame({"a": [float(kind == "z"), 2.0, 3.0], "kind": ["x", kind, "x"], "y": [0, 1, 1]})
        stream = open_stream(table, "y")
        model = TableModel(ProximalSVC(C=C), stream.encoder, "y")
        model.learn(stream)
        return model

    model = taught(1.0, "z")
    before = to_bytes(model)
    with pytest.raises(DataError, match="fold statistics"):
        model.merge(taught("auto", "w"))
    assert to_bytes(model) == before


def test_comparing_models_keeps_the_running_means():
    def model(values):
        table = {"a": values, "label": ["x", "y"] * 2}
        return TableModel(ProximalSVC(), TableEncoder(missing="mean")).fit(pd.DataFrame(table))

    now, before = model([1.0, 2.0, 3.0, 6.0]), model([10.0, 20.0, 30.0, 60.0])
    now.drift_report(before)
    assert now.encoder.fill_of("a") == 3.0
    assert now.merge(before).encoder.fill_of("a") == 16.5
