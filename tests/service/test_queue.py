"""The line before the writer, and what stands in it: who comes together is taken together, and in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import pytest

from steelyard.service import SQLiteStore, Writer, queue
from steelyard.service import rows as wire
from steelyard.service.commands import Learn, Put, QueueFullError, Tick, Unavailable
from steelyard.service.queue import RequestQueue
from steelyard.service.reply import Reply
from tests.service.data import Clock, records, spec

SOON = 5.0  # seconds that nobody really waits


def _put(waiting, n_requests, pause=0.0):
    requests = [Tick(str(number)) for number in range(n_requests)]

    def put():
        for request in requests:
            waiting.put(request)
            time.sleep(pause)

    thread = threading.Thread(target=put)
    thread.start()
    return requests, thread


def test_requests_are_taken_in_the_order_in_which_they_came():
    waiting = RequestQueue(100)
    requests, thread = _put(waiting, 20)
    thread.join()
    assert waiting.first(3) == requests[:3]
    assert waiting.next_group(15, SOON) == requests[:15]
    assert waiting.next_group(15, SOON) == requests[15:]
    assert waiting.next_group(15, 0.0) == []


def test_who_was_answered_together_is_taken_together(monkeypatch):
    monkeypatch.setattr(queue, "_EACH", SOON)
    monkeypatch.setattr(queue, "_LONGEST", SOON)
    monkeypatch.setattr(queue, "_GAP", SOON)
    waiting = RequestQueue(100)
    for _ in range(3):
        requests, thread = _put(waiting, 20, pause=0.0 if not waiting._n_taken else 0.001)
        if not waiting._n_taken:
            thread.join()
        assert waiting.next_group(100, SOON) == requests
        thread.join()


def test_those_who_wait_already_wait_for_those_who_were_just_answered(monkeypatch):
    monkeypatch.setattr(queue, "_EACH", SOON)
    monkeypatch.setattr(queue, "_LONGEST", SOON)
    monkeypatch.setattr(queue, "_GAP", SOON)
    waiting = RequestQueue(100)
    _put(waiting, 12)[1].join()
    assert len(waiting.next_group(100, SOON)) == 12
    early, thread = _put(waiting, 7)
    thread.join()
    late, thread = _put(waiting, 12, pause=0.001)
    assert waiting.next_group(100, SOON) == early + late
    thread.join()


def test_nobody_waits_long_for_who_does_not_come():
    waiting = RequestQueue(100)
    _put(waiting, 60)[1].join()
    waiting.next_group(100, SOON)
    requests, thread = _put(waiting, 3)
    thread.join()
    begin = time.monotonic()
    assert waiting.next_group(100, SOON) == requests
    assert time.monotonic() - begin < SOON / 2


def test_a_client_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(RequestQueue, "_gather", lambda *_: pytest.fail("it waits for others"))
    waiting = RequestQueue(100)
    for _ in range(3):
        requests, thread = _put(waiting, 1)
        assert waiting.next_group(100, SOON) == requests
        thread.join()


def test_too_many_are_sent_away_and_after_the_end_all():
    waiting = RequestQueue(2)
    _put(waiting, 2)[1].join()
    with pytest.raises(QueueFullError, match="2 requests wait already"):
        waiting.put(Tick(""))
    waiting.take(1)
    waiting.close()
    with pytest.raises(Unavailable):
        waiting.put(Tick(""))
    assert len(waiting.next_group(10, SOON)) == 1
    assert waiting.next_group(10, SOON) == []  # at once


# -- replies ----------------------------------------------------------------------------------------


def test_a_reply_is_taken_back_before_it_has_begun_and_never_after():
    gone, stays = Reply(), Reply()
    assert gone.cancel()
    assert not gone.begin()
    assert gone.done()
    with pytest.raises(CancelledError):
        gone.result(0)
    assert stays.begin()
    assert stays.begin()  # it may be asked again
    assert not stays.cancel()
    stays.set_result({"learned": 1})
    assert not stays.cancel()
    assert stays.result(0) == {"learned": 1}


def test_a_reply_is_given_once():
    reply = Reply()
    reply.set_result({"learned": 1})
    with pytest.raises(RuntimeError):
        reply.set_exception(KeyError())
    assert reply.exception(0) is None


def test_who_waits_for_a_reply_gets_it_and_is_called():
    reply, called = Reply(), []
    with pytest.raises(TimeoutError):
        reply.result(0.001)
    reply.add_done_callback(called.append)
    thread = threading.Timer(0.01, reply.set_exception, [QueueFullError("no")])
    thread.start()
    with pytest.raises(QueueFullError):
        reply.result(SOON)
    thread.join()
    reply.add_done_callback(called.append)
    assert called == [reply, reply]


# -- single rows of many requests -------------------------------------------------------------------


def _single(row, **more):
    body = b'{"rows": [%s]}' % wire.msgspec.json.encode(row)
    return Learn("m", wire.from_body(body, "json", ["customer", "row", "country"]), **more)


@pytest.fixture
def writer():
    writer = Writer(SQLiteStore(":memory:"), clock=Clock())
    writer.process([Put("m", spec(id=None)), _single(records(1)[0])])
    return writer


BAD = {
    "no label": {"amount": 1.0, "country": "DE", "customer": "c1", "row": "x"},
    "a text for a number": {"amount": "much", "country": "DE", "customer": "c1", "row": "x", "fraud": 1},
    "no customer": {"amount": 1.0, "country": "DE", "row": "x", "fraud": 1},
    "a list": {"amount": [1.0], "country": "DE", "customer": "c1", "row": "x", "fraud": 1},
    "too large a number": {"amount": 10**400, "country": "DE", "customer": "c1", "row": "x", "fraud": 1},
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("place", [0, 5, 12])
def test_of_single_rows_that_are_learned_together_only_the_bad_one_is_refused(writer, fault, place):
    good = [_single(row) for row in records(12, first=1)]
    bad = _single(BAD[fault])
    writer.process([*good[:place], bad, *good[place:]])
    assert bad.future.exception(0) is not None
    answers = [request.future.result(0) for request in good]
    assert {answer["learned"] for answer in answers} == {1}
    versions = [answer["version"] for answer in answers]
    assert versions == sorted(versions)
    assert writer.published["m"].n_rows == 13


def test_single_rows_learned_together_are_those_learned_one_by_one(writer):
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    alone.process([Put("m", spec(id=None)), _single(records(1)[0])])
    rows = records(30, first=1)
    rows[7] = dict(reversed(rows[7].items()))  # the order of its fields is not that of the others
    for row in rows:
        alone.process([_single(row)])
    writer.process([_single(row) for row in rows])
    digests = [each.published["m"].facts()["digest"] for each in (alone, writer)]
    assert digests[0] == digests[1]


def test_a_key_among_single_rows_counts_once(writer):
    rows = records(6, first=1)
    once = {"key": "k", "fingerprint": "same"}
    requests = [*map(_single, rows[:2]), _single(rows[2], **once), *map(_single, rows[3:])]
    writer.process(requests)
    again = [_single(rows[2], **once), _single(records(1, first=90)[0])]
    writer.process(again)
    assert again[0].future.result(0) == requests[2].future.result(0)
    assert writer.published["m"].n_rows == 1 + 6 + 1
