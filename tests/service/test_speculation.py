"""Rows that are learned while others are being written: none is answered, shown or kept before its turn."""

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
from steelyard.service.commands import Forget, Learn, Put, Unavailable
from tests.service.data import Clock, records, spec
from tests.service.test_simulation import Disk, DiskVFS, PowerLoss


@pytest.fixture(autouse=True)
def _small_groups():
    """Groups of two, and two rows are many: a few requests make many groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_GROUP", 2)
        patch.setattr(speculation, "_MANY_ROWS", 2)
        yield


@pytest.fixture
def store(tmp_path):
    with closing(SQLiteStore(tmp_path / "store.db")) as store:
        yield store


def _learn(n, number):
    """Rows without ids, which are learned without a look into the store."""
    return Learn("m", wire.from_records(records(n, seed=number, first=100 * number), ["customer", "row"]))


def _put(**changes):
    return Put("m", spec(id=None, columns={"amount": "number", "country": "category"}, **changes))


class RequestQueue:
    """A scribe whose requests wait already, and what it has learned ahead."""

    def __init__(self, store, requests, **changes):
        store.claim()
        self.writer, self.n_ahead = Writer(store, clock=Clock()), 0
        self.requests = [_put(**changes), *requests]
        self.writer.process(self.requests[:1])
        for request in requests:
            self.writer.submit(request)

    def run(self):
        while not all(request.future.done() for request in self.requests):
            self.n_ahead += self.writer._ahead is not None and self.writer._ahead.taken is not None
            self.writer._is_done_after_a_turn()
        return self

    @property
    def n_acknowledged(self):
        """How many of the first requests were."""
        count = 0
        for request in self.requests:
            if not request.future.done() or request.future.exception(0) is not None:
                break
            count += 1
        return count

    def digest(self):
        return self.writer.published["m"].facts()["digest"]


def _requests(history):
    return [
        _learn(n, number) if kind == "learn" else Forget("m", subject=f"c{n % 8}")
        for number, (kind, n) in enumerate(history)
    ]


def _digests(history, **changes):
    """After each request, carried out alone."""
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    found = []
    for request in [_put(**changes), *_requests(history)]:
        alone.process([request])
        found.append(alone.published["m"].facts()["digest"])
    return found


HISTORY = [("learn", n) for n in (5, 3, 8, 2, 9, 4, 7)]


@pytest.mark.parametrize("memory", ["all", 20])
def test_the_model_is_that_of_the_same_requests_one_by_one(store, memory):
    line = RequestQueue(store, _requests(HISTORY), memory=memory).run()
    assert line.n_ahead > 1
    assert line.n_acknowledged == 1 + len(HISTORY)
    rows = sum(n for _, n in HISTORY)
    assert line.writer.published["m"].n_rows == (rows if memory == "all" else 20)
    if memory == "all":
        assert line.digest() == _digests(HISTORY)[-1]
    with closing(SQLiteStore(store.path)) as again:
        assert Writer(again).published["m"].facts() == line.writer.published["m"].facts()


def test_nobody_sees_rows_before_they_are_written(store, monkeypatch):
    line, seen = RequestQueue(store, _requests(HISTORY)), []
    hand_out = Writer._publish

    def noting(self, names):
        hand_out(self, names)
        written = store._read("SELECT coalesce(sum(n), 0) FROM chunks")[0][0]
        seen.append((self.published["m"].n_rows, written))

    monkeypatch.setattr(Writer, "_publish", noting)
    line.run()
    assert line.n_ahead
    assert len(seen) > 2
    assert all(shown == written for shown, written in seen)


def test_if_the_group_before_fails_only_that_one_is_refused(store, monkeypatch):
    line = RequestQueue(store, _requests(HISTORY))
    commit, n_commits = SQLiteStore._commit, []

    def failing(store):
        n_commits.append(1)
        if len(n_commits) == 2:
            store._db.execute("ROLLBACK")
            raise apsw.IOError
        commit(store)

    monkeypatch.setattr(SQLiteStore, "_commit", failing)
    line.run()
    answers = [request.future.exception() is None for request in line.requests]
    assert answers.count(False) == 2
    monkeypatch.undo()
    kept = [wish for wish, is_good in zip(HISTORY, answers[1:], strict=True) if is_good]
    alone = Writer(SQLiteStore(":memory:"), clock=Clock())
    alone.process([_put()])
    for number, (_, n) in enumerate(HISTORY):
        if answers[1 + number]:
            alone.process([_learn(n, number)])
    assert line.digest() == alone.published["m"].facts()["digest"]
    assert line.writer.published["m"].n_rows == sum(n for _, n in kept)


def test_who_may_write_no_longer_sends_away_what_was_learned_ahead(store):
    line = RequestQueue(store, _requests(HISTORY))
    while line.writer._ahead is None:
        line.writer._is_done_after_a_turn()
    waiting, before = line.writer._ahead.requests, line.digest()
    line.writer._step_down()
    assert all(isinstance(request.future.exception(0), Unavailable) for request in waiting)
    line.writer.recover()
    assert line.digest() == before


def test_bad_rows_are_told_to_whoever_sent_them(store):
    good = _requests(HISTORY)
    bad = Learn(
        "m", wire.from_records([{"amount": "much", "country": "DE", "customer": "c", "fraud": 1}] * 2)
    )
    line = RequestQueue(store, [*good[:3], bad, *good[3:]]).run()
    assert isinstance(bad.future.exception(), DataError)
    assert all(request.future.exception() is None for request in good)
    assert line.digest() == _digests(HISTORY)[-1]


def test_a_forget_between_them_finds_all_that_came_before_it_and_nothing_after(store):
    history = [*HISTORY[:4], ("forget", 3), *HISTORY[4:]]
    line = RequestQueue(store, _requests(history)).run()
    assert line.n_ahead
    assert line.digest() == _digests(history)[-1]


def _until_the_power_goes(disk, history):
    """How many requests were acknowledged; the file layer is the caller's to unregister."""
    vfs, line = DiskVFS(disk), None
    with suppress(PowerLoss, apsw.Error, OSError):
        line = RequestQueue(SQLiteStore("store", vfs=vfs.name), _requests(history))
        line.run()
    if line is None:
        return 0, vfs
    with suppress(Exception):
        line.writer.store.close()  # here, not when some other test is tried
    return line.n_acknowledged, vfs


# A file that is closed after the power went cannot raise: Python only notes that it would have.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(
        st.tuples(st.sampled_from(["learn"] * 5 + ["forget"]), st.integers(2, 9)), min_size=3, max_size=9
    ),
    crash_at=st.integers(4, 30),
    seed=st.integers(0, 2**16),
)
def test_what_was_acknowledged_survives_any_power_loss(history, crash_at, seed):
    digests, disk = _digests(history), Disk(crash_at, seed)
    n_acknowledged, crashed = _until_the_power_goes(disk, history)
    gc.collect()
    disk.heal()
    crashed.unregister()
    vfs = DiskVFS(disk)
    with closing(SQLiteStore("store", vfs=vfs.name)) as store:
        found = Writer(store, clock=Clock()).published.get("m")
    if n_acknowledged:
        assert found is not None, "the model was acknowledged and is gone"
        assert found.facts()["digest"] in digests[n_acknowledged - 1 :]
    vfs.unregister()
