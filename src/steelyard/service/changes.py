"""Execution of requests: one function per kind of request, called inside a transaction of the writer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import FileFormatError
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
    Promote,
    Publish,
    Put,
    Release,
    Remember,
    Rename,
    Request,
    Tick,
)
from steelyard.service.consumption import consume
from steelyard.service.idempotency import Response
from steelyard.service.pool import PooledSession, new_session
from steelyard.service.session import ModelSession
from steelyard.service.spec import check_name

if TYPE_CHECKING:
    from steelyard.service.writer import Writer

__all__ = ["run_request"]

_RESPONSE_SECONDS = 7 * 86_400.0  # time for which responses are stored for repeated requests
_EXPIRED_SECONDS = 3_600.0  # maximum time for which expired rows stay in the store
_NEXT_SLICE_SECONDS = 0.2  # pause between two transactions that delete old responses


def run_request(writer: Writer, request: Request, now: float) -> Response:
    """Apply a request; return its response. If an error of the library is raised, nothing has changed."""
    if isinstance(request, Tick):
        return _tick(writer, now)
    if isinstance(request, Put):
        return _put(writer, request, now)
    if isinstance(request, Adopt):
        return writer.continue_with(request)
    return _CHANGES[type(request)](writer, writer.session_of(request.model), request, now)


# -- rows -------------------------------------------------------------------------------------------


def _learn(_: Writer, session: ModelSession, request: Learn, now: float) -> Response:
    batch, more = request.batch, {}
    if session.engine.spec.quarantines:
        batch = session.quarantine(batch, now=now)
        more = {"quarantined": request.batch.n_rows - batch.n_rows}
    version = session.engine.version
    if batch.n_rows:
        version = session.learn(batch, now=now, key=request.key)
    return {"learned": batch.n_rows, "version": version, **more}


def _remember(writer: Writer, session: ModelSession, request: Remember, _: float) -> Response:
    limit = min(writer.max_remembered, session.engine.spec.limit("waiting"))
    session.remember(request.rows, int(limit))
    ids = [row.id for row in request.rows]
    return {"version": session.engine.version, **request.prediction, "ids": ids}


def _label(writer: Writer, session: ModelSession, request: Label, now: float) -> Response:
    store = writer.store
    found = store.pending(request.model, list(request.labels))
    waiting = {row.id for row in found}
    others = [row_id for row_id in request.labels if row_id not in waiting]
    known = set(store.known_ids(request.model, others))
    to_correct = {row_id: request.labels[row_id] for row_id in known if request.correct}
    if to_correct:
        session.corrections(to_correct)  # raises before anything is changed
    if found:
        session.label(found, request.labels, now=now, key=request.key)
        if writer.statistics.on_labels is not None:
            writer.statistics.on_labels(request.model, [now - row.at for row in found])
    corrected = session.correct(to_correct, now=now) if to_correct else []
    return {
        "labelled": len(found),
        "corrected": len(corrected),
        "already_labelled": [r for r in others if r in known and r not in corrected],
        "unknown": [row_id for row_id in others if row_id not in known],
        "version": session.engine.version,
    }


def _consume(writer: Writer, session: ModelSession, request: Consume, now: float) -> Response:
    return consume(session, request, writer.max_remembered, now)


def _forget(_: Writer, session: ModelSession, request: Forget, now: float) -> Response:
    certificate = session.forget(request, now=now)
    return {
        "forgotten": certificate["forgotten"],
        "version": session.engine.version,
        "certificate": certificate,
    }


def _release_rows(_: Writer, session: ModelSession, request: Release, now: float) -> Response:
    return session.release(request, now=now)


def _update_sites(_: Writer, session: ModelSession, request: Publish | Drop, now: float) -> Response:
    if not isinstance(session, PooledSession):
        raise Conflict(
            f"the model {request.model!r} learns rows and has no sites; nothing was changed.",
            hint="create a model with sites = true",
        )
    if isinstance(request, Drop):
        return session.drop(request.site, now=now)
    return session.receive(request.site_update, now=now)


# -- models -----------------------------------------------------------------------------------------


def _put(writer: Writer, request: Put, now: float) -> Response:
    name, spec, store = check_name(request.model), request.spec, writer.store
    session = writer.sessions.get(name) or writer.adopt(name)
    writer.check_not_damaged(name)
    if session is not None:
        spec = spec.with_defaults_of(session.engine.spec)
    is_new = session is None
    if session is None:
        writer.need_lease(name)
        if len(store.models()) >= writer.max_models:
            raise Conflict(f"there are {writer.max_models:,} models already, which is the maximum.")
        session = new_session(store, name, spec)
        writer.add_session(name, session)
        former_version = store.former_version(name)
        session.engine.version = former_version + 1
        if former_version >= 0 or session.engine.has_own_window:
            session.snapshot(now)
    elif session.engine.spec.as_dict() != spec.as_dict():
        session.configure(spec, now=now)
    store.put_model(name, json.dumps(spec.as_dict()), now)
    return {
        "name": name,
        "version": session.engine.version,
        "spec": session.engine.spec.as_dict(),
        "made": is_new,
    }


def _delete(writer: Writer, session: ModelSession, request: Delete, _: float) -> Response:
    name, engine = request.model, session.engine
    writer.store.drop_model(name)
    writer.store.put_former_version(name, engine.version)  # version numbers are never reused
    del writer.sessions[name]
    return {"deleted": name, "rows": engine.n_rows, "version": engine.version}


def _rename(writer: Writer, session: ModelSession, request: Rename, now: float) -> Response:
    name, new_name = request.model, check_name(request.new_name)
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


def _challenge(_: Writer, session: ModelSession, request: Challenge, now: float) -> Response:
    return {"version": session.challenge(request, now=now)}


def _promote(writer: Writer, session: ModelSession, request: Promote, now: float) -> Response:
    version = session.promote(now=now)
    values = session.engine.spec.as_dict()
    writer.store.put_model(request.model, json.dumps(values), now)
    return {"version": version, "spec": values}


def _tick(writer: Writer, now: float) -> Response:
    """Expire rows; delete expired rows, old responses and old audit entries from the store."""
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
            session.measure_state()
        if writer.store.drop_responses(name, now - _RESPONSE_SECONDS):
            writer.next_tick = time.monotonic() + _NEXT_SLICE_SECONDS
    writer.store.drop_audit(now - writer.audit_seconds)
    return {"expired": expired}


_CHANGES: dict[type[Request], Callable[[Writer, ModelSession, Any, float], Response]] = {
    Learn: _learn,
    Remember: _remember,
    Label: _label,
    Consume: _consume,
    Forget: _forget,
    Release: _release_rows,
    Publish: _update_sites,
    Drop: _update_sites,
    Delete: _delete,
    Rename: _rename,
    Challenge: _challenge,
    Promote: _promote,
}
