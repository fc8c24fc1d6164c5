"""Writer: the thread that changes models, with group commit."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from steelyard._threads import reserve_core
from steelyard.exceptions import FileAccessError, FileFormatError, SteelyardError
from steelyard.service.audit import AuditLog
from steelyard.service.clock import SteadyClock
from steelyard.service.commands import (
    Adopt,
    Challenge,
    Conflict,
    Consume,
    Delete,
    Drop,
    Forget,
    Label,
    Learn,
    NotFoundError,
    Promote,
    Publish,
    Put,
    Release,
    Remember,
    Rename,
    Request,
    Tick,
    Unavailable,
)
from steelyard.service.consumption import consume
from steelyard.service.idempotency import Response, run_once, stored_response
from steelyard.service.pool import PooledSession, new_session, recover_session, repair_model
from steelyard.service.published import PublishedModel
from steelyard.service.queue import RequestQueue, stopping_error
from steelyard.service.replication import catch_up
from steelyard.service.session import LearnedRows, ModelSession
from steelyard.service.spec import check_name
from steelyard.service.speculation import Speculation, concatenated
from steelyard.service.statistics import WriterStatistics
from steelyard.service.stores import CommitOutcomeUnknown, reason_of
from steelyard.service.stores.sql import Store

if TYPE_CHECKING:
    from steelyard.service.slow_writer import SlowWriter

__all__ = ["Writer"]

_log = logging.getLogger("steelyard.service")
_MAX_GROUP_REQUESTS = 256
_SNAPSHOT_ROWS = 50_000
_SNAPSHOT_EVENTS = 2_000
_RESPONSE_SECONDS = 7 * 86_400.0  # how long responses are stored for repeated requests
_EXPIRED_SECONDS = 3_600.0  # how long expired rows may stay in the store
_TICK_SECONDS = 30.0
_SLOW_SECONDS = 0.01  # a model whose groups take longer than this may get its own thread
_SLOW_RATIO = 4.0  # minimum ratio to the median time of the other models
_NEXT_SLICE_SECONDS = 0.2  # pause between two transactions that delete old responses
_YIELD_SECONDS = 5e-5
_POLL_SECONDS = 1.0  # interval at which a follower reads the store and a leader confirms its write lock

Outcome = tuple[Request, Response | Exception]


class Writer:
    """Thread that processes requests in groups, each in one transaction.

    After the commit of a group, the writer publishes the changed models and then resolves the futures of the
    requests. A process without the write lock follows the process that holds it.

    Parameters
    ----------
    store : Store
        Durable storage of models, rows and events.
    clock : callable, optional
        Returns the time in seconds; the default is the system clock without sudden jumps.
    max_waiting : int, default=1024
        Maximum number of queued requests; further requests raise QueueFullError.
    max_models : int, default=1000
        Maximum number of models.
    max_remembered : int, default=1000000
        Maximum number of rows of a model that wait for labels.
    may_learn : bool, default=True
        Whether this process takes the write lock when it is free; if False, it only follows.
    audit_days : float, default=90
        Number of days for which the audit log is kept.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] | None = None,
        max_waiting: int = 1024,
        max_models: int = 1000,
        max_remembered: int = 1_000_000,
        may_learn: bool = True,
        audit_days: float = 90,
    ) -> None:
        self.store, self.clock, self.may_learn = store, clock or SteadyClock(), may_learn
        self.max_models, self.max_remembered = max_models, max_remembered
        self.audit, self._audit_seconds = AuditLog(store), 86_400.0 * audit_days
        self.statistics = WriterStatistics()
        self.published: dict[str, PublishedModel] = {}
        self.slow_models: set[str] = set()  # models of the second writer thread
        self._slow_writer: SlowWriter | None = None
        self._handed_over: str | None = None  # model that is being handed to the second thread
        self._seconds: dict[str, float] = {}  # moving average of the seconds per group of each model
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        self._sessions: dict[str, ModelSession] = {}
        self._queue = RequestQueue(max_waiting)
        self._speculation = Speculation(self._queue, self.clock, _MAX_GROUP_REQUESTS)
        self._thread: threading.Thread | None = None
        self._closing = False
        self.owners: dict[str, str] = {}  # address of the process that learns each of the other models
        self._next_balance = time.monotonic() + _POLL_SECONDS
        self.problem: str | None = None  # why the store cannot be written, for example "disk full"
        self.damaged: dict[str, str] = {}  # models that cannot be loaded, with the reason
        self._erase_pending = False  # whether forgotten rows may still be in the files of the store
        self._needs_recovery = False  # whether the models in memory may differ from the store
        self._is_leader = True  # assumed until another process is found to have the write lock
        self._followed_at = time.monotonic()
        self._next_tick = time.monotonic() + _TICK_SECONDS
        self.recover()

    # -- start and stop -----------------------------------------------------------------------------

    def recover(self) -> None:
        """Load all models from the store."""
        self._speculation.invalidate()
        is_learner = self.store.holds_write_lock
        if is_learner:
            self._take_share()
        with self.store.read_snapshot():
            specs = self.store.models()
            self._sessions, self.damaged = {}, {}
            for name, spec in specs:
                if self._is_own(name) and (not is_learner or self.store.holds_lease(name)):
                    self._recover_model(name, spec)
        for name in [name for name in self.published if self._is_own(name) and name not in self._sessions]:
            del self.published[name]
        for name, session in self._sessions.items():
            self.published[name] = session.engine.published()
        self._needs_recovery = False

    def _is_own(self, name: str) -> bool:
        """Whether the model belongs to this thread and not to another writer thread of this process."""
        return name not in self.slow_models

    def _recover_model(self, name: str, spec: str) -> None:
        """Load a model; if its data is damaged, set it aside so that the other models can be served."""
        try:
            session = recover_session(self.store, name, spec)
        except self.store.errors:
            raise  # the store is not available
        except Exception as error:  # noqa: BLE001  decoding damaged data can raise any error
            self._set_aside(name, error)
            return
        session.yield_to_readers = partial(self._yield_to_readers, name)
        self._sessions[name] = session

    # -- slow models in a second thread -------------------------------------------------------------

    def _hand_over_slow_models(self, group: Sequence[Request]) -> None:
        """Hand models that are much slower than the others to a second writer thread.

        A model with a thousand columns takes a tenth of a second per row; other models must not wait for it.
        """
        if self._speculation.batch is not None or len(self._sessions) < 2:
            return
        for name in {request.model for request in group} & self._sessions.keys():
            seconds = self._seconds.get(name, 0.0)
            if seconds < _SLOW_SECONDS:
                continue
            others = sorted(
                self._seconds[n] for n in self._sessions.keys() & self._seconds.keys() if n != name
            )
            is_slow = bool(others) and seconds > _SLOW_RATIO * others[len(others) // 2]
            if is_slow and self._start_slow_writer() is not None:
                self._hand_over(name)

    def _start_slow_writer(self) -> SlowWriter | None:
        if self._slow_writer is None:
            from steelyard.service.slow_writer import SlowWriter  # avoids an import cycle

            store = self.store.sibling()
            if store is None or not store.acquire_write_lock():
                return None
            self._slow_writer = SlowWriter(store, self)
            self._slow_writer.start()
        return self._slow_writer

    def _hand_over(self, name: str) -> None:
        assert self._slow_writer is not None
        self._handed_over = name  # requests that arrive now are queued here and forwarded later
        session = self._sessions.pop(name)
        self.store.release_leases([name])
        # Queued before any request for this model that is submitted from now on.
        self._slow_writer._queue.put(Adopt(name, session))
        self.slow_models.add(name)
        self._handed_over = None
        _log.warning("the model %r is slow and gets a thread of its own", name)

    def _own_requests(self, group: Sequence[Request]) -> list[Request]:
        """Forward the requests for slow models to the second thread; return the other requests."""
        if not self.slow_models:
            return list(group)
        own = []
        for request in group:
            if request.model in self.slow_models and self._slow_writer is not None:
                try:
                    self._slow_writer.submit(request)
                except SteelyardError as error:
                    request.future.set_exception(error)
            else:
                own.append(request)
        return own

    def _note_seconds(self, name: str, seconds: float) -> None:
        self._seconds[name] = 0.7 * self._seconds.get(name, seconds) + 0.3 * seconds

    # -- models spread over several learners --------------------------------------------------------

    def _take_share(self) -> list[str]:
        """Acquire leases of models that no process learns, up to an equal share; return their names."""
        names = [name for name, _ in self.store.models()]
        learners = self.store.learners(names)
        if learners is None:
            return []
        self.owners = {name: url for name, url in learners.owners.items() if url != self.store.address}
        share = math.ceil(len(names) / max(1, len(learners.n_leases)))
        n_held = learners.n_leases.get(self.store.address, 0)
        free = [name for name in names if name not in learners.owners and self._is_own(name)]
        return self.store.acquire_leases(free, max(0, share - n_held))

    def _rebalance(self) -> None:
        """Take over models whose process has died, and release models if other processes have fewer."""
        if not self.store.has_leases:
            return
        self._next_balance = time.monotonic() + _POLL_SECONDS
        taken = self._take_share()
        with self.store.read_snapshot():
            for name in taken:
                self._recover_model(name, str(self.store.spec_of(name)))
        self._publish(taken)
        names = list(self._sessions)
        learners = self.store.learners(names)
        if learners is not None and not taken:
            n_held = learners.n_leases.get(self.store.address, 0)
            n_fewest = min(learners.n_leases.values(), default=n_held)
            self._release(names[: (n_held - n_fewest) // 2])

    def _release(self, names: Sequence[str]) -> None:
        """Release models to other processes; a snapshot makes loading them fast."""
        if not names:
            return
        with self.store.transaction():
            for name in names:
                if self._sessions[name].events_since_snapshot:
                    self._sessions[name].snapshot(self.clock())
        for name in names:
            del self._sessions[name]
            self.published.pop(name, None)
        self.store.release_leases(names)
        _log.warning("%d models are learned by another process now", len(names))

    def _adopt(self, name: str) -> ModelSession | None:
        """Load a model that no process learns at the moment; return None if it does not exist."""
        self.check_not_damaged(name)
        spec = self.store.spec_of(name)
        if spec is None:
            return None
        if not self.store.holds_lease(name) and not self.store.acquire_leases([name], 1):
            raise _follower_error()
        self._recover_model(name, spec)
        return self._sessions.get(name)

    def can_answer(self, name: str, *, changes: bool) -> bool:
        """Return whether this process has the model and, if the request changes it, holds its lease."""
        return name in self.damaged or (
            name in self.published
            and (
                not changes
                or name in self.slow_models
                or name == self._handed_over
                or self.store.holds_lease(name)
            )
        )

    def _set_aside(self, name: str, error: Exception) -> None:
        """Stop using a model whose stored data is damaged."""
        reason = error.summary if isinstance(error, SteelyardError) else _location(error)
        _log.error("the model %r is set aside: %s (steelyard serve --check --repair)", name, reason)
        self.damaged[name] = reason
        self._sessions.pop(name, None)
        self.published.pop(name, None)

    def repair(self, name: str) -> dict[str, int]:
        """Rebuild a damaged model from its readable rows; return the numbers of kept and lost rows."""
        with self.store.transaction():
            found = repair_model(self.store, name, dict(self.store.models())[name], self.clock())
        self.store.erase()
        self.recover()
        return found

    def start(self) -> None:
        """Start the thread, as leader or as follower."""
        had_lock = self.store.holds_write_lock
        self._is_leader = self.may_learn and self.store.acquire_write_lock()
        if not had_lock:
            self.recover()  # another process may have written since the models were loaded
        self._thread = threading.Thread(target=self._run, name="steelyard-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Process the queued requests, write snapshots and stop; further calls do nothing."""
        if self._closing:
            return
        self._closing = True
        if self._thread is not None and self._thread.is_alive():
            self._queue.close()
            self._thread.join()
        if self._slow_writer is not None:
            self._slow_writer.close()
            self._slow_writer.store.close()
        if self._needs_recovery or not self._is_leader:
            return
        with suppress(Exception), self.store.transaction():
            for session in self._sessions.values():
                if session.events_since_snapshot:
                    session.snapshot(self.clock())

    @property
    def is_alive(self) -> bool:
        """Whether this thread and, if there is one, the thread of slow models are running."""
        is_alive = self._thread is not None and self._thread.is_alive()
        return is_alive and (self._slow_writer is None or self._slow_writer.is_alive)

    @property
    def leads(self) -> bool:
        """Whether this process holds the write lock."""
        return self._is_leader

    @property
    def behind(self) -> float:
        """Seconds since a follower last read the store; 0 for the leader."""
        return 0.0 if self._is_leader else time.monotonic() - self._followed_at

    @property
    def n_waiting(self) -> int:
        """Number of queued requests."""
        return len(self._queue) + (0 if self._slow_writer is None else len(self._slow_writer._queue))

    def check_not_damaged(self, name: str) -> None:
        """Raise Unavailable if the stored data of a model is damaged."""
        if name in self.damaged or (self._slow_writer is not None and name in self._slow_writer.damaged):
            raise Unavailable(
                f"the stored data of the model {name!r} are damaged; nothing was changed.",
                hint="steelyard serve --check names the damage, --check --repair rebuilds the model",
            )

    def _all_sessions(self) -> list[tuple[str, ModelSession]]:
        slow = [] if self._slow_writer is None else list(self._slow_writer._sessions.items())
        return list(self._sessions.items()) + slow

    def waiting_labels(self) -> dict[str, int]:
        """Return for each model the number of rows that wait for labels; empty in a follower."""
        return {name: s.n_pending for name, s in self._all_sessions()} if self._is_leader else {}

    def snapshot_times(self) -> dict[str, float]:
        """Return the time of the last snapshot of each model that has one."""
        times = {name: session.snapshot_at for name, session in self._all_sessions()}
        return {name: at for name, at in times.items() if at > -math.inf}

    def submit(self, request: Request) -> Request:
        """Queue a request; its future is resolved when the request is durable."""
        if self._closing:
            raise stopping_error()
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the writer thread has ended; nothing was changed.", hint="restart the service")
        if request.model in self.slow_models and self._slow_writer is not None:
            return self._slow_writer.submit(request)
        if not self._is_leader:
            raise _follower_error()
        self._queue.put(request)
        return request

    def _run(self) -> None:
        with reserve_core():  # leaves one core free for predictions
            while not self._step():
                pass

    def _yield_to_readers(self, name: str) -> None:
        """Release the CPU core for a moment if the model is serving predictions.

        Native code releases the GIL but keeps its core. If the event loop is woken on the same core, it would
        have to wait until the whole request is learned, even if another core is idle.
        """
        published = self.published.get(name)
        if published is not None and published.is_serving:
            time.sleep(_YIELD_SECONDS)

    def _step(self) -> bool:
        """Process the next group, or follow the leader; return whether the thread has finished."""
        try:
            if not self._is_leader:
                self._follow()
            elif group := self._next_group():
                self.process(self._own_requests(group))
                self._hand_over_slow_models(group)
                if time.monotonic() > self._next_balance and self._speculation.batch is None:
                    self._rebalance()
            else:
                self.store.acquire_write_lock()  # raises if the connection to the database is lost
                if self._needs_recovery:
                    self.recover()
                self._rebalance()
                if self.problem is not None:
                    self.store.check_writable()
                    self._set_problem(None)
        except Exception as error:  # noqa: BLE001  the thread must survive
            if self.problem is None:
                _log.error("the writer failed: %s; models are loaded again", _location(error))
            self._needs_recovery = True
        if self._is_leader and not self.store.holds_write_lock:
            self._step_down()
        if self._queue.is_closed and not self._is_leader:
            self._reject_queued(stopping_error)
        return self._queue.is_closed and not self._queue and self._speculation.batch is None

    # -- following ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Apply the changes of the leader; take over if the write lock is free."""
        self._reject_queued(_follower_error)
        try:
            if self.may_learn and self.store.acquire_write_lock():
                self.recover()
                self._is_leader = True
                _log.warning("this process has the write lock now and learns")
                return
            self.store.wait_for_changes(_POLL_SECONDS)
            self._publish(catch_up(self.store, self._sessions))
            self._followed_at = time.monotonic()
            learners = self.store.learners(list(self._sessions))
            self.owners = {} if learners is None else learners.owners
        except Exception as error:  # noqa: BLE001  retried later; the published models still predict
            _log.error("the changes of the leader cannot be read: %s", _location(error))
            self._sessions = {}  # loaded again as soon as the store is available
            time.sleep(_POLL_SECONDS)

    def _step_down(self) -> None:
        """Become a follower because the write lock is lost."""
        _log.warning("this process has lost the write lock and follows")
        self._is_leader, self._followed_at = False, time.monotonic()
        if self._speculation.reject(_follower_error):
            self._sessions = {}  # they contain rows that will not be written, so they are loaded again later

    def _reject_queued(self, error: Callable[[], Unavailable]) -> None:
        for request in self._queue.take(len(self._queue)):
            if request.future.set_running():
                request.future.set_exception(error())

    # -- one group ----------------------------------------------------------------------------------

    def _next_group(self) -> list[Request]:
        """Return the speculative batch, a tick if it is due, or the next requests; may be empty."""
        if self._speculation.batch is not None:
            return list(self._speculation.batch.requests)
        wait = self._next_tick - time.monotonic()
        if wait <= 0:
            self._next_tick = time.monotonic() + _TICK_SECONDS
            if self._erase_pending:
                self._erase()
            return [Tick("")]
        return self._queue.next_group(_MAX_GROUP_REQUESTS, min(wait, _POLL_SECONDS))

    def process(self, requests: list[Request]) -> None:
        """Process requests in one transaction, publish changed models, then resolve the futures.

        Cancelled requests are skipped; the others can no longer be cancelled.
        """
        self._process([request for request in requests if request.future.set_running()])

    def _process(self, requests: list[Request]) -> None:
        outcomes: list[Outcome] = []
        learned = None if self._speculation.batch is None else self._speculation.take(requests)
        try:
            if self._needs_recovery or self._speculation.has_failed:
                self.recover()
                learned = None  # the recovered model does not contain these rows
            with self.store.transaction(self._background_work):
                for _, same in groupby(requests, key=lambda request: (type(request), request.model)):
                    outcomes += self._run_requests(list(same), learned)
                self._write_snapshots()
                self.audit.write(outcomes, self.clock())
                begin = time.perf_counter()
        except Exception as error:  # noqa: BLE001  the transaction failed, or its outcome is unknown
            self._undo(requests, error)
            return
        # The group is durable: every request gets its response, even if one of the following steps fails.
        self.statistics.commit_seconds.add(time.perf_counter() - begin)
        self.audit.committed()
        self._set_problem(None)
        succeeded = [(request, o) for request, o in outcomes if not isinstance(o, Exception)]
        self._release_removed([request for request, _ in succeeded])
        is_erased = not any(request.erases for request, _ in succeeded) or self._erase()
        try:
            self._publish(name for request, o in succeeded for name in _changed_models(request, o))
        except Exception as error:  # noqa: BLE001
            self._needs_recovery = True
            _log.error("changed models could not be published: %s", _location(error))
        for request, outcome in outcomes:
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            elif request.erases and not is_erased:
                request.future.set_result({**outcome, "erasure_pending": True})
            else:
                request.future.set_result(outcome)

    def _background_work(self) -> Callable[[], None] | None:
        return None if self._closing or not self._queue else self._speculation.prepare(self._sessions)

    def _erase(self) -> bool:
        """Erase deleted data from the files of the store; after an error, the next tick tries again."""
        was_pending, self._erase_pending = self._erase_pending, False
        try:
            return self.store.erase()
        except Exception as error:  # noqa: BLE001  the rows are unlearned, but not yet erased from disk
            self._erase_pending = True
            self.statistics.erase_failures += 1
            if not was_pending:
                reason = error.summary if isinstance(error, SteelyardError) else _location(error)
                _log.warning("forgotten rows are not erased from disk yet: %s", reason)
            return False

    def _undo(self, requests: list[Request], error: Exception) -> None:
        """Restore the models from the store after a failed transaction, and retry or fail its requests."""
        is_store_error = isinstance(error, (CommitOutcomeUnknown, FileAccessError, *self.store.errors))
        self.statistics.write_failed(error)
        if is_store_error:
            self._set_problem(reason_of(error))
        _log.error(
            "a group of %d requests failed: %s (%s)", len(requests), reason_of(error), _location(error)
        )
        self._needs_recovery = True
        failure = _failure(error, is_store_error=is_store_error)
        try:
            self.recover()
        except Exception as trouble:  # noqa: BLE001  the next group tries again
            _log.error("models could not be loaded: %s", _location(trouble))
        retry = not self._needs_recovery and len(requests) > 1 and not is_store_error
        for request in requests:
            if retry:  # one at a time, so that only the request that caused the failure fails again
                self._process([request])
            else:
                request.future.set_exception(failure)
        if not retry:
            is_unknown = isinstance(error, CommitOutcomeUnknown)
            self.audit.add_failed(requests, "unknown" if is_unknown else "failed", self.clock())

    def _set_problem(self, reason: str | None) -> None:
        if reason is None and self.problem is not None:
            _log.warning("the store can be written again")
        self.problem = reason

    def _publish(self, names: Iterable[str]) -> None:
        """Replace the published models whose version changed, and notify the listeners."""
        for name in dict.fromkeys(names):
            session = self._sessions.get(name)
            if session is None:
                if self.published.pop(name, None) is not None:
                    self._notify(name, {"deleted": True})
                continue
            current, is_ahead = self.published.get(name), self._speculation.batch is not None
            committed = self._speculation.committed_model(name) if is_ahead else None
            if current is not None and current.version == (committed or session.engine).version:
                continue
            published = committed or session.engine.published()
            if current is not None:
                published.warm_up(current)
            self.published[name] = published
            self._notify(name, {"version": published.version, "rows": published.n_rows})

    def _notify(self, name: str, change: dict[str, Any]) -> None:
        for listener in list(self.listeners):
            with suppress(Exception):  # an error in a listener must not affect the responses
                listener(name, change)

    def _write_snapshots(self) -> None:
        for session in self._sessions.values():
            if (
                session.rows_since_snapshot >= _SNAPSHOT_ROWS
                or session.events_since_snapshot >= _SNAPSHOT_EVENTS
            ):
                session.snapshot(self.clock())

    # -- requests -----------------------------------------------------------------------------------

    def _run_requests(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome]:
        """Run requests of one kind for one model; rows of several requests are learned in one call."""
        begin = time.perf_counter()
        try:
            return self._outcomes(requests, learned)
        finally:
            self._note_seconds(requests[0].model, time.perf_counter() - begin)

    def _outcomes(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome]:
        outcomes = self._learn_together(requests, learned) if isinstance(requests[0], Learn) else None
        if outcomes is not None:
            return outcomes
        outcomes = []
        for request in requests:
            now = self.clock()
            try:
                if request.key is None:
                    response = self._run_request(request, now)
                else:
                    if request.model not in self._sessions:
                        self._adopt(request.model)  # the lease is needed before the stored responses are read
                    run = partial(self._run_request, request, now)
                    response = run_once(self.store, request, run, now)
                outcomes.append((request, response))
            except SteelyardError as error:
                outcomes.append((request, error))
        return outcomes

    def _learn_together(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome] | None:
        """Learn the rows of all requests in one call; return None if this is not possible."""
        model = requests[0].model
        session = self._sessions.get(model)
        keys = [r.key for r in requests if r.key is not None]
        if session is None or len(set(keys)) < len(keys) or session.engine.spec.quarantines:
            return None
        known = self.store.responses_to(model, keys) if keys else {}
        rows = [r for r in requests if isinstance(r, Learn) and r.key not in known]
        if learned is not None:
            version = session.write(learned)
        elif len(rows) <= 1 or not session.engine.column_kinds():
            return None  # the first rows determine the columns, so they are learned separately
        else:
            try:
                sources = [(r.key, r.batch.n_rows) for r in rows] if keys else []
                version = session.learn(concatenated(session, rows), now=self.clock(), sources=sources)
            except SteelyardError:
                return None  # a request has bad rows; one call per request will find it
        responses = {id(r): {"learned": r.batch.n_rows, "version": version} for r in rows}
        encode = msgspec.json.encode
        new = [(r.key, r.fingerprint, encode(responses[id(r)]).decode()) for r in rows if r.key is not None]
        if new:
            self.store.put_responses(model, new, at=self.clock())
        return [(r, responses.get(id(r)) or _repeated(r, known)) for r in requests]

    def _run_request(self, request: Request, now: float) -> Response:
        if isinstance(request, Tick):
            return self._tick(now)
        if isinstance(request, Put):
            return self._put(request, now)
        if isinstance(request, Adopt):
            return self._continue_with(request)
        session = self._sessions.get(request.model) or self._adopt(request.model)
        self.check_not_damaged(request.model)
        if session is None:
            raise NotFoundError(
                f"there is no model {request.model!r}.", hint="PUT /v1/models/NAME creates one"
            )
        if isinstance(request, Delete | Rename | Release | Challenge | Promote):
            return self._operate(session, request, now)
        return self._change_model(session, request, now)

    def _operate(
        self, session: ModelSession, request: Delete | Rename | Release | Challenge | Promote, now: float
    ) -> Response:
        """Run a request that deletes or renames a model, releases rows, or changes its challenger."""
        if isinstance(request, Delete | Rename):
            return self._remove(session, request, now)
        if isinstance(request, Release):
            return session.release(request, now=now)
        return self._challenge(session, request, now)

    def _change_model(self, session: ModelSession, request: Request, now: float) -> Response:
        if isinstance(request, Learn):
            return self._learn(session, request, now)
        if isinstance(request, Remember):
            session.remember(
                request.rows, int(min(self.max_remembered, session.engine.spec.limit("waiting")))
            )
            ids = [row.id for row in request.rows]
            return {"version": session.engine.version, **request.prediction, "ids": ids}
        if isinstance(request, Label):
            return self._label(session, request, now)
        if isinstance(request, Consume):
            return consume(session, request, self.max_remembered, now)
        if isinstance(request, Publish | Drop):
            return self._update_sites(session, request, now)
        assert isinstance(request, Forget)
        certificate = session.forget(request, now=now)
        return {
            "forgotten": certificate["forgotten"],
            "version": session.engine.version,
            "certificate": certificate,
        }

    @staticmethod
    def _learn(session: ModelSession, request: Learn, now: float) -> Response:
        batch, more = request.batch, {}
        if session.engine.spec.quarantines:
            batch = session.quarantine(batch, now=now)
            more = {"quarantined": request.batch.n_rows - batch.n_rows}
        version = session.engine.version
        if batch.n_rows:
            version = session.learn(batch, now=now, key=request.key)
        return {"learned": batch.n_rows, "version": version, **more}

    def _remove(self, session: ModelSession, request: Delete | Rename, now: float) -> Response:
        """Delete or rename a model; version numbers are never reused under either name."""
        name, engine = request.model, session.engine
        if isinstance(request, Delete):
            self.store.drop_model(name)
            answer = {"deleted": name, "rows": engine.n_rows, "version": engine.version}
        else:
            new_name = check_name(request.new_name)
            if self.store.spec_of(new_name) is not None:
                raise Conflict(f"there is a model {new_name!r} already; nothing was changed.")
            if not self.store.holds_lease(new_name) and not self.store.acquire_leases([new_name], 1):
                raise _follower_error()
            self.store.rename_model(name, new_name)
            self._sessions[new_name], engine.name = session, new_name
        self.store.put_former_version(name, engine.version)
        del self._sessions[name]
        if isinstance(request, Rename):
            session.yield_to_readers = partial(self._yield_to_readers, new_name)
            engine.version = max(engine.version, self.store.former_version(new_name)) + 1
            session.snapshot(now)
            answer = {"name": new_name, "former_name": name, "version": engine.version}
        return answer

    def _release_removed(self, requests: Iterable[Request]) -> None:
        """Release the leases of models that were deleted or renamed, after the commit."""
        names = [request.model for request in requests if isinstance(request, Delete | Rename)]
        gone = [name for name in names if name not in self._sessions and self.store.holds_lease(name)]
        for name in gone:
            self._seconds.pop(name, None)
        if gone:
            with suppress(*self.store.errors):  # a lost session has no leases any more
                self.store.release_leases(gone)

    def _challenge(self, session: ModelSession, request: Challenge | Promote, now: float) -> Response:
        if isinstance(request, Challenge):
            return {"version": session.challenge(request, now=now)}
        version = session.promote(now=now)
        values = session.engine.spec.as_dict()
        self.store.put_model(request.model, json.dumps(values), now)
        return {"version": version, "spec": values}

    def _continue_with(self, request: Adopt) -> Response:
        """Take over a session that another writer thread has released."""
        if self.store.acquire_leases([request.model], 1):
            request.session.store = self.store
            self._sessions[request.model] = request.session
        else:  # meanwhile another process has taken the model
            self.published.pop(request.model, None)
        self._handed_over = None
        return {"version": request.session.engine.version}

    def _put(self, request: Put, now: float) -> Response:
        name, spec = check_name(request.model), request.spec
        session = self._sessions.get(name) or self._adopt(name)
        self.check_not_damaged(name)
        if session is not None:
            spec = spec.with_defaults_of(session.engine.spec)
        is_new = session is None
        if session is None:
            if not self.store.holds_lease(name) and not self.store.acquire_leases([name], 1):
                raise _follower_error()
            if len(self.store.models()) >= self.max_models:
                raise Conflict(f"there are {self.max_models:,} models already, which is the maximum.")
            session = new_session(self.store, name, spec)
            session.yield_to_readers = partial(self._yield_to_readers, name)
            self._sessions[name] = session
            former_version = self.store.former_version(name)
            session.engine.version = former_version + 1
            if former_version >= 0 or session.engine.has_own_window:
                session.snapshot(now)
        elif session.engine.spec.as_dict() != spec.as_dict():
            session.configure(spec, now=now)
        self.store.put_model(name, json.dumps(spec.as_dict()), now)
        return {
            "name": name,
            "version": session.engine.version,
            "spec": session.engine.spec.as_dict(),
            "made": is_new,
        }

    def _label(self, session: ModelSession, request: Label, now: float) -> Response:
        found = self.store.pending(request.model, list(request.labels))
        waiting = {row.id for row in found}
        others = [row_id for row_id in request.labels if row_id not in waiting]
        known = set(self.store.known_ids(request.model, others))
        to_correct = {row_id: request.labels[row_id] for row_id in known if request.correct}
        if to_correct:
            session.corrections(to_correct)  # raises before anything is changed
        if found:
            session.label(found, request.labels, now=now, key=request.key)
            if self.statistics.on_labels is not None:
                self.statistics.on_labels(request.model, [now - row.at for row in found])
        corrected = session.correct(to_correct, now=now) if to_correct else []
        return {
            "labelled": len(found),
            "corrected": len(corrected),
            "already_labelled": [r for r in others if r in known and r not in corrected],
            "unknown": [row_id for row_id in others if row_id not in known],
            "version": session.engine.version,
        }

    @staticmethod
    def _update_sites(session: ModelSession, request: Publish | Drop, now: float) -> Response:
        if not isinstance(session, PooledSession):
            raise Conflict(
                f"the model {request.model!r} learns rows and has no sites; nothing was changed.",
                hint="create a model with sites = true",
            )
        if isinstance(request, Drop):
            return session.drop(request.site, now=now)
        return session.receive(request.site_update, now=now)

    def _tick(self, now: float) -> Response:
        expired = []
        for name, session in list(self._sessions.items()):
            try:
                if session.expire_rows(now):
                    expired.append(name)
            except FileFormatError as error:  # raised before anything was changed
                self._set_aside(name, error)
                continue
            is_due = now - session.snapshot_at >= _EXPIRED_SECONDS
            if is_due and session.row_windows.expired_chunks():
                session.snapshot(now)  # deletes expired rows from the store
            if session.engine.spec.limit("megabytes") < math.inf:
                session.measure_state()
            if self.store.drop_responses(name, now - _RESPONSE_SECONDS):
                self._next_tick = time.monotonic() + _NEXT_SLICE_SECONDS
        self.store.drop_audit(now - self._audit_seconds)
        return {"expired": expired}


def _changed_models(request: Request, response: Response) -> list[str]:
    if isinstance(request, Rename):
        return [request.model, request.new_name]
    return list(response.get("expired", [request.model]))


def _repeated(request: Request, known: Mapping[str, tuple[str, str]]) -> Response | SteelyardError:
    """Return the stored response of a repeated request, or the error that it raises."""
    try:
        return stored_response(request, *known[str(request.key)])
    except SteelyardError as error:
        return error


def _follower_error() -> Unavailable:
    return Unavailable(
        "this process does not learn this model, because another process learns it; nothing was changed.",
        hint="send the request to the process whose /health/learner answers 200",
    )


def _failure(error: Exception, *, is_store_error: bool) -> Unavailable:
    """Return the error for requests whose transaction failed."""
    reason, effect = reason_of(error), "nothing was changed"
    if isinstance(error, CommitOutcomeUnknown):
        effect = "it is not known whether the request took effect"
    if is_store_error:
        message = f"the store could not be written ({reason}); {effect}."
        hint = "check the disk of the service, then send the request again with the same key"
    elif isinstance(error, MemoryError):
        message, hint = f"the service has too little memory for this request; {effect}.", "send fewer rows"
    else:
        message, hint = f"the service failed ({reason}); {effect}.", "see the log of the service"
    failure = Unavailable(message, hint=hint)
    failure.__cause__ = error
    return failure


def _location(error: Exception) -> str:
    """Return the type and the source location of an error; its message may contain values of rows."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{last}"
