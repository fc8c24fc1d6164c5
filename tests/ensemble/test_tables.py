"""StreamClassifier on tables: text, dates, missing values, late columns and categories."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier, TableModel
from steelyard.ensemble.layout import Layout
from steelyard.exceptions import DataError, ParameterError
from steelyard.persistence import from_bytes, to_bytes

N = 1200


@pytest.fixture(scope="module")
def payments():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(N) < 0.15, "fraud", "ok")
    is_fraud = y == "fraud"
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=N) + is_fraud,
            "country": rng.choice(["NZ", "AU", "US"], N),
            "kind": pd.Categorical(np.where(is_fraud & (rng.random(N) < 0.7), "web", "shop")),
            "at": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(N), unit="h"),
            "vip": rng.random(N) < 0.2,
        }
    )
    frame.loc[rng.random(N) < 0.2, "amount"] = np.nan
    frame.loc[rng.random(N) < 0.1, "country"] = None
    frame.loc[rng.random(N) < 0.1, "at"] = pd.NaT
    return frame, y


def learned(frame, y, end=1000, convert=lambda part: part, **options):
    model = StreamClassifier(**options)
    for begin in range(0, end, 100):
        model.partial_fit(convert(frame.iloc[begin : begin + 100]), y[begin : begin + 100])
    return model


@pytest.fixture(scope="module")
def model(payments):
    return learned(*payments)


def test_table_with_text_dates_and_missing_values_is_learned(payments, model):
    frame, y = payments
    assert roc_auc_score(y[1000:] == "ok", model.decision_function(frame.iloc[1000:])) > 0.85
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.predict_proba(frame.iloc[1000:]).mean(axis=0)[0] == pytest.approx(0.15, abs=0.06)


@pytest.mark.parametrize(
    "convert",
    [
        pl.from_pandas,
        lambda part: pa.Table.from_pandas(part, preserve_index=False),
        lambda part: part.to_dict("records"),
        lambda part: part[["vip", "at", "kind", "country", "amount"]],
        lambda part: part.to_numpy(dtype=object),
    ],
    ids=["polars", "arrow", "dicts", "other order", "object array"],
)
def test_every_table_type_gives_the_same_scores(payments, convert):
    frame, y = payments
    expected = learned(frame, y, 400).decision_function(frame.iloc[400:500])
    if convert(frame.iloc[:1]) is not None and isinstance(convert(frame.iloc[:1]), pd.DataFrame):
        later = learned(frame, y, 300).partial_fit(convert(frame.iloc[300:400]), y[300:400])
        found = later.decision_function(convert(frame.iloc[400:500]))
    else:
        found = learned(frame, y, 400, convert).decision_function(convert(frame.iloc[400:500]))
    np.testing.assert_array_equal(found, expected)


def test_numeric_data_frame_and_array_give_bit_identical_scores(payments):
    _, y = payments
    X = np.random.default_rng(1).normal(size=(500, 3))
    by_name, by_place = StreamClassifier(), StreamClassifier()
    for begin in range(0, 400, 100):
        rows = slice(begin, begin + 100)
        by_name.partial_fit(pd.DataFrame(X[rows], columns=list("abc")), y[rows])
        by_place.partial_fit(X[rows], y[rows])
    found = by_name.decision_function(pd.DataFrame(X[400:], columns=list("abc")))
    np.testing.assert_array_equal(found, by_place.decision_function(X[400:]))


def test_copied_and_loaded_models_continue_bit_identically(payments, model):
    frame, y = payments
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), from_bytes(to_bytes(model))]
    later = frame.iloc[1000:1100].assign(late=1.5, city="Perth", country="FR").drop(columns="vip")
    for other in copies:
        other.partial_fit(later, y[1000:1100])
    scores = [other.decision_function(frame.iloc[1100:]) for other in copies]
    for found in scores[1:]:
        np.testing.assert_array_equal(found, scores[0])


def test_late_columns_and_categories_are_learned_and_forgotten(payments, model):
    frame, y = payments
    grown = copy.deepcopy(model)
    n_before = grown.class_count_.sum()
    later = frame.iloc[1000:1100].assign(late=np.arange(100.0), city="Perth", country="FR")
    grown.partial_fit(later, y[1000:1100])
    assert grown.feature_names_in_.tolist()[-2:] == ["late", "city"]
    grown.forget(frame.iloc[:500], y[:500])
    grown.forget(later, y[1000:1100])
    assert grown.class_count_.sum() == n_before - 500
    assert grown.predict(frame.iloc[:1]).shape == (1,)
    with pytest.raises(DataError, match="'country' that was never learned"):
        grown.forget(frame.iloc[600:605].assign(country="XX"), y[600:605])


def test_linear_expert_is_same_after_forgetting_rows_at_once_or_in_parts(payments):
    frame, y = payments
    whole = learned(frame, y, 600)
    whole.forget(frame.iloc[200:300], y[200:300])
    other = learned(frame, y, 600)
    for begin in range(200, 300, 20):
        other.forget(frame.iloc[begin : begin + 20], y[begin : begin + 20])
    assert whole.linear_.digest() == other.linear_.digest()


def test_nan_in_an_array_is_a_missing_value():
    rng = np.random.default_rng(2)
    y = (rng.random(800) < 0.3).astype(int)
    X = rng.normal(size=(800, 4)) + 1.5 * y[:, None]
    gappy = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    model = StreamClassifier().fit(X[:300], y[:300])  # the first missing value comes later
    model.partial_fit(gappy[300:600], y[300:600])
    assert roc_auc_score(y[600:], model.decision_function(gappy[600:])) > 0.9
    np.testing.assert_allclose(
        model.decision_function(gappy[600:601]), model.decision_function(gappy[600:])[:1], rtol=1e-12
    )
    model.forget(gappy[300:350], y[300:350])
    with pytest.raises(DataError, match="inf") as error:
        model.predict(np.full((1, 4), np.inf))
    assert "np.isinf" in str(error.value)
    X = np.where(np.isinf(X), np.nan, X)  # the hint can be followed


def test_wide_table_is_hashed_and_rows_can_be_forgotten():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(300, 280)), columns=[f"c{k}" for k in range(280)])
    frame["text"] = rng.choice(["a", "b"], 300)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    y = rng.integers(0, 2, 300)
    model = StreamClassifier().partial_fit(frame.iloc[:200], y[:200])
    model.partial_fit(frame.iloc[200:].assign(late="x"), y[200:])
    model.forget(frame.iloc[:50], y[:50])
    stored = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(stored.decision_function(frame), model.decision_function(frame))


def test_arrays_and_tables_can_be_mixed_only_if_columns_match(payments, model):
    _, y = payments
    with pytest.raises(DataError, match="pass a table with these columns"):
        model.predict(np.zeros((2, 5)))
    numbers = StreamClassifier().fit(np.random.default_rng(0).normal(size=(50, 2)), y[:50])
    assert len(numbers.predict(pd.DataFrame({"a": [1.0], "b": [2.0]}))) == 1
    with pytest.raises(DataError, match="'a' contains no numbers"):
        numbers.predict(pd.DataFrame({"a": ["x"], "b": [2.0]}))
    with pytest.raises(DataError, match="3 features"):
        numbers.predict(pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0]}))
    named = StreamClassifier().fit(pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0)}), y[:50])
    assert len(named.predict(np.zeros((2, 2)))) == 2


def test_failed_call_does_not_change_the_model(payments, model):
    frame, y = payments
    before = to_bytes(model)
    with pytest.raises(DataError, match="inf"):
        model.partial_fit(frame.iloc[:5].assign(amount=np.inf, city="x"), y[:5])
    with pytest.raises(DataError, match="contained numbers before"):
        model.partial_fit(frame.iloc[:5].assign(amount="many"), y[:5])
    assert to_bytes(model) == before


def test_table_with_many_classes_is_learned():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 22, 1100)
    frame = pd.DataFrame({"x": y + rng.normal(size=1100), "c": np.char.add("v", (y // 4).astype(str))})
    frame.loc[rng.random(1100) < 0.1, "x"] = np.nan
    model = StreamClassifier().fit(frame.iloc[:900], y[:900])
    assert (model.predict(frame.iloc[900:]) == y[900:]).mean() > 0.3
    assert model.positive_ is None


def test_tables_can_be_predicted_while_another_thread_learns(payments):
    frame, y = payments
    model, errors = learned(frame, y, 300), []

    def predict():
        try:
            for _ in range(10):
                model.predict(frame.iloc[:20])
        except Exception as error:  # noqa: BLE001  reported below
            errors.append(error)

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    model.partial_fit(frame.iloc[300:400].assign(city="x"), y[300:400])
    model.partial_fit(frame.iloc[400:500].assign(late=1.0), y[400:500])
    for thread in threads:
        thread.join()
    assert errors == []


cells = st.sampled_from([np.nan, 0.0, 1.0, 2.5, -3.0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_extending_layout_does_not_change_features_of_earlier_rows(data):
    chunks, width = [], data.draw(st.integers(1, 3))
    for _ in range(data.draw(st.integers(1, 4))):
        width += data.draw(st.integers(0, 2))
        rows = data.draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4))
        chunks.append(np.abs(np.array(rows)))
    categorical = tuple(range(0, width, 2))
    layout, earlier, expanded = None, np.zeros((0, 0)), []
    for chunk in chunks:
        known = tuple(column for column in categorical if column < chunk.shape[1])
        first = Layout.of_rows(chunk, known) if layout is None else layout
        padded = np.full((len(earlier), chunk.shape[1]), np.nan)
        padded[:, : earlier.shape[1]] = earlier
        layout = first.extended(chunk, padded, known)
        earlier = np.concatenate([padded, chunk])
        expanded.append(layout.expand(chunk))
        assert np.isfinite(expanded[-1]).all()
    assert layout is not None
    now = layout.expand(earlier)
    expected = [np.pad(rows, ((0, 0), (0, layout.width - rows.shape[1]))) for rows in expanded]
    np.testing.assert_array_equal(now, np.concatenate(expected))
    np.testing.assert_array_equal(Layout.from_state(layout.get_state()).expand(earlier), now)


def test_very_many_categories_share_hashed_features():
    codes = np.arange(1000.0)[:, None]
    layout = Layout.of_rows(codes, (0,)).extended(codes, codes[:0], (0,))
    rows = layout.expand(codes)
    assert layout.width < 350
    assert (rows.sum(axis=1) == 1.0).all()


# -- positive class ----------------------------------------------------------------------------------


def alarms(labels, goal, wrapper, positive=None):
    rng = np.random.default_rng(5)
    rare = rng.random(1500) < 0.1
    X = rng.normal(size=(1500, 3)) + 1.2 * rare[:, None]
    y = np.where(rare, labels[0], labels[1])
    options = {"threshold": goal, "positive": positive}
    model = AdaptiveThresholdClassifier(ProximalSVC(), **options) if wrapper else StreamClassifier(**options)
    for begin in range(0, 1200, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    model = from_bytes(to_bytes(model))
    return model.positive_, (model.predict(X[1200:]) == labels[0]).tolist()


@pytest.mark.parametrize("wrapper", [False, True])
@pytest.mark.parametrize("goal", [{"alarms": 0.05}, {"miss": 20, "alarm": 1}, "f1"])
def test_threshold_goal_applies_to_rare_class_independent_of_its_label(goal, wrapper):
    positive, found = alarms(("fraud", "ok"), goal, wrapper)
    assert positive == "fraud"
    other, expected = alarms(("yes", "no"), goal, wrapper)
    assert other == "yes"
    assert found == expected
    assert alarms((1, 0), goal, wrapper) == (1, expected)


def test_threshold_goal_applies_to_given_positive_class():
    positive, found = alarms(("fraud", "ok"), {"alarms": 0.05}, False, positive="ok")
    assert positive == "ok"
    assert 1.0 - np.mean(found) < 0.1
    assert alarms((1, 0), {"alarms": 0.05}, False, positive="0")[0] == 0


@pytest.mark.parametrize("wrapper", [False, True])
def test_unknown_positive_class_warns_and_no_class_is_positive(wrapper):
    message = r"positive='Fraud' is neither of the two classes so far, \['fraud', 'ok'\]"
    with pytest.warns(UserWarning, match=message):
        positive, _ = alarms(("fraud", "ok"), "gmean", wrapper, positive="Fraud")
    assert positive is None


def test_explain_shows_the_positive_class(payments, model):
    assert model.positive_ == "fraud"
    explanation = model.explain()
    assert explanation.positive == "fraud"
    assert [record.label for record in explanation.classes] == ["fraud"]
    assert "Positive class 'fraud', recently 1" in str(explanation)


# -- errors with hints -------------------------------------------------------------------------------


def test_class_weight_and_merge_raise_with_hint():
    with pytest.raises(ParameterError, match="no parameter class_weight") as error:
        StreamClassifier(class_weight="balanced")
    assert "threshold={" in str(error.value)
    StreamClassifier(threshold={"miss": 20, "alarm": 1})
    assert not hasattr(StreamClassifier(), "merge")
    with pytest.raises(AttributeError, match="ProximalSVC and TableModel"):
        StreamClassifier().merge(StreamClassifier())
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = StreamClassifier().other


def test_forgetting_old_rows_barely_changes_mean_probabilities(payments):
    frame, y = payments
    model = learned(frame, y, 1000)
    before = model.predict_proba(frame.iloc[1000:]).mean(axis=0)
    model.forget(frame.iloc[:600], y[:600])
    np.testing.assert_allclose(model.predict_proba(frame.iloc[1000:]).mean(axis=0), before, atol=0.1)


def test_table_model_passes_tables_to_stream_classifier(payments):
    frame, y = payments
    model = TableModel(StreamClassifier()).fit(frame.iloc[:400], y[:400])
    expected = StreamClassifier().partial_fit(frame.iloc[:400], y[:400])
    rows = frame.iloc[400:500]
    np.testing.assert_array_equal(model.decision_function(rows), expected.decision_function(rows))
    assert model.explain().positive == "fraud"
    stored = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(stored.predict_proba(rows), model.predict_proba(rows))
    assert model.forget(frame.iloc[:100], y[:100]) is model
    assert model.estimator.class_count_.sum() == 300


def test_increasing_time_column_is_not_reported_as_drift(rng):
    n_rows = 3000
    y = (rng.random(n_rows) < 0.1).astype(int)
    moments = pd.date_range("2026-01-01", periods=n_rows, freq="min")
    frame = pd.DataFrame({"amount": rng.normal(size=n_rows) + y, "when": moments})
    model = StreamClassifier()
    for begin in range(0, n_rows, 250):
        model.partial_fit(frame[begin : begin + 250], y[begin : begin + 250])
    assert model.drift_events_ == []


def test_explain_after_a_new_column_that_has_no_ranks_adds_up_to_the_scores():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1200, 3)), columns=["a", "b", "c"])
    y = (frame["a"] > 1.0).to_numpy().astype(int)
    model = StreamClassifier()
    for begin in range(0, 1200, 300):
        model.partial_fit(frame[begin : begin + 300], y[begin : begin + 300])
    wider = frame.assign(d=1.0)[:100]
    model.partial_fit(wider, y[:100])
    found = model.explain(wider[:5], changes=False)
    assert found.contributions.shape == (5, 4)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.base, found.score, atol=1e-9)
