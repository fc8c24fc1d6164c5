"""Missing values in TableEncoder and TableModel: indicators, exact under learning, forgetting and merging."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from steelyard import KOIL, IncrementalSVC, ProximalSVC, StreamClassifier, TableModel
from steelyard.exceptions import DataError, NotFittedError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.tables import open_stream
from steelyard.tables.encoding import TableEncoder

NAN = np.nan


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    y = rng.random(240) < 0.3
    frame = pd.DataFrame({"age": rng.normal(40, 9, 240) + 9 * y, 1: rng.choice(["a", "b"], 240)})
    frame["member"] = rng.random(240) < 0.5
    frame["score"] = np.where(y, rng.normal(3, 1, 240), rng.normal(0, 1, 240))
    return frame.mask(rng.random(frame.shape) < 0.2), y


def test_column_with_missing_value_gets_indicator_and_fixed_replacement():
    frame = pd.DataFrame({"a": [1.0, NAN, 3.0, 8.0], "b": [5.0, 5.0, NAN, 5.0], "y": [0, 1, 0, 1]})
    stream = open_stream(frame, "y")
    (chunk,) = stream
    expected = [[1, 5, 0, 0], [3, 5, 1, 0], [3, 5, 0, 1], [8, 5, 0, 0]]
    np.testing.assert_array_equal(chunk.X, expected)
    np.testing.assert_array_equal(chunk.fixed, expected)
    assert stream.feature_names == ["a", "b", "a=missing", "b=missing"]
    np.testing.assert_array_equal(chunk.columns, frame[["a", "b"]].to_numpy())


def test_late_missing_value_adds_feature_only_for_learners_that_can_grow():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, NAN], "y": [0, 1, 0, 1]})
    stream = open_stream(frame, "y", chunk=2)
    first, second = stream
    assert first.X.tolist() == [[1.0], [2.0]]
    assert second.X.tolist() == [[3.0, 0.0], [1.5, 1.0]]
    assert second.fixed.tolist() == [[3.0], [1.5]]
    state = from_bytes(to_bytes(stream.encoder))
    assert state.feature_names == ["a", "a=missing"]
    assert state.fill_of("a") == 1.5


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, -2.0, 0.0, 1.0, 4.0]),
            st.sampled_from([None, "x", "y"]),
            st.sampled_from([None, 1.0, 2.0]),
            st.booleans(),
        ),
        min_size=6,
        max_size=24,
    ),
    st.data(),
)
def test_digest_after_any_history_with_missing_values_equals_fresh_fit(rows, data):
    frame = pd.DataFrame([row[:3] for row in rows], columns=["a", "c", "b"])
    frame = frame.astype({"a": float, "b": float, "c": object})
    y = np.array([row[3] for row in rows])
    y[:2] = [False, True]
    first = TableModel(ProximalSVC()).fit(frame, y)  # fixes quantizer and replacements
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    cut = data.draw(st.integers(1, len(rows) - 1))
    history = first.unlearned()
    other = first.unlearned()
    history.partial_fit(frame.iloc[order[:cut]], y[order[:cut]])
    other.partial_fit(frame.iloc[order[cut:]], y[order[cut:]])
    history.merge(other)
    assert history.estimator.digest() == first.estimator.digest()
    history.forget(frame.iloc[order[:cut]], y[order[:cut]])
    expected = first.unlearned().partial_fit(frame.iloc[order[cut:]], y[order[cut:]])
    assert history.estimator.digest() == expected.estimator.digest()


def test_merge_of_different_missing_value_replacements_raises_with_hint(people):
    frame, y = people
    ours = TableModel(ProximalSVC()).fit(frame.iloc[:100], y[:100])
    theirs = TableModel(ProximalSVC()).fit(frame.iloc[100:], y[100:])
    with pytest.raises(DataError, match="missing values count as") as error:
        ours.merge(theirs)
    assert 'missing="zero"' in error.value.hint
    zero = [TableModel(ProximalSVC(), TableEncoder("zero")) for _ in range(2)]
    zero[0].fit(frame.iloc[:100], y[:100]).merge(zero[1].fit(frame.iloc[100:], y[100:]))
    theirs = ours.unlearned().partial_fit(frame.iloc[100:], y[100:])  # has the encoder of the other model
    assert ours.merge(theirs).estimator.n_features_in_ == len(ours.get_feature_names_out())


TABLES = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_pandas(
        frame.rename(columns=str).astype({"1": "str", "member": "boolean"})
    ),
    "arrow": lambda frame: pa.Table.from_pandas(
        frame.rename(columns=str).astype({"1": "str", "member": "boolean"}), preserve_index=False
    ),
    "dicts": lambda frame: frame.to_dict("records"),
}


@pytest.mark.parametrize("form", list(TABLES))
@pytest.mark.parametrize(
    "estimator",
    [
        ProximalSVC(),
        IncrementalSVC(gamma=0.01),
        KOIL(gamma=0.01),
        StreamClassifier(),
        SGDClassifier(random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_table_model_is_a_complete_classifier(estimator, form, people):
    frame, y = people
    table = TABLES[form]
    model = clone(TableModel(clone(estimator)))
    with pytest.raises(NotFittedError, match="not learned any rows"):
        model.predict(table(frame))
    model.fit(table(frame.iloc[:200]), y[:200])
    assert model.classes_.dtype == bool
    assert model.predict(table(frame.iloc[200:])).dtype == bool
    assert model.feature_names_in_.tolist() == ["age", "1", "member", "score"]
    assert model.n_features_in_ == 4
    assert len(model.get_feature_names_out()) >= 4
    model.partial_fit(table(frame.iloc[200:].assign(member=None)), y[200:])
    stored = from_bytes(to_bytes(model)) if not isinstance(estimator, SGDClassifier) else deepcopy(model)
    rows = table(frame.drop(columns="age"))
    np.testing.assert_array_equal(stored.decision_function(rows), model.decision_function(rows))
    if hasattr(estimator, "forget"):
        assert model.forget(table(frame.iloc[:50]), y[:50]) is model
        with pytest.raises(DataError):
            model.forget(table(frame.iloc[:50]), ~y[:50])
    assert hasattr(model, "predict_proba") == hasattr(estimator, "predict_proba")


def test_table_model_supports_sample_weights_priors_and_batch_estimators(people):
    frame, y = people
    doubled = TableModel(ProximalSVC()).fit(frame, y, sample_weight=np.full(240, 2.0))
    repeated = TableModel(ProximalSVC()).fit(pd.concat([frame, frame], ignore_index=True), np.tile(y, 2))
    np.testing.assert_allclose(doubled.decision_function(frame), repeated.decision_function(frame), rtol=1e-9)
    assert doubled.forget(frame.iloc[:9], y[:9], np.full(9, 2.0)) is doubled
    shares = doubled.predict_proba(frame).mean(axis=0)
    balanced = doubled.predict_proba(frame, prior="balanced").mean(axis=0)
    assert shares[1] < balanced[1]
    tree = TableModel(DecisionTreeClassifier(random_state=0)).fit(frame, y)
    assert tree.score(frame, y) > 0.9
    assert cross_val_score(TableModel(ProximalSVC()), frame, y, cv=3).mean() > 0.6


def test_table_model_fitted_on_array_names_columns_by_index():
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] > 0
    model = TableModel(ProximalSVC()).fit(X, y)
    assert model.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    X[0, 1] = NAN
    assert len(model.predict(X)) == 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, f, y: m.fit(f.set_axis(["a", "a", "b", "c"], axis=1), y), "two columns have the name 'a'"),
        (lambda m, f, y: m.fit(f, y[:5]), "240 rows but y has 5 labels"),
        (lambda m, f, _: m.fit(f), "requires y"),
        (lambda m, f, y: m.fit(f.assign(age=np.inf), y), "infinite value"),
        (
            lambda m, f, y: m.fit(f, y).predict(pd.DataFrame({"other": [1]})),
            "no column of the table is known",
        ),
        (lambda m, f, y: m.fit(f, y).predict(np.zeros((2, 2))), "has no column 'age'"),
        (lambda m, f, y: m.fit(f, y).partial_fit(f.assign(age="old"), y), "expected a number; got 'old'"),
    ],
)
def test_table_model_invalid_table_raises(call, message, people):
    with pytest.raises(DataError, match=message):
        call(TableModel(ProximalSVC()), *people)


def test_table_model_explain_without_rows_needs_an_ensemble_as_estimator(people):
    with pytest.raises(DataError, match=r"can explain only rows; got no rows"):
        TableModel(ProximalSVC()).fit(*people).explain()
    assert TableModel(StreamClassifier()).fit(*people).explain().experts


def test_encoder_of_earlier_version_loads_without_replacements():
    encoder = TableEncoder("mean")
    list(open_stream(pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}), "y", encoder=encoder))
    state = encoder._get_state()
    del state["fills"], state["first_gaps"]
    restored = TableEncoder("mean")
    restored._set_state(state)
    assert restored.feature_names == ["a"]
