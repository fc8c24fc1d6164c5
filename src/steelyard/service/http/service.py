"""Service: the state that all handlers share, and the handlers of requests that change or use a model."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.persistence.tree import decode
from steelyard.service import commands, systemd
from steelyard.service import rows as wire
from steelyard.service.audit import AuditEntry
from steelyard.service.commands import RequestFuture
from steelyard.service.consumption import TopicConsumer, pending_rows
from steelyard.service.engine import Engine
from steelyard.service.http import bodies
from steelyard.service.http.answers import JSONBytes, columns_of, prediction
from steelyard.service.http.event_streams import EventStreams
from steelyard.service.http.explanations import RecentAlarms
from steelyard.service.http.forwarding import Forwarder
from steelyard.service.http.keys import Key, Keys
from steelyard.service.http.memory import MemoryReturner
from steelyard.service.http.metrics import Metrics
from steelyard.service.http.problems import Problem, respond
from steelyard.service.http.quotas import RateLimits
from steelyard.service.published import PublishedModel
from steelyard.service.spec import Spec
from steelyard.service.writer import Writer
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch
from steelyard.tables.frames import seconds_of

__all__ = ["Limits", "Service"]

_log = logging.getLogger("steelyard.service")
_MAX_ROWS_ON_LOOP = 2_000  # larger predictions run in a thread, so that other requests do not wait
# Shorter bodies are parsed on the event loop, because passing them to a thread takes longer.
_MAX_BYTES_ON_LOOP = 100_000
# Arrow is parsed faster than JSON, so longer bodies are parsed on the event loop. 500 kB delay a prediction
# by half a millisecond, so the limit above is used while a model predicts.
_MAX_ARROW_BYTES_ON_LOOP = 500_000
# Number of allocations between two runs of the garbage collector. A hundred concurrent requests allocate
# thousands of objects that are all in use; with the default of 700, the collector takes a tenth of the time.
_GC_THRESHOLD = 20_000
_MAX_TIME_SECONDS = 253_402_300_800.0  # the end of the year 9999
_MAX_SPEC_BYTES = 1 << 20
_MAX_NAME = 64  # maximum length of the name of a model in the audit log
_MAX_PAST_MODELS = 8  # maximum number of earlier model versions in memory


@dataclass(frozen=True)
class Limits:
    """Limits on requests.

    Parameters
    ----------
    body : int
        Maximum number of bytes in a body.
    rows, columns, values : int
        Maximum numbers of rows, columns and values in a request.
    unpacked : int
        Maximum number of bytes of an Arrow stream after decompression (buffers and texts).
    listeners : int
        Maximum number of concurrent event streams.
    all_bodies : int
        Maximum total number of bytes of all bodies in memory.
    """

    body: int = 64 << 20
    rows: int = 200_000
    columns: int = 10_000
    values: int = 50_000_000
    listeners: int = 100
    unpacked: int = 512 << 20
    all_bodies: int = 512 << 20


class Service:
    """The service: handlers of the routes, and the state that they share."""

    def __init__(
        self, writer: Writer, keys: Keys | None, limits: Limits, consumers: Sequence[TopicConsumer] = ()
    ) -> None:
        self.writer, self.keys, self.limits, self.consumers = writer, keys, limits, consumers
        self.metrics = Metrics(writer, consumers)
        self.forwarder = Forwarder(writer, self.key_of)
        self.memory = MemoryReturner()
        self.rates = RateLimits()
        self.budget = bodies.ByteBudget(limits.all_bodies)
        self.request_limits = wire.RequestLimits(limits.rows, limits.columns, limits.values, limits.unpacked)
        self.alarms = RecentAlarms()
        self._past_models: dict[tuple[str, int], PublishedModel] = {}
        self.event_streams = EventStreams(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finished: deque[tuple[asyncio.Future[Any], RequestFuture]] = deque()

    # -- used by all handlers -----------------------------------------------------------------------

    def authorize(
        self, request: Request, scope: str, model: str | None = None, site: str | None = None
    ) -> Key | None:
        """Return the API key of a request (None if keys are not used); raise Problem if access is denied."""
        published = None if model is None else self.writer.published.get(model)
        if published is not None and published.spec.quota is not None:
            rate = published.spec.limit("requests_per_second")
            if rate < math.inf:
                self.rates.check("model", published.name, rate)
        key = None if self.keys is None else self.key_of(request)
        if key is None:
            return None
        if key.rate is not None:
            self.rates.check("key", key.id, key.rate)
        if not key.allows(scope, model, site):
            raise Problem(403, f"this key does not have the scope {scope!r} here.", "use a key that has it")
        return key

    def key_of(self, request: Request) -> Key | None:
        """Return the API key of a request (None if keys are not used); raise Problem if it is not valid."""
        if self.keys is None:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if self.keys.problem() is not None:
            raise commands.Unavailable("the keys of this service cannot be read.", hint="see the log")
        token = token.strip() if scheme.lower() == "bearer" else ""
        key = self.keys.find(token) if token else None
        if key is None and token:
            raise Problem(401, "this key is wrong or was revoked.", "ask an administrator for a new key")
        if key is None:
            raise Problem(401, "this service requires a key.", "send it as `Authorization: Bearer ...`")
        request.scope["steelyard.key"] = key.id
        if key.has_expired(time.time()):
            raise Problem(401, "this key has expired.", "ask an administrator for a new key")
        return key

    def model(self, name: str) -> PublishedModel:
        """Return the published model; raise NotFoundError if it does not exist."""
        found = self.writer.published.get(name)
        if found is None:
            self.writer.check_not_damaged(name)
            raise commands.NotFoundError(
                f"there is no model {name!r}.", hint="PUT /v1/models/NAME creates one"
            )
        return found

    async def submit(self, command: commands.Request) -> dict[str, Any]:
        """Submit a request to the writer; return its response once the change is durable."""
        response: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        command.future.callback = partial(self._finish, response)
        try:
            self.writer.submit(command)
            return await response
        except asyncio.CancelledError:
            command.future.cancel()  # no effect if the request is already running
            raise

    def _finish(self, response: asyncio.Future[Any], done: RequestFuture) -> None:
        """Queue a response, in the writer thread. Requests committed together wake the event loop once."""
        self._finished.append((response, done))
        if len(self._finished) == 1 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._resolve_finished)

    def _resolve_finished(self) -> None:
        while self._finished:
            response, done = self._finished.popleft()
            if response.done() or done.cancelled():
                continue
            error = done.exception()
            if error is None:
                response.set_result(done.result())
            else:
                response.set_exception(error)

    @staticmethod
    def audits(path: str) -> bool:
        """Return whether refused requests of a route are logged, because the route changes models."""
        return path.startswith("/v1/models/{model}") and not path.endswith(("/predict", "/explain"))

    def audit_refusal(self, request: Request, path: str, status: int) -> None:
        """Add an audit entry for a change that was refused before it reached the writer.

        Nothing is logged if the client is unknown.
        """
        scope = request.scope
        if "steelyard.audited" in scope or (self.keys is not None and "steelyard.key" not in scope):
            return
        client = scope.get("client")
        entry = AuditEntry(
            self.writer.clock(),
            request.path_params.get("model", "")[:_MAX_NAME],
            f"{request.method.lower()} {path.rpartition('}')[2].strip('/')}".strip(),
            scope.get("steelyard.key"),
            client[0] if client else None,
            scope["steelyard.id"],
            f"status {status}",
            0,
            None,
        )
        self.writer.audit.add(entry)

    async def read_json(self, request: Request, max_bytes: int | None = None) -> tuple[bytes, dict[str, Any]]:
        """Read a JSON body; return its bytes and the parsed object."""
        return await bodies.read_json(
            request, max_bytes or self.limits.body, self.budget, self.request_limits
        )

    async def rows(self, body: bytes, form: str, published: PublishedModel) -> ColumnBatch:
        """Return the rows of a body. Large bodies are parsed in a thread, so that other requests run."""
        is_short = len(body) < _MAX_BYTES_ON_LOOP or (
            form == "arrow" and len(body) < _MAX_ARROW_BYTES_ON_LOOP and not published.is_serving
        )
        if is_short:
            return wire.from_body(body, form, published.text_columns, limits=self.request_limits)
        return await run_in_threadpool(
            wire.from_body, body, form, published.text_columns, limits=self.request_limits
        )

    @staticmethod
    def context(request: Request, body: bytes) -> dict[str, Any]:
        """Return the origin of a request and, if it has one, its idempotency key with the fingerprint."""
        scope, headers = request.scope, request.scope[bodies.HEADERS]
        scope["steelyard.audited"] = True  # the writer adds the audit entry
        client = scope.get("client")
        origin = commands.Origin(
            scope.get("steelyard.key"), client[0] if client else None, scope.get("steelyard.id", "")
        )
        if b"idempotency-key" not in headers:
            return {"origin": origin}
        key = headers[b"idempotency-key"].decode("latin-1")
        if not 1 <= len(key) <= 255:
            raise Problem(400, f"an idempotency key must have 1 to 255 characters; got {len(key)}.")
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        content_type = headers.get(b"content-type", b"None").decode("latin-1")
        head = f"{request.method} {path}?{query} {content_type}\n"
        fingerprint = hashlib.sha256(head.encode() + body).hexdigest()
        return {"key": key, "fingerprint": fingerprint, "origin": origin}

    @staticmethod
    def seconds(value: Any) -> float:
        """Return a time given in a request, in seconds; raise Problem if it is not valid."""
        return _seconds(value)

    # -- models -------------------------------------------------------------------------------------

    async def put_model(self, request: Request) -> Response:
        """Create a model or change its settings."""
        name = request.path_params["model"]
        self.authorize(request, "admin", name)
        body, values = await self.read_json(request, _MAX_SPEC_BYTES)
        command = commands.Put(name, Spec.from_mapping(values), **self.context(request, body))
        response = dict(await self.submit(command))
        is_new = response.pop("made")
        return JSONResponse(response, status_code=201 if is_new else 200)

    async def learn(self, request: Request) -> Response:
        """Learn labelled rows."""
        name = request.path_params["model"]
        self.authorize(request, "learn", name)
        published = self.model(name)
        body = await bodies.read_body(request, self.limits.body, self.budget)
        batch = await self.rows(body, bodies.form_of(request), published)
        response = await self.submit(commands.Learn(name, batch, **self.context(request, body)))
        return JSONBytes(msgspec.json.encode(response))

    # -- predictions --------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Predict labels, scores and probabilities; with ``remember``, store the rows for delayed labels."""
        name = request.path_params["model"]
        self.authorize(request, "predict", name)
        body = await bodies.read_body(request, self.limits.body, self.budget)
        form = bodies.form_of(request)
        options = dict(request.query_params)
        if form == "json":
            values = await bodies.json_object(body, self.request_limits)
            options.update({key: values[key] for key in ("remember", "as_of") if key in values})
        published = await self.model_as_of(name, options.get("as_of"))
        batch = await self.rows(body, form, published)
        if batch.n_rows <= _MAX_ROWS_ON_LOOP:
            answers, probabilities = published.predict(batch)
        else:
            answers, probabilities = await run_in_threadpool(published.predict, batch)
        self.alarms.add(published, batch, answers, self.writer.clock())
        response = prediction(answers, probabilities, published.version)
        if _is_true(options.get("remember", False)):
            command = self._remember(published, batch, answers, response)
            response = await self.submit(replace(command, **self.context(request, body)))
        self.metrics.rows_predicted(name, batch.n_rows)
        return bodies.write_columns(request, response, columns_of(response))

    async def model_as_of(self, name: str, as_of: Any) -> PublishedModel:
        """Return the model of an earlier version or time; raise Problem if it has no snapshot."""
        current = self.model(name)
        if as_of is None:
            return current
        if current.spec.sites:
            raise Problem(410, "a federated model has no earlier versions.")
        version, at = _version_or_time(as_of)
        if version is not None and not 0 <= version <= current.version:
            raise Problem(404, f"the latest version of {name!r} is {current.version}; got {str(as_of)[:60]}.")
        if version == current.version or (at is not None and at >= self.writer.clock()):
            return current
        snapshot = await run_in_threadpool(lambda: self.writer.store.snapshot(name, version=version, at=at))
        if snapshot is None:
            raise Problem(
                410,
                f"there is no snapshot of {name!r} as of {as_of!r}.",
                "only some versions have snapshots, and forget requests delete earlier ones",
            )
        key = (name, snapshot.version)
        if key not in self._past_models:
            engine = await run_in_threadpool(lambda: Engine.from_state(name, decode(snapshot.body)))
            if len(self._past_models) >= _MAX_PAST_MODELS:
                self._past_models.pop(next(iter(self._past_models)))
            self._past_models[key] = engine.published()
        return self._past_models[key]

    def _remember(
        self, published: PublishedModel, batch: ColumnBatch, answers: Predictions, response: Mapping[str, Any]
    ) -> commands.Remember:
        rows = pending_rows(published.spec, batch, answers, self.writer.clock())
        return commands.Remember(published.name, rows, response)

    async def label(self, request: Request) -> Response:
        """Learn remembered rows whose labels have arrived."""
        name = request.path_params["model"]
        self.authorize(request, "learn", name)
        body, values = await self.read_json(request)
        labels = values.get("labels")
        if not isinstance(labels, dict) or not labels:
            raise Problem(422, 'expected {"labels": {"id": label, ...}}.')
        if len(labels) > self.limits.rows:
            raise Problem(413, f"a request may have {self.limits.rows:,} labels; got {len(labels):,}.")
        _check_identifiers(labels)
        correct = values.get("correct", False)
        if not isinstance(correct, bool):
            raise Problem(422, f"correct must be true or false; got {str(correct)[:40]!r}.")
        command = commands.Label(name, labels, correct, **self.context(request, body))
        return JSONResponse(await self.submit(command))

    async def forget(self, request: Request) -> Response:
        """Forget rows, selected by ids, subject, time, values or request."""
        name = request.path_params["model"]
        self.authorize(request, "forget", name)
        body = await bodies.read_body(request, self.limits.body, self.budget)
        selection = await self._selection(request, body, self.model(name))
        command = commands.Forget(name, **selection, **self.context(request, body))
        response = await self.submit(command)
        self.alarms.drop(name)
        return JSONResponse(response)

    async def _selection(self, request: Request, body: bytes, published: PublishedModel) -> dict[str, Any]:
        form = bodies.form_of(request)
        if form != "json":
            return {"batch": await self.rows(body, form, published)}
        values = await bodies.json_object(body, self.request_limits)
        if len(values) != 1 or not set(values) <= {"ids", "subject", "rows", "before", "batch", "learned"}:
            raise Problem(
                422, "select rows in exactly one way: ids, subject, rows, before, batch or learned."
            )
        ((way, value),) = values.items()
        if way == "rows":
            return {"batch": await self.rows(body, form, published)}
        if way == "ids":
            if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
                raise Problem(422, "ids must be a list of texts.")
            return {"ids": _check_identifiers([str(v) for v in value])}
        if way == "subject":
            if not isinstance(value, str | int):
                raise Problem(422, "subject must be a text.")
            return {"subject": _check_identifiers([str(value)])[0]}
        return {"before": _seconds(value)} if way == "before" else _undo_selection(way, value)

    # -- the service itself -------------------------------------------------------------------------

    async def _watchdog(self) -> None:
        """Notify the systemd watchdog regularly while the event loop and the writer are running."""
        seconds = systemd.watchdog_seconds()
        while seconds is not None:
            if self.writer.is_alive:
                systemd.notify("WATCHDOG=1")
            await asyncio.sleep(seconds)

    async def http_problem(self, request: Request, error: HTTPException) -> Response:
        """Return the response to a request that matches no route, and count the request."""
        self.count_unrouted(request.method, "unknown", error.status_code)
        return respond(Problem(error.status_code, str(error.detail) + "."))

    def count_unrouted(self, method: str, route: str, status: int) -> None:
        """Count a request without a handler. Unknown methods share one label, so the labels are bounded."""
        known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}
        self.metrics.request_finished(method if method in known else "other", route, status, 0.0, None)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Run the writer while the application runs."""
        self._loop = asyncio.get_running_loop()
        thresholds = gc.get_threshold()
        gc.set_threshold(_GC_THRESHOLD, *thresholds[1:])
        self.writer.listeners.append(self.event_streams.notify)
        self.writer.start()
        for consumer in self.consumers:
            consumer.start()
        systemd.notify("READY=1")
        watchdog = asyncio.create_task(self._watchdog())
        try:
            yield
        finally:
            watchdog.cancel()
            systemd.notify("STOPPING=1")
            gc.set_threshold(*thresholds)
            for consumer in self.consumers:
                await run_in_threadpool(consumer.stop)
            await run_in_threadpool(self.writer.close)
            await self.forwarder.close()
            self.writer.store.close()


def _check_identifiers(names: Iterable[str]) -> list[str]:
    """Return ids or subjects as a list; raise Problem if one of them is not valid."""
    invalid = next((name for name in names if not wire.is_identifier(name)), None)
    if invalid is not None:
        raise Problem(422, f"{invalid[:40]!r} ({len(invalid)} characters) is not a valid id or subject.")
    return list(names)


def _undo_selection(way: str, value: Any) -> dict[str, Any]:
    if way == "batch":
        if not isinstance(value, str) or not 1 <= len(value) <= 255:
            raise Problem(422, "batch must be the idempotency key of a request.")
        return {"request_key": value}
    if not isinstance(value, dict) or not value or not set(value) <= {"since", "until"}:
        raise Problem(422, 'learned must be {"since": time, "until": time}.')
    since, until = value.get("since"), value.get("until")
    return {
        "learned": (
            -_MAX_TIME_SECONDS if since is None else _seconds(since),
            _MAX_TIME_SECONDS if until is None else _seconds(until),
        )
    }


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in {"1", "true", "yes"})


def _version_or_time(as_of: Any) -> tuple[int | None, float | None]:
    if isinstance(as_of, int) or (isinstance(as_of, str) and as_of.isdecimal() and len(as_of) < 19):
        return int(as_of), None
    return None, _seconds(as_of)


def _seconds(value: Any) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float) else seconds_of(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    # A year with very many digits would overflow and give a wrong time.
    if not abs(seconds) < _MAX_TIME_SECONDS or len(str(value)) > 64:
        raise Problem(422, f"expected a time; got {str(value)[:60]!r}.", "for example 2026-01-31T12:30:00Z")
    return seconds
