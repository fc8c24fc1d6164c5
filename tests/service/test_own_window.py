"""Sliding windows of learners that drop old rows by themselves: store and learner keep the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.service.commands import Challenge, Forget, Label, Learn, Promote, Put, Tick
from steelyard.service.engine import Engine
from steelyard.service.published import digest_of
from steelyard.service.stored_rows import RowWindowIndex
from tests.service.data import spec
from tests.service.sessions import ModelSession, batch

LEARNER = {"class": "StreamClassifier"}
N_BATCH = 40


def rows_of(number, times=None):
    """Return the rows of one batch with numeric features only."""
    rng = np.random.default_rng(number)
    labels = (rng.random(N_BATCH) < 0.2).astype(int)
    X = rng.normal(size=(N_BATCH, 3)) + labels[:, None]
    rows = []
    for k in range(N_BATCH):
        row = {"a": X[k, 0], "b": X[k, 1], "c": X[k, 2], "fraud": int(labels[k])}
        row |= {"customer": f"c{k % 5}", "row": f"r{number}-{k}"}
        rows.append(row if times is None else {**row, "at": float(times[k])})
    return rows


def matrix(rows):
    X = [{name: row[name] for name in row if name in ("a", "b", "c")} for row in rows]
    return X, np.array([row["fraud"] for row in rows])


def start(where, **settings):
    session = ModelSession(where)
    session.do(Put("m", spec(learner=LEARNER, **settings)))
    return session


def stored_rows(session):
    return session.writer.sessions["m"].row_windows.n_rows


def agree(session):
    engine = session.writer.sessions["m"].engine
    return stored_rows(session) == engine.n_rows == int(engine.learner.class_count_.sum())


def test_row_window_of_service_equals_row_window_of_learner(where):
    session, offline = start(where, memory=100), StreamClassifier(window=100)
    for number in range(6):
        rows = rows_of(number)
        session.do(Learn("m", batch(rows)))
        offline.partial_fit(*matrix(rows), time=np.full(N_BATCH, session.clock()))
        assert agree(session)
    session.do(Forget("m", ids=["r5-3", "r5-7"]))
    offline.forget(*matrix([rows_of(5)[3], rows_of(5)[7]]))
    assert digest_of(session.model().learner) == digest_of(offline)
    again = session.again()
    assert digest_of(again.model().learner) == digest_of(offline)
    assert agree(again)
    again.do(Learn("m", batch(rows_of(6))))
    offline.partial_fit(*matrix(rows_of(6)), time=np.full(N_BATCH, session.clock()))
    assert digest_of(again.model().learner) == digest_of(offline)
    assert agree(again)
    assert stored_rows(again) == 98  # the two forgotten rows count until they leave the window


def test_batch_larger_than_the_window_is_reduced_to_its_last_rows(tmp_path):
    session = start(tmp_path / "a.db", memory=30)
    session.do(Learn("m", batch(rows_of(0))))
    assert agree(session)
    assert stored_rows(session) == 30
    assert agree(session.again())


def test_time_window_forgets_late_rows_by_their_own_times(tmp_path):
    session = start(tmp_path / "a.db", time="at", memory="100s", max_future=None)
    session.do(Learn("m", batch(rows_of(0, np.full(N_BATCH, 1_000.0)))))
    session.do(Learn("m", batch(rows_of(1, np.full(N_BATCH, 1_060.0)))))
    session.do(Learn("m", batch(rows_of(2, np.full(N_BATCH, 1_010.0)))))  # late rows
    assert stored_rows(session) == 3 * N_BATCH
    session.do(Learn("m", batch(rows_of(3, np.full(N_BATCH, 1_115.0)))))
    assert agree(session)
    assert stored_rows(session) == 2 * N_BATCH  # times 1,060 and 1,115
    assert agree(session.again())


def test_rows_expire_by_arrival_time_at_the_tick(tmp_path):
    session = start(tmp_path / "a.db", memory="100s")
    session.do(Learn("m", batch(rows_of(0))))
    session.clock.now += 60.0
    session.do(Learn("m", batch(rows_of(1))))
    session.clock.now += 60.0
    session.do(Tick(""))
    assert stored_rows(session) == N_BATCH
    assert agree(session)


def test_corrected_label_is_learned_with_its_row_as_a_new_row(tmp_path):
    session = start(tmp_path / "a.db", memory=100)
    for number in range(2):
        session.do(Learn("m", batch(rows_of(number))))
    before = next(row["fraud"] for row in rows_of(0) if row["row"] == "r0-1")
    assert session.do(Label("m", {"r0-1": 1 - before}, correct=True))["corrected"] == 1
    for number in range(2, 5):
        session.do(Learn("m", batch(rows_of(number))))
        assert agree(session)
    assert session.again().model().summary()["digest"] == session.model().summary()["digest"]


def test_challenger_and_model_keep_same_rows_if_only_one_manages_its_window(tmp_path):
    session = start(tmp_path / "a.db", memory=100)
    session.do(Learn("m", batch(rows_of(0))))
    session.do(Challenge("m", spec(memory=100)))  # a ProximalSVC, for which the engine forgets old rows
    for number in range(1, 5):
        session.do(Learn("m", batch(rows_of(number))))
    engine = session.writer.sessions["m"].engine
    assert engine.challenger is not None
    assert engine.challenger.engine.n_rows == engine.n_rows == 100
    session.do(Promote("m"))
    session.do(Learn("m", batch(rows_of(5))))
    engine = session.writer.sessions["m"].engine
    assert engine.challenger.engine.n_rows == engine.n_rows == stored_rows(session) == 100


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_model_of_an_earlier_version_still_forgets_rows_outside_its_window(
    tmp_path, monkeypatch, has_snapshot
):
    new = Engine.__init__
    monkeypatch.setattr(Engine, "__init__", lambda *a, **k: new(*a, **{**k, "own_window": False}))
    session = start(tmp_path / "a.db", memory=100)
    for number in range(4):
        session.do(Learn("m", batch(rows_of(number))))
    if has_snapshot:
        session.writer.close()  # writes a snapshot
    monkeypatch.undo()
    again = session.again()
    assert again.model().learner.window == "auto"
    again.do(Put("m", spec(learner=LEARNER, memory=100)))  # the same settings again
    again.do(Learn("m", batch(rows_of(4))))
    assert again.model().learner.window == "auto"
    assert agree(again)
    assert stored_rows(again) == 100


def test_window_size_of_served_model_can_be_changed(tmp_path):
    session = start(tmp_path / "a.db", memory=100)
    for number in range(4):
        session.do(Learn("m", batch(rows_of(number))))
    session.do(Put("m", spec(learner=LEARNER, memory=60)))
    assert stored_rows(session) == 60
    assert agree(session)
    session.do(Learn("m", batch(rows_of(5))))
    assert agree(session)
    assert agree(session.again())


def test_repaired_model_contains_the_rows_of_the_window(tmp_path):
    session = start(tmp_path / "a.db", memory=100)
    for number in range(4):
        session.do(Learn("m", batch(rows_of(number))))
    session.writer.repair("m")
    assert agree(session)
    assert isinstance(session.writer.sessions["m"].row_windows, RowWindowIndex)


def test_predictions_of_service_use_the_cost_column(tmp_path):
    learner = {**LEARNER, "threshold": {"miss": 1.0, "alarm": 5.0}}
    session = ModelSession(tmp_path / "a.db")
    session.do(Put("m", spec(learner=learner, cost="c")))
    for number in range(6):
        rows = [{**row, "c": abs(row["c"])} for row in rows_of(number)]
        session.do(Learn("m", batch(rows)))
    test_rows = [{**row, "c": abs(row["c"])} for row in rows_of(7)]
    cheap = session.model().predict(batch([{**row, "c": 0.0} for row in test_rows]))[0].labels
    assert not cheap.any()  # a miss costs nothing
    X = np.array([[row["a"], row["b"], 1e9] for row in test_rows])
    answers, _ = session.model().predict(batch([{**row, "c": 1e9} for row in test_rows]))
    assert answers.labels.tolist() == session.model().learner.predict(X, sample_cost=X[:, 2]).tolist()
    with pytest.raises(Exception, match="'c' must have a number >= 0"):
        session.model().predict(batch([{**row, "c": -1.0} for row in test_rows]))
    with pytest.raises(Exception, match="threshold is given by costs"):
        spec(learner=LEARNER, cost="c")
