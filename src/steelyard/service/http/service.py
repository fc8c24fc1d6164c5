"""Service: the state that all handlers share, its event streams, and the handlers of requests with rows."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from steelyard.persistence.tree import decode
from steelyard.service import commands, system
from steelyard.service import rows as wire
from steelyard.service.audit import AuditEntry
from steelyard.service.engine import Engine
from steelyard.service.errors import NotFoundError, NotJSONError, Unavailable
from steelyard.service.http.forwarding import Forwarder
from steelyard.service.http.keys import Key, Keys, RateLimits
from steelyard.service.http.metrics import Metrics
from steelyard.service.http.protocol import ON_SHUTDOWN
from steelyard.service.http.responses import Problem, prediction, respond, write_prediction
from steelyard.service.http.routes import MODEL, route
from steelyard.service.monitor import RecentAlarms
from steelyard.service.published import PublishedModel
from steelyard.service.queue import RequestFuture
from steelyard.service.session import pending_rows
from steelyard.service.system import MemoryReturner
from steelyard.service.writer import Writer
from steelyard.tables.columns import ColumnBatch
from steelyard.tables.frames import seconds_of

if TYPE_CHECKING:
    from steelyard.brokers.consumer import Consumer

HEADERS = "steelyard.headers"  # key of the request scope for the headers as a dictionary
# Shorter bodies are parsed on the event loop, because passing them to a thread takes longer.
_MAX_BYTES_ON_LOOP = 100_000
# Arrow is parsed faster than JSON, so longer bodies are parsed on the event loop. 500 kB delay a prediction
# by half a millisecond, so the limit above is used while a model predicts.
_MAX_ARROW_BYTES_ON_LOOP = 500_000
_MAX_ROWS_ON_LOOP = 2_000  # larger predictions run in a thread, so that other requests do not wait
_MAX_BODY_SECONDS = 120.0
_HEARTBEAT_SECONDS = 15.0  # pause after which an event stream sends a comment
_TIMEOUT = "timeout of the body"
# Number of allocations between two runs of the garbage collector. A hundred concurrent requests allocate
# thousands of objects that are all in use; with the default of 700, the collector takes a tenth of the time.
_GC_THRESHOLD = 20_000
_MAX_TIME_SECONDS = 253_402_300_800.0  # the end of the year 9999
_MAX_NAME = 64  # maximum length of the name of a model in the audit log
_MAX_PAST_MODELS = 8  # maximum number of earlier model versions in memory


class Service:
    """The state that all handlers share."""

    def __init__(
        self, writer: Writer, keys: Keys | None, limits: wire.Limits, consumers: Sequence[Consumer] = ()
    ) -> None:
        self.writer, self.keys, self.limits, self.consumers = writer, keys, limits, consumers
        self.metrics = Metrics(writer, consumers)
        self.forwarder = Forwarder(writer, self.key_of)
        self.memory = MemoryReturner()
        self.rates = RateLimits()
        self.n_body_bytes = 0  # total size of the bodies in memory
        self.alarms = RecentAlarms()
        self._past_models: dict[tuple[str, int], PublishedModel] = {}
        self.event_streams = EventStreams(self)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._finished: deque[tuple[asyncio.Future[Any], RequestFuture]] = deque()

    # -- keys and models ----------------------------------------------------------------------------

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
            raise Unavailable("the keys of this service cannot be read.", hint="see the log")
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
            raise NotFoundError(f"there is no model {name!r}.", hint="PUT /v1/models/NAME creates one")
        return found

    async def model_as_of(self, name: str, as_of: Any) -> PublishedModel:
        """Return the model of an earlier version or time; raise Problem if it has no snapshot."""
        current = self.model(name)
        if as_of is None:
            return current
        if current.spec.sites:
            raise Problem(410, "a federated model has no earlier versions.")
        is_version = isinstance(as_of, int) or (
            isinstance(as_of, str) and as_of.isdecimal() and len(as_of) < 19
        )
        version, at = (int(as_of), None) if is_version else (None, seconds(as_of))
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

    def drop_cached_rows(self, name: str) -> None:
        """Remove the alarms and the earlier versions of a model from memory, after rows were forgotten."""
        self.alarms.drop(name)
        self._past_models = {key: model for key, model in self._past_models.items() if key[0] != name}

    # -- bodies -------------------------------------------------------------------------------------

    async def read_body(self, request: Request, max_bytes: int | None = None) -> bytes:
        """Read the body; raise Problem as soon as it is too large or too slow."""
        max_bytes = max_bytes or self.limits.body
        declared = request.scope[HEADERS].get(b"content-length", b"")
        if declared.isdigit() and int(declared) > max_bytes:
            raise _too_large(max_bytes)
        task = asyncio.current_task()
        assert task is not None
        # asyncio.timeout would take longer than reading a small body.
        timer = task.get_loop().call_later(_MAX_BODY_SECONDS, task.cancel, _TIMEOUT)
        parts, size, is_more = [], 0, True
        try:
            while is_more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "the client disconnected before the body was complete.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self.n_body_bytes += len(parts[-1])
                request.scope["steelyard.bytes"] = size  # counted until release_bytes() is called
                if self.n_body_bytes > self.limits.all_bodies:
                    raise Problem(
                        503, "too many large requests at once; nothing was changed.", "try again shortly"
                    )
                if size > max_bytes:
                    raise _too_large(max_bytes)
                is_more = message.get("more_body", False)
        except asyncio.CancelledError as error:
            if _TIMEOUT not in error.args or task.uncancel() > 0:
                raise
            raise Problem(408, f"the body did not arrive within {_MAX_BODY_SECONDS:g} seconds.") from None
        finally:
            timer.cancel()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release_bytes(self, request: Request) -> int:
        """Stop counting the bytes of a request; return their number."""
        n_bytes: int = request.scope.pop("steelyard.bytes", 0)
        self.n_body_bytes -= n_bytes
        return n_bytes

    async def read_json(self, request: Request, max_bytes: int | None = None) -> tuple[bytes, dict[str, Any]]:
        """Read a JSON body; return its bytes and the parsed object."""
        body = await self.read_body(request, max_bytes)
        if format_of(request) != "json":
            raise Problem(415, "expected a JSON object.", "use the content type application/json")
        return body, await self._json_object(body)

    async def _json_object(self, body: bytes) -> dict[str, Any]:
        """Return the JSON object of a body. Large bodies are parsed in a thread."""
        decode_body = partial(wire.decoded_json, body, self.limits)
        try:
            value = decode_body() if len(body) < _MAX_BYTES_ON_LOOP else await run_in_threadpool(decode_body)
        except NotJSONError as error:
            raise Problem(400, error.message) from error
        if not isinstance(value, dict):
            raise Problem(400, f"the body must be a JSON object; got {type(value).__name__}.")
        return value

    async def rows(
        self, body: bytes, request: Request, published: PublishedModel, value: Any = None
    ) -> ColumnBatch:
        """Return the rows of a body. Large bodies are parsed in a thread, so that other requests run.

        ``value`` is the JSON value of the body if it is already parsed.
        """
        form = format_of(request)
        parse = partial(wire.from_body, body, form, published.text_columns, limits=self.limits, value=value)
        is_short = len(body) < _MAX_BYTES_ON_LOOP or (
            form == "arrow" and len(body) < _MAX_ARROW_BYTES_ON_LOOP and not published.is_serving
        )
        return parse() if is_short else await run_in_threadpool(parse)

    # -- changes of models --------------------------------------------------------------------------

    async def change(self, request: Request, command: commands.Request, body: bytes = b"") -> dict[str, Any]:
        """Submit a request to the writer; return its response once the change is durable."""
        scope, headers = request.scope, request.scope[HEADERS]
        scope["steelyard.audited"] = True  # the writer adds the audit entry
        client = scope.get("client") or (None,)
        command.origin = commands.Origin(scope.get("steelyard.key"), client[0], scope.get("steelyard.id", ""))
        if b"idempotency-key" in headers and command.takes_key:
            key = headers[b"idempotency-key"].decode("latin-1")
            if not 1 <= len(key) <= 255:
                raise Problem(400, f"an idempotency key must have 1 to 255 characters; got {len(key)}.")
            path, query = scope["path"], scope["query_string"].decode("latin-1")
            content_type = headers.get(b"content-type", b"None").decode("latin-1")
            head = f"{request.method} {path}?{query} {content_type}\n"
            command.key, command.fingerprint = key, hashlib.sha256(head.encode() + body).hexdigest()
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
        if len(self._finished) == 1 and self.loop is not None:
            self.loop.call_soon_threadsafe(self._resolve_finished)

    def _resolve_finished(self) -> None:
        while self._finished:
            response, done = self._finished.popleft()
            if response.done():
                continue  # the request was cancelled
            if (error := done.exception()) is None:
                response.set_result(done.result())
            else:
                response.set_exception(error)

    def audit_refusal(self, request: Request, path: str, status: int) -> None:
        """Add an audit entry for a change that was refused before it reached the writer.

        Nothing is logged if the client is unknown.
        """
        scope = request.scope
        if "steelyard.audited" in scope or (self.keys is not None and "steelyard.key" not in scope):
            return
        name = request.path_params.get("model", "")[:_MAX_NAME]
        verb = f"{request.method.lower()} {path.rpartition('}')[2].strip('/')}".strip()
        client, key = scope.get("client") or (None,), scope.get("steelyard.key")
        origin, outcome = (key, client[0], scope["steelyard.id"]), (f"status {status}", 0, None)
        self.writer.audit.add(AuditEntry(self.writer.clock(), name, verb, *origin, *outcome))

    # -- the service itself -------------------------------------------------------------------------

    async def _watchdog(self) -> None:
        """Notify the systemd watchdog regularly while the event loop and the writer are running."""
        seconds = system.watchdog_seconds()
        while seconds is not None:
            if self.writer.is_alive:
                system.notify("WATCHDOG=1")
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
        self.loop = asyncio.get_running_loop()
        thresholds = gc.get_threshold()
        gc.set_threshold(_GC_THRESHOLD, *thresholds[1:])
        self.writer.listeners.append(self.event_streams.notify)
        self.writer.start()
        for consumer in self.consumers:
            consumer.start()
        system.notify("READY=1")
        watchdog = asyncio.create_task(self._watchdog())
        try:
            yield
        finally:
            watchdog.cancel()
            system.notify("STOPPING=1")
            gc.set_threshold(*thresholds)
            for consumer in self.consumers:
                await run_in_threadpool(consumer.stop)
            await run_in_threadpool(self.writer.close)
            await self.forwarder.close()
            self.writer.store.close()


def _too_large(max_bytes: int) -> Problem:
    detail = f"the body is larger than {max_bytes:,} bytes; nothing was changed."
    return Problem(413, detail, wire.SPLIT_HINT)


def format_of(request: Request) -> str:
    """Return the format of the body according to its content type.

    A content type is required, and the simple types of CORS are not accepted. For requests without a content
    type or with a simple type, a browser sends no preflight request to other origins.
    """
    content_type = request.scope[HEADERS].get(b"content-type", b"").decode("latin-1")
    content_type = content_type.partition(";")[0].strip().lower()
    if content_type not in wire.CONTENT_TYPES:
        known = ", ".join(wire.CONTENT_TYPES)
        raise Problem(415, f"the content type {content_type!r} is not supported.", f"use one of {known}")
    return wire.CONTENT_TYPES[content_type]


def seconds(value: Any) -> float:
    """Return a time given in a request, in seconds; raise Problem if it is not valid."""
    try:
        found = float(value) if isinstance(value, int | float) else seconds_of(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    # A year with very many digits would overflow and give a wrong time.
    if not abs(found) < _MAX_TIME_SECONDS or len(str(value)) > 64:
        raise Problem(422, f"expected a time; got {str(value)[:60]!r}.", "for example 2026-01-31T12:30:00Z")
    return found


class EventStreams:
    """Open event streams. A slow client misses some versions of its model."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.listeners: dict[asyncio.Event, str] = {}  # set when the model with this name has changed

    async def lines(self, request: Request, name: str) -> AsyncIterator[str]:
        """Yield the events of a model until the client disconnects or the service stops."""
        changed = asyncio.Event()
        self.listeners[changed] = name

        def end_stream() -> None:
            self.listeners.pop(changed, None)
            changed.set()

        request.scope[ON_SHUTDOWN] = end_stream
        try:
            while changed in self.listeners:
                changed.clear()
                yield await run_in_threadpool(self._event, name)
                while not changed.is_set():
                    if await request.is_disconnected():
                        return
                    try:
                        await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)
                    except TimeoutError:
                        yield ": heartbeat\n\n"
        finally:
            self.listeners.pop(changed, None)

    def _event(self, name: str) -> str:
        published = self.service.model(name)
        data = {"version": published.version, **published.summary(), "measures": published.measures}
        return f"event: model\ndata: {json.dumps(data)}\n\n"

    def notify(self, name: str) -> None:
        """Notify event streams; called in the writer thread when a model changes or is deleted."""
        loop = self.service.loop
        if loop is not None and name not in self.service.writer.published:  # the model was deleted
            self.service.metrics.activity.forget(name)
            loop.call_soon_threadsafe(self.service.drop_cached_rows, name)
        if loop is not None and self.listeners:
            loop.call_soon_threadsafe(self._wake_up, name)

    def _wake_up(self, name: str) -> None:
        for changed, model in self.listeners.items():
            if model == name:
                changed.set()


# -- handlers of requests with rows ------------------------------------------------------------------


@route(
    "POST", f"{MODEL}/learn", "learn", response="Learned", body="Rows", takes_rows=True, is_idempotent=True
)
async def learn(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn labelled rows."""
    published = service.model(name)
    body = await service.read_body(request)
    batch = await service.rows(body, request, published)
    return await service.change(request, commands.Learn(name, batch), body)


@route(
    "POST",
    f"{MODEL}/predict",
    "predict",
    response="Prediction",
    body="Predict",
    takes_rows=True,
    is_idempotent=True,
)
async def predict(service: Service, request: Request, name: str) -> Response:
    """Predict labels, scores and probabilities; with ``remember``, store the rows for delayed labels."""
    body = await service.read_body(request)
    options, values = dict(request.query_params), None
    if format_of(request) == "json":
        values = await service._json_object(body)
        options.update({key: values[key] for key in ("remember", "as_of") if key in values})
    published = await service.model_as_of(name, options.get("as_of"))
    batch = await service.rows(body, request, published, values)
    if batch.n_rows <= _MAX_ROWS_ON_LOOP:
        answers, probabilities = published.predict(batch)
    else:
        answers, probabilities = await run_in_threadpool(published.predict, batch)
    service.alarms.add(published, batch, answers, service.writer.clock())
    response = prediction(answers, probabilities, published.version)
    if str(options.get("remember")).lower() in {"1", "true", "yes"}:
        rows = pending_rows(published.spec, batch, answers, service.writer.clock())
        response = await service.change(request, commands.Remember(name, rows, response), body)
    service.metrics.rows_predicted(name, batch.n_rows)
    return write_prediction(request, response)


@route("POST", f"{MODEL}/labels", "learn", response="Labelled", body="Labels", is_idempotent=True)
async def label(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Learn remembered rows whose labels have arrived."""
    body, values = await service.read_json(request)
    labels, correct = values.get("labels"), values.get("correct", False)
    if not isinstance(labels, dict) or not labels:
        raise Problem(422, 'expected {"labels": {"id": label, ...}}.')
    if len(labels) > service.limits.rows:
        raise Problem(413, f"a request may have {service.limits.rows:,} labels; got {len(labels):,}.")
    _check_identifiers(labels)
    if not isinstance(correct, bool):
        raise Problem(422, f"correct must be true or false; got {str(correct)[:40]!r}.")
    return await service.change(request, commands.Label(name, labels, correct), body)


@route("POST", f"{MODEL}/forget", "forget", response="Forgotten", body="Forget", is_idempotent=True)
async def forget(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Forget rows, selected by ids, subject, time, values or request."""
    body, published = await service.read_body(request), service.model(name)
    is_json = format_of(request) == "json"
    values = await service._json_object(body) if is_json else {"rows": None}
    ways = {"ids", "subject", "rows", "before", "batch", "learned"}
    if len(values) != 1 or not set(values) <= ways:
        raise Problem(422, "select rows in exactly one way: ids, subject, rows, before, batch or learned.")
    ((way, value),) = values.items()
    selection: dict[str, Any]
    if way == "rows":
        selection = {"batch": await service.rows(body, request, published, values if is_json else None)}
    else:
        selection = _selection(way, value)
    response = await service.change(request, commands.Forget(name, **selection), body)
    service.drop_cached_rows(name)
    return response


def _selection(way: str, value: Any) -> dict[str, Any]:
    """Return the fields of a forget request; raise Problem if the value of the selection is not valid."""
    if way == "ids":
        if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
            raise Problem(422, "ids must be a list of texts.")
        return {"ids": _check_identifiers([str(v) for v in value])}
    if way == "subject":
        if not isinstance(value, str | int):
            raise Problem(422, "subject must be a text.")
        return {"subject": _check_identifiers([str(value)])[0]}
    if way == "before":
        return {"before": seconds(value)}
    if way == "batch":
        if not isinstance(value, str) or not 1 <= len(value) <= 255:
            raise Problem(422, "batch must be the idempotency key of a request.")
        return {"request_key": value}
    if not isinstance(value, dict) or not value or not set(value) <= {"since", "until"}:
        raise Problem(422, 'learned must be {"since": time, "until": time}.')
    given = {name: seconds(moment) for name, moment in value.items() if moment is not None}
    return {"learned": (given.get("since", -_MAX_TIME_SECONDS), given.get("until", _MAX_TIME_SECONDS))}


def _check_identifiers(names: Iterable[str]) -> list[str]:
    """Return ids or subjects as a list; raise Problem if one of them is not valid."""
    invalid = next((name for name in names if not wire.is_identifier(name)), None)
    if invalid is not None:
        raise Problem(422, f"{invalid[:40]!r} ({len(invalid)} characters) is not a valid id or subject.")
    return list(names)
