"""The one writer: gathers waiting requests into one transaction, then publishes, then acknowledges."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from steelyard._threads import leaving_a_core
from steelyard.exceptions import SteelyardError
from steelyard.service import rows as wire
from steelyard.service.desk import BLANK, Desk, TakenIn
from steelyard.service.engine import Published
from steelyard.service.follower import catch_up
from steelyard.service.pool import PoolDesk, desk_for, recovered
from steelyard.service.requests import (
    Busy,
    Conflict,
    Drop,
    Forget,
    Gone,
    Label,
    Learn,
    Publish,
    Put,
    Remember,
    Request,
    Tick,
    Unavailable,
    Unknown,
)
from steelyard.service.spec import check_name
from steelyard.service.store import About, InDoubt, Store
from steelyard.tables.columns import ColumnBatch

__all__ = ["Scribe"]

_log = logging.getLogger("steelyard.service")
_GROUP = 256  # requests in one transaction at the most
_GATHERING = 0.002  # seconds that the first of many waits for the others, at the most
_SNAPSHOT_ROWS = 50_000
_SNAPSHOT_EVENTS = 2_000
_ANSWERS_KEPT = 7 * 86_400.0
_TICK = 30.0

_MANY_ROWS = 200  # that wait together are learned while others are being written
_NEWS = 1.0  # seconds after which a follower looks by itself, and a learner whether it still is one

Answer = dict[str, Any]


def _stopping() -> Unavailable:
    return Unavailable("the service is stopping; nothing was changed.", hint="try again shortly")


@dataclass
class _Ahead:
    """Requests whose rows were learned while others were being written."""

    requests: list[Request]
    before: Published | None = None  # the model as the others have left it
    taken: TakenIn | None = None  # None: to be learned when it is their turn


class Scribe:
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
        self._desks: dict[str, Desk] = {}
        self._queue: queue.Queue[Request | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None
        self._ahead: _Ahead | None = None
        self._n_expected = 0  # requests that are likely to come together, after the last group
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
            self._ahead = _Ahead(self._ahead.requests)  # what they were taught no longer counts
        with self.store.reading():
            self._desks = {name: recovered(self.store, name, spec) for name, spec in self.store.models()}
        self.published = {name: desk.engine.published() for name, desk in self._desks.items()}
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
            self._queue.put(None)
            self._thread.join()
        if self._in_doubt or not self._leads:
            return
        with suppress(Exception), self.store.transaction():
            for desk in self._desks.values():
                if desk.events_since_snapshot:
                    desk.snapshot(self.clock())

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
        return self._queue.qsize()

    def submit(self, request: Request) -> Request:
        """Put a request in line; its future holds the answer when it is on disk."""
        if self._closing:
            raise _stopping()
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the service no longer writes; nothing was changed.", hint="start it again")
        if not self._leads:
            raise _elsewhere()
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            raise Busy(
                f"{self._queue.maxsize:,} requests wait already; nothing was changed.",
                hint="wait a little and send it again, with the same idempotency key",
            ) from None
        return request

    def _run(self) -> None:
        with leaving_a_core():  # for predictions
            while not self._is_done_after_a_turn():
                pass

    def _is_done_after_a_turn(self) -> bool:
        """Carry out the next group, or follow; whether it was the last."""
        group = self._next_group() if self._leads else self._follow()
        try:
            self.process([request for request in group if request is not None])
            if self._leads and not group:
                self.store.claim()  # still ours?
        except Exception as error:  # noqa: BLE001  whoever comes next must find a writer
            self._in_doubt = True
            _log.error("the scribe met %s; models are read again", type(error).__name__)
        if None in group:
            self._send_away()
            return True
        if self._leads and not self.store.is_claimed:
            self._step_down()
        return False

    # -- following ----------------------------------------------------------------------------------

    def _follow(self) -> list[Request | None]:
        """See what the learner has written, and take its place where it is gone."""
        self._send_away(_elsewhere)
        try:
            self.store.wait_for_news(_NEWS)
            self._publish(catch_up(self.store, self._desks))
            self._followed_at = time.monotonic()
            if self.may_learn and self.store.claim():
                self.recover()
                self._leads = True
                _log.warning("this process learns now")
        except Exception as error:  # noqa: BLE001  tried again; meanwhile the last models answer
            _log.error("the learner cannot be followed: %s", _where(error))
            self._desks = {}  # read anew when the store answers
            time.sleep(_NEWS)
        return [None] if self._closing else []

    def _step_down(self) -> None:
        """The right to write is lost."""
        _log.warning("this process no longer has the right to write; it follows")
        self._leads, self._followed_at = False, time.monotonic()
        if self._ahead is not None:
            for request in self._ahead.requests:
                request.future.set_exception(_elsewhere())
            self._ahead, self._desks = None, {}  # read anew: they have learned what will not be written

    def _send_away(self, why: Callable[[], Unavailable] = _stopping) -> None:
        """Requests that came too late."""
        while not self._queue.empty():
            request = self._queue.get_nowait()
            if request is None:
                self._queue.put(None)
                return
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(why())

    def _next_group(self) -> list[Request | None]:
        """What waits now; a tick when it is time, however much waits; nothing where nothing comes."""
        if self._ahead is not None:
            return list(self._ahead.requests)
        wait = self._next_tick - time.monotonic()
        if wait <= 0:
            return [self._due_tick()]
        try:
            group: list[Request | None] = [self._queue.get(timeout=min(wait, _NEWS))]
        except queue.Empty:
            self._n_expected = 0
            return []
        self._wait_for_more()
        while len(group) < _GROUP and group[-1] is not None:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        self._n_expected = len(group) // 2
        return group

    def _wait_for_more(self) -> None:
        """Clients that were answered together send again together: the first need not be written alone."""
        end = time.monotonic() + _GATHERING
        while self._queue.qsize() < self._n_expected and time.monotonic() < end:
            time.sleep(_GATHERING / 4)

    def _due_tick(self) -> Tick:
        self._next_tick = time.monotonic() + _TICK
        return Tick("")

    # -- one group ----------------------------------------------------------------------------------

    def process(self, requests: list[Request]) -> None:
        """Carry out requests in one transaction, publish what changed, then answer.

        Whoever has given up before is left out; from here on a request cannot be taken back.
        """
        self._process([r for r in requests if r.future.running() or r.future.set_running_or_notify_cancel()])

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
        requests = self._next_rows()
        if not requests:
            return None
        self._ahead = _Ahead(list(requests))
        return partial(self._learn_ahead, self._ahead, requests)

    def _learn_ahead(self, ahead: _Ahead, requests: list[Learn]) -> None:
        """Learn rows; they are written, shown and answered in their turn.

        Should the group before them fail, the model is read again as it was, and they are learned again.
        """
        desk = self._desks[requests[0].model]
        try:
            ahead.before = desk.engine.published()
            ahead.taken = desk.take_in(self._together(desk, requests), now=self.clock())
        except SteelyardError:
            pass  # whose fault it is will be found, and told, in their turn
        except Exception as error:  # noqa: BLE001  what is being written is not harmed
            self._in_doubt = True
            _log.error("rows could not be learned ahead: %s", _where(error))

    def _next_rows(self) -> list[Learn]:
        """Requests at the head of the line that can be learned ahead: many rows for one model."""
        if self._closing or self._ahead is not None:
            return []
        with self._queue.mutex:
            waiting = list(self._queue.queue)
        alike: list[Learn] = []
        for request in waiting[:_GROUP]:
            if not isinstance(request, Learn) or request.key is not None or request.model != waiting[0].model:
                break
            alike.append(request)
        desk = self._desks.get(alike[0].model) if alike else None
        if desk is None or not desk.takes_in_alone or sum(r.batch.n_rows for r in alike) < _MANY_ROWS:
            return []
        for _ in alike:
            self._queue.get_nowait()  # nobody else takes from it
        return [request for request in alike if request.future.set_running_or_notify_cancel()]

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
        known = "whether it counts is not known" if isinstance(error, InDoubt) else "nothing was changed"
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
            not self._in_doubt and len(requests) > 1 and not isinstance(error, (InDoubt, *self.store.faults))
        )
        for request in requests:
            if alone:  # one of them broke something: the others need not suffer
                self._process([request])
            else:
                request.future.set_exception(answer)

    def _publish(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            desk = self._desks.get(name)
            if desk is None:
                continue
            known, ahead = self.published.get(name), self._ahead
            before = ahead.before if ahead is not None and ahead.requests[0].model == name else None
            if known is None or known.version != (before or desk.engine).version:
                published = before or desk.engine.published()
                if known is not None:
                    published.follow(known)
                self.published[name] = published
                news = {"version": published.version, "rows": published.n_rows}
                for listener in list(self.listeners):
                    with suppress(Exception):  # nobody who listens can keep an answer back
                        listener(name, news)

    def _write_snapshots(self) -> None:
        for desk in self._desks.values():
            if desk.rows_since_snapshot >= _SNAPSHOT_ROWS or desk.events_since_snapshot >= _SNAPSHOT_EVENTS:
                desk.snapshot(self.clock())

    # -- single requests ----------------------------------------------------------------------------

    def _outcome(self, request: Request) -> tuple[Request, Answer | Exception]:
        try:
            return request, self._answered(request, lambda: self._carry_out(request))
        except SteelyardError as error:
            return request, error

    def _answered(self, request: Request, act: Callable[[], Answer]) -> Answer:
        """The answer of then to a request that came before, or what acting gives now."""
        if request.key is None:
            return act()
        known = self.store.answer_to(request.model, request.key)
        if known is not None:
            return self._same_answer(request, *known)
        answer = act()
        self.store.keep_answer(
            request.model,
            request.key,
            request.fingerprint,
            json.dumps(answer),
            at=self.clock(),
            about=_about(request, answer),
        )
        return answer

    @staticmethod
    def _same_answer(request: Request, fingerprint: str, body: str) -> Answer:
        if fingerprint != request.fingerprint:
            raise Conflict(
                f"the idempotency key {request.key!r} was used for another request; nothing was changed.",
                hint="a key names one request; make a new one for each",
            )
        if body == BLANK:
            raise Gone(
                "the answer to this request was erased, because a row that it spoke of was forgotten; "
                "the request was carried out then, and nothing was changed now.",
                hint="a new request needs a new idempotency key",
            )
        answer: Answer = json.loads(body)
        return answer

    def _carry_out(self, request: Request) -> Answer:
        if isinstance(request, Tick):
            return self._tick()
        if isinstance(request, Put):
            return self._put(request)
        desk, now = self._desk(request.model), self.clock()
        if isinstance(request, Remember):
            desk.remember(request.waiting, self.max_remembered)
            ids = [waiting.id for waiting in request.waiting]
            return {"version": desk.engine.version, **request.told, "ids": ids}
        if isinstance(request, Label):
            return self._label(desk, request, now)
        if isinstance(request, Publish | Drop):
            return self._pool(request, now)
        assert isinstance(request, Forget)
        certificate = desk.forget(request, now=now)
        return {
            "forgotten": certificate["forgotten"],
            "version": desk.engine.version,
            "certificate": certificate,
        }

    def _desk(self, name: str) -> Desk:
        desk = self._desks.get(name)
        if desk is None:
            raise Unknown(f"there is no model {name!r}.", hint="PUT /v1/models/NAME makes one")
        return desk

    def _pool(self, request: Publish | Drop, now: float) -> Answer:
        desk = self._desk(request.model)
        if not isinstance(desk, PoolDesk):
            raise Conflict(
                f"the model {request.model!r} learns rows and is not pooled from sites; nothing was changed.",
                hint="make a model with sites = true",
            )
        if isinstance(request, Drop):
            return desk.drop(request.site, now=now)
        return desk.receive(request.bulletin, now=now)

    def _put(self, request: Put) -> Answer:
        name, now = check_name(request.model), self.clock()
        desk = self._desks.get(name)
        if desk is None:
            if len(self._desks) >= self.max_models:
                raise Conflict(f"there are {self.max_models:,} models, as many as there can be.")
            desk = desk_for(self.store, name, request.spec)
            self.store.put_model(name, json.dumps(request.spec.as_dict()), now)
            self._desks[name] = desk
            made = True
        else:
            made = False
            if desk.engine.spec.as_dict() != request.spec.as_dict():
                desk.configure(request.spec, now=now)
                self.store.put_model(name, json.dumps(request.spec.as_dict()), now)
        return {
            "name": name,
            "version": desk.engine.version,
            "spec": desk.engine.spec.as_dict(),
            "made": made,
        }

    def _label(self, desk: Desk, request: Label, now: float) -> Answer:
        found = self.store.waiting(request.model, list(request.labels))
        version = desk.engine.version
        if found:
            version = desk.label(found, dict(request.labels), now=now)
        known = {waiting.id for waiting in found}
        return {
            "labelled": len(found),
            "unknown": [row_id for row_id in request.labels if row_id not in known],
            "version": version,
        }

    def _tick(self) -> Answer:
        now = self.clock()
        let_go = [name for name, desk in self._desks.items() if desk.let_go(now)]
        self.store.drop_answers(now - _ANSWERS_KEPT)
        return {"let_go": let_go}

    # -- many rows at once --------------------------------------------------------------------------

    def _learned(
        self, requests: list[Request], taken: TakenIn | None
    ) -> list[tuple[Request, Answer | Exception]]:
        """Rows of several requests to one model, learned together where all of them are good."""
        plain = [r for r in requests if isinstance(r, Learn) and r.key is None]
        desk = self._desks.get(requests[0].model)
        if taken is not None:
            assert desk is not None
            version = desk.keep(taken)
            return [(r, {"learned": r.batch.n_rows, "version": version}) for r in plain]
        # The first rows settle what a column is, so they come alone.
        settled = desk is not None and bool(desk.engine.column_kinds())
        if settled and len(plain) == len(requests) > 1:
            assert desk is not None
            try:
                version = desk.learn(self._together(desk, plain), now=self.clock())
            except SteelyardError:
                pass  # one of them is bad: one by one shows which
            else:
                return [(r, {"learned": r.batch.n_rows, "version": version}) for r in plain]
        return [self._learn_one(request) for request in requests]

    @staticmethod
    def _together(desk: Desk, requests: Sequence[Learn]) -> ColumnBatch:
        rows = wire.joined([r.batch for r in requests])
        for request in () if wire.are_alike(rows) else requests:
            desk.engine.check_rows(request.batch, labelled=True)
        return rows

    def _learn_one(self, request: Request) -> tuple[Request, Answer | Exception]:
        assert isinstance(request, Learn)
        batch = request.batch

        def act() -> Answer:
            version = self._desk(request.model).learn(batch, now=self.clock())
            return {"learned": batch.n_rows, "version": version}

        try:
            return request, self._answered(request, act)
        except SteelyardError as error:
            return request, error


def _about(request: Request, answer: Answer) -> list[About]:
    """The rows that an answer names; when they are forgotten, it must go too."""
    if isinstance(request, Remember):
        return [(waiting.id, waiting.subject) for waiting in request.waiting]
    return [(row_id, None) for row_id in answer.get("unknown", ())]


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
