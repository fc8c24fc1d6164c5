"""Request queue, request futures, and groups of requests with single rows."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import pytest

from steelyard.exceptions import FileFormatError
from steelyard.service import SQLiteStore, Writer, queue
from steelyard.service import rows as wire
from steelyard.service.commands import Learn, Put, Tick
from steelyard.service.errors import QueueFullError, Unavailable
from steelyard.service.queue import RequestFuture, RequestQueue
from steelyard.service.writer import _by_model as by_model
from tests.service.data import Clock, records, spec

TIMEOUT_SECONDS = 60.0  # no test waits this long


def _put(waiting, n_requests, pause=0.0):
    requests = [Tick(str(number)) for number in range(n_requests)]

    def put():
        if pause:
            time.sleep(0.1)  # the other thread begins to wait
        for request in requests:
            waiting.put(request)
            time.sleep(pause)

    thread = threading.Thread(target=put)
    thread.start()
    return requests, thread


def test_queue_returns_requests_in_order_of_arrival():
    waiting = RequestQueue(100)
    requests, thread = _put(waiting, 20)
    thread.join()
    assert waiting.first(3) == requests[:3]
    assert waiting.next_group(15, TIMEOUT_SECONDS) == requests[:15]
    assert waiting.next_group(15, TIMEOUT_SECONDS) == requests[15:]
    assert waiting.next_group(15, 0.0) == []


def test_queue_waits_for_as_many_requests_as_in_last_group(monkeypatch):
    monkeypatch.setattr(queue, "_SECONDS_PER_EXPECTED_REQUEST", TIMEOUT_SECONDS)
    monkeypatch.setattr(queue, "_MAX_GATHER_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(queue, "_MAX_GAP_SECONDS", TIMEOUT_SECONDS)
    waiting = RequestQueue(100)
    for _ in range(3):
        requests, thread = _put(waiting, 20, pause=0.0 if not waiting._last_group_size else 0.001)
        if not waiting._last_group_size:
            thread.join()
        assert waiting.next_group(100, TIMEOUT_SECONDS) == requests
        thread.join()


def test_queue_waits_for_remaining_requests_of_an_expected_group(monkeypatch):
    monkeypatch.setattr(queue, "_SECONDS_PER_EXPECTED_REQUEST", TIMEOUT_SECONDS)
    monkeypatch.setattr(queue, "_MAX_GATHER_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(queue, "_MAX_GAP_SECONDS", TIMEOUT_SECONDS)
    waiting = RequestQueue(100)
    _put(waiting, 12)[1].join()
    assert len(waiting.next_group(100, TIMEOUT_SECONDS)) == 12
    early, thread = _put(waiting, 7)
    thread.join()
    late, thread = _put(waiting, 12, pause=0.001)
    assert waiting.next_group(100, TIMEOUT_SECONDS) == early + late
    thread.join()


def test_queue_stops_waiting_for_missing_requests():
    waiting = RequestQueue(100)
    _put(waiting, 60)[1].join()
    waiting.next_group(100, TIMEOUT_SECONDS)
    requests, thread = _put(waiting, 3)
    thread.join()
    begin = time.monotonic()
    assert waiting.next_group(100, TIMEOUT_SECONDS) == requests
    assert time.monotonic() - begin < TIMEOUT_SECONDS / 2


def test_queue_does_not_wait_for_more_requests_of_single_client(monkeypatch):
    monkeypatch.setattr(RequestQueue, "_gather", lambda *_: pytest.fail("the queue waits for requests"))
    waiting = RequestQueue(100)
    for _ in range(3):
        requests, thread = _put(waiting, 1)
        assert waiting.next_group(100, TIMEOUT_SECONDS) == requests
        thread.join()


def test_full_queue_and_closed_queue_raise():
    waiting = RequestQueue(2)
    _put(waiting, 2)[1].join()
    with pytest.raises(QueueFullError, match="2 requests are waiting"):
        waiting.put(Tick(""))
    waiting.take(1)
    waiting.close()
    with pytest.raises(Unavailable):
        waiting.put(Tick(""))
    assert len(waiting.next_group(10, TIMEOUT_SECONDS)) == 1
    assert waiting.next_group(10, TIMEOUT_SECONDS) == []  # returns immediately


# -- futures ----------------------------------------------------------------------------------------


def test_future_can_be_cancelled_only_before_running():
    cancelled, running = RequestFuture(), RequestFuture()
    assert cancelled.cancel()
    assert not cancelled.set_running()
    assert cancelled.done()
    with pytest.raises(CancelledError):
        cancelled.result(0)
    assert running.set_running()
    assert running.set_running()  # calling it twice is allowed
    assert not running.cancel()
    running.finish({"learned": 1})
    assert not running.cancel()
    assert running.result(0) == {"learned": 1}


def test_future_cannot_be_finished_twice():
    future = RequestFuture()
    future.finish({"learned": 1})
    with pytest.raises(RuntimeError):
        future.finish(KeyError())
    assert future.exception(0) is None


def test_future_wakes_waiting_thread_and_calls_callback():
    future, called = RequestFuture(), []
    with pytest.raises(TimeoutError):
        future.result(0.001)
    future.callback = called.append
    thread = threading.Timer(0.01, future.finish, [QueueFullError("no")])
    thread.start()
    with pytest.raises(QueueFullError):
        future.result(TIMEOUT_SECONDS)
    thread.join()
    assert called == [future]


def test_requests_put_back_come_first_and_the_next_group_does_not_wait_for_more(monkeypatch):
    monkeypatch.setattr(queue, "_SECONDS_PER_EXPECTED_REQUEST", TIMEOUT_SECONDS)
    monkeypatch.setattr(queue, "_MAX_GATHER_SECONDS", TIMEOUT_SECONDS)
    waiting = RequestQueue(20)
    requests, thread = _put(waiting, 20)
    thread.join()
    group = waiting.next_group(12, TIMEOUT_SECONDS)
    waiting.put_back(group[2:])
    begin = time.monotonic()
    assert waiting.next_group(100, TIMEOUT_SECONDS) == requests[2:]
    assert time.monotonic() - begin < TIMEOUT_SECONDS


def test_learn_requests_of_one_model_become_adjacent_and_other_kinds_stay_in_place():
    batch = wire.from_records(records(1), ["customer", "row"])
    a1, b1, a2, c1, b2, a3 = (Learn(name, batch) for name in ("a", "b", "a", "c", "b", "a"))
    tick = Tick("")
    assert by_model([a1, b1, a2, tick, c1, b2, c1, a3]) == [a1, a2, b1, tick, c1, c1, b2, a3]


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
def test_bad_row_in_group_of_single_rows_is_refused_without_affecting_others(writer, fault, place):
    good = [_single(row) for row in records(12, first=1)]
    bad = _single(BAD[fault])
    writer.process([*good[:place], bad, *good[place:]])
    assert bad.future.exception(0) is not None
    answers = [request.future.result(0) for request in good]
    assert {answer["learned"] for answer in answers} == {1}
    versions = [answer["version"] for answer in answers]
    assert versions == sorted(versions)
    assert writer.published["m"].n_rows == 13


def test_single_rows_learned_as_group_equal_rows_learned_one_by_one(writer):
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    alone.process([Put("m", spec(id=None)), _single(records(1)[0])])
    rows = records(30, first=1)
    rows[7] = dict(reversed(rows[7].items()))  # this row has its fields in another order
    for row in rows:
        alone.process([_single(row)])
    writer.process([_single(row) for row in rows])
    digests = [each.published["m"].summary()["digest"] for each in (alone, writer)]
    assert digests[0] == digests[1]


def test_repeated_idempotency_key_in_group_of_single_rows_learns_once(writer):
    rows = records(6, first=1)
    once = {"key": "k", "fingerprint": "same"}
    requests = [*map(_single, rows[:2]), _single(rows[2], **once), *map(_single, rows[3:])]
    writer.process(requests)
    again = [_single(rows[2], **once), _single(records(1, first=90)[0])]
    writer.process(again)
    assert again[0].future.result(0) == requests[2].future.result(0)
    assert writer.published["m"].n_rows == 1 + 6 + 1


def test_requests_beyond_the_time_limit_are_put_back_and_processed_by_later_groups(writer):
    writer.process([Put(name, spec(id=None)) for name in ("n", "o")])
    rows = records(9, first=1)
    requests = [_single(row) for row in rows]
    for request, name in zip(requests, ("m", "n", "o") * 3, strict=True):
        request.model = name
    ordered = by_model(requests)
    writer.process(list(ordered), seconds=-1.0)  # the first model is always processed
    assert [request.future.done() for request in ordered] == [True] * 3 + [False] * 6
    assert writer.queue.first(9) == ordered[3:]
    while group := writer.queue.next_group(9, 0.0):
        writer.process(group, seconds=-1.0)
    assert [writer.published[name].n_rows for name in ("m", "n", "o")] == [4, 3, 3]


def test_failed_commit_does_not_affect_requests_that_were_put_back(writer, monkeypatch):
    writer.process([Put("n", spec(id=None))])
    first, second = _single(records(1, first=1)[0]), _single(records(1, first=2)[0])
    second.model = "n"
    commit = SQLiteStore._commit

    def fail(store):
        monkeypatch.setattr(SQLiteStore, "_commit", commit)
        raise OSError("disk")

    monkeypatch.setattr(SQLiteStore, "_commit", fail)
    writer.process([first, second], seconds=-1.0)
    assert isinstance(first.future.exception(0), Unavailable)
    writer.process(writer.queue.next_group(9, 0.0))
    assert second.future.result(0)["learned"] == 1
    assert [writer.published[name].n_rows for name in ("m", "n")] == [1, 1]


def test_group_whose_rows_cannot_be_written_is_learned_once(writer, monkeypatch):
    add_chunk = SQLiteStore.add_chunk

    def fail(store, *values):
        monkeypatch.setattr(SQLiteStore, "add_chunk", add_chunk)
        raise FileFormatError("damaged")

    monkeypatch.setattr(SQLiteStore, "add_chunk", fail)
    requests = [_single(row) for row in records(3, first=1)]
    writer.process(requests)
    assert [request.future.result(0)["learned"] for request in requests] == [1, 1, 1]
    assert writer.published["m"].n_rows == sum(writer.published["m"].summary()["classes"].values()) == 4
