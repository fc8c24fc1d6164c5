"""Requests to consume messages: position and rows share a transaction; labels may arrive in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.exceptions import DataError
from steelyard.service import rows as wire
from steelyard.service.commands import Consume, Forget, Put
from steelyard.service.errors import PositionMoved
from steelyard.service.session import pending_rows
from tests.service.data import n_unused_labels, records, spec
from tests.service.sessions import ModelSession, batch

TOPIC = "source nats:payments"


def _consume(moves, **content):
    return Consume("m", TOPIC, moves, **content)


def _session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    return session


def test_rows_and_position_are_stored_together_and_repeats_are_rejected(where):
    session, rows = _session(where), records(30)
    session.do(_consume({"": (None, "20")}, learn=batch(rows[:20])))
    found = session.again()
    assert found.store.positions("m", TOPIC) == {"": "20"}
    digest = found.model().summary()["digest"]
    for before in (None, "10"):
        with pytest.raises(PositionMoved):
            found.do(_consume({"": (before, "20")}, learn=batch(rows[20:])))
    assert found.model().summary()["digest"] == digest
    found.do(_consume({"": ("20", "30")}, learn=batch(rows[20:])))
    assert found.again().model().n_rows == 30


def test_refused_rows_do_not_advance_the_stored_position(where):
    session = _session(where)
    rows = wire.from_records([{"amount": 1.0}, {"amount": 2.0}])
    with pytest.raises(DataError):
        session.do(_consume({"": (None, "2")}, learn=rows))
    assert session.store.positions("m", TOPIC) == {}


def test_deleting_model_removes_positions_and_forget_removes_early_labels(where):
    session = _session(where)
    session.do(_consume({"": (None, "1")}, labels={"r1": 1, "r2": 0}))
    assert n_unused_labels(session.store) == 2
    session.do(Forget("m", ids=["r1"]))
    assert n_unused_labels(session.store) == 1
    session.store.acquire_write_lock()
    with session.store.transaction():
        session.store.drop_model("m")
    assert session.store.positions("m", TOPIC) == {}
    assert n_unused_labels(session.store) == 0


def test_forgetting_a_row_that_has_not_arrived_removes_its_label_from_the_disk(where):
    session = _session(where)
    session.do(_consume({"": (None, "1")}, labels={"Id-of-row": 1}))
    assert b"Id-of-row" in session.bytes(), "control: the store contains the id before it is forgotten"
    session.do(Forget("m", ids=["Id-of-row"]))
    assert b"Id-of-row" not in session.bytes()


def _pending(rows):
    bare = [{key: value for key, value in row.items() if key != "fraud"} for row in rows]
    return pending_rows(spec(), batch(bare), None, 0.0)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(12)), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_rows_and_labels_that_arrive_in_any_order_are_joined_and_learned(order, sizes):
    rows, session = records(6), _session(":memory:")
    for k, begin in enumerate(range(0, 12, sizes[0])):
        some = order[begin : begin + sizes[0]]
        arrived = [rows[i] for i in some if i < 6]
        labels = {rows[i - 6]["row"]: rows[i - 6]["fraud"] for i in some if i >= 6}
        move = {"": (None if k == 0 else str(k), str(k + 1))}
        session.do(_consume(move, remember=_pending(arrived) if arrived else (), labels=labels))
    expected = _session(":memory:")
    expected.do(_consume({"": (None, "6")}, learn=batch(rows)))
    assert session.model().n_rows == 6
    assert sorted(session.model().summary()["classes"].items()) == sorted(
        expected.model().summary()["classes"].items()
    )
    assert n_unused_labels(session.store) == session.store.n_pending("m") == 0


def test_refused_label_is_stored_with_reason_and_its_row_stays_pending():
    session, rows = _session(":memory:"), records(12)
    session.do(_consume({"": (None, "10")}, learn=batch(rows[:10])))
    session.do(_consume({"": ("10", "12")}, remember=_pending(rows[10:])))
    session.do(_consume({"": ("12", "13")}, labels={"r10": 1, "r11": [1], "r0": 1}))
    assert session.model().n_rows == 11
    refused = {label.id: label.reason for label in session.store.unused_labels("m", 0.0, 10)}
    assert set(refused) == {"r11", "r0"}
    assert all(refused.values())
    assert session.store.n_pending("m") == 1
