"""The five promises of the service, one after the other, in a real file and in a real PostgreSQL."""

from __future__ import annotations

import pytest

from steelyard.exceptions import DataError
from steelyard.service import Engine
from steelyard.service import rows as wire
from steelyard.service.commands import Conflict, Forget, Label, Learn, Put, Remember, Tick, Unavailable
from steelyard.service.store import Waiting
from tests.service.data import Clock, records, spec
from tests.service.sessions import ModelSession, batch


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    return session


def fresh(rows, **changes):
    """A model that only ever saw these rows."""
    engine = Engine("m", spec(**changes))
    engine.learn(batch(rows), at=0.0)
    return engine


# -- acknowledged is kept ---------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_after_a_restart_that_nobody_prepared(session):
    rows = records(120)
    for begin in range(0, 120, 30):
        session.do(Learn("m", batch(rows[begin : begin + 30])))
    found = session.again().model()
    assert found.version == session.model().version == 4
    assert found.facts() == session.model().facts()


def test_a_store_that_fails_to_commit_changes_nothing_and_says_so(session, monkeypatch):
    session.do(Learn("m", batch(records(50))))
    before = session.model().facts()

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(session.store, "append", full)
    with pytest.raises(Unavailable, match="nothing was changed"):
        session.do(Learn("m", batch(records(5, first=100))))
    monkeypatch.undo()
    assert session.model().facts() == before
    assert session.do(Learn("m", batch(records(5, first=100))))["learned"] == 5


def test_a_bad_last_row_changes_nothing(session):
    session.do(Learn("m", batch(records(50))))
    before = session.model().facts()
    bad = records(20, first=50)
    bad[-1]["amount"] = None
    with pytest.raises(DataError, match="missing"):
        session.do(Learn("m", batch(bad)))
    assert session.model().facts() == before
    assert session.again().model().facts() == before


def test_one_bad_request_of_a_group_does_not_harm_the_others(session):
    good, bad = records(10), records(5, first=50)
    bad[2]["amount"] = "much"
    requests = [Learn("m", batch(good[:5])), Learn("m", batch(bad)), Learn("m", batch(good[5:]))]
    session.writer.process(requests)
    assert [r.future.exception(0) is None for r in requests] == [True, False, True]
    assert session.model().n_rows == 10


# -- once -------------------------------------------------------------------------------------------


def test_the_same_key_gets_the_first_answer_again_and_counts_once(session):
    first = session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    second = session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    third = session.again().do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    assert first == second == third
    assert session.model().n_rows == 30


def test_a_key_cannot_be_used_for_something_else(session):
    session.do(Learn("m", batch(records(30)), key="a", fingerprint="x"))
    with pytest.raises(Conflict, match="another request"):
        session.do(Learn("m", batch(records(3, first=90)), key="a", fingerprint="y"))


def test_an_id_names_one_row(session):
    session.do(Learn("m", batch(records(30))))
    with pytest.raises(Conflict, match="learned before"):
        session.do(Learn("m", batch(records(1))))


# -- exact ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [{"class": "ProximalSVC"}, {"class": "IncrementalSVC", "gamma": 0.5}])
def test_after_learning_in_any_pieces_the_model_is_that_of_one_fit(where, learner):
    session = ModelSession(where)
    session.do(Put("m", spec(learner=learner)))
    rows = records(90)
    for begin, end in ((0, 1), (1, 40), (40, 90)):
        session.do(Learn("m", batch(rows[begin:end])))
    probe = batch(records(20, seed=9))
    mine, _ = session.model().ask(probe)
    theirs, _ = fresh(rows, learner=learner).published().ask(probe)
    assert mine.labels.tolist() == theirs.labels.tolist()
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-6)


def test_a_window_of_rows_forgets_by_itself_and_survives_a_restart(where):
    session = ModelSession(where)
    session.do(Put("m", spec(memory=50)))
    rows = records(130)
    for begin in range(0, 130, 13):
        session.do(Learn("m", batch(rows[begin : begin + 13])))
    assert session.model().n_rows == 50
    again = session.again()
    assert again.model().facts() == session.model().facts()
    again.do(Learn("m", batch(records(10, first=500))))
    assert again.model().n_rows == 50


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_window_goes_on_after_a_restart_as_if_there_had_been_none(where, with_snapshot):
    session, rows = ModelSession(where), records(200)
    session.do(Put("m", spec(memory=50)))
    for begin in range(0, 117, 13):  # the window begins in the middle of what came together
        session.do(Learn("m", batch(rows[begin : begin + 13])))
    if with_snapshot:
        session.writer.close()
    again = session.again()
    for begin in range(117, 200, 20):
        again.do(Learn("m", batch(rows[begin : begin + 20])))
    assert again.model().n_rows == 50
    first, last = fresh(rows[:13]), fresh(rows[:13])  # the first rows settle the grid of both
    for part in (rows[13:150], rows[150:]):
        last.learn(batch(part), at=0.0)
    last.forget(batch(rows[:150]))
    assert first.digest() != last.digest()
    assert again.model().facts()["digest"] == last.digest()


def test_a_window_of_time_lets_go_when_time_has_passed(where):
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


# -- forgotten is gone ------------------------------------------------------------------------------


def test_after_forgetting_a_subject_the_model_never_saw_it_and_the_file_neither(session):
    rows = records(200)
    for row in rows:
        if row["customer"] == "c3":
            row["country"] = "Atlantis-of-c3"
    session.do(Learn("m", batch(rows)))
    needle = b"Atlantis-of-c3"
    assert needle in session.bytes(), "the control: before forgetting it is there"
    session.do(Learn("m", batch(records(10, first=300))))
    answer = session.do(Forget("m", subject="c3"))
    left = [r for r in rows + records(10, first=300) if r["customer"] != "c3"]
    assert answer["forgotten"] == 210 - len(left)
    assert session.model().n_rows == len(left)
    assert session.model().facts()["classes"] == fresh(left).classes()
    kept = session.bytes()
    assert b'"c3"' not in kept
    certificate = answer["certificate"]
    assert certificate["before"]["digest"] != certificate["after"]["digest"]
    assert session.again().model().facts() == session.model().facts()


def test_who_forgets_hears_of_a_disk_that_fails_when_the_rows_are_erased(session, monkeypatch):
    session.do(Learn("m", batch(records(40))))

    def broken():
        raise OSError

    monkeypatch.setattr(session.store, "erase", broken)
    with pytest.raises(Unavailable, match="may still stand in the store's log"):
        session.do(Forget("m", subject="c1"))
    assert session.model().n_rows == sum(row["customer"] != "c1" for row in records(40))


def test_a_row_that_was_never_learned_cannot_be_forgotten(session):
    rows = records(30)
    session.do(Learn("m", batch(rows)))
    before = session.model().facts()
    with pytest.raises(Conflict, match="never learned"):
        session.do(Forget("m", batch=batch([{**rows[3], "amount": 99.0}])))
    assert session.do(Forget("m", batch=batch([rows[3]])))["forgotten"] == 1
    with pytest.raises(Conflict, match="never learned"):
        session.do(Forget("m", batch=batch([rows[3]])))
    assert session.do(Forget("m", ids=["r3"]))["forgotten"] == 0
    assert session.model().n_rows == before["rows"] - 1


def test_forgetting_by_time_takes_what_is_older(where):
    clock = Clock(100.0)
    session = ModelSession(where, clock)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(20))))
    clock.now = 200.0
    session.do(Learn("m", batch(records(30, first=20))))
    assert session.do(Forget("m", before=150.0))["forgotten"] == 20
    assert session.model().n_rows == 30


# -- late labels ------------------------------------------------------------------------------------


def test_late_labels_are_measured_by_the_answer_of_then_and_learned(session):
    rows = records(80)
    session.do(Learn("m", batch(rows[:60])))
    waiting = []
    for row in rows[60:]:
        unlabelled = batch([{k: v for k, v in row.items() if k != "fraud"}])
        answers, _ = session.model().ask(unlabelled)
        extra = {"label": int(answers.labels[0]), "scores": answers.scores[0], "classes": answers.classes}
        waiting.append(Waiting(row["row"], 0.0, row["customer"], wire.pack(unlabelled, extra)))
    session.do(Remember("m", waiting))
    assert session.store.n_waiting("m") == 20
    labels = {row["row"]: row["fraud"] for row in rows[60:]}
    answer = session.do(Label("m", {**labels, "nobody": 1}))
    assert (answer["labelled"], answer["unknown"]) == (20, ["nobody"])
    assert session.store.n_waiting("m") == 0
    assert session.model().facts()["classes"] == fresh(rows).classes()
    assert session.again().model().facts() == session.model().facts()


# -- settings ---------------------------------------------------------------------------------------


def test_the_same_spec_again_changes_nothing_and_another_must_need_no_rows(session):
    session.do(Learn("m", batch(records(50))))
    version = session.model().version
    session.do(Put("m", spec()))
    assert session.model().version == version
    session.do(Put("m", spec(learner={"class": "ProximalSVC", "C": 0.01})))
    assert session.model().learner.C == 0.01
    with pytest.raises(ValueError, match="target cannot be changed"):
        session.do(Put("m", spec(target="country")))
    assert session.again().model().learner.C == 0.01
