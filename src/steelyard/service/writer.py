"""Writer: the thread that changes models. It commits many requests in one transaction (group commit)."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec

from steelyard._threads import one_blas_thread, reserve_core
from steelyard.exceptions import FileAccessError, SteelyardError
from steelyard.service.audit import AuditLog, WriterStatistics
from steelyard.service.commands import Adopt, Delete, Learn, Rename, Request, Response, Tick
from steelyard.service.errors import Conflict, Unavailable, follower_error, stopping_error
from steelyard.service.model_owner import POLL_SECONDS, ModelOwner, location
from steelyard.service.pool import new_session
from steelyard.service.queue import GroupTimes, RequestQueue
from steelyard.service.session import LearnedRows, ModelSession
from steelyard.service.spec import Spec
from steelyard.service.speculation import Speculation
from steelyard.service.stores import CommitOutcomeUnknown, reason_of
from steelyard.service.stores.sql import Store
from steelyard.service.system import SteadyClock

_log = logging.getLogger("steelyard.service")
_MAX_GROUP_REQUESTS = 256
_MAX_GROUP_SECONDS = 0.025  # a group is committed after this time, without its remaining requests
_SNAPSHOT_ROWS = 50_000
_SNAPSHOT_EVENTS = 2_000
_TICK_SECONDS = 30.0

Outcome = tuple[Request, Response | Exception]


class Writer(ModelOwner):
    """Thread that processes requests in commit groups. All requests of a group share one transaction.

    After the commit of a group, the writer publishes the changed models and then resolves the futures of the
    requests. A process without the write lock follows the process that holds it.

    Parameters
    ----------
    store : Store
        Durable storage of models, rows and events.
    clock : callable, optional
        Returns the time in seconds. The default is the system clock without sudden jumps.
    max_waiting : int, default=1024
        Maximum number of queued requests; further requests raise QueueFullError.
    max_models : int, default=1000
        Maximum number of models.
    max_remembered : int, default=1000000
        Maximum number of rows of a model that wait for labels.
    may_learn : bool, default=True
        Whether this process takes the write lock when it is free. If False, it only follows.
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
        super().__init__(store, clock or SteadyClock())
        self.may_learn, self.max_models, self.max_remembered = may_learn, max_models, max_remembered
        self.audit, self.audit_seconds = AuditLog(store), 86_400.0 * audit_days
        self.statistics = WriterStatistics()
        self.problem: str | None = None  # reason why the store cannot be written, for example "disk full"
        self.next_tick = time.monotonic() + _TICK_SECONDS
        self._slow_writer: SlowWriter | None = None
        self._move_lock = threading.Lock()  # held while a model moves to the other writer thread
        self.group_times = GroupTimes()
        self.queue = RequestQueue(max_waiting)
        self._speculation = Speculation(self)
        self._thread: threading.Thread | None = None
        self._erase_pending = False  # whether forgotten rows may still be in the files of the store
        self.needs_recovery = False  # whether the models in memory may differ from the store
        self.leads = True  # whether this process holds the write lock; assumed until it is found not to
        self._followed_at, self._can_follow = time.monotonic(), True
        self.recover()

    # -- starting and stopping ----------------------------------------------------------------------

    def recover(self) -> None:
        self._speculation.invalidate()
        super().recover()
        self.needs_recovery = False

    def start(self) -> None:
        """Start the thread, as leader or as follower."""
        had_lock = self.store.holds_write_lock
        self.leads = self.may_learn and self.store.acquire_write_lock()
        if not had_lock:
            self.recover()  # another process may have written to the store since the models were loaded
        self._thread = threading.Thread(target=self._run, name="steelyard-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Process the queued requests, write snapshots and stop. Further calls do nothing."""
        if self.queue.is_closed:
            return
        self._speculation.is_enabled = False
        self.queue.close()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        if self._slow_writer is not None:
            self._slow_writer.close()
            self._slow_writer.store.close()
        if self.needs_recovery or not self.leads:
            return
        with suppress(Exception):
            self._write_last_snapshots(self.sessions)

    @property
    def _writers(self) -> list[Writer]:
        """This thread and, if there is one, the second writer thread."""
        return [self] if self._slow_writer is None else [self, self._slow_writer]

    @property
    def is_alive(self) -> bool:
        """Whether this thread is running, and also the second writer thread if there is one."""
        return all(one._thread is not None and one._thread.is_alive() for one in self._writers)

    @property
    def behind(self) -> float:
        """Seconds since a follower last read the store, or 0 for the leader."""
        return 0.0 if self.leads else time.monotonic() - self._followed_at

    @property
    def n_waiting(self) -> int:
        """Number of queued requests."""
        return sum(len(one.queue) for one in self._writers)

    def check_not_damaged(self, name: str) -> None:
        for one in self._writers:
            ModelOwner.check_not_damaged(one, name)

    def all_sessions(self) -> dict[str, ModelSession]:
        """Return the sessions of both writer threads."""
        return {name: session for one in self._writers for name, session in list(one.sessions.items())}

    def waiting_labels(self) -> dict[str, int]:
        """Return the number of rows that wait for labels, by model. The result is empty in a follower."""
        return {name: s.n_pending for name, s in self.all_sessions().items()} if self.leads else {}

    def submit(self, request: Request) -> Request:
        """Queue a request, whose future is resolved when the request is durable."""
        if self.queue.is_closed:
            raise stopping_error()
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the writer thread has ended; nothing was changed.", hint="restart the service")
        if request.model in self.slow_models and self._slow_writer is not None:
            return self._slow_writer.submit(request)
        if not self.leads:
            raise follower_error()
        self.queue.put(request)
        return request

    def accept(self, request: Request) -> None:
        """Queue a request that another writer thread forwards; fail the request if that is not possible."""
        try:
            self.submit(request)
        except SteelyardError as error:
            request.future.finish(error)

    def _run(self) -> None:
        # One core is left free for predictions. A second BLAS thread would occupy it, mostly by waiting:
        # learning 500 features took 2.8 times the CPU time, and two learner threads on two cores were slower
        # than one.
        with reserve_core(), one_blas_thread:
            while not self._step():
                pass

    def _step(self) -> bool:
        """Process the next group, or follow the leader; return whether the thread has finished."""
        try:
            if not self.leads:
                self._follow()
            elif group := self._next_group():
                own = self._own_requests(group) if self.slow_models else group
                self.process(_by_model(own) if len(own) > 1 else own, seconds=_MAX_GROUP_SECONDS)
                if not self._speculation.requests:
                    self._balance(group)
            else:
                self.store.acquire_write_lock()  # raises if the connection to the database is lost
                if self.needs_recovery:
                    self.recover()
                self._rebalance()
                if self.problem is not None:
                    self.store.check_writable()
                    self._set_problem(None)
        except Exception as error:  # noqa: BLE001  the thread must survive
            if self.problem is None:
                _log.error("the writer failed: %s; models are loaded again", location(error))
            self.needs_recovery = True
        if self.leads and not self.store.holds_write_lock:
            self._step_down()
        if self.queue.is_closed and not self.leads:
            self._reject_queued(stopping_error)
        return self.queue.is_closed and not self.queue and not self._speculation.requests

    # -- slow models in a second thread -------------------------------------------------------------

    def _balance(self, group: Sequence[Request]) -> None:
        """Hand slow models to the second thread, and at intervals rebalance models between processes.

        A model with a thousand columns takes a tenth of a second per row, and the other models must not wait.
        """
        for name in {request.model for request in group} & self.sessions.keys():
            if self.group_times.is_slow(name, self.sessions):
                self._hand_over(name)
        if time.monotonic() > self._next_balance:
            self._rebalance()

    def _hand_over(self, name: str) -> None:
        """Hand a model to the second writer thread, which is started if it is needed for the first time."""
        if self._slow_writer is None:
            store = self.store.sibling()
            if store is None or not store.acquire_write_lock():
                return
            self._slow_writer = SlowWriter(store, self)
            self._slow_writer.start()
        self._move(name, self, self._slow_writer)
        _log.warning("the model %r is slow and moves to the second writer thread", name)

    def _move(self, name: str, source: Writer, target: Writer) -> None:
        """Hand a model from one writer thread to the other. Requests are accepted meanwhile."""
        with self._move_lock:
            self._moving = name
            session = source.sessions.pop(name, None)
            source.store.release_leases([name])
            try:
                if session is not None:
                    # Queued before any request for the model that is submitted or forwarded from now on.
                    target.queue.put(Adopt(name, session))
            except SteelyardError:
                self._moving = None
                raise  # the queue is full, and the next request loads the model again
            if target is self:
                self.slow_models.discard(name)
            else:
                self.slow_models.add(name)
                self._moving = None

    def _own_requests(self, group: Sequence[Request]) -> list[Request]:
        """Forward the requests for slow models to the second thread; return the other requests."""
        own = []
        for request in group:
            # A model that the second thread hands back is still among the slow models for a moment.
            is_slow = request.model in self.slow_models and not isinstance(request, Adopt)
            if is_slow and self._slow_writer is not None:
                self._slow_writer.accept(request)
            else:
                own.append(request)
        return own

    def _rebalance(self) -> None:
        """Take over models whose process has died, and release models if other processes have fewer."""
        if not self.store.has_leases:
            return
        self._next_balance = time.monotonic() + POLL_SECONDS
        taken = self._take_share()
        with self.store.read_snapshot():
            for name in taken:
                self._recover_model(name, str(self.store.spec_of(name)))
        self._publish(taken)
        names = list(self.sessions)
        learners = self.store.learners(names)
        if learners is not None and not taken:
            n_held = learners.n_leases.get(self.store.address, 0)
            n_fewest = min(learners.n_leases.values(), default=n_held)
            self._release(names[: (n_held - n_fewest) // 2])

    def _release(self, names: Sequence[str]) -> None:
        """Release models to other processes. Snapshots are written first, which makes loading fast."""
        if not names:
            return
        self._write_last_snapshots(names)
        for name in names:
            del self.sessions[name]
            self.published.pop(name, None)
        self.store.release_leases(names)
        _log.warning("%d models are now learned by another process", len(names))

    def _write_last_snapshots(self, names: Iterable[str]) -> None:
        with self.store.transaction():
            for session in (self.sessions[name] for name in names):
                if session.events_since_snapshot:
                    session.snapshot(self.clock())

    # -- following ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Apply the changes of the leader; take over if the write lock is free."""
        self._reject_queued(follower_error)
        try:
            if self.may_learn and self.store.acquire_write_lock():
                self.recover()
                self.leads = True
                _log.warning("this process has the write lock now and learns")
                return
            self.store.wait_for_changes(POLL_SECONDS)
            self._publish(self._catch_up())
            if not self._can_follow:
                _log.warning("the changes of the leader can be read again")
            self._followed_at, self._can_follow = time.monotonic(), True
            learners = self.store.learners(list(self.sessions))
            self.owners = {} if learners is None else learners.owners
        except Exception as error:  # noqa: BLE001  retried later; the published models still predict
            if self._can_follow:  # an outage is logged once, however long it takes
                _log.error("the changes of the leader cannot be read: %s", location(error))
            self._can_follow = False
            self.sessions = {}  # the models are loaded again when the store is available
            time.sleep(POLL_SECONDS)

    def _step_down(self) -> None:
        """Become a follower because the write lock is lost."""
        _log.warning("this process has lost the write lock and follows")
        self.leads, self._followed_at = False, time.monotonic()
        if self._speculation.reject(follower_error):
            self.sessions = {}  # the models contain rows that will not be written, so they are loaded again

    def _reject_queued(self, error: Callable[[], Unavailable]) -> None:
        for request in self.queue.take(len(self.queue)):
            if request.future.set_running():
                request.future.finish(error())

    # -- processing of one group of requests -------------------------------------------------------------

    def _next_group(self) -> list[Request]:
        """Return the requests of the speculative batch, a tick if it is due, or the next queued requests."""
        if self._speculation.requests:
            return list(self._speculation.requests)
        wait = self.next_tick - time.monotonic()
        if wait <= 0:
            self.next_tick = time.monotonic() + _TICK_SECONDS
            if self._erase_pending:
                self._erase()
            return [Tick("")]
        return self.queue.next_group(_MAX_GROUP_REQUESTS, min(wait, POLL_SECONDS))

    def process(self, requests: list[Request], *, seconds: float = math.inf) -> None:
        """Process requests in one transaction, publish changed models, then resolve the futures.

        Cancelled requests are skipped. After ``seconds``, the remaining requests are put back in the queue.
        """
        end = time.monotonic() + seconds
        requests = [request for request in requests if request.future.set_running()]
        outcomes: list[Outcome] = []
        learned = self._speculation.take(requests) if self._speculation.requests else None
        try:
            if self.needs_recovery:
                self.recover()
                learned = None  # the recovered model does not contain these rows
            with self.store.transaction(self._next_learning):
                for _, same in groupby(requests, key=lambda request: (type(request), request.model)):
                    outcomes += self._run_requests(list(same), learned)
                    if time.monotonic() > end:
                        break
                if len(outcomes) < len(requests):
                    self.queue.put_back(requests[len(outcomes) :])
                    del requests[len(outcomes) :]
                self._write_snapshots()
                self.audit.write(outcomes, self.clock())
                begin = time.perf_counter()
        except Exception as error:  # noqa: BLE001  the transaction failed, or its outcome is unknown
            self._undo(requests, error)
            return
        # The group is durable, so every request gets its response even if one of the following steps fails.
        self.statistics.commit_seconds.observe(time.perf_counter() - begin)
        self.audit.committed()
        self._set_problem(None)
        succeeded = [(request, o) for request, o in outcomes if not isinstance(o, Exception)]
        self._release_removed([request for request, _ in succeeded])
        is_erased = not any(request.erases for request, _ in succeeded) or self._erase()
        try:
            self._publish(name for request, o in succeeded for name in request.changed_models(o))
        except Exception as error:  # noqa: BLE001
            self.needs_recovery = True
            _log.error("changed models could not be published: %s", location(error))
        for request, outcome in outcomes:
            if request.erases and not is_erased and not isinstance(outcome, Exception):
                outcome = {**outcome, "erasure_pending": True}
            request.future.finish(outcome)

    def _publish(self, names: Iterable[str]) -> None:
        """Replace the published models whose version changed, and notify the listeners."""
        for name in dict.fromkeys(names):
            session, current = self.sessions.get(name), self.published.get(name)
            if session is None:
                if self.published.pop(name, None) is not None:
                    self._notify(name)
                continue
            committed = self._speculation.committed_model(name)
            if current is not None and current.version == (committed or session.engine).version:
                continue
            published = committed or session.engine.published()
            if current is not None:
                published.warm_up(current)
            self.published[name] = published
            self._notify(name)

    def _notify(self, name: str) -> None:
        for listener in list(self.listeners):
            with suppress(Exception):  # an error in a listener must not affect the responses
                listener(name)

    def _next_learning(self) -> Callable[[], None] | None:
        return self._speculation.prepare(_MAX_GROUP_REQUESTS) if self.queue else None

    def _erase(self) -> bool:
        """Erase deleted data from the files of the store. After an error, the next tick tries again."""
        was_pending, self._erase_pending = self._erase_pending, False
        try:
            return self.store.erase()
        except Exception as error:  # noqa: BLE001  the model has forgotten the rows, but the disk may contain them
            self._erase_pending = True
            self.statistics.erase_failures += 1
            if not was_pending:
                reason = error.summary if isinstance(error, SteelyardError) else location(error)
                _log.warning("forgotten rows are not erased from disk yet: %s", reason)
            return False

    def _undo(self, requests: list[Request], error: Exception) -> None:
        """Restore the models from the store after a failed transaction, and retry or fail its requests."""
        is_store_error = isinstance(error, (CommitOutcomeUnknown, FileAccessError, *self.store.errors))
        self.statistics.write_failures[type(error.__cause__ or error).__name__] += 1
        if is_store_error:
            self._set_problem(reason_of(error))
        _log.error("a group of %d requests failed: %s (%s)", len(requests), reason_of(error), location(error))
        self.needs_recovery = True
        failure = _failure(error, is_store_error=is_store_error)
        try:
            self.recover()
        except Exception as trouble:  # noqa: BLE001  the next group tries again
            _log.error("models could not be loaded: %s", location(trouble))
        retry = not self.needs_recovery and len(requests) > 1 and not is_store_error
        for request in requests:
            if retry:  # requests are retried one at a time, so that only the failing request fails again
                self.process([request])
            else:
                request.future.finish(failure)
        if not retry:
            is_unknown = isinstance(error, CommitOutcomeUnknown)
            self.audit.add_failed(requests, "unknown" if is_unknown else "failed", self.clock())

    def _set_problem(self, reason: str | None) -> None:
        if reason is None and self.problem is not None:
            _log.warning("the store can be written again")
        self.problem = reason

    def _write_snapshots(self) -> None:
        for session in self.sessions.values():
            if (
                session.rows_since_snapshot >= _SNAPSHOT_ROWS
                or session.events_since_snapshot >= _SNAPSHOT_EVENTS
            ):
                session.snapshot(self.clock())

    # -- execution of requests ---------------------------------------------------------------------------

    def _run_requests(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome]:
        """Run requests of one kind for one model, and measure the time for :attr:`slow_models`."""
        begin = time.thread_time()  # CPU time, which excludes interruptions by other programs
        outcomes = self._learn_together(requests, learned) if isinstance(requests[0], Learn) else None
        if outcomes is None:
            outcomes = [(request, self._outcome(request)) for request in requests]
        ahead = 0.0 if learned is None else learned.seconds
        self.group_times.add(requests[0].model, ahead + time.thread_time() - begin)
        return outcomes

    def _outcome(self, request: Request) -> Response | SteelyardError:
        """Run one request; return its response, or the error that it raised."""
        now = self.clock()
        try:
            if request.key is None:
                return request.run(self, now)
            if request.model not in self.sessions:
                self.adopt(request.model)  # the lease is needed before the stored responses are read
            known = self.store.responses_to(request.model, [request.key]).get(request.key)
            if known is not None:
                return request.stored_response(*known)
            response = request.run(self, now)
            rows, body = request.mentioned_rows(response), json.dumps(response)
            stored = (request.key, request.fingerprint, body)
            self.store.put_responses(request.model, [stored], at=now, rows=rows)
        except SteelyardError as error:
            return error
        return response

    def _learn_together(self, requests: list[Request], learned: LearnedRows | None) -> list[Outcome] | None:
        """Learn the rows of all requests in one call; return None if this is not possible."""
        session = self.sessions.get(requests[0].model)
        keys = [r.key for r in requests if r.key is not None]
        if session is None or len(set(keys)) < len(keys) or not session.can_learn_together:
            return None
        known = self.store.responses_to(requests[0].model, keys) if keys else {}
        rows = [r for r in requests if isinstance(r, Learn) and r.key not in known]
        if learned is None and rows:
            try:
                sources = [(r.key, r.batch.n_rows) for r in rows] if keys else []
                batch = session.concatenated([r.batch for r in rows])
                learned = session.learn_in_memory(batch, now=self.clock(), sources=sources)
            except SteelyardError:
                return None  # a request has bad rows; it is found when requests are learned one by one
        version = session.engine.version if learned is None else session.write(learned)
        outcomes: list[Outcome] = [(r, {"learned": r.batch.n_rows, "version": version}) for r in rows]
        if not keys:
            return outcomes
        encode = msgspec.json.encode
        new = [(r.key, r.fingerprint, encode(o).decode()) for r, o in outcomes if r.key is not None]
        if new:
            self.store.put_responses(requests[0].model, new, at=self.clock())
        return outcomes + [(r, r.stored_response(*known[r.key])) for r in requests if r.key in known]

    def create(self, name: str, spec: Spec, now: float) -> ModelSession:
        """Create a model that does not exist yet."""
        self.need_lease(name)
        if len(self.store.models()) >= self.max_models:
            raise Conflict(f"there are {self.max_models:,} models already, which is the maximum.")
        session = new_session(self.store, name, spec)
        self.add_session(name, session)
        former_version = self.store.former_version(name)
        session.engine.version = former_version + 1
        if former_version >= 0 or session.engine.has_own_window:
            session.snapshot(now)
        return session

    def continue_with(self, name: str, session: ModelSession) -> None:
        """Take over a session that the other writer thread has released."""
        if self.store.acquire_leases([name], 1):
            session.store, self.sessions[name] = self.store, session
        else:
            self._give_up(name)
        self._moving = None

    def _give_up(self, name: str) -> None:
        """Stop using a model that another process has taken meanwhile."""
        self.published.pop(name, None)

    def _release_removed(self, requests: Iterable[Request]) -> None:
        """Release the leases of models that were deleted or renamed, after the commit."""
        names = [request.model for request in requests if isinstance(request, Delete | Rename)]
        gone = [name for name in names if name not in self.sessions and self.store.holds_lease(name)]
        for name in gone:
            self.group_times.seconds.pop(name, None)
        if gone:
            with suppress(*self.store.errors):  # a lost session has no leases any more
                self.store.release_leases(gone)


class SlowWriter(Writer):
    """Second writer thread of a process. The first one forwards the requests for slow models to it."""

    def __init__(self, store: Store, first: Writer) -> None:
        self._first = first
        super().__init__(
            store,
            clock=first.clock,
            max_waiting=first.queue.max_requests,
            max_models=first.max_models,
            max_remembered=first.max_remembered,
            audit_days=first.audit_seconds / 86_400.0,
        )
        # A group has several transactions here, which must not contain rows of later requests.
        self._speculation.is_enabled = False
        self.statistics, self.group_times = first.statistics, first.group_times
        self.published, self.listeners, self.slow_models = first.published, first.listeners, set()

    def _is_own(self, name: str) -> bool:
        return name in self._first.slow_models

    def _take_share(self) -> list[str]:
        names = [name for name in self._first.slow_models if not self.store.holds_lease(name)]
        taken = self.store.acquire_leases(names, len(names))
        for name in names:
            if not self.store.holds_lease(name):
                self._give_up(name)
        return taken

    def _give_up(self, name: str) -> None:
        self._first.slow_models.discard(name)
        super()._give_up(name)

    def _rebalance(self) -> None:
        """Do nothing, because the first writer balances the models between processes."""

    def _balance(self, group: Sequence[Request]) -> None:
        """Hand back models that are no longer slow. Many models are slow only with their first rows."""
        queued = {request.model for request in self.queue.first(self.queue.max_requests)}
        for name in ({request.model for request in group} & self.sessions.keys()) - queued:
            if not self.group_times.is_slow(name, self._first.sessions, was_slow=True):
                self._first._move(name, self, self._first)

    def process(self, requests: list[Request], *, seconds: float = math.inf) -> None:  # noqa: ARG002
        """Process requests with one transaction per kind and model, then write snapshots.

        A transaction locks a SQLite file from its first write on. Rows are learned before the first write, so
        the first writer waits for this thread only while rows are written.
        """
        for (kind, name), same in groupby(requests, key=lambda request: (type(request), request.model)):
            is_own = kind in {Tick, Adopt} or self._is_own(name)
            if is_own and kind not in {Delete, Rename}:
                super().process(list(same))
            else:
                self._pass_on(name, list(same))
        with self.store.transaction():
            super()._write_snapshots()

    def _pass_on(self, name: str, requests: Sequence[Request]) -> None:
        """Forward requests to the first writer, which also renames and deletes; hand the model back first."""
        for request in requests:
            try:
                if self._is_own(name):
                    self._first._move(name, self, self._first)
            except SteelyardError as error:
                request.future.finish(error)
            else:
                self._first.accept(request)

    def _write_snapshots(self) -> None:
        """Do nothing, because :meth:`process` writes snapshots in a transaction of their own."""

    def _set_problem(self, reason: str | None) -> None:
        super()._set_problem(reason)
        self._first.problem = reason


def _by_model(requests: Sequence[Request]) -> list[Request]:
    """Put the learn requests of the same model next to each other, so that they are learned in one call.

    Requests of other kinds are not passed over, because they can concern several models.
    """
    ordered: list[Request] = []
    for kind, same in groupby(requests, key=type):
        run = list(same)
        if kind is Learn:
            order = {model: n for n, model in enumerate(dict.fromkeys(request.model for request in run))}
            run.sort(key=lambda request: order[request.model])
        ordered += run
    return ordered


def _failure(error: Exception, *, is_store_error: bool) -> Unavailable:
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
