"""Speculative learning: rows learned during a commit are written, published and acknowledged afterwards."""

from __future__ import annotations

import gc
from contextlib import closing, suppress

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.exceptions import DataError
from steelyard.service import SQLiteStore, Writer, speculation, writer
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.errors import Unavailable
from tests.service.data import Clock, records, spec
from tests.service.test_simulation import Disk, DiskVFS, PowerLoss


@pytest.fixture(autouse=True)
def _small_groups():
    """Limit groups to two requests, and allow speculation for batches of two or more rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_MAX_GROUP_REQUESTS", 2)
        patch.setattr(speculation, "_MIN_ROWS", 2)
        yield


@pytest.fixture
def store(tmp_path):
    with closing(SQLiteStore(tmp_path / "store.db")) as store:
        yield store


def _learn(n, number):
    """Return a request whose rows have no ids, so learning needs no access to the store."""
    return Learn("m", wire.from_records(records(n, seed=number, first=100 * number), ["customer", "row"]))


def _put(**changes):
    return Put("m", spec(id=None, columns={"amount": "number", "country": "category"}, **changes))


class QueuedWriter:
    """Writer with queued requests, and the number of batches that it has learned speculatively."""

    def __init__(self, store, requests, **changes):
        store.acquire_write_lock()
        self.writer, self.n_speculative = Writer(store, clock=Clock()), 0
        self.requests = [_put(**changes), *requests]
        self.writer.process(self.requests[:1])
        for request in requests:
            self.writer.submit(request)

    def run(self):
        while not all(request.future.done() for request in self.requests):
            self.n_speculative += self.writer._speculation.learned is not None
            self.writer._step()
        return self

    @property
    def n_acknowledged(self):
        """Number of acknowledged requests before the first unacknowledged request."""
        count = 0
        for request in self.requests:
            if not request.future.done() or request.future.exception(0) is not None:
                break
            count += 1
        return count

    def digest(self):
        return self.writer.published["m"].summary()["digest"]


def _requests(history):
    return [
        _learn(n, number) if kind == "learn" else Forget("m", subject=f"c{n % 8}")
        for number, (kind, n) in enumerate(history)
    ]


def _digests(history, **changes):
    """Return the digest after each request, processed one at a time."""
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    found = []
    for request in [_put(**changes), *_requests(history)]:
        alone.process([request])
        found.append(alone.published["m"].summary()["digest"])
    return found


HISTORY = [("learn", n) for n in (5, 3, 8, 2, 9, 4, 7)]


@pytest.mark.parametrize("memory", ["all", 20])
def test_speculative_learning_before_commit_equals_one_request_at_a_time(store, memory):
    queued = QueuedWriter(store, _requests(HISTORY), memory=memory).run()
    assert queued.n_speculative > 1
    assert queued.n_acknowledged == 1 + len(HISTORY)
    rows = sum(n for _, n in HISTORY)
    assert queued.writer.published["m"].n_rows == (rows if memory == "all" else 20)
    if memory == "all":
        assert queued.digest() == _digests(HISTORY)[-1]
    with closing(SQLiteStore(store.path)) as again:
        assert Writer(again).published["m"].summary() == queued.writer.published["m"].summary()


def test_speculative_rows_are_not_published_before_commit(store, monkeypatch):
    queued, seen = QueuedWriter(store, _requests(HISTORY)), []
    publish = Writer._publish

    def recording(self, names):
        publish(self, names)
        written = store._read("SELECT coalesce(sum(n), 0) FROM chunks")[0][0]
        seen.append((self.published["m"].n_rows, written))

    monkeypatch.setattr(Writer, "_publish", recording)
    queued.run()
    assert queued.n_speculative
    assert len(seen) > 2
    assert all(shown == written for shown, written in seen)


def test_failed_commit_rejects_its_group_and_keeps_speculative_requests(store, monkeypatch):
    queued = QueuedWriter(store, _requests(HISTORY))
    commit, n_commits = SQLiteStore._commit, []

    def failing(store):
        n_commits.append(1)
        if len(n_commits) == 2:
            store._db.execute("ROLLBACK")
            raise apsw.IOError
        commit(store)

    monkeypatch.setattr(SQLiteStore, "_commit", failing)
    queued.run()
    answers = [request.future.exception() is None for request in queued.requests]
    assert answers.count(False) == 2
    monkeypatch.undo()
    kept = [request for request, is_good in zip(HISTORY, answers[1:], strict=True) if is_good]
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    alone.process([_put()])
    for number, (_, n) in enumerate(HISTORY):
        if answers[1 + number]:
            alone.process([_learn(n, number)])
    assert queued.digest() == alone.published["m"].summary()["digest"]
    assert queued.writer.published["m"].n_rows == sum(n for _, n in kept)


def test_lost_write_lock_rejects_speculative_requests(store):
    queued = QueuedWriter(store, _requests(HISTORY))
    while not queued.writer._speculation.requests:
        queued.writer._step()
    waiting, before = queued.writer._speculation.requests, queued.digest()
    queued.writer._step_down()
    assert all(isinstance(request.future.exception(0), Unavailable) for request in waiting)
    queued.writer.recover()
    assert queued.digest() == before


def test_bad_rows_in_speculative_batch_fail_their_request_only(store):
    good = _requests(HISTORY)
    bad = Learn(
        "m", wire.from_records([{"amount": "much", "country": "DE", "customer": "c", "fraud": 1}] * 2)
    )
    queued = QueuedWriter(store, [*good[:3], bad, *good[3:]]).run()
    assert isinstance(bad.future.exception(), DataError)
    assert all(request.future.exception() is None for request in good)
    assert queued.digest() == _digests(HISTORY)[-1]


def test_forget_between_speculative_batches_sees_earlier_rows_only(store):
    history = [*HISTORY[:4], ("forget", 3), *HISTORY[4:]]
    queued = QueuedWriter(store, _requests(history)).run()
    assert queued.n_speculative
    assert queued.digest() == _digests(history)[-1]


def _run_until_power_loss(disk, history):
    """Return the number of acknowledged requests and the file system, which the caller unregisters."""
    vfs, queued = DiskVFS(disk), None
    with suppress(PowerLoss, apsw.Error, OSError):
        queued = QueuedWriter(SQLiteStore("store", vfs=vfs.name), _requests(history))
        queued.run()
    if queued is None:
        return 0, vfs
    with suppress(Exception):
        queued.writer.store.close()  # before the simulated disk is removed
    return queued.n_acknowledged, vfs


# Closing a file after the power loss fails in a destructor, which Python reports as an unraisable exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(
        st.tuples(st.sampled_from(["learn"] * 5 + ["forget"]), st.integers(2, 9)), min_size=3, max_size=9
    ),
    crash_at=st.integers(4, 30),
    seed=st.integers(0, 2**16),
)
def test_acknowledged_speculative_rows_survive_any_power_loss(history, crash_at, seed):
    digests, disk = _digests(history), Disk(crash_at, seed)
    n_acknowledged, crashed = _run_until_power_loss(disk, history)
    gc.collect()
    disk.heal()
    crashed.unregister()
    vfs = DiskVFS(disk)
    with closing(SQLiteStore("store", vfs=vfs.name)) as store:
        found = Writer(store, clock=Clock()).published.get("m")
    if n_acknowledged:
        assert found is not None, "an acknowledged model is lost"
        assert found.summary()["digest"] in digests[n_acknowledged - 1 :]
    vfs.unregister()
