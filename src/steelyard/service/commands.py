"""Requests to the writer. Each kind of request applies itself, inside a transaction of the writer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from steelyard.exceptions import FileFormatError, SteelyardError
from steelyard.federated import SiteUpdate
from steelyard.persistence.tree import encode
from steelyard.service import rows as wire
from steelyard.service.errors import Conflict, GoneError, NotFoundError, PositionMoved
from steelyard.service.forgetting import Forgetting
from steelyard.service.pool import PooledSession
from steelyard.service.queue import RequestFuture
from steelyard.service.rows import check_known_values
from steelyard.service.spec import Spec, check_name
from steelyard.service.stored_rows import unpack
from steelyard.service.stores import ERASED_RESPONSE, EarlyLabel, PendingRow, RowReference
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.session import ModelSession
    from steelyard.service.writer import Writer

Response = dict[str, Any]
_RESPONSE_SECONDS = 7 * 86_400.0  # time for which responses are stored for repeated requests
_EXPIRED_SECONDS = 3_600.0  # maximum time for which expired rows stay in the store
_NEXT_SLICE_SECONDS = 0.2  # pause between two transactions that delete old responses


class Origin(NamedTuple):
    """Origin of a request: id of the API key, network address, and request id."""

    key: str | None
    address: str | None
    request_id: str


@dataclass
class Request:
    """One request of a client."""

    erases: ClassVar[bool] = False  # whether deleted data must be erased from disk before the response
    takes_key: ClassVar[bool] = True  # whether the request can have an idempotency key
    is_internal: ClassVar[bool] = False  # whether the writer itself submits the request, which is not audited

    model: str
    # Idempotency key: a repeated request with the same key gets the stored response of the first request.
    key: str | None = field(default=None, kw_only=True)
    # Hash of the request; a key cannot be used again with another fingerprint.
    fingerprint: str = field(default="", kw_only=True)
    origin: Origin | None = field(default=None, kw_only=True)  # sender of the request, for the audit log
    # Whether the stored response of an earlier request was returned.
    is_repeated: bool = field(default=False, init=False)
    future: RequestFuture = field(default_factory=RequestFuture, kw_only=True, repr=False)

    def run(self, writer: Writer, now: float) -> Response:
        """Look up the model and apply the request. If an error of the library is raised, nothing changed."""
        return self.apply(writer, writer.session_of(self.model), now)

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        """Apply the request to its model; return the response."""
        raise NotImplementedError

    def mentioned_rows(self, response: Response) -> list[RowReference]:
        """Return the rows that the response mentions. Forgetting one of them erases the stored response."""
        return [(row_id, None) for row_id in response.get("unknown", ())]

    def changed_models(self, _: Response) -> Sequence[str]:
        """Return the models that the request has changed."""
        return [self.model]

    def stored_response(self, fingerprint: str, body: str) -> Response | SteelyardError:
        """Return the stored response to a repeated request, or an error if it cannot be used again."""
        self.is_repeated = True
        if fingerprint != self.fingerprint:
            return Conflict(
                f"the idempotency key {self.key!r} was used for another request; nothing was changed.",
                hint="use a new key for each request",
            )
        if body == ERASED_RESPONSE:
            return GoneError(
                "the response to this request was erased, because it mentioned a row that was forgotten; "
                "the request took effect when it was first sent, and nothing was changed now.",
                hint="use a new idempotency key for a new request",
            )
        return json.loads(body)


# -- rows -------------------------------------------------------------------------------------------


@dataclass
class Learn(Request):
    """Learn labelled rows."""

    batch: ColumnBatch

    def apply(self, _: Writer, session: ModelSession, now: float) -> Response:
        batch, more = self.batch, {}
        if session.engine.spec.quarantines:
            batch = session.quarantine(batch, now=now)
            more = {"quarantined": self.batch.n_rows - batch.n_rows}
        version = session.engine.version
        if batch.n_rows:
            version = session.learn(batch, now=now, key=self.key)
        return {"learned": batch.n_rows, "version": version, **more}


@dataclass
class Remember(Request):
    """Store predicted rows until their labels arrive."""

    rows: Sequence[PendingRow]
    prediction: Mapping[str, Any] = field(default_factory=dict)  # copied into the response

    def apply(self, writer: Writer, session: ModelSession, _: float) -> Response:
        session.remember(self.rows, writer.max_remembered)
        return {"version": session.engine.version, **self.prediction, "ids": [row.id for row in self.rows]}

    def mentioned_rows(self, _: Response) -> list[RowReference]:
        return [(row.id, row.subject) for row in self.rows]


@dataclass
class Label(Request):
    """Learn pending rows whose labels have arrived; ``labels`` maps row ids to labels.

    With ``correct``, rows that were learned with another label are forgotten and learned with the new one.
    """

    labels: Mapping[str, Any]
    correct: bool = False

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        store = writer.store
        found = store.pending(self.model, list(self.labels))
        waiting = {row.id: row for row in found}
        others = [row_id for row_id in self.labels if row_id not in waiting]
        known = set(store.known_ids(self.model, others))
        to_correct = {row_id: self.labels[row_id] for row_id in known if self.correct}
        if to_correct:
            session.corrections(to_correct)  # raises before anything is changed
        if found:
            session.label(found, self.labels, now=now, key=self.key)
            if writer.statistics.on_labels is not None:
                writer.statistics.on_labels(self.model, [now - row.at for row in found])
        corrected = session.correct(to_correct, now=now) if to_correct else []
        return {
            "labelled": len(found),
            "corrected": len(corrected),
            "already_labelled": [r for r in others if r in known and r not in corrected],
            "unknown": [row_id for row_id in others if row_id not in known],
            "version": session.engine.version,
        }


@dataclass
class Consume(Request):
    """Apply messages of a topic and move the position in the topic, in one transaction."""

    topic: str  # name of the topic in the store
    # For each partition, the positions before and after the messages. If the stored position is not the
    # position before, the request raises PositionMoved and changes nothing.
    moves: Mapping[str, tuple[str | None, str]]
    learn: ColumnBatch | None = None  # labelled rows
    # Rows that wait for their labels. Rows whose labels have already arrived are learned.
    remember: Sequence[PendingRow] = ()
    # Labels by row id. Labels of unknown rows are stored until the rows arrive.
    labels: Mapping[str, Any] = field(default_factory=dict)
    unused: Sequence[str] = ()  # ids of stored labels to delete
    # Whether to skip rows that were learned before, because the broker may deliver messages again.
    skips_known: bool = False

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        """Apply the messages. If an error is raised, nothing has changed."""
        store, engine = session.store, session.engine
        stored = store.positions(engine.name, self.topic, committed=False)
        for part, (before, _) in self.moves.items():
            if stored.get(part) != before:
                raise PositionMoved(
                    f"the position in {self.topic!r} is {stored.get(part)!r}, not {before!r}; "
                    "nothing was changed.",
                    hint="read the topic again from the stored position",
                )
        session.check_pending_limit(len(self.remember), writer.max_remembered)
        n_learned = 0
        if self.learn is not None:
            n_learned = _learn(session, self.learn, now, skips_known=self.skips_known)
        # After this line, message contents cannot raise errors: refused labels are stored with the reason.
        rows = list(self.remember)
        if self.skips_known:
            learned = set(store.known_ids(engine.name, [row.id for row in rows]))
            rows = [row for row in rows if row.id not in learned]
        if rows:
            session.remember(rows, writer.max_remembered)
        ids = [row.id for row in rows]
        waiting = store.early_labels(engine.name, ids) if ids else {}
        n_labelled = _label(session, {**waiting, **self.labels}, now)
        store.drop_early_labels(engine.name, self.unused)
        after = {part: position for part, (_, position) in self.moves.items()}
        store.put_positions(engine.name, self.topic, after)
        counts = {"learned": n_learned, "labelled": n_labelled, "remembered": len(ids)}
        return {**counts, "version": engine.version}


def _learn(session: ModelSession, batch: ColumnBatch, now: float, *, skips_known: bool) -> int:
    spec = session.engine.spec
    if skips_known and spec.id is not None and spec.id in batch.columns:
        batch = _new_rows(session, batch, spec.id)
    if spec.quarantines and batch.n_rows:
        batch = session.quarantine(batch, now=now)
    if batch.n_rows:
        check_known_values(spec, session.engine.encoder, batch)
        session.learn(batch, now=now)
    return batch.n_rows


def _new_rows(session: ModelSession, batch: ColumnBatch, column: str) -> ColumnBatch:
    """Return the rows with new ids, which are neither in the store nor repeated in the batch."""
    ids = wire.identifiers(batch, column)
    seen = set(session.store.known_ids(session.engine.name, [row_id for row_id in ids if row_id]))
    is_new = []
    for row_id in ids:
        is_new.append(row_id is None or row_id not in seen)
        if row_id is not None:
            seen.add(row_id)
    return batch if all(is_new) else batch.select(np.array(is_new))


def _label(session: ModelSession, labels: Mapping[str, Any], now: float) -> int:
    """Learn pending rows with their labels; store labels that are refused or have no pending row."""
    if not labels:
        return 0
    store, name = session.store, session.engine.name
    found = store.pending(name, list(labels))
    known = {row.id for row in found}
    others = [row_id for row_id in labels if row_id not in known]
    learned = set(store.known_ids(name, others))
    reasons: dict[str, str | None] = {
        row_id: "this row was learned with a label before" if row_id in learned else None for row_id in others
    }
    reasons |= _learn_labels(session, found, labels, now)
    store.drop_early_labels(name, [row_id for row_id in labels if row_id not in reasons])
    store.put_early_labels(
        name, [EarlyLabel(row_id, now, labels[row_id], reason) for row_id, reason in reasons.items()]
    )
    return len(labels) - len(reasons)


def _learn_labels(
    session: ModelSession, rows: Sequence[PendingRow], labels: Mapping[str, Any], now: float
) -> dict[str, str]:
    """Learn pending rows; return the error messages of refused rows, keyed by row id."""
    try:
        if rows:
            session.label(rows, labels, now=now)
    except SteelyardError as error:
        if len(rows) == 1:
            return {rows[0].id: error.summary}
        half = len(rows) // 2
        refused = _learn_labels(session, rows[:half], labels, now)
        return refused | _learn_labels(session, rows[half:], labels, now)
    return {}


@dataclass
class Forget(Request):
    """Forget rows that are selected by exactly one of the fields."""

    erases: ClassVar[bool] = True

    ids: Sequence[str] | None = None
    subject: str | None = None
    before: float | None = None
    batch: ColumnBatch | None = None
    request_key: str | None = None  # idempotency key of the request that added the rows
    learned: tuple[float, float] | None = None  # range of arrival times, including both ends

    @property
    def by(self) -> str:
        """Selection of the rows: "ids", "subject", "time", "rows", "batch" or "arrival"."""
        names = {"before": "time", "batch": "rows", "request_key": "batch", "learned": "arrival"}
        given = ("ids", "subject", *names)
        return next(names.get(name, name) for name in given if getattr(self, name) is not None)

    def apply(self, _: Writer, session: ModelSession, now: float) -> Response:
        certificate = Forgetting(session, self, now).run()
        return {
            "forgotten": certificate["forgotten"],
            "version": session.engine.version,
            "certificate": certificate,
        }


@dataclass
class Release(Request):
    """Learn or delete rows in quarantine, selected by number."""

    erases: ClassVar[bool] = True

    numbers: Sequence[int]
    learn: bool

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        rows = writer.store.take_quarantined(self.model, self.numbers)
        if len(rows) < len(set(self.numbers)):
            raise NotFoundError("some of these rows are not in quarantine; nothing was changed.")
        if self.learn:
            batch = wire.joined([unpack(row.body)[0] for row in rows])
            session.learn(batch, now=now, guarded=False)
        return {"released": len(rows), "learned": self.learn, "version": session.engine.version}


# -- federated models -------------------------------------------------------------------------------


def _federated(session: ModelSession) -> PooledSession:
    if not isinstance(session, PooledSession):
        raise Conflict(
            f"the model {session.engine.name!r} learns rows and has no sites; nothing was changed.",
            hint="create a model with sites = true",
        )
    return session


@dataclass
class Publish(Request):
    """Receive the latest update of a site, for a federated model. A repeated update changes nothing."""

    takes_key: ClassVar[bool] = False

    site_update: SiteUpdate

    def apply(self, _: Writer, session: ModelSession, now: float) -> Response:
        return _federated(session).receive(self.site_update, now=now)


@dataclass
class Drop(Request):
    """Remove a site from a federated model."""

    erases: ClassVar[bool] = True

    site: str

    def apply(self, _: Writer, session: ModelSession, now: float) -> Response:
        return _federated(session).drop(self.site, now=now)


# -- models -----------------------------------------------------------------------------------------


@dataclass
class Put(Request):
    """Create a model or change its settings."""

    spec: Spec

    def run(self, writer: Writer, now: float) -> Response:
        name, spec, store = check_name(self.model), self.spec, writer.store
        session = writer.sessions.get(name) or writer.adopt(name)
        writer.check_not_damaged(name)
        is_new = session is None
        if session is None:
            session = writer.create(name, spec, now)
        else:
            spec = spec.with_defaults_of(session.engine.spec)
            if session.engine.spec.as_dict() != spec.as_dict():
                session.configure(spec, now=now)
        store.put_model(name, json.dumps(spec.as_dict()), now)
        return {
            "name": name,
            "version": session.engine.version,
            "spec": session.engine.spec.as_dict(),
            "made": is_new,
        }


@dataclass
class Delete(Request):
    """Delete a model and all its data in the store, except its audit log."""

    erases: ClassVar[bool] = True

    def apply(self, writer: Writer, session: ModelSession, _: float) -> Response:
        name, engine = self.model, session.engine
        writer.store.drop_model(name)
        writer.store.put_former_version(name, engine.version)  # version numbers are never reused
        del writer.sessions[name]
        return {"deleted": name, "rows": engine.n_rows, "version": engine.version}


@dataclass
class Rename(Request):
    """Rename a model."""

    new_name: str

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        name, new_name = self.model, check_name(self.new_name)
        store, engine = writer.store, session.engine
        if store.spec_of(new_name) is not None:
            raise Conflict(f"there is a model {new_name!r} already; nothing was changed.")
        writer.need_lease(new_name)
        store.rename_model(name, new_name)
        store.put_former_version(name, engine.version)  # version numbers are never reused under either name
        del writer.sessions[name]
        writer.add_session(new_name, session)
        engine.name = new_name
        engine.version = max(engine.version, store.former_version(new_name)) + 1
        session.snapshot(now)
        return {"name": new_name, "former_name": name, "version": engine.version}

    def changed_models(self, _: Response) -> Sequence[str]:
        return [self.model, self.new_name]


@dataclass
class Challenge(Request):
    """Start a challenger with the given settings, or end the current challenger if the settings are None."""

    spec: Spec | None
    replay: bool = True  # whether the challenger first learns the stored rows of the model

    def apply(self, _: Writer, session: ModelSession, now: float) -> Response:
        engine = session.engine
        if self.spec is not None:
            history = session.history() if self.replay and engine.spec.keeps_rows else ()
            engine.start_challenger(self.spec, history, at=now)
        elif engine.challenger is None:
            raise NotFoundError(f"the model {engine.name!r} has no challenger.")
        else:
            engine.end_challenger()
        session.snapshot(now)  # the snapshot, not an event, stores the challenger
        return {"version": engine.version}


@dataclass
class Promote(Request):
    """Swap a model and its challenger."""

    def apply(self, writer: Writer, session: ModelSession, now: float) -> Response:
        if session.engine.challenger is None:
            raise NotFoundError(
                f"the model {self.model!r} has no challenger; nothing was changed.",
                hint="PUT /v1/models/NAME/challenger starts one",
            )
        session.engine = session.engine.promote()
        session.snapshot(now)
        values = session.engine.spec.as_dict()
        writer.store.put_model(self.model, json.dumps(values), now)
        return {"version": session.engine.version, "spec": values}


# -- requests of the writer itself ------------------------------------------------------------------


@dataclass
class Adopt(Request):
    """Take over a session from another writer thread."""

    is_internal: ClassVar[bool] = True

    session: ModelSession

    def run(self, writer: Writer, _: float) -> Response:
        writer.continue_with(self.model, self.session)
        return {"version": self.session.engine.version}


@dataclass
class Tick(Request):
    """Expire rows; delete expired rows, old responses and old audit entries from the store."""

    is_internal: ClassVar[bool] = True

    def run(self, writer: Writer, now: float) -> Response:
        expired = []
        for name, session in list(writer.sessions.items()):
            try:
                if session.expire_rows(now):
                    expired.append(name)
            except FileFormatError as error:  # raised before anything was changed
                writer.set_aside(name, error)
                continue
            is_due = now - session.snapshot_at >= _EXPIRED_SECONDS
            if is_due and session.row_windows.expired_chunks():
                session.snapshot(now)  # deletes expired rows from the store
            if session.engine.spec.limit("megabytes") < math.inf:
                session.state_bytes = len(encode(session.engine.state()))
            if writer.store.drop_responses(name, now - _RESPONSE_SECONDS):
                writer.next_tick = time.monotonic() + _NEXT_SLICE_SECONDS
        writer.store.drop_audit(now - writer.audit_seconds)
        return {"expired": expired}

    def changed_models(self, response: Response) -> Sequence[str]:
        return response["expired"]
