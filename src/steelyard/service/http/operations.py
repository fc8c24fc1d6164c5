"""Routes for operators: delete and rename, quarantine, challenger, audit log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.service import commands
from steelyard.service import rows as wire
from steelyard.service.http.bodies import Handler
from steelyard.service.http.problems import Problem
from steelyard.service.spec import Spec
from steelyard.service.stores import QuarantinedRow
from steelyard.tables.columns import as_texts

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["routes"]

_MAX_ENTRIES = 1_000  # maximum number of audit entries or quarantined rows in a response
_FILTERS = ("verb", "key", "address", "request_id", "outcome")


class _Operations:
    def __init__(self, service: Service) -> None:
        self.service = service

    async def delete(self, request: Request) -> Response:
        """Delete a model with its rows, snapshots, certificates and stored responses."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        command = commands.Delete(name, **self.service.context(request, b""))
        return JSONResponse(await self.service.submit(command))

    async def rename(self, request: Request) -> Response:
        """Rename a model."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        body, values = await self.service.read_json(request)
        new_name = values.get("name")
        if not isinstance(new_name, str):
            raise Problem(422, 'expected {"name": "new name"}.')
        self.service.authorize(request, "admin", new_name)
        command = commands.Rename(name, new_name, **self.service.context(request, body))
        return JSONResponse(await self.service.submit(command))

    # -- routes for the quarantine ------------------------------------------------------------------

    async def quarantine(self, request: Request) -> Response:
        """Return the rows in quarantine with the reason for each, oldest first."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        self.service.model(name)
        after = _integer(request, "after", 0)
        store = self.service.writer.store
        found = await run_in_threadpool(store.quarantined, name, after, _MAX_ENTRIES)
        return JSONResponse({"rows": [_quarantined(row) for row in found]})

    async def release(self, request: Request) -> Response:
        """Learn or discard rows in quarantine."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        body, values = await self.service.read_json(request)
        way = next(iter(values), None)
        numbers = values.get(way) if way in {"learn", "discard"} and len(values) == 1 else None
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int for n in numbers):
            raise Problem(422, 'expected {"learn": [numbers]} or {"discard": [numbers]}.')
        if not all(0 <= n < 2**62 for n in numbers):
            raise Problem(404, "some of these rows are not in quarantine; nothing was changed.")
        command = commands.Release(name, numbers, way == "learn", **self.service.context(request, body))
        return JSONResponse(await self.service.submit(command))

    # -- routes for the challenger ------------------------------------------------------------------

    async def challenger(self, request: Request) -> Response:
        """Return settings and quality of the challenger, and the quality of the model on the same rows."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        published = self.service.model(name)
        comparison = published.comparison()
        if comparison is None:
            ended = published.challenger_ended
            reason = "" if ended is None else f"; the last challenger ended because of an error ({ended})"
            raise Problem(404, f"the model {name!r} has no challenger{reason}.")
        return JSONResponse(comparison)

    async def start_challenger(self, request: Request) -> Response:
        """Start a challenger: a second model that learns the same rows in shadow mode."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        body, values = await self.service.read_json(request)
        replay = values.pop("replay", True)
        if not isinstance(replay, bool):
            raise Problem(422, f"replay must be true or false; got {str(replay)[:40]!r}.")
        shared = self.service.model(name).spec.as_dict()
        spec = Spec.from_mapping({**shared, **values})
        context = self.service.context(request, body)
        return JSONResponse(await self.service.submit(commands.Challenge(name, spec, replay, **context)))

    async def end_challenger(self, request: Request) -> Response:
        """Remove the challenger."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        command = commands.Challenge(name, None, **self.service.context(request, b""))
        return JSONResponse(await self.service.submit(command))

    async def promote(self, request: Request) -> Response:
        """Swap model and challenger. A second call swaps them back."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        command = commands.Promote(name, **self.service.context(request, b""))
        return JSONResponse(await self.service.submit(command))

    # -- routes for the audit log -------------------------------------------------------------------

    async def audit(self, request: Request) -> Response:
        """Return the audit log, newest entries first."""
        query = request.query_params
        model = query.get("model")
        key = self.service.authorize(request, "admin", model)
        if key is not None and model is None and "*" not in key.models:
            raise Problem(403, "this key is for some models only.", "select one of them with ?model=NAME")
        unknown = set(query) - {"model", "since", "until", "before", "limit", *_FILTERS}
        if unknown:
            raise Problem(
                422, f"there is no filter {min(unknown)[:40]!r}.", f"filters: {', '.join(_FILTERS)}"
            )
        selection: dict[str, Any] = {name: query[name] for name in _FILTERS if name in query}
        for name in ("since", "until"):
            if name in query:
                selection[name] = self.service.seconds(query[name])
        limit = min(_integer(request, "limit", 100), _MAX_ENTRIES)
        before = _integer(request, "before", 2**62)
        read = self.service.writer.audit.read
        entries, number = await run_in_threadpool(
            lambda: read(model=model, before=before, limit=limit, **selection)
        )
        return JSONResponse({"entries": [entry._asdict() for entry in entries], "next": number})


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
        name: as_texts(column)[0] if column.dtype == object else _plain(float(column[0]))
        for name, column in batch.columns.items()
    }
    return {"number": row.number, "at": row.at, "reason": row.reason, "row": values}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """Return the routes for operators."""
    operations, model = _Operations(service), "/v1/models/{model}"
    return [
        ("DELETE", model, operations.delete),
        ("POST", f"{model}/rename", operations.rename),
        ("GET", f"{model}/quarantine", operations.quarantine),
        ("POST", f"{model}/quarantine", operations.release),
        ("GET", f"{model}/challenger", operations.challenger),
        ("PUT", f"{model}/challenger", operations.start_challenger),
        ("DELETE", f"{model}/challenger", operations.end_challenger),
        ("POST", f"{model}/promote", operations.promote),
        ("GET", "/v1/audit", operations.audit),
    ]
