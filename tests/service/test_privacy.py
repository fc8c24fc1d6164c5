"""Who is forgotten is gone everywhere: rows, sums, rows that wait, kept answers; what is not is said."""

from __future__ import annotations

import pytest

from steelyard.exceptions import DataError
from steelyard.service import Scribe
from steelyard.service import rows as wire
from steelyard.service.http import make_app
from steelyard.service.requests import Conflict, Forget, Gone, Label, Learn, Put, Remember
from steelyard.service.store import Waiting
from tests.service.data import SPEC, Clock, records, spec
from tests.service.desks import Desk, batch
from tests.service.server import serving
from tests.service.test_wire import MODEL, is_problem, unlabelled


@pytest.fixture
def desk(where):
    desk = Desk(where)
    desk.do(Put("m", spec()))
    desk.do(Learn("m", batch(records(60))))
    return desk


def remember(desk, rows, key, **more):
    answer = {"label": 0, "scores": [0.25, -0.25], "classes": [0, 1]}
    waiting = [
        Waiting(row["row"], desk.clock(), row["customer"], wire.pack(batch([row]), answer))
        for row in [{k: v for k, v in row.items() if k != "fraud"} for row in rows]
    ]
    told = {"labels": [0] * len(rows), "scores": [0.123456789] * len(rows)}
    return desk.do(Remember("m", waiting, told, key=key, fingerprint=key, **more))


def asked_again(desk, key):
    return desk.do(Remember("m", [], {}, key=key, fingerprint=key))


@pytest.mark.parametrize(
    "choice",
    [{"ids": ["r101"]}, {"subject": "her"}, {"before": 5_000.0}],
    ids=lambda choice: next(iter(choice)),
)
def test_kept_answers_that_speak_of_the_forgotten_are_erased_from_the_store_too(desk, choice):
    rows = [{**row, "customer": "her"} for row in records(3, first=100)]
    others = [{**row, "customer": "him"} for row in records(2, first=200)]
    first = remember(desk, rows, "k1")
    assert asked_again(desk, "k1") == first
    assert b"0.123456789" in desk.bytes(), "the control: before forgetting it is there"
    desk.clock.now = 9_000.0
    kept = remember(desk, others, "k2")
    certificate = desk.do(Forget("m", **choice))["certificate"]
    assert certificate["answers_erased"] == 1
    assert certificate["complete"]
    with pytest.raises(Gone, match="erased"):
        asked_again(desk, "k1")
    assert asked_again(desk, "k2") == kept
    desk.do(Forget("m", ids=["r200", "r201"]))
    assert b"0.123456789" not in desk.bytes()


def test_labels_that_were_learned_since_take_the_answer_of_then_with_them(desk):
    rows = records(2, first=300)
    remember(desk, rows, "k")
    desk.do(Label("m", {row["row"]: row["fraud"] for row in rows}))
    certificate = desk.do(Forget("m", batch=batch(rows)))["certificate"]
    assert (certificate["forgotten"], certificate["answers_erased"]) == (2, 1)
    with pytest.raises(Gone):
        asked_again(desk, "k")


def test_ids_that_were_unknown_when_labels_came_are_erased_as_well(desk):
    desk.do(Label("m", {"nobody": 1}, key="l", fingerprint="l"))
    assert desk.do(Forget("m", ids=["nobody"]))["certificate"]["answers_erased"] == 1
    with pytest.raises(Gone):
        desk.do(Label("m", {"nobody": 1}, key="l", fingerprint="l"))


def test_a_model_that_keeps_rows_only_until_they_are_labelled_forgets_what_waits_and_says_what_stays(where):
    desk = Desk(where)
    desk.do(Put("m", spec(rows="until labelled")))
    learned = records(60)
    desk.do(Learn("m", batch(learned)))
    remember(desk, [{**row, "customer": "her"} for row in records(3, first=100)], "k")
    certificate = desk.do(Forget("m", subject="her"))["certificate"]
    assert (certificate["waiting_dropped"], certificate["answers_erased"], certificate["forgotten"]) == (
        3,
        1,
        0,
    )
    assert not certificate["complete"]
    assert "stays until the rows themselves are sent" in certificate["note"]
    assert desk.store.n_waiting("m") == 0
    whole = desk.do(Forget("m", batch=batch(learned[:5])))["certificate"]
    assert (whole["forgotten"], whole["complete"]) == (5, True)
    assert desk.again().model().n_rows == 55


def test_a_model_that_keeps_nothing_can_find_nothing(where):
    desk = Desk(where)
    desk.do(Put("m", spec(rows="none")))
    desk.do(Learn("m", batch(records(20))))
    with pytest.raises(Conflict, match="keeps no rows"):
        desk.do(Forget("m", subject="c1"))


def test_only_so_many_rows_can_wait_for_labels(where):
    desk = Desk(where)
    desk.scribe.max_remembered = 5
    desk.do(Put("m", spec()))
    desk.do(Learn("m", batch(records(60))))
    rows = records(9, first=100)
    remember(desk, rows[:4], "k1")
    remember(desk, rows[:4], "k2")  # the same rows again are no more rows
    with pytest.raises(Conflict, match="4 rows of 'm' wait for their labels, and 5 can"):
        remember(desk, rows[4:6], "k3")
    desk.do(Label("m", {rows[0]["row"]: 1}))
    remember(desk, rows[4:6], "k3")
    again = desk.again()
    again.scribe.max_remembered = 5
    with pytest.raises(Conflict):
        remember(again, rows[6:7], "k4")
    again.do(Forget("m", ids=[rows[1]["row"]]))
    remember(again, rows[6:7], "k4")
    assert again.store.n_waiting("m") == 5


@pytest.mark.parametrize("odd", ["a\0b", "x" * 501])
def test_ids_that_a_store_could_not_look_up_are_refused(desk, odd):
    before = desk.model().facts()
    with pytest.raises(DataError, match="1 to 500 characters"):
        desk.do(Learn("m", batch([{**records(1, first=900)[0], "row": odd}])))
    assert desk.again().model().facts() == before


def test_on_the_wire_an_erased_answer_is_gone_and_odd_ids_are_refused(store):
    with serving(make_app(Scribe(store, clock=Clock()))) as http:
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
