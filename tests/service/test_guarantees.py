"""Guarantees of the service, with SQLite and PostgreSQL: durability, idempotency, exactness, erasure."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.exceptions import DataError
from steelyard.service import Engine, Spec
from steelyard.service.commands import Forget, Label, Learn, Put, Remember, Tick
from steelyard.service.errors import Conflict, Unavailable
from steelyard.service.stored_rows import pack
from steelyard.service.stores import PendingRow
from steelyard.tables.columns import ColumnBatch
from tests.service.data import Clock, records, spec
from tests.service.sessions import ModelSession, batch


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    return session


def fresh(rows, **changes):
    """Return an engine that has learned only ``rows``."""
    engine = Engine("m", spec(**changes))
    engine.learn(batch(rows), at=0.0)
    return engine


# -- durability -------------------------------------------------------------------------------------


def test_acknowledged_rows_survive_restart_without_shutdown(session):
    rows = records(120)
    for begin in range(0, 120, 30):
        session.do(Learn("m", batch(rows[begin : begin + 30])))
    found = session.again().model()
    assert found.version == session.model().version == 4
    assert found.summary() == session.model().summary()


def test_large_batches_of_model_without_stored_rows_are_written_as_snapshots(where):
    session = ModelSession(where)
    settings = Spec.from_mapping({"target": "y", "rows": "none"})
    session.do(Put("m", settings))
    rng, expected = np.random.default_rng(0), Engine("m", settings)
    for n_rows in (50_000, 10_000, 10_000):
        labels = (rng.random(n_rows) < 0.2).astype(float)
        numbers = {f"x{k}": rng.normal(labels) for k in range(8)}
        rows = ColumnBatch({**numbers, "y": labels}, n_rows)
        session.do(Learn("m", rows))
        expected.learn(rows, at=session.clock.now)
        assert list(session.store.chunks("m")) == []
    # The first batch is followed by a regular snapshot. Each later batch replaces the temporary snapshot.
    assert [version for version, *_ in session.store.snapshots("m", 10)] == [3, 1]
    restarted = session.again()
    assert restarted.model().summary()["digest"] == expected.digest()
    assert restarted.model().measures == session.model().measures
    restarted.do(Learn("m", rows.take(0, 100)))
    expected.learn(rows.take(0, 100), at=0.0)
    assert restarted.again().model().summary()["digest"] == expected.digest()


def test_failed_commit_changes_nothing_and_raises(session, monkeypatch):
    session.do(Learn("m", batch(records(50))))
    before = session.model().summary()

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(session.store, "append", full)
    with pytest.raises(Unavailable, match="nothing was changed"):
        session.do(Learn("m", batch(records(5, first=100))))
    monkeypatch.undo()
    assert session.model().summary() == before
    assert session.do(Learn("m", batch(records(5, first=100))))["learned"] == 5


def test_learn_request_with_bad_last_row_changes_nothing(session):
    session.do(Learn("m", batch(records(50))))
    before = session.model().summary()
    bad = records(20, first=50)
    bad[-1]["amount"] = "much"
    with pytest.raises(DataError, match="expected a number; got 'much'"):
        session.do(Learn("m", batch(bad)))
    assert session.model().summary() == before
    assert session.again().model().summary() == before


def test_bad_request_in_committed_group_does_not_affect_other_requests(session):
    good, bad = records(10), records(5, first=50)
    bad[2]["amount"] = "much"
    requests = [Learn("m", batch(good[:5])), Learn("m", batch(bad)), Learn("m", batch(good[5:]))]
    session.writer.process(requests)
    assert [r.future.exception(0) is None for r in requests] == [True, False, True]
    assert session.model().n_rows == 10


# -- idempotency -------------------------------------------------------------------------------------------


def test_repeated_idempotency_key_returns_first_response_and_learns_once(session):
    first = session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    second = session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    third = session.again().do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    assert first == second == third
    assert session.model().n_rows == 30


def test_idempotency_key_used_for_a_different_request_raises(session):
    session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    with pytest.raises(Conflict, match="another request"):
        session.do(Learn("m", batch(records(3, first=90)), key="a", fingerprint="y"))


def test_learn_row_with_known_id_raises(session):
    session.do(Learn("m", batch(records(30))))
    with pytest.raises(Conflict, match="learned before"):
        session.do(Learn("m", batch(records(1))))


# -- exactness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [{"class": "ProximalSVC"}, {"class": "IncrementalSVC", "gamma": 0.5}])
def test_learning_in_batches_equals_one_fit(where, learner):
    session = ModelSession(where)
    session.do(Put("m", spec(learner=learner)))
    rows = records(90)
    for begin, end in ((0, 1), (1, 40), (40, 90)):
        session.do(Learn("m", batch(rows[begin:end])))
    probe = batch(records(20, seed=9))
    mine, _ = session.model().predict(probe)
    theirs, _ = fresh(rows, learner=learner).published().predict(probe)
    assert mine.labels.tolist() == theirs.labels.tolist()
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-6)


def test_row_window_expires_rows_and_survives_restart(where):
    session = ModelSession(where)
    session.do(Put("m", spec(memory=50)))
    rows = records(130)
    for begin in range(0, 130, 13):
        session.do(Learn("m", batch(rows[begin : begin + 13])))
    assert session.model().n_rows == 50
    again = session.again()
    assert again.model().summary() == session.model().summary()
    again.do(Learn("m", batch(records(10, first=500))))
    assert again.model().n_rows == 50


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_row_window_after_restart_equals_uninterrupted_window(where, with_snapshot):
    session, rows = ModelSession(where), records(200)
    session.do(Put("m", spec(memory=50)))
    for begin in range(0, 117, 13):  # the window begins in the middle of a chunk
        session.do(Learn("m", batch(rows[begin : begin + 13])))
    if with_snapshot:
        session.writer.close()
    again = session.again()
    for begin in range(117, 200, 20):
        again.do(Learn("m", batch(rows[begin : begin + 20])))
    assert again.model().n_rows == 50
    first, last = fresh(rows[:13]), fresh(rows[:13])  # the first rows determine the quantizer of both
    for part in (rows[13:150], rows[150:]):
        last.learn(batch(part), at=0.0)
    last.forget(batch(rows[:150]))
    assert first.digest() != last.digest()
    assert again.model().summary()["digest"] == last.digest()


def test_time_window_expires_rows_at_tick(where):
    clock = Clock()
    session = ModelSession(where, clock)
    session.do(Put("m", spec(memory="1h")))
    session.do(Learn("m", batch(records(40))))
    clock.now += 1800
    session.do(Learn("m", batch(records(40, first=40))))
    clock.now += 2000
    session.do(Tick(""))
    session.writer._publish(["m"])
    assert session.model().n_rows == 40


# -- erasure -----------------------------------------------------------------------------------------


def test_forget_subject_removes_it_from_model_and_file(session):
    rows = records(200)
    for row in rows:
        if row["customer"] == "c3":
            row["customer"] = "Customer-of-row"
    session.do(Learn("m", batch(rows)))
    needle = b"Customer-of-row"
    assert needle in session.bytes(), "control: the store contains the text before it is forgotten"
    session.do(Learn("m", batch(records(10, first=300))))
    answer = session.do(Forget("m", subject="Customer-of-row"))
    left = [r for r in rows + records(10, first=300) if r["customer"] != "Customer-of-row"]
    assert answer["forgotten"] == 210 - len(left)
    assert session.model().n_rows == len(left)
    assert session.model().summary()["classes"] == fresh(left).classes()
    assert needle not in session.bytes()
    certificate = answer["certificate"]
    assert certificate["before"]["digest"] != certificate["after"]["digest"]
    assert session.again().model().summary() == session.model().summary()


def test_forget_reports_disk_failure_while_erasing(session, monkeypatch):
    session.do(Learn("m", batch(records(40))))

    def broken():
        raise OSError

    monkeypatch.setattr(session.store, "erase", broken)
    assert session.do(Forget("m", subject="c1"))["erasure_pending"]
    assert session.model().n_rows == sum(row["customer"] != "c1" for row in records(40))


def test_forget_unknown_row_raises_and_keeps_state(session):
    rows = records(30)
    session.do(Learn("m", batch(rows)))
    before = session.model().summary()
    with pytest.raises(Conflict, match="never learned"):
        session.do(Forget("m", batch=batch([{**rows[3], "amount": 99.0}])))
    assert session.do(Forget("m", batch=batch([rows[3]])))["forgotten"] == 1
    with pytest.raises(Conflict, match="never learned"):
        session.do(Forget("m", batch=batch([rows[3]])))
    assert session.do(Forget("m", ids=["r3"]))["forgotten"] == 0
    assert session.model().n_rows == before["rows"] - 1


def test_forget_with_before_time_removes_older_rows(where):
    clock = Clock(100.0)
    session = ModelSession(where, clock)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(20))))
    clock.now = 200.0
    session.do(Learn("m", batch(records(30, first=20))))
    assert session.do(Forget("m", before=150.0))["forgotten"] == 20
    assert session.model().n_rows == 30


# -- delayed labels ------------------------------------------------------------------------------------


def test_delayed_labels_evaluate_stored_prediction_and_are_learned(session):
    rows = records(80)
    session.do(Learn("m", batch(rows[:60])))
    waiting = []
    for row in rows[60:]:
        unlabelled = batch([{k: v for k, v in row.items() if k != "fraud"}])
        answers, _ = session.model().predict(unlabelled)
        extra = {"label": int(answers.labels[0]), "scores": answers.scores[0], "classes": answers.classes}
        waiting.append(PendingRow(row["row"], 0.0, row["customer"], pack(unlabelled, extra)))
    session.do(Remember("m", waiting))
    assert session.store.n_pending("m") == 20
    labels = {row["row"]: row["fraud"] for row in rows[60:]}
    answer = session.do(Label("m", {**labels, "unknown-row": 1}))
    assert (answer["labelled"], answer["unknown"]) == (20, ["unknown-row"])
    assert session.store.n_pending("m") == 0
    assert session.model().summary()["classes"] == fresh(rows).classes()
    assert session.again().model().summary() == session.model().summary()


# -- settings ---------------------------------------------------------------------------------------


def test_put_same_spec_has_no_effect_and_changed_immutable_setting_raises(session):
    session.do(Learn("m", batch(records(50))))
    version = session.model().version
    session.do(Put("m", spec()))
    assert session.model().version == version
    session.do(Put("m", spec(learner={"class": "ProximalSVC", "C": 0.01})))
    assert session.model().learner.C == 0.01
    with pytest.raises(ValueError, match="target cannot be changed"):
        session.do(Put("m", spec(target="country")))
    assert session.again().model().learner.C == 0.01
