"""Time windows and the clock of the service."""

from __future__ import annotations

import logging
from datetime import timedelta

import numpy as np
import pytest

from steelyard.exceptions import ParameterError
from steelyard.service import Spec
from steelyard.service.commands import Learn, Put, Tick
from steelyard.service.stored_rows import RowRange, RowWindowIndex
from steelyard.service.system import SteadyClock
from steelyard.tables.columns import RowError
from tests.service.data import Clock, records, spec
from tests.service.sessions import ModelSession, batch

DAY = 86_400.0


# -- cost of windows --------------------------------------------------------------------------------


def _index(n_chunks):
    index = RowWindowIndex()
    for chunk in range(n_chunks):
        index.add(chunk, np.array([float(chunk)]), 1)
    return index


@pytest.mark.parametrize("window", [timedelta(seconds=5_000), 5_000])
def test_search_for_expired_rows_does_not_visit_all_chunks(window, monkeypatch):
    index = _index(5_000)
    index.newest()
    index.expired(window, 4_999.0)  # builds the heap
    n_searches, searchsorted = [], np.searchsorted

    def counted(*args, **more):
        n_searches.append(1)
        return searchsorted(*args, **more)

    monkeypatch.setattr(np, "searchsorted", counted)
    for chunk in range(5_000, 5_100):
        index.add(chunk, np.array([float(chunk)]), 1)
        ranges = index.expired(window, index.newest())
        assert [len(rows) for rows in ranges] == [1]
        index.expire(ranges)
    assert len(n_searches) <= 200
    assert index.n_rows == 5_000


def test_rows_found_as_expired_equal_full_scan():
    rng = np.random.default_rng(0)
    index, rows = RowWindowIndex(), {}
    for chunk in range(300):
        times = np.sort(rng.uniform(chunk, chunk + 30, size=int(rng.integers(1, 9))))
        index.add(chunk, times, len(times))
        rows[chunk] = list(times)
        if chunk % 7 == 3:  # a forget request removes all rows of a chunk
            index.drop(chunk)
            del rows[chunk]
        elif chunk % 11 == 5:  # a forget request removes some rows of a chunk
            rows[chunk] = rows[chunk][: max(1, len(rows[chunk]) // 2)]
            index.replace(chunk, np.array(rows[chunk]))
        limit = index.newest() - 50.0
        ranges = index.expired(timedelta(seconds=50), index.newest())
        expected = {c: sum(t <= limit for t in values) for c, values in rows.items()}
        assert {r.chunk: len(r) for r in ranges} == {c: n for c, n in expected.items() if n}
        index.expire(ranges)
        rows = {c: [t for t in values if t > limit] for c, values in rows.items()}
        rows = {c: values for c, values in rows.items() if values}
        assert index.n_rows == sum(map(len, rows.values()))
        assert sorted(index.chunks()) == sorted(rows)
    assert index.before(np.inf)[0] == RowRange(index.chunks()[0], *_active(index, index.chunks()[0]))


def _active(index, chunk):
    return index.begin_of(chunk), index._active[chunk].n


# -- rows that expire at a tick ---------------------------------------------------------------------


def test_tick_publishes_model_without_expired_rows(where):
    clock = Clock()
    session = ModelSession(where, clock)
    session.do(Put("m", spec(memory="1h")))
    session.do(Learn("m", batch(records(40))))
    clock.now += 1_800
    session.do(Learn("m", batch(records(40, first=40))))
    clock.now += 2_000
    session.do(Tick(""))
    assert session.model().n_rows == 40
    assert session.model().summary() == session.again().model().summary()


def test_tick_deletes_expired_rows_from_store(where):
    clock = Clock()
    session = ModelSession(where, clock)
    session.do(Put("m", spec(memory="1h")))
    session.do(Learn("m", batch(records(40))))
    clock.now += 1_800
    session.do(Learn("m", batch(records(40, first=40))))
    assert len(session.store.chunks("m")) == 2
    clock.now += 2_000
    session.do(Tick(""))
    assert len(session.store.chunks("m")) == 1
    assert session.model().summary() == session.again().model().summary()


# -- clock jumps ------------------------------------------------------------------------------------


class TwoClocks:
    """Wall clock and monotonic clock with settable times."""

    def __init__(self):
        self.wall, self.monotonic = 1e9, 100.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def advance(self, seconds, jump=0.0):
        self.monotonic += seconds
        self.wall += seconds + jump
        return self.clock()


@pytest.mark.parametrize("jump", [60 * DAY, -60 * DAY])
def test_service_clock_ignores_and_logs_jump_of_system_clock(jump, caplog):
    clocks = TwoClocks()
    with caplog.at_level(logging.WARNING, "steelyard.service"):
        assert clocks.advance(10.0, jump) == 1e9 + 10.0
        assert clocks.advance(34.0) == 1e9 + 44.0
        assert clocks.advance(1.0, -jump) == 1e9 + 45.0
    assert caplog.text.count("jumped") == 1
    assert "back to normal" in caplog.text


def test_service_clock_follows_slow_drift_and_lasting_clock_corrections():
    clocks = TwoClocks()
    for _ in range(100):
        now = clocks.advance(60.0, 1.0)
    assert now == pytest.approx(clocks.wall)
    assert clocks.advance(60.0, 5_000.0) < clocks.wall
    for _ in range(61):
        now = clocks.advance(60.0)
    assert now == pytest.approx(clocks.wall)


def test_clock_jump_keeps_idempotency_keys_and_windows(where):
    clocks = TwoClocks()
    session = ModelSession(where, clocks.clock)
    session.do(Put("m", spec(memory="30d")))
    first = session.do(Learn("m", batch(records(10)), key="k", fingerprint="k"))
    clocks.advance(10.0, 60 * DAY)
    session.do(Tick(""))
    clocks.advance(34.0, -60 * DAY)
    assert session.do(Learn("m", batch(records(10)), key="k", fingerprint="k")) == first
    assert session.model().n_rows == 10


# -- rows dated in the future -----------------------------------------------------------------------


def _timed(times, first=0):
    return batch([{**row, "at": at} for row, at in zip(records(len(times), first=first), times, strict=True)])


def test_row_dated_in_future_is_refused_and_changes_nothing(where):
    session = ModelSession(where, Clock(1e9))
    session.do(Put("m", spec(time="at", memory="30d")))
    session.do(Learn("m", _timed([1e9, 1e9 + 1.0, 1e9 + DAY])))
    with pytest.raises(RowError, match="later than allowed") as refused:
        session.do(Learn("m", _timed([1e9, 4e9], first=10)))
    assert refused.value.row == 1
    assert session.model().n_rows == 3
    session.do(Learn("m", _timed([1e9 + 2.0], first=20)))
    assert session.model().n_rows == 4
    assert session.model().summary() == session.again().model().summary()


def test_max_future_can_be_changed_and_switched_off(where):
    session = ModelSession(where, Clock(1e9))
    session.do(Put("m", spec(time="at", max_future=None)))
    session.do(Learn("m", _timed([4e9])))
    session.do(Put("m", spec(time="at", max_future="2h")))
    with pytest.raises(RowError):
        session.do(Learn("m", _timed([1e9 + 8_000.0], first=10)))
    with pytest.raises(ParameterError, match="max_future"):
        spec(max_future=7)
    with pytest.raises(ParameterError, match="size must be"):
        spec(max_future="soon")


def test_spec_stored_by_version_0_2_accepts_rows_dated_in_future():
    assert Spec.from_store({"target": "y", "time": "at"}).max_future is None
    assert Spec.from_mapping({"target": "y", "time": "at"}).max_future == "1d"
