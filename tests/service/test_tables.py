"""A served StreamClassifier learns tables as in Python: categories, missing values, dates, late columns."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from steelyard import StreamClassifier, TableModel
from steelyard.cli import main
from steelyard.exceptions import DataError, ParameterError
from steelyard.persistence import from_bytes
from steelyard.service import Engine, Spec
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Learn, Put
from tests.runner import cli_runner
from tests.service.data import spec
from tests.service.sessions import ModelSession

N_ROWS = 600
CHUNK = 100
LEARNER = {"class": "StreamClassifier"}


def table(seed=0, n_rows=N_ROWS):
    """Return rows with numbers, missing values, categories, booleans, dates and a label."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n_rows) < 0.2
    amount = np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(fraud, 1.0).round(3))
    country = rng.choice(["DE", "FR", "NZ"], n_rows, p=[0.5, 0.3, 0.2]).astype(object)
    country[rng.random(n_rows) < 0.1] = None
    return pd.DataFrame(
        {
            "amount": amount,
            "country": country,
            "online": rng.random(n_rows) < np.where(fraud, 0.7, 0.3),
            "at": pd.Timestamp("2026-01-05") + pd.to_timedelta(rng.integers(0, 10**6, n_rows), unit="s"),
            "device": rng.choice([f"d{k}" for k in range(1500)], n_rows),
            "label": np.where(fraud, "fraud", "ok"),
        }
    )


def body(frame, form):
    """Return the rows as the body of a request."""
    if form == "arrow":
        arrow = pa.Table.from_pandas(frame, preserve_index=False)
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow.schema) as writer:
            writer.write_table(arrow)
        return sink.getvalue()
    records = json.loads(frame.to_json(orient="records", date_format="iso", date_unit="s"))
    return json.dumps({"rows": records}).encode()


def batch(engine, frame, form="json"):
    return wire.from_body(body(frame, form), form, engine.text_columns)


def in_python(frame, chunk=CHUNK):
    model = StreamClassifier()
    for begin in range(0, len(frame), chunk):
        part = frame.iloc[begin : begin + chunk]
        rows, labels = part.drop(columns="label"), part["label"].to_numpy()
        if begin:
            model.predict(rows)  # the service predicts every row before it learns it
        model.partial_fit(rows, labels)
    return model


def served(frame, form, **settings):
    engine = Engine("m", spec(target="label", subject=None, id=None, learner=LEARNER, **settings))
    for begin in range(0, len(frame), CHUNK):
        engine.learn(batch(engine, frame.iloc[begin : begin + CHUNK], form), at=0.0)
    return engine


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_served_classifier_predicts_like_a_classifier_in_python(form):
    frame, new = table(), table(seed=1, n_rows=80).drop(columns="label")
    model, engine = in_python(frame), served(frame, form)
    answers, proba = engine.published().predict(batch(engine, new, form))
    np.testing.assert_array_equal(answers.scores[:, 1], model.decision_function(new))
    np.testing.assert_array_equal(proba, model.predict_proba(new))
    assert answers.labels.tolist() == model.predict(new).tolist()
    assert engine.column_kinds()["at"] == "time"
    assert engine.learner.positive_ == model.positive_ == "fraud"


def test_command_line_predicts_like_python(tmp_path):
    frame, new = table(), table(seed=1, n_rows=80).drop(columns="label")
    frame, new = frame.drop(columns="device"), new.drop(columns="device")
    frame.to_parquet(tmp_path / "rows.parquet")
    new.to_parquet(tmp_path / "new.parquet")
    model = StreamClassifier().partial_fit(frame.drop(columns="label"), frame["label"].to_numpy())
    words = ["fit", str(tmp_path / "rows.parquet"), "--target", "label", "-o", str(tmp_path / "m")]
    assert cli_runner().invoke(main, words).exit_code == 0
    loaded = from_bytes((tmp_path / "m").read_bytes())
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    by_file = loaded.predict_proba(str(tmp_path / "new.parquet"))
    np.testing.assert_array_equal(by_file, model.predict_proba(new))


def test_stored_rows_and_snapshot_give_the_same_model(tmp_path):
    frame = table()
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(target="label", subject=None, id=None, learner=LEARNER)))
    engine = session.writer.sessions["m"].engine
    for begin in range(0, 300, CHUNK):
        form = "arrow" if begin == 0 else "json"
        session.do(Learn("m", batch(engine, frame.iloc[begin : begin + CHUNK], form)))
    digest = session.model().summary()["digest"]
    assert session.again().model().summary()["digest"] == digest
    new = table(seed=1, n_rows=50).drop(columns="label")
    answers, _ = session.again().model().predict(batch(engine, new))
    np.testing.assert_array_equal(answers.scores[:, 1], in_python(frame[:300]).decision_function(new))


def test_columns_may_appear_and_vanish():
    frame = table()
    early, late = frame.iloc[:300].drop(columns=["country", "at"]), frame.iloc[300:].drop(columns="amount")
    model = in_python(early)
    for begin in range(0, 300, CHUNK):
        part = late.iloc[begin : begin + CHUNK]
        model.predict(part.drop(columns="label"))
        model.partial_fit(part.drop(columns="label"), part["label"].to_numpy())
    engine = served(early, "json")
    for begin in range(0, 300, CHUNK):
        engine.learn(batch(engine, late.iloc[begin : begin + CHUNK]), at=0.0)
    new = table(seed=1, n_rows=50).drop(columns=["label", "online"])
    answers, _ = engine.published().predict(batch(engine, new))
    np.testing.assert_array_equal(answers.scores[:, 1], model.decision_function(new))


def test_column_without_values_at_first_gets_its_kind_later():
    frame = table()
    first = frame.iloc[:CHUNK].assign(country=None)
    engine = served(first, "json")
    engine.learn(batch(engine, frame.iloc[CHUNK : 2 * CHUNK]), at=0.0)
    assert engine.column_kinds()["country"] == "category"
    expected = in_python(pd.concat([first, frame.iloc[CHUNK : 2 * CHUNK]]))
    new = table(seed=1, n_rows=50).drop(columns="label")
    answers, _ = engine.published().predict(batch(engine, new))
    np.testing.assert_array_equal(answers.scores[:, 1], expected.decision_function(new))


def test_rows_without_any_known_column_are_refused():
    engine = served(table(), "json")
    with pytest.raises(DataError, match="the column 'amount' is missing"):
        engine.published().predict(wire.from_records([{"amuont": 1.0}]))


@pytest.mark.parametrize("learner", ["ProximalSVC", "IncrementalSVC", "KOIL", "EnclosingClassifier"])
def test_other_learners_treat_missing_values_and_late_columns_like_table_model(learner):
    frame = table(n_rows=200).drop(columns="device")
    engine = Engine("m", spec(target="label", subject=None, id=None, learner={"class": learner}))
    model = TableModel(type(engine.learner)(**engine.learner.get_params(deep=False)))
    early = frame.iloc[:100].drop(columns="amount")
    for part in (early, frame.iloc[100:]):
        engine.learn(batch(engine, part), at=0.0)
        model.partial_fit(part.drop(columns="label"), part["label"].to_numpy())
    new = table(seed=1, n_rows=30).drop(columns=["label", "device"])
    answers, _ = engine.published().predict(batch(engine, new))
    np.testing.assert_array_equal(answers.scores[:, 1], model.decision_function(new))


def test_forgotten_category_leaves_no_text_in_the_model(tmp_path):
    frame = table(n_rows=200).drop(columns="device").assign(row=[f"r{k}" for k in range(200)])
    frame.loc[7, "country"] = "XK"
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(target="label", subject=None, id="row", learner=LEARNER)))
    engine = session.writer.sessions["m"].engine
    session.do(Learn("m", batch(engine, frame)))
    assert "XK" in session.model().learner._schema.codes["country"]
    certificate = session.do(Forget("m", ids=["r7"]))["certificate"]
    assert certificate["categories_kept"] == []
    codes = session.again().model().learner._schema.codes["country"]
    assert "XK" not in codes
    assert {"DE", "FR", "NZ"} <= codes.keys()


def test_explanations_and_importance_name_the_columns_of_the_table():
    engine = served(table().drop(columns="device"), "json")
    model = engine.published()
    rows = model.explain(batch(engine, table(seed=2, n_rows=2).drop(columns="label")))
    names = ["amount", "country", "online", "at"]
    assert {entry["column"] for entry in model.importance()} == set(names)
    assert len(rows) == 2
    json.dumps(rows, allow_nan=False)


def test_settings_that_are_not_given_stay_as_they_were_stored(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    old = {"class": "IncrementalSVC"}
    session.do(Put("m", spec(learner=old, missing="refuse")))
    answer = session.do(Put("m", spec(memory="all")))
    assert (answer["spec"]["missing"], answer["spec"]["learner"]) == ("refuse", old)
    assert session.again().model().spec.missing == "refuse"
    with pytest.raises(ParameterError, match="missing cannot be changed"):
        session.do(Put("m", spec(missing="zero")))


def test_federated_model_of_version_0_2_loads():
    stored = {"target": "ill", "sites": True, "rows": "none", "missing": "refuse"}
    assert Spec.from_store(stored).missing == "refuse"
    with pytest.raises(ParameterError, match="has no effect"):
        Spec.from_mapping({"target": "ill", "sites": True, "missing": "mean"})
