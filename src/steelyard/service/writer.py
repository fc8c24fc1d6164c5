"""Writer: the one thread that changes models, with group commit."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from steelyard._threads import reserve_core
from steelyard.exceptions import SteelyardError
from steelyard.service.audit import AuditLog
from steelyard.service.clock import SteadyClock
from steelyard.service.commands import (
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
from steelyard.service.engine import PublishedModel
from steelyard.service.idempotency import Response, run_once
from steelyard.service.pool import PooledSession, new_session, recover_session
from steelyard.service.queue import RequestQueue, stopping_error
from steelyard.service.replication import catch_up
from steelyard.service.session import LearnedRows, ModelSession
from steelyard.service.spec import check_name
from steelyard.service.speculation import Speculation, concatenated
from steelyard.service.statistics import WriterStatistics
from steelyard.service.stores import CommitOutcomeUnknown
from steelyard.service.stores.sql import Store

__all__ = ["Writer"]

_log = logging.getLogger("steelyard.service")
_MAX_GROUP_REQUESTS = 256
_SNAPSHOT_ROWS = 50_000
_SNAPSHOT_EVENTS = 2_000
_RESPONSE_SECONDS = 7 * 86_400.0  # how long responses are stored for repeated requests
_EXPIRED_SECONDS = 3_600.0  # how long expired rows may stay in the store
_TICK_SECONDS = 30.0
_YIELD_SECONDS = 5e-5
_POLL_SECONDS = 1.0  # interval at which a follower reads the store and a leader confirms its write lock

Outcome = tuple[Request, Response | Exception]


class Writer:
    """Thread that processes requests in groups, each in one transaction.

    After the commit of a group, the writer publishes the changed models and then resolves the futures of the
    requests. A process without the write lock follows the process that has it.

    Parameters
    ----------
    store : Store
        Durable storage of models, rows and events.
    clock : callable, optional
        Returns the time in seconds; by default the system clock, protected against jumps.
    max_waiting : int, default=1024
        Maximum number of queued requests; further requests raise QueueFullError.
    max_models : int, default=1000
        Maximum number of models.
    max_remembered : int, default=1000000
        Maximum number of rows of a model that wait for labels.
    may_learn : bool, default=True
        Whether this process takes the write lock when it is free; if False, it only follows.
    audit_days : float, default=90
        Days for which the audit log is kept.
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
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        self._sessions: dict[str, ModelSession] = {}
        self._queue = RequestQueue(max_waiting)
        self._speculation = Speculation(self._queue, self.clock, _MAX_GROUP_REQUESTS)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._needs_recovery = False  # whether the models in memory may differ from the store
        self._is_leader = True  # assumed until another process is found to have the write lock
        self._followed_at = time.monotonic()
        self._next_tick = time.monotonic() + _TICK_SECONDS
        self.recover()

    # -- start and stop -----------------------------------------------------------------------------

    def recover(self) -> None:
        """Load all models from the store."""
        self._speculation.invalidate()
        with self.store.read_snapshot():
            self._sessions = {
                name: recover_session(self.store, name, spec) for name, spec in self.store.models()
            }
        for name, session in self._sessions.items():
            session.yield_to_readers = partial(self._yield_to_readers, name)
        self.published = {name: session.engine.published() for name, session in self._sessions.items()}
        self._needs_recovery = False

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
        if self.is_alive:
            assert self._thread is not None
            self._queue.close()
            self._thread.join()
        if self._needs_recovery or not self._is_leader:
            return
        with suppress(Exception), self.store.transaction():
            for session in self._sessions.values():
                if session.events_since_snapshot:
                    session.snapshot(self.clock())

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def leads(self) -> bool:
        """Whether this process has the write lock."""
        return self._is_leader

    @property
    def behind(self) -> float:
        """Seconds since a follower last read the store; 0 for the leader."""
        return 0.0 if self._is_leader else time.monotonic() - self._followed_at

    @property
    def n_waiting(self) -> int:
        """Number of queued requests."""
        return len(self._queue)

    def waiting_labels(self) -> dict[str, int]:
        """Return the number of rows of each model that wait for labels; empty in a follower."""
        return {n: s.n_pending for n, s in list(self._sessions.items())} if self._is_leader else {}

    def snapshot_times(self) -> dict[str, float]:
        """Return the time of the last snapshot of each model that has one."""
        times = {name: session.snapshot_at for name, session in list(self._sessions.items())}
        return {name: at for name, at in times.items() if at > -math.inf}

    def submit(self, request: Request) -> Request:
        """Queue a request; its future is resolved when the request is durable."""
        if self._closing:
            raise stopping_error()
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the writer thread has ended; nothing was changed.", hint="restart the service")
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

        Native code releases the GIL but keeps its core; the event loop, woken on the same core, would have to
        wait until the whole request is learned even if another core is idle.
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
                self.process(group)
            else:
                self.store.acquire_write_lock()  # raises if the connection to the database is lost
                if self._needs_recovery:
                    self.recover()
        except Exception as error:  # noqa: BLE001  the thread must survive
            self._needs_recovery = True
            _log.error("the writer failed: %s; models are loaded again", _location(error))
        if self._is_leader and not self.store.holds_write_lock:
            self._step_down()
        if self._queue.is_closed and not self._is_leader:
            self._reject_queued(stopping_error)
        return self._queue.is_closed and not self._queue and self._speculation.batch is None

    # -- following ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Apply the changes of the leader, and take over if its write lock is free."""
        self._reject_queued(_follower_error)
        try:
            self.store.wait_for_changes(_POLL_SECONDS)
            self._publish(catch_up(self.store, self._sessions))
            self._followed_at = time.monotonic()
            if self.may_learn and self.store.acquire_write_lock():
                self.recover()
                self._is_leader = True
                _log.warning("this process has the write lock now and learns")
        except Exception as error:  # noqa: BLE001  retried; the published models keep answering
            _log.error("the changes of the leader cannot be read: %s", _location(error))
            self._sessions = {}  # loaded again when the store is available
            time.sleep(_POLL_SECONDS)

    def _step_down(self) -> None:
        """Become a follower because the write lock is lost."""
        _log.warning("this process has lost the write lock and follows")
        self._is_leader, self._followed_at = False, time.monotonic()
        if self._speculation.reject(_follower_error):
            self._sessions = {}  # loaded again later, because they contain rows that will not be written

    def _reject_queued(self, error: Callable[[], Unavailable]) -> None:
        for request in self._queue.take(len(self._queue)):
            if request.future.set_running():
                request.future.set_exception(error())

    # -- one group ----------------------------------------------------------------------------------

    def _next_group(self) -> list[Request]:
        """Return the speculative batch, a due tick, or the next requests; empty if none arrives."""
        if self._speculation.batch is not None:
            return list(self._speculation.batch.requests)
        wait = self._next_tick - time.monotonic()
        if wait <= 0:
            self._next_tick = time.monotonic() + _TICK_SECONDS
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
        except Exception as error:  # noqa: BLE001  nothing of this group has been committed
            self._undo(requests, error)
            return
        # The group is durable: whatever fails from here on, every request gets its response.
        self.statistics.commit_seconds.add(time.perf_counter() - begin)
        self.audit.committed()
        succeeded = [(request, o) for request, o in outcomes if not isinstance(o, Exception)]
        erase_error = self._erase() if any(request.erases for request, _ in succeeded) else None
        try:
            self._publish(name for request, o in succeeded for name in _changed_models(request, o))
        except Exception as error:  # noqa: BLE001
            self._needs_recovery = True
            _log.error("changed models could not be published: %s", _location(error))
        for request, outcome in outcomes:
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            elif erase_error is not None and request.erases:
                request.future.set_exception(erase_error)
            else:
                request.future.set_result(outcome)

    def _background_work(self) -> Callable[[], None] | None:
        return None if self._closing or not self._queue else self._speculation.prepare(self._sessions)

    def _erase(self) -> Exception | None:
        try:
            self.store.erase()
        except SteelyardError as error:
            self.statistics.erase_failures += 1
            return error
        except Exception as error:  # noqa: BLE001  the client must learn that the data may still be on disk
            self.statistics.erase_failures += 1
            _log.error("forgotten rows could not be erased: %s", _location(error))
            return Unavailable(
                f"the rows are forgotten, but may still be in the log of the store ({type(error).__name__}).",
                hint="check the disk of the service; the next forget request erases them",
            )
        return None

    def _undo(self, requests: list[Request], error: Exception) -> None:
        """Restore the models from the store after a failed transaction, and retry or fail its requests."""
        _log.error("a group of %d requests failed: %s", len(requests), _location(error))
        self._needs_recovery = True
        self.statistics.write_failed(error)
        is_unknown = isinstance(error, CommitOutcomeUnknown)
        effect = "it is not known whether the request took effect" if is_unknown else "nothing was changed"
        failure = Unavailable(
            f"the store could not be written ({type(error).__name__}); {effect}.",
            hint="check the disk of the service, then send the request again with the same key",
        )
        failure.__cause__ = error
        try:
            self.recover()
        except Exception as trouble:  # noqa: BLE001  retried with the next group
            _log.error("models could not be loaded: %s", _location(trouble))
        is_store_error = isinstance(error, (CommitOutcomeUnknown, *self.store.errors))
        retry = not self._needs_recovery and len(requests) > 1 and not is_store_error
        for request in requests:
            if retry:  # run one at a time, so that only the request that caused the failure fails again
                self._process([request])
            else:
                request.future.set_exception(failure)
        if not retry:
            self.audit.add_failed(requests, "unknown" if is_unknown else "failed", self.clock())

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
            with suppress(Exception):  # a listener cannot delay the responses
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
                    run = partial(self._run_request, request, now)
                    response = run_once(self.store, request, run, now)
                outcomes.append((request, response))
            except SteelyardError as error:
                outcomes.append((request, error))
        return outcomes

    def _learn_together(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome] | None:
        """Learn the rows of all requests in one call; return None if that is not possible."""
        session = self._sessions.get(requests[0].model)
        rows = [r for r in requests if isinstance(r, Learn) and r.key is None]
        if session is None or len(rows) < len(requests) or session.engine.spec.quarantines:
            return None
        if learned is not None:
            version = session.write(learned)
        elif len(rows) == 1 or not session.engine.column_kinds():
            return None  # the first rows of a model determine its columns, so they are learned alone
        else:
            try:
                version = session.learn(concatenated(session, rows), now=self.clock())
            except SteelyardError:
                return None  # a request has bad rows; one call per request finds it
        return [(r, {"learned": r.batch.n_rows, "version": version}) for r in rows]

    def _run_request(self, request: Request, now: float) -> Response:
        if isinstance(request, Tick):
            return self._tick(now)
        if isinstance(request, Put):
            return self._put(request, now)
        session = self._sessions.get(request.model)
        if session is None:
            raise NotFoundError(
                f"there is no model {request.model!r}.", hint="PUT /v1/models/NAME creates one"
            )
        if isinstance(request, Delete | Rename):
            return self._remove(session, request, now)
        if isinstance(request, Release):
            return session.release(request, now=now)
        if isinstance(request, Challenge | Promote):
            return self._challenge(session, request, now)
        return self._change_model(session, request, now)

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
        """Delete or rename a model; versions of its old and its new name never repeat."""
        name, engine = request.model, session.engine
        if isinstance(request, Delete):
            self.store.drop_model(name)
            answer = {"deleted": name, "rows": engine.n_rows, "version": engine.version}
        else:
            new_name = check_name(request.new_name)
            if new_name in self._sessions:
                raise Conflict(f"there is a model {new_name!r} already; nothing was changed.")
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

    def _challenge(self, session: ModelSession, request: Challenge | Promote, now: float) -> Response:
        if isinstance(request, Challenge):
            return {"version": session.challenge(request, now=now)}
        version = session.promote(now=now)
        values = session.engine.spec.as_dict()
        self.store.put_model(request.model, json.dumps(values), now)
        return {"version": version, "spec": values}

    def _put(self, request: Put, now: float) -> Response:
        name, spec = check_name(request.model), request.spec
        session = self._sessions.get(name)
        is_new = session is None
        if session is None:
            if len(self._sessions) >= self.max_models:
                raise Conflict(f"there are {self.max_models:,} models already, which is the maximum.")
            session = new_session(self.store, name, spec)
            session.yield_to_readers = partial(self._yield_to_readers, name)
            self._sessions[name] = session
            former_version = self.store.former_version(name)
            if former_version >= 0:
                session.engine.version = former_version + 1
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
        for name, session in self._sessions.items():
            if session.expire_rows(now):
                expired.append(name)
            is_due = now - session.snapshot_at >= _EXPIRED_SECONDS
            if is_due and session.row_windows.expired_chunks():
                session.snapshot(now)  # deletes expired rows from the store
            if session.engine.spec.limit("megabytes") < math.inf:
                session.measure_state()
        self.store.drop_responses(now - _RESPONSE_SECONDS)
        self.store.drop_audit(now - self._audit_seconds)
        return {"expired": expired}


def _changed_models(request: Request, response: Response) -> list[str]:
    if isinstance(request, Rename):
        return [request.model, request.new_name]
    return list(response.get("expired", [request.model]))


def _follower_error() -> Unavailable:
    return Unavailable(
        "this process only predicts, because another process learns; nothing was changed.",
        hint="send the request to the process whose /health/learner answers 200",
    )


def _location(error: Exception) -> str:
    """Return type and source location of an error, without its message, which may contain values of rows."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{last}"
