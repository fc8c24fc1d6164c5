"""Handlers of requests of operators: quarantine and audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from steelyard.service import commands
from steelyard.service import rows as wire
from steelyard.service.http.problems import Problem
from steelyard.service.http.routes import MODEL, route
from steelyard.service.http.service import seconds
from steelyard.service.stores import QuarantinedRow
from steelyard.tables.columns import as_texts

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_MAX_ENTRIES = 1_000  # maximum number of audit entries or quarantined rows in a response
_FILTERS = ("verb", "key", "address", "request_id", "outcome")
_NUMBER = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TIME = {**_TEXT, "format": "date-time"}
_AUDIT_QUERY: dict[str, Any] = {
    **{name: _TEXT for name in ("model", *_FILTERS)},  # noqa: C420  the schemas are never changed
    "since": _TIME,
    "until": _TIME,
    "before": _NUMBER,
    "limit": _NUMBER,
}


@route("GET", f"{MODEL}/quarantine", "admin", response="Quarantine", query={"after": _NUMBER})
async def quarantine(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Return the rows in quarantine with the reason for each, oldest first."""
    service.model(name)
    after = _integer(request, "after", 0)
    found = await run_in_threadpool(service.writer.store.quarantined, name, after, _MAX_ENTRIES)
    return {"rows": [_quarantined(row) for row in found]}


@route("POST", f"{MODEL}/quarantine", "admin", response="Released", body="Release", is_idempotent=True)
async def release(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn or discard rows in quarantine."""
    body, values = await service.read_json(request)
    way = next(iter(values), None)
    numbers = values.get(way) if way in {"learn", "discard"} and len(values) == 1 else None
    if not isinstance(numbers, list) or not numbers or not all(type(n) is int for n in numbers):
        raise Problem(422, 'expected {"learn": [numbers]} or {"discard": [numbers]}.')
    if not all(0 <= n < 2**62 for n in numbers):
        raise Problem(404, "some of these rows are not in quarantine; nothing was changed.")
    return await service.change(request, commands.Release(name, numbers, way == "learn"), body)


@route("GET", "/v1/audit", response="Audit", query=_AUDIT_QUERY)
async def audit(service: Service, request: Request) -> dict[str, Any]:
    """Return the audit log, newest entries first."""
    query = request.query_params
    model = query.get("model")
    key = service.authorize(request, "admin", model)
    if key is not None and model is None and "*" not in key.models:
        raise Problem(403, "this key is for some models only.", "select one of them with ?model=NAME")
    unknown = set(query) - _AUDIT_QUERY.keys()
    if unknown:
        raise Problem(422, f"there is no filter {min(unknown)[:40]!r}.", f"filters: {', '.join(_FILTERS)}")
    selection: dict[str, Any] = {name: query[name] for name in _FILTERS if name in query}
    selection |= {name: seconds(query[name]) for name in ("since", "until") if name in query}
    limit = min(_integer(request, "limit", 100), _MAX_ENTRIES)
    before, read = _integer(request, "before", 2**62), service.writer.audit.read
    entries, number = await run_in_threadpool(
        lambda: read(model=model, before=before, limit=limit, **selection)
    )
    return {"entries": [entry._asdict() for entry in entries], "next": number}


def _integer(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Problem(422, f"{name} must be a whole number; got {text[:40]!r}.")
    return int(text)


def _quarantined(row: QuarantinedRow) -> dict[str, Any]:
    batch, _ = wire.unpack(row.body)
    values = {
        name: as_texts(column)[0] if column.dtype == object else float(column[0])
        for name, column in batch.columns.items()
    }
    return {"number": row.number, "at": row.at, "reason": row.reason, "row": values}
