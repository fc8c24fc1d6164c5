"""Columns that appear or vanish after the first table of a TableModel."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import KOIL, ProximalSVC, StreamClassifier, TableModel
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.sql import expression
from steelyard.tables.encoding import TableEncoder

NAN = np.nan


def _people(n=240):
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.4
    frame = pd.DataFrame({"age": rng.normal(size=n), "country": rng.choice(["NZ", "AU"], n)})
    frame["score"] = rng.normal(size=n) + 3.0 * y
    frame["plan"] = np.where(rng.random(n) < 0.5, "free", None)
    return frame, y


def test_late_columns_add_features_that_are_zero_in_rows_without_them():
    model = TableModel(ProximalSVC()).fit(pd.DataFrame({"a": [1.0, 2.0, NAN]}), [0, 1, 0])
    model.partial_fit(
        pd.DataFrame({"b": [5.0, 7.0, NAN], "a": [1.0, 1.0, 3.0], "c": ["x", None, "y"]}), [0, 1, 1]
    )
    names = ["a", "a=missing", "b", "b=present", "c=x", "c=y"]
    assert model.get_feature_names_out().tolist() == names
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    rows = pd.DataFrame({"a": [4.0, 4.0], "b": [6.0, NAN], "c": [None, "y"], "unknown": [1, 2]})
    expected = [
        [4, 0, 0, 1, 0, 0],
        [4, 0, 0, 0, 0, 1],
    ]  # the first median of b, 6, is subtracted from its values
    np.testing.assert_array_equal(model.transform(rows), expected)
    np.testing.assert_array_equal(model.transform(pd.DataFrame({"a": [NAN]})), [[1.5, 1, 0, 0, 0, 0]])


@pytest.mark.parametrize("missing", ["indicator", "zero", "mean"])
def test_late_column_equals_a_column_that_was_empty_before(missing):
    frame, y = _people()
    early, late = frame[["age", "country"]][:100], frame[100:]
    model = TableModel(ProximalSVC(), TableEncoder(missing)).fit(early, y[:100]).partial_fit(late, y[100:])
    empty = TableModel(ProximalSVC(), TableEncoder(missing))
    empty.fit(early.assign(score=NAN, plan=None), y[:100]).partial_fit(late, y[100:])
    assert model.estimator.digest() == empty.estimator.digest()
    assert model.score(late, y[100:]) > 0.85
    loaded = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))


_ROW = st.tuples(
    st.sampled_from([None, -2.0, 0.0, 4.0]),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([None, 1.0, 2.5]),
    st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(_ROW, min_size=8, max_size=24), st.data())
def test_digest_after_any_history_with_late_columns_equals_fresh_fit(rows, data):
    frame = pd.DataFrame([row[:3] for row in rows], columns=["a", "c", "b"])
    frame = frame.astype({"a": float, "b": float, "c": object})
    y = np.array([row[3] for row in rows])
    y[:2] = [False, True]
    frame.loc[:3, ["b", "c"]] = None  # the first table has the column a only
    first = TableModel(ProximalSVC()).fit(frame[["a"]][:4], y[:4])
    first.partial_fit(frame[4:], y[4:])  # fixes the columns and the quantizer
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    cut = data.draw(st.integers(1, len(rows) - 1))
    here, there = first.unlearned(), first.unlearned()
    here.partial_fit(frame.iloc[order[:cut]], y[order[:cut]])
    there.partial_fit(frame.iloc[order[cut:]], y[order[cut:]])
    here.merge(there)
    assert here.estimator.digest() == first.estimator.digest()
    here.forget(frame.iloc[order[:cut]], y[order[:cut]])
    expected = first.unlearned().partial_fit(frame.iloc[order[cut:]], y[order[cut:]])
    assert here.estimator.digest() == expected.estimator.digest()


def test_merge_of_models_with_different_late_columns_equals_one_model():
    frame, y = _people()
    base = TableModel(ProximalSVC(), TableEncoder("zero")).fit(frame[["age"]][:80], y[:80])
    here, there = base.unlearned(), base.unlearned()
    here.partial_fit(frame[["age", "score"]][80:160], y[80:160])
    there.partial_fit(frame[["age", "plan"]][160:], y[160:])
    together = base.unlearned().partial_fit(frame[["age", "score"]][80:160], y[80:160])
    together.partial_fit(frame[["age", "plan"]][160:], y[160:])
    assert here.merge(there).estimator.digest() == together.estimator.digest()
    np.testing.assert_array_equal(here.decision_function(frame), together.decision_function(frame))


def test_merge_with_different_replacement_in_a_late_column_raises():
    base = TableModel(ProximalSVC()).fit(pd.DataFrame({"a": [1.0, 2.0]}), [0, 1])
    here = base.unlearned().partial_fit(pd.DataFrame({"a": [1.0], "b": [1.0]}), [0])
    there = base.unlearned().partial_fit(pd.DataFrame({"a": [2.0], "b": [9.0]}), [1])
    with pytest.raises(DataError, match="column 'b': missing values count as"):
        here.merge(there)


def test_encoder_with_missing_refuse_ignores_late_columns():
    model = TableModel(ProximalSVC(), TableEncoder("refuse")).fit(pd.DataFrame({"a": [1.0, 2.0]}), [0, 1])
    model.partial_fit(pd.DataFrame({"a": [1.0], "b": [1.0]}), [0])
    assert model.feature_names_in_.tolist() == ["a"]


@pytest.mark.parametrize(
    "estimator", [KOIL(random_state=0), StreamClassifier()], ids=["KOIL", "StreamClassifier"]
)
def test_estimators_that_cannot_grow_accept_late_columns(estimator):
    frame, y = _people()
    model = TableModel(estimator).fit(frame[["age", "country"]][:100], y[:100])
    model.partial_fit(frame[100:], y[100:])
    assert model.predict(frame.drop(columns="age")).shape == (240,)
    learns_late = isinstance(estimator, StreamClassifier)
    assert (model.score(frame, y) > 0.8) == learns_late
    if learns_late:
        model.forget(frame[100:120], y[100:120])


@pytest.mark.parametrize(
    "estimator", [ProximalSVC(), StreamClassifier()], ids=["ProximalSVC", "StreamClassifier"]
)
def test_explanation_with_missing_values_and_late_columns_adds_up(estimator):
    frame, y = _people()
    frame = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.2)
    model = (
        TableModel(estimator).fit(frame[["age", "country"]][:100], y[:100]).partial_fit(frame[100:], y[100:])
    )
    found = model.explain(frame[:9])
    assert sorted(found.column_names) == sorted(frame.columns)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, found.score, atol=1e-9)


def test_sql_expression_of_table_with_late_columns_gives_scores_of_the_model():
    duckdb = pytest.importorskip("duckdb")
    frame, y = _people()
    frame = frame.rename(columns={"score": "points"})
    frame["points"] = frame["points"].mask(frame["age"] > 1)
    model = TableModel(ProximalSVC()).fit(frame[["age"]][:100], y[:100]).partial_fit(frame[100:], y[100:])
    database = duckdb.connect()
    database.register("people", pa.Table.from_pandas(frame))
    scores = database.sql(expression(model, "people")).df()["score"]
    np.testing.assert_allclose(scores, model.decision_function(frame), atol=1e-9)


def test_set_output_returns_tables_with_feature_names():
    frame, y = _people(60)
    model = TableModel(ProximalSVC()).fit(frame, y).set_output(transform="pandas")
    found = model.transform(frame[5:9])
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
    assert found.index.tolist() == [5, 6, 7, 8]
    assert isinstance(model.set_output(transform="polars").transform(frame), pl.DataFrame)
    assert model.set_output(transform="default").fit_transform(frame, y).shape == (60, found.shape[1])


def test_label_and_time_columns_are_not_features():
    frame, y = _people(60)
    frame["label"], frame["when"] = np.where(y, "yes", "no"), pd.date_range("2026-01-01", periods=60)
    records = frame.to_dict("records")
    model = TableModel(ProximalSVC(), time="when").fit(records).partial_fit(pl.from_pandas(frame))
    assert model.feature_names_in_.tolist() == ["age", "country", "score", "plan"]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.forget(frame, again=True) is model


def test_table_model_update_learns_and_forgets_atomically():
    frame, y = _people()
    model = TableModel(ProximalSVC()).fit(frame[:120], y[:120])
    expected = from_bytes(to_bytes(model)).partial_fit(frame[120:], y[120:])
    expected.forget(frame[:50], y[:50])
    before = model.estimator.digest()
    with pytest.raises(DataError):
        model.update(add=(frame[120:], y[120:]), forget=(frame[:50], ~y[:50]))
    assert model.estimator.digest() == before
    model.update(add=(frame[120:], y[120:]), forget=(frame[:50], y[:50]))
    assert model.estimator.digest() == expected.estimator.digest()
