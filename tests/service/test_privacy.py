"""Forget requests erase rows, statistics, pending rows and stored responses.

The certificate says what may remain.
"""

from __future__ import annotations

import time

import pytest

from steelyard.exceptions import DataError
from steelyard.service import Writer
from steelyard.service.commands import Forget, Label, Learn, Put, Remember
from steelyard.service.errors import Conflict, GoneError
from steelyard.service.http import make_app
from steelyard.service.stored_rows import pack
from steelyard.service.stores import PendingRow
from tests.service.data import SPEC, Clock, records, spec
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch
from tests.service.test_wire import MODEL, is_problem, unlabelled


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(60))))
    return session


def remember(session, rows, key, **more):
    answer = {"label": 0, "scores": [0.25, -0.25], "classes": [0, 1]}
    waiting = [
        PendingRow(row["row"], session.clock(), row["customer"], pack(batch([row]), answer))
        for row in [{k: v for k, v in row.items() if k != "fraud"} for row in rows]
    ]
    prediction = {"labels": [0] * len(rows), "scores": [0.123456789] * len(rows)}
    return session.do(Remember("m", waiting, prediction, key=key, fingerprint=key, **more))


def asked_again(session, key):
    return session.do(Remember("m", [], {}, key=key, fingerprint=key))


@pytest.mark.parametrize(
    "choice",
    [{"ids": ["r101"]}, {"subject": "her"}, {"before": 5_000.0}],
    ids=lambda choice: next(iter(choice)),
)
def test_forget_erases_stored_responses_that_mention_the_rows(session, choice):
    rows = [{**row, "customer": "her"} for row in records(3, first=100)]
    others = [{**row, "customer": "him"} for row in records(2, first=200)]
    first = remember(session, rows, "k1")
    assert asked_again(session, "k1") == first
    assert b"0.123456789" in session.bytes(), "control: the store contains the value before it is forgotten"
    session.clock.now = 9_000.0
    kept = remember(session, others, "k2")
    certificate = session.do(Forget("m", **choice))["certificate"]
    assert certificate["answers_erased"] == 1
    assert certificate["complete"]
    with pytest.raises(GoneError, match="erased"):
        asked_again(session, "k1")
    assert asked_again(session, "k2") == kept
    session.do(Forget("m", ids=["r200", "r201"]))
    assert b"0.123456789" not in session.bytes()


def test_forget_unknown_subject_finds_nothing_and_reports_incomplete(session):
    certificate = session.do(Forget("m", subject="nobody"))["certificate"]
    assert (certificate["forgotten"], certificate["found"], certificate["complete"]) == (0, False, False)
    assert certificate["note"] == "No learned row, waiting row or stored response was found by subject."
    assert certificate["covers"] == "Nothing was found, so nothing was forgotten."
    known = session.do(Forget("m", ids=["r1"]))["certificate"]
    assert (known["forgotten"], known["found"], known["complete"]) == (1, True, True)
    assert known["covers"] == "The model equals one that has learned only the remaining rows."


def test_forget_certificate_of_stream_classifier_says_that_weights_remain(where):
    session = ModelSession(where)
    session.do(Put("m", spec(learner={"class": "StreamClassifier"})))
    session.do(Learn("m", batch(records(60))))
    certificate = session.do(Forget("m", ids=["r1"]))["certificate"]
    assert (certificate["forgotten"], certificate["found"], certificate["complete"]) == (1, True, False)
    assert "weights and thresholds may still depend" in certificate["covers"]


def test_forget_labelled_row_erases_its_prediction_response(session):
    rows = records(2, first=300)
    remember(session, rows, "k")
    session.do(Label("m", {row["row"]: row["fraud"] for row in rows}))
    certificate = session.do(Forget("m", batch=batch(rows)))["certificate"]
    assert (certificate["forgotten"], certificate["answers_erased"]) == (2, 1)
    with pytest.raises(GoneError):
        asked_again(session, "k")


def test_forget_erases_responses_that_list_unknown_ids(session):
    session.do(Label("m", {"unknown": 1}, key="l", fingerprint="l"))
    assert session.do(Forget("m", ids=["unknown"]))["certificate"]["answers_erased"] == 1
    with pytest.raises(GoneError):
        session.do(Label("m", {"unknown": 1}, key="l", fingerprint="l"))


def test_forget_subject_without_stored_rows_removes_only_pending_rows(where):
    session = ModelSession(where)
    session.do(Put("m", spec(rows="until labelled")))
    learned = records(60)
    session.do(Learn("m", batch(learned)))
    remember(session, [{**row, "customer": "her"} for row in records(3, first=100)], "k")
    certificate = session.do(Forget("m", subject="her"))["certificate"]
    assert (certificate["waiting_dropped"], certificate["answers_erased"], certificate["forgotten"]) == (
        3,
        1,
        0,
    )
    assert not certificate["complete"]
    assert "until the rows themselves are sent" in certificate["note"]
    assert session.store.n_pending("m") == 0
    whole = session.do(Forget("m", batch=batch(learned[:5])))["certificate"]
    assert (whole["forgotten"], whole["categories_kept"]) == (5, ["country"])
    assert session.again().model().n_rows == 55


def test_forget_subject_in_model_without_stored_rows_raises(where):
    session = ModelSession(where)
    session.do(Put("m", spec(rows="none")))
    session.do(Learn("m", batch(records(20))))
    with pytest.raises(Conflict, match="stores no rows"):
        session.do(Forget("m", subject="c1"))


def test_remember_beyond_limit_raises(where):
    session = ModelSession(where)
    session.writer.max_remembered = 5
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(60))))
    rows = records(9, first=100)
    remember(session, rows[:4], "k1")
    remember(session, rows[:4], "k2")  # replacing pending rows does not add rows
    with pytest.raises(Conflict, match="and with 2 more there would be more than 5"):
        remember(session, rows[4:6], "k3")
    session.do(Label("m", {rows[0]["row"]: 1}))
    remember(session, rows[4:6], "k3")
    again = session.again()
    again.writer.max_remembered = 5
    with pytest.raises(Conflict):
        remember(again, rows[6:7], "k4")
    again.do(Forget("m", ids=[rows[1]["row"]]))
    remember(again, rows[6:7], "k4")
    assert again.store.n_pending("m") == 5


@pytest.mark.parametrize("odd", ["a\0b", "x" * 501])
def test_invalid_ids_are_refused(session, odd):
    before = session.model().summary()
    with pytest.raises(DataError, match="1 to 500 characters"):
        session.do(Learn("m", batch([{**records(1, first=900)[0], "row": odd}])))
    assert session.again().model().summary() == before


def test_erased_response_gives_410_and_invalid_ids_give_422_over_http(store):
    with serving(make_app(Writer(store, clock=Clock()))) as http:
        http.put(MODEL, json=SPEC)
        http.post(f"{MODEL}/learn", json={"rows": records(60)})
        once = {"Idempotency-Key": "k"}
        body = {"rows": [{**unlabelled(records(1, first=100))[0], "customer": "her"}], "remember": True}
        assert http.post(f"{MODEL}/predict", json=body, headers=once).status_code == 200
        assert http.post(f"{MODEL}/forget", json={"subject": "her"}).status_code == 200
        is_problem(http.post(f"{MODEL}/predict", json=body, headers=once), 410)
        for wrong in ({"ids": ["a\0b"]}, {"subject": "x" * 501}, {"ids": [""]}):
            is_problem(http.post(f"{MODEL}/forget", json=wrong), 422)
        is_problem(http.post(f"{MODEL}/labels", json={"labels": {"a\0b": 1}}), 422)


def test_forget_in_postgresql_does_not_wait_for_locked_table(cluster):
    import psycopg

    where = cluster.empty()
    session = ModelSession(where)
    session.do(Put("m", spec()))
    rows = [{**row, "customer": "Customer-of-row"} for row in records(10)]
    session.do(Learn("m", batch([*rows, *records(30, first=10)])))
    assert b"Customer-of-row" in session.bytes(), (
        "control: the store contains the text before it is forgotten"
    )
    with psycopg.connect(where) as backup:
        backup.execute("LOCK TABLE steelyard.chunks IN ACCESS SHARE MODE")  # as pg_dump does
        begin = time.monotonic()
        assert session.do(Forget("m", subject="Customer-of-row"))["erasure_pending"]
        assert time.monotonic() - begin < 9.0
        assert session.do(Learn("m", batch(records(5, first=90))))["learned"] == 5
    session.writer.next_tick = 0.0
    session.writer._next_group()  # a tick erases the remaining data
    assert b"Customer-of-row" not in session.bytes()
    assert session.model().summary() == session.again().model().summary()


def test_forget_in_postgresql_waits_for_snapshot_of_backup(cluster):
    import psycopg

    where = cluster.empty()
    session = ModelSession(where)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch([{**row, "customer": "Customer-of-row"} for row in records(10)])))
    with psycopg.connect(where) as backup:
        backup.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        backup.execute("SELECT 1")  # takes a snapshot without a lock on any table
        assert session.do(Forget("m", subject="Customer-of-row"))["erasure_pending"]
        assert session.writer._erase_pending
    assert session.writer._erase()
    assert b"Customer-of-row" not in session.bytes()


def test_forget_in_large_postgresql_table_takes_no_exclusive_lock(cluster, monkeypatch):
    import psycopg

    from steelyard.service.stores import postgres

    monkeypatch.setattr(postgres, "_MAX_REWRITE_BYTES", 0)
    where = cluster.empty()
    session = ModelSession(where)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(40))))
    with psycopg.connect(where) as reader:
        for table in postgres._TABLES_WITH_ROWS:
            reader.execute(f"LOCK TABLE steelyard.{table} IN ROW EXCLUSIVE MODE")
        answer = session.do(Forget("m", ids=["r1"]))
        assert answer["erasure_pending"], "freed space contains the bytes until it is used again"
        assert not session.writer._erase_pending
    session.store.rewrite_tables()
    assert session.do(Learn("m", batch(records(5, first=90))))["learned"] == 5
