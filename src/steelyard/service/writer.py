"""The one writer: gathers waiting requests into one transaction, then publishes, then acknowledges."""

from __future__ import annotations

import json
import logging
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
from steelyard.service.commands import (
    Conflict,
    Drop,
    Forget,
    Label,
    Learn,
    NotFoundError,
    Publish,
    Put,
    Remember,
    Request,
    Tick,
    Unavailable,
)
from steelyard.service.engine import Published
from steelyard.service.idempotency import Answer, once
from steelyard.service.pool import PooledModelSession, recovered, session_for
from steelyard.service.queue import RequestQueue, stopping
from steelyard.service.replication import catch_up
from steelyard.service.session import ModelSession, TakenIn
from steelyard.service.spec import check_name
from steelyard.service.speculation import SpeculativeBatch, next_rows, together
from steelyard.service.store import CommitOutcomeUnknown, Store

__all__ = ["Writer"]

_log = logging.getLogger("steelyard.service")
_GROUP = 256  # requests in one transaction at the most
_SNAPSHOT_ROWS = 50_000
_SNAPSHOT_EVENTS = 2_000
_ANSWERS_KEPT = 7 * 86_400.0
_TICK = 30.0

_PAUSE = 5e-5  # seconds
_NEWS = 1.0  # seconds after which a follower looks by itself, and a learner whether it still is one


class Writer:
    """Takes requests one group at a time.

    Parameters
    ----------
    store : Store
        Where everything is kept.
    clock : callable, default=time.time
        What tells the time.
    max_waiting : int, default=1024
        More requests than this are sent away.
    max_models : int, default=1000
        How many models there can be.
    max_remembered : int, default=1000000
        How many rows of a model can wait for their labels.
    may_learn : bool, default=True
        Whether it takes the right to write where it is free; otherwise it only follows whoever has it.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        max_waiting: int = 1024,
        max_models: int = 1000,
        max_remembered: int = 1_000_000,
        may_learn: bool = True,
    ) -> None:
        self.store, self.clock, self.may_learn = store, clock, may_learn
        self.max_models, self.max_remembered = max_models, max_remembered
        self.published: dict[str, Published] = {}
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        self._sessions: dict[str, ModelSession] = {}
        self._line = RequestQueue(max_waiting)
        self._thread: threading.Thread | None = None
        self._ahead: SpeculativeBatch | None = None
        self._closing = False
        self._in_doubt = False  # models may differ from the store until they are read again
        self._leads = True  # until it is known that another process does
        self._followed_at = time.monotonic()
        self._next_tick = time.monotonic() + _TICK
        self.recover()

    # -- life ---------------------------------------------------------------------------------------

    def recover(self) -> None:
        """All models as the store has them."""
        if self._ahead is not None:
            self._ahead = SpeculativeBatch(self._ahead.requests)  # what they were taught no longer counts
        with self.store.reading():
            self._sessions = {name: recovered(self.store, name, spec) for name, spec in self.store.models()}
        for name, session in self._sessions.items():
            session.pause = partial(self._let_askers_go_first, name)
        self.published = {name: session.engine.published() for name, session in self._sessions.items()}
        self._in_doubt = False

    def start(self) -> None:
        """Begin to write, or to follow whoever writes, in a thread of its own."""
        claimed = self.store.is_claimed
        self._leads = self.may_learn and self.store.claim()
        if not claimed:
            self.recover()  # another may have written since
        self._thread = threading.Thread(target=self._run, name="steelyard-scribe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what waits, write snapshots, and stop; may be called twice."""
        if self._closing:
            return
        self._closing = True
        if self.is_alive:
            assert self._thread is not None
            self._line.close()
            self._thread.join()
        if self._in_doubt or not self._leads:
            return
        with suppress(Exception), self.store.transaction():
            for session in self._sessions.values():
                if session.events_since_snapshot:
                    session.snapshot(self.clock())

    @property
    def is_alive(self) -> bool:
        """Whether requests are being written, or another process is being followed."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self._leads

    @property
    def behind(self) -> float:
        """Seconds since a follower last saw what the learner has written; 0 for the learner."""
        return 0.0 if self._leads else time.monotonic() - self._followed_at

    @property
    def n_waiting(self) -> int:
        """Requests that wait."""
        return len(self._line)

    def submit(self, request: Request) -> Request:
        """Put a request in line; its future holds the answer when it is on disk."""
        if self._closing:
            raise stopping()
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the service no longer writes; nothing was changed.", hint="start it again")
        if not self._leads:
            raise _elsewhere()
        self._line.put(request)
        return request

    def _run(self) -> None:
        with reserve_core():  # for predictions
            while not self._is_done_after_a_turn():
                pass

    def _let_askers_go_first(self, name: str) -> None:
        """Leave the core for a moment where a model is being asked.

        Learning gives up Python's lock again and again, but not the core on which it runs; a loop that was
        woken there would stand in line until a whole request is learned, with another core idle beside it.
        """
        published = self.published.get(name)
        if published is not None and published.is_asked:
            time.sleep(_PAUSE)

    def _is_done_after_a_turn(self) -> bool:
        """Carry out the next group, or follow; whether it was the last."""
        group = self._next_group() if self._leads else self._follow()
        try:
            self.process(group)
            if self._leads and not group:
                self.store.claim()  # still ours?
        except Exception as error:  # noqa: BLE001  whoever comes next must find a writer
            self._in_doubt = True
            _log.error("the scribe met %s; models are read again", type(error).__name__)
        if self._leads and not self.store.is_claimed:
            self._step_down()
        if self._line.is_closed and not self._leads:
            self._send_away(stopping)
        return self._line.is_closed and not self._line and self._ahead is None

    # -- following ----------------------------------------------------------------------------------

    def _follow(self) -> list[Request]:
        """See what the learner has written, and take its place where it is gone."""
        self._send_away(_elsewhere)
        try:
            self.store.wait_for_news(_NEWS)
            self._publish(catch_up(self.store, self._sessions))
            self._followed_at = time.monotonic()
            if self.may_learn and self.store.claim():
                self.recover()
                self._leads = True
                _log.warning("this process learns now")
        except Exception as error:  # noqa: BLE001  tried again; meanwhile the last models answer
            _log.error("the learner cannot be followed: %s", _where(error))
            self._sessions = {}  # read anew when the store answers
            time.sleep(_NEWS)
        return []

    def _step_down(self) -> None:
        """The right to write is lost."""
        _log.warning("this process no longer has the right to write; it follows")
        self._leads, self._followed_at = False, time.monotonic()
        if self._ahead is not None:
            for request in self._ahead.requests:
                request.future.set_exception(_elsewhere())
            self._ahead, self._sessions = None, {}  # read anew: they have learned what will not be written

    def _send_away(self, why: Callable[[], Unavailable]) -> None:
        """Requests that nobody will carry out here."""
        for request in self._line.take(len(self._line)):
            if request.future.begin():
                request.future.set_exception(why())

    def _next_group(self) -> list[Request]:
        """What waits now; a tick when it is time, however much waits; nothing where nothing comes."""
        if self._ahead is not None:
            return list(self._ahead.requests)
        wait = self._next_tick - time.monotonic()
        if wait <= 0:
            return [self._due_tick()]
        return self._line.next_group(_GROUP, min(wait, _NEWS))

    def _due_tick(self) -> Tick:
        self._next_tick = time.monotonic() + _TICK
        return Tick("")

    # -- one group ----------------------------------------------------------------------------------

    def process(self, requests: list[Request]) -> None:
        """Carry out requests in one transaction, publish what changed, then answer.

        Whoever has given up before is left out; from here on a request cannot be taken back.
        """
        self._process([r for r in requests if r.future.begin()])

    def _process(self, requests: list[Request]) -> None:
        outcomes: list[tuple[Request, Answer | Exception]] = []
        taken = self._taken_from(requests)
        try:
            if self._in_doubt:
                self.recover()
                taken = None  # by a model that no longer counts
            with self.store.transaction(self._meanwhile):
                for kind, same in groupby(requests, key=lambda request: (type(request), request.model)):
                    some = list(same)
                    outcomes += self._learned(some, taken) if kind[0] is Learn else map(self._outcome, some)
                self._write_snapshots()
        except Exception as error:  # noqa: BLE001  whatever failed, nothing of this group counts
            self._undo(requests, error)
            return
        # From here on the group is on disk: whatever fails now, everybody gets an answer.
        erased = any(r.erases and not isinstance(o, Exception) for r, o in outcomes)
        trouble = self._erase() if erased else None
        try:
            self._publish(r.model for r, outcome in outcomes if not isinstance(outcome, Exception))
        except Exception as error:  # noqa: BLE001
            self._in_doubt = True
            _log.error("what was learned could not be published yet: %s", _where(error))
        for request, outcome in outcomes:
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            elif trouble is not None and request.erases:
                request.future.set_exception(trouble)
            else:
                request.future.set_result(outcome)

    def _meanwhile(self) -> Callable[[], None] | None:
        """What can be done while a group is being written: learn the rows that come next."""
        requests = []
        if not self._closing and self._ahead is None:
            requests = next_rows(self._line, self._sessions, _GROUP)
        if not requests:
            return None
        self._ahead = SpeculativeBatch(list(requests))
        return partial(self._learn_ahead, self._ahead, requests)

    def _learn_ahead(self, ahead: SpeculativeBatch, requests: list[Learn]) -> None:
        """Learn rows; they are written, shown and answered in their turn.

        Should the group before them fail, the model is read again as it was, and they are learned again.
        """
        session = self._sessions[requests[0].model]
        try:
            ahead.before = session.engine.published()
            ahead.taken = session.take_in(together(session, requests), now=self.clock())
        except SteelyardError:
            pass  # whose fault it is will be found, and told, in their turn
        except Exception as error:  # noqa: BLE001  what is being written is not harmed
            self._in_doubt = True
            _log.error("rows could not be learned ahead: %s", _where(error))

    def _taken_from(self, requests: list[Request]) -> TakenIn | None:
        """What was learned ahead from these requests."""
        ahead = self._ahead
        if ahead is None or not requests or ahead.requests[0] is not requests[0]:
            return None
        self._ahead = None
        return ahead.taken

    def _erase(self) -> Exception | None:
        try:
            self.store.erase()
        except SteelyardError as error:
            return error
        except Exception as error:  # noqa: BLE001  a disk that fails: whoever waits must hear of it
            _log.error("what was forgotten could not be erased: %s", _where(error))
            return Unavailable(
                f"the rows are forgotten, but may still stand in the store's log ({type(error).__name__}).",
                hint="look at the disk of the service; they go with the next request to forget",
            )
        return None

    def _undo(self, requests: list[Request], error: Exception) -> None:
        """The store has refused or something broke: the models become what the store says."""
        _log.error("a group of %d requests failed: %s", len(requests), _where(error))
        self._in_doubt = True
        known = (
            "whether it counts is not known"
            if isinstance(error, CommitOutcomeUnknown)
            else "nothing was changed"
        )
        answer = Unavailable(
            f"the store could not be written ({type(error).__name__}); {known}.",
            hint="look at the disk of the service, then send the request again with the same key",
        )
        answer.__cause__ = error
        try:
            self.recover()
        except Exception as trouble:  # noqa: BLE001  tried again with the next group
            _log.error("models could not be read again: %s", _where(trouble))
        alone = (
            not self._in_doubt
            and len(requests) > 1
            and not isinstance(error, (CommitOutcomeUnknown, *self.store.faults))
        )
        for request in requests:
            if alone:  # one of them broke something: the others need not suffer
                self._process([request])
            else:
                request.future.set_exception(answer)

    def _publish(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            session = self._sessions.get(name)
            if session is None:
                continue
            known, ahead = self.published.get(name), self._ahead
            before = ahead.before if ahead is not None and ahead.requests[0].model == name else None
            if known is None or known.version != (before or session.engine).version:
                published = before or session.engine.published()
                if known is not None:
                    published.follow(known)
                self.published[name] = published
                news = {"version": published.version, "rows": published.n_rows}
                for listener in list(self.listeners):
                    with suppress(Exception):  # nobody who listens can keep an answer back
                        listener(name, news)

    def _write_snapshots(self) -> None:
        for session in self._sessions.values():
            if (
                session.rows_since_snapshot >= _SNAPSHOT_ROWS
                or session.events_since_snapshot >= _SNAPSHOT_EVENTS
            ):
                session.snapshot(self.clock())

    # -- single requests ----------------------------------------------------------------------------

    def _outcome(self, request: Request) -> tuple[Request, Answer | Exception]:
        try:
            return request, once(self.store, request, lambda: self._carry_out(request), self.clock)
        except SteelyardError as error:
            return request, error

    def _carry_out(self, request: Request) -> Answer:
        if isinstance(request, Tick):
            return self._tick()
        if isinstance(request, Put):
            return self._put(request)
        session, now = self._session(request.model), self.clock()
        if isinstance(request, Remember):
            session.remember(request.waiting, self.max_remembered)
            ids = [waiting.id for waiting in request.waiting]
            return {"version": session.engine.version, **request.told, "ids": ids}
        if isinstance(request, Label):
            return self._label(session, request, now)
        if isinstance(request, Publish | Drop):
            return self._pool(request, now)
        assert isinstance(request, Forget)
        certificate = session.forget(request, now=now)
        return {
            "forgotten": certificate["forgotten"],
            "version": session.engine.version,
            "certificate": certificate,
        }

    def _session(self, name: str) -> ModelSession:
        session = self._sessions.get(name)
        if session is None:
            raise NotFoundError(f"there is no model {name!r}.", hint="PUT /v1/models/NAME makes one")
        return session

    def _pool(self, request: Publish | Drop, now: float) -> Answer:
        session = self._session(request.model)
        if not isinstance(session, PooledModelSession):
            raise Conflict(
                f"the model {request.model!r} learns rows and is not pooled from sites; nothing was changed.",
                hint="make a model with sites = true",
            )
        if isinstance(request, Drop):
            return session.drop(request.site, now=now)
        return session.receive(request.site_update, now=now)

    def _put(self, request: Put) -> Answer:
        name, now = check_name(request.model), self.clock()
        session = self._sessions.get(name)
        if session is None:
            if len(self._sessions) >= self.max_models:
                raise Conflict(f"there are {self.max_models:,} models, as many as there can be.")
            session = session_for(self.store, name, request.spec)
            self.store.put_model(name, json.dumps(request.spec.as_dict()), now)
            session.pause = partial(self._let_askers_go_first, name)
            self._sessions[name] = session
            made = True
        else:
            made = False
            if session.engine.spec.as_dict() != request.spec.as_dict():
                session.configure(request.spec, now=now)
                self.store.put_model(name, json.dumps(request.spec.as_dict()), now)
        return {
            "name": name,
            "version": session.engine.version,
            "spec": session.engine.spec.as_dict(),
            "made": made,
        }

    def _label(self, session: ModelSession, request: Label, now: float) -> Answer:
        found = self.store.waiting(request.model, list(request.labels))
        version = session.engine.version
        if found:
            version = session.label(found, dict(request.labels), now=now)
        known = {waiting.id for waiting in found}
        return {
            "labelled": len(found),
            "unknown": [row_id for row_id in request.labels if row_id not in known],
            "version": version,
        }

    def _tick(self) -> Answer:
        now = self.clock()
        let_go = [name for name, session in self._sessions.items() if session.let_go(now)]
        self.store.drop_answers(now - _ANSWERS_KEPT)
        return {"let_go": let_go}

    # -- many rows at once --------------------------------------------------------------------------

    def _learned(
        self, requests: list[Request], taken: TakenIn | None
    ) -> list[tuple[Request, Answer | Exception]]:
        """Rows of several requests to one model, learned together where all of them are good."""
        plain = [r for r in requests if isinstance(r, Learn) and r.key is None]
        session = self._sessions.get(requests[0].model)
        if taken is not None:
            assert session is not None
            version = session.keep(taken)
            return [(r, {"learned": r.batch.n_rows, "version": version}) for r in plain]
        # The first rows settle what a column is, so they come alone.
        settled = session is not None and bool(session.engine.column_kinds())
        if settled and len(plain) == len(requests) > 1:
            assert session is not None
            try:
                version = session.learn(together(session, plain), now=self.clock())
            except SteelyardError:
                pass  # one of them is bad: one by one shows which
            else:
                return [(r, {"learned": r.batch.n_rows, "version": version}) for r in plain]
        return [self._learn_one(request) for request in requests]

    def _learn_one(self, request: Request) -> tuple[Request, Answer | Exception]:
        assert isinstance(request, Learn)
        batch = request.batch

        def act() -> Answer:
            version = self._session(request.model).learn(batch, now=self.clock())
            return {"learned": batch.n_rows, "version": version}

        try:
            return request, once(self.store, request, act, self.clock)
        except SteelyardError as error:
            return request, error


def _elsewhere() -> Unavailable:
    return Unavailable(
        "another process learns; this one only predicts. Nothing was changed.",
        hint="send it to the process whose /health/learner answers 200",
    )


def _where(error: Exception) -> str:
    """What broke and where, without the error's text, which may hold values of rows."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{last}"
