"""Routes of the service. A handler reads, asks the library and answers; it decides nothing about models."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import math
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from steelyard.persistence import to_bytes
from steelyard.persistence.tree import decode
from steelyard.service import commands as wishes
from steelyard.service import rows as wire
from steelyard.service.engine import Engine, Published
from steelyard.service.http import bodies, federated, inference, page
from steelyard.service.http.answers import columns_of, prediction
from steelyard.service.http.keys import Key, Keys
from steelyard.service.http.metrics import Metrics
from steelyard.service.http.middleware import Handler, told
from steelyard.service.http.openapi import description
from steelyard.service.http.problems import Problem, respond
from steelyard.service.http.shortcut import Shortcut
from steelyard.service.reply import Reply
from steelyard.service.spec import Spec
from steelyard.service.store import Waiting
from steelyard.service.writer import Writer
from steelyard.streams.answers import Answers
from steelyard.tables.columns import ColumnBatch
from steelyard.tables.table_stream import seconds_of

__all__ = ["Limits", "Service", "make_app"]

_FEW_ROWS = 2_000  # are answered at once; more go to a thread, so that others need not wait
# Bodies smaller than this are read at once: to hand them to a thread would take longer than to read them.
_SOON_READ = {"json": 100_000, "jsonl": 100_000, "csv": 100_000, "arrow": 500_000}
# While a model is asked, a question must not wait for the half millisecond that a larger one takes.
_SOON_READ_WHILE_ASKED = 100_000
# Objects that are made before those in circles are looked for. A hundred requests that are read together make
# thousands that are all in use: to look through them every 700, as Python does, is a tenth of all time.
_LITTER = 20_000
_HEARTBEAT = 15.0
_FRESH = 15.0  # seconds that a follower may have heard nothing
_FARTHEST = 253_402_300_800.0  # seconds to the end of the year 9999


@dataclass(frozen=True)
class Limits:
    """What a request may cost."""

    body: int = 64 << 20
    rows: int = 200_000
    columns: int = 10_000
    values: int = 50_000_000
    listeners: int = 100


# Rooms with routes of their own: each takes the service and gives (method, path, handler).
_PARTS = (inference.routes, federated.routes, page.routes)


class Service:
    """Writer, keys and limits behind the routes."""

    def __init__(self, writer: Writer, keys: Keys | None, limits: Limits) -> None:
        self.writer, self.keys, self.limits = writer, keys, limits
        self.metrics = Metrics(writer)
        self._most = wire.RequestLimits(limits.rows, limits.columns, limits.values)
        self._past: dict[tuple[str, int], Published] = {}
        self._listeners: set[asyncio.Queue[str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: deque[tuple[asyncio.Future[Any], Reply]] = deque()

    # -- guards -------------------------------------------------------------------------------------

    def check(
        self, request: Request, scope: str, model: str | None = None, site: str | None = None
    ) -> Key | None:
        """Refuse who may not do this; returns the key, where keys are wanted."""
        if self.keys is None:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = self.keys.find(token.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Problem(401, "this service wants a key.", "send it as `Authorization: Bearer ...`")
        if not key.allows(scope, model, site):
            raise Problem(403, f"this key may not {scope} here.", "ask for a key with that scope")
        return key

    def latest(self, name: str) -> Published:
        """The model as it was last published."""
        found = self.writer.published.get(name)
        if found is None:
            raise wishes.NotFoundError(f"there is no model {name!r}.", hint="PUT /v1/models/NAME makes one")
        return found

    async def done(self, wish: wishes.Request) -> dict[str, Any]:
        """What the scribe answers when it is on disk."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        wish.future.add_done_callback(lambda done: self._answered(answer, done))
        try:
            self.writer.submit(wish)
            return await answer
        except asyncio.CancelledError:
            wish.future.cancel()  # whoever has given up before it began is left out
            raise

    def _answered(self, answer: asyncio.Future[Any], done: Reply) -> None:
        """In the scribe's thread: answers of one group wake the loop once."""
        self._done.append((answer, done))
        if len(self._done) == 1 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        while self._done:
            answer, done = self._done.popleft()
            if answer.done() or done.cancelled():
                continue
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(error)

    # -- models -------------------------------------------------------------------------------------

    async def list_models(self, request: Request) -> Response:
        """Every model that the key may see."""
        key = self.check(request, "predict")
        seen = [name for name in sorted(self.writer.published) if key is None or key.allows("predict", name)]
        return JSONResponse({"models": [self._facts(name) for name in seen]})

    def _facts(self, name: str) -> dict[str, Any]:
        published = self.latest(name)
        return {
            "name": name,
            "version": published.version,
            **published.facts(),
            "waiting_for_labels": self.writer.store.n_waiting(name),
            "spec": published.spec.as_dict(),
        }

    async def get_model(self, request: Request) -> Response:
        """One model: version, digest, classes, rows."""
        name = request.path_params["model"]
        self.check(request, "predict", name)
        inside = self.latest(name).inside()
        return JSONResponse({**self._facts(name), **inside, "latency_ms": self.metrics.latency(name)})

    async def put_model(self, request: Request) -> Response:
        """Make a model, or change what may be changed."""
        name = request.path_params["model"]
        self.check(request, "admin", name)
        body = bodies.json_body(await bodies.read_body(request, 1 << 20))
        answer = await self.done(wishes.Put(name, Spec.from_mapping(body)))
        made = answer.pop("made")
        return JSONResponse(answer, status_code=201 if made else 200)

    async def learn(self, request: Request) -> Response:
        """Rows with labels."""
        name = request.path_params["model"]
        self.check(request, "learn", name)
        published = self.latest(name)
        body = await bodies.read_body(request, self.limits.body)
        form = bodies.form_of(request)
        batch = await self._rows(body, form, published)
        answer = await self.done(wishes.Learn(name, batch, **self.once(request, body)))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def _rows(self, body: bytes, form: str, published: Published) -> ColumnBatch:
        texts = published.text_columns
        soon = _SOON_READ[form]
        if published.is_asked:
            soon = min(soon, _SOON_READ_WHILE_ASKED)
        if len(body) < soon:
            return wire.from_body(body, form, texts, most=self._most)
        return await run_in_threadpool(wire.from_body, body, form, texts, most=self._most)

    @staticmethod
    def once(request: Request, body: bytes) -> dict[str, Any]:
        key = bodies.header(request, b"idempotency-key")
        if key is None:
            return {}
        if not 1 <= len(key) <= 255:
            raise Problem(400, f"an idempotency key has 1 to 255 characters; got {len(key)}.")
        said = (
            f"{request.method} {request.url.path}?{request.url.query} {request.headers.get('content-type')}\n"
        )
        mark = hashlib.sha256(said.encode() + body).hexdigest()
        return {"key": key, "fingerprint": mark}

    # -- predictions --------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Labels, scores and probabilities; with ids where they are to be labelled later."""
        name = request.path_params["model"]
        self.check(request, "predict", name)
        body = await bodies.read_body(request, self.limits.body)
        form = bodies.form_of(request)
        options = dict(request.query_params)
        if form == "json":
            said = bodies.json_body(body)
            options.update({key: said[key] for key in ("remember", "as_of") if key in said})
        published = await self._model_of(name, options.get("as_of"))
        batch = await self._rows(body, form, published)
        if batch.n_rows <= _FEW_ROWS:
            answers, chances = published.ask(batch)
        else:
            answers, chances = await run_in_threadpool(published.ask, batch)
        answer = prediction(answers, chances, published.version)
        if _truth(options.get("remember", False)):
            wish = self._to_remember(published, batch, answers, answer)
            answer = await self.done(replace(wish, **self.once(request, body)))
        self.metrics.predicted(name, batch.n_rows)
        return bodies.write_columns(request, answer, columns_of(answer))

    async def _model_of(self, name: str, as_of: Any) -> Published:
        if as_of is None:
            return self.latest(name)
        current = self.latest(name)
        if current.spec.sites:
            raise Problem(410, "a model that is pooled from sites keeps no earlier versions.")
        version, at = _moment(as_of)
        if version is not None and not 0 <= version <= current.version:
            raise Problem(404, f"{name!r} has come to version {current.version}, not to {str(as_of)[:60]}.")
        if version == current.version or (at is not None and at >= self.writer.clock()):
            return current
        snapshot = await run_in_threadpool(lambda: self.writer.store.snapshot(name, version=version, at=at))
        if snapshot is None:
            raise Problem(
                410,
                f"nothing is kept of {name!r} as of {as_of!r}.",
                "models are kept at some versions only, and none from before something was forgotten",
            )
        key = (name, snapshot.version)
        if key not in self._past:
            engine = await run_in_threadpool(lambda: Engine.from_state(name, decode(snapshot.body)))
            if len(self._past) >= 8:
                self._past.pop(next(iter(self._past)))
            self._past[key] = engine.published()
        return self._past[key]

    def _to_remember(
        self, published: Published, batch: ColumnBatch, answers: Answers, told: Mapping[str, Any]
    ) -> wishes.Remember:
        spec = published.spec
        if spec.rows == "none":
            raise Problem(409, 'this model keeps no rows (rows = "none"), so none can wait for a label.')
        if spec.subject is not None and spec.subject not in batch.columns:
            raise Problem(422, f"rows to remember must say whose they are, in column {spec.subject!r}.")
        now = self.writer.clock()
        if spec.time is not None and spec.time in batch.columns:
            said = [time is not None for time in wire.texts(batch, spec.time)]
            wire.times(wire.cut(batch, np.array(said)), spec.time, now)  # or no label could be learned
        ids = [given or uuid.uuid4().hex for given in wire.names(batch, _present(spec.id, batch))]
        if len(set(ids)) < len(ids):
            raise Problem(
                422, "two of the rows have the same id; nothing was changed.", "an id names one row"
            )
        subjects = wire.names(batch, spec.subject)
        labels = answers.labels.tolist()
        waiting = []
        for row, row_id in enumerate(ids):
            answer = {
                "label": labels[row],
                "scores": np.asarray(answers.scores[row]),
                "classes": list(answers.classes),
            }
            kept = wire.completed(batch.take(row, row + 1), {spec.id: row_id, spec.time: now})
            waiting.append(Waiting(row_id, now, subjects[row], wire.pack(kept, answer)))
        return wishes.Remember(published.name, waiting, told)

    async def label(self, request: Request) -> Response:
        """Labels of remembered rows."""
        name = request.path_params["model"]
        self.check(request, "learn", name)
        body = await bodies.read_body(request, self.limits.body)
        labels = bodies.json_body(body).get("labels")
        if not isinstance(labels, dict) or not labels:
            raise Problem(422, 'expected {"labels": {"id": label, ...}}.')
        if len(labels) > self.limits.rows:
            raise Problem(413, f"a request can have {self.limits.rows:,} labels; got {len(labels):,}.")
        _check_names(labels)
        return JSONResponse(await self.done(wishes.Label(name, labels, **self.once(request, body))))

    async def forget(self, request: Request) -> Response:
        """Forget rows by ids, subject, time, or by themselves."""
        name = request.path_params["model"]
        self.check(request, "forget", name)
        body = await bodies.read_body(request, self.limits.body)
        published = self.latest(name)
        choice = await self._choice(request, body, published)
        return JSONResponse(await self.done(wishes.Forget(name, **choice, **self.once(request, body))))

    async def _choice(self, request: Request, body: bytes, published: Published) -> dict[str, Any]:
        form = bodies.form_of(request)
        if form != "json":
            return {"batch": await self._rows(body, form, published)}
        said = bodies.json_body(body)
        given = [key for key in ("ids", "subject", "rows", "before") if key in said]
        if len(given) != 1 or len(said) != 1:
            raise Problem(422, "choose rows in exactly one way: ids, subject, rows or before.")
        value = said[given[0]]
        if given[0] == "rows":
            return {"batch": await self._rows(body, form, published)}
        if given[0] == "ids":
            if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
                raise Problem(422, "ids must be a list of texts.")
            return {"ids": _check_names([str(v) for v in value])}
        if given[0] == "subject":
            if not isinstance(value, str | int):
                raise Problem(422, "subject must be a text.")
            return {"subject": _check_names([str(value)])[0]}
        return {"before": _seconds(value)}

    # -- what was measured --------------------------------------------------------------------------

    async def measures(self, request: Request) -> Response:
        """Measures over time."""
        name = request.path_params["model"]
        self.check(request, "predict", name)
        self.latest(name)
        since = request.query_params.get("since")
        moment = None if since is None else _seconds(since)
        points = await run_in_threadpool(self.writer.store.points, name, moment, 2_000)
        return JSONResponse({"now": self.latest(name).measures, "points": points})

    async def certificates(self, request: Request) -> Response:
        """The latest proofs of forgetting."""
        name = request.path_params["model"]
        self.check(request, "predict", name)
        self.latest(name)
        found = await run_in_threadpool(self.writer.store.certificates, name, 50)
        return JSONResponse({"certificates": found})

    async def file(self, request: Request) -> Response:
        """The learner as a file of ``steelyard.save``."""
        name = request.path_params["model"]
        self.check(request, "admin", name)
        published = self.latest(name)
        data = await run_in_threadpool(to_bytes, published.learner)
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}.steelyard"'},
        )

    async def events(self, request: Request) -> Response:
        """Server-sent events: a line whenever a model has changed."""
        name = request.path_params["model"]
        self.check(request, "predict", name)
        self.latest(name)
        if len(self._listeners) >= self.limits.listeners:
            raise wishes.QueueFullError(f"{self.limits.listeners} listen already.")
        return StreamingResponse(
            self._event_lines(request, name),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _event_lines(self, request: Request, name: str) -> AsyncIterator[str]:
        news: asyncio.Queue[str] = asyncio.Queue(16)
        self._listeners.add(news)
        try:
            yield self._line(name)
            while not await request.is_disconnected():
                try:
                    changed = await asyncio.wait_for(news.get(), _HEARTBEAT)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if changed == name:
                    yield self._line(name)
        finally:
            self._listeners.discard(news)

    def _line(self, name: str) -> str:
        facts = {
            "version": self.latest(name).version,
            **self.latest(name).facts(),
            "measures": self.latest(name).measures,
        }
        return f"event: model\ndata: {json.dumps(facts)}\n\n"

    def tell(self, name: str, _news: Mapping[str, Any]) -> None:
        """Called by the scribe, in its thread, when a model has changed."""
        if self._loop is not None and self._listeners:
            self._loop.call_soon_threadsafe(self._spread, name)

    def _spread(self, name: str) -> None:
        for news in self._listeners:
            if not news.full():  # whoever is slow misses some, and gets the latest with the next
                news.put_nowait(name)

    # -- the service itself -------------------------------------------------------------------------

    async def live(self, _request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"live": True})

    async def ready(self, _request: Request) -> Response:
        """Models are loaded, and changes are written or followed."""
        ready = self.writer.is_alive and self.writer.behind < _FRESH
        role = "learner" if self.writer.leads else "predictor"
        return JSONResponse({"ready": ready, "role": role}, status_code=200 if ready else 503)

    async def learner(self, _request: Request) -> Response:
        """Whether this is the process to send changes to; for proxies."""
        leads = self.writer.is_alive and self.writer.leads
        return JSONResponse({"learner": leads}, status_code=200 if leads else 503)

    async def metrics_text(self, request: Request) -> Response:
        """Figures for Prometheus."""
        key = self.check(request, "predict")
        if key is not None and "*" not in key.models:
            raise Problem(403, "figures name all models, and this key is for some.", "ask for one for all")
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _request: Request) -> Response:
        """The description of all this."""
        return JSONResponse(description())

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Write while the service runs; finish what waits when it stops."""
        self._loop = asyncio.get_running_loop()
        litter = gc.get_threshold()
        gc.set_threshold(_LITTER, *litter[1:])
        self.writer.listeners.append(self.tell)
        self.writer.start()
        try:
            yield
        finally:
            gc.set_threshold(*litter)
            await run_in_threadpool(self.writer.close)
            self.writer.store.close()


def make_app(writer: Writer, *, keys: Keys | None = None, limits: Limits | None = None) -> Starlette:
    """The service as an ASGI application.

    Parameters
    ----------
    scribe : Writer
        The writer; it is started and stopped with the application.
    keys : Keys, optional
        Who may do what; without it everybody may do everything.
    limits : Limits, optional
        What a request may cost.
    """
    service = Service(writer, keys, limits or Limits())
    model = "/v1/models/{model}"
    routes: list[tuple[str, str, Handler]] = [
        ("POST", f"{model}/learn", service.learn),
        ("POST", f"{model}/predict", service.predict),
        ("GET", "/v1/models", service.list_models),
        ("GET", model, service.get_model),
        ("PUT", model, service.put_model),
        ("POST", f"{model}/labels", service.label),
        ("POST", f"{model}/forget", service.forget),
        ("GET", f"{model}/measures", service.measures),
        ("GET", f"{model}/certificates", service.certificates),
        ("GET", f"{model}/events", service.events),
        ("GET", f"{model}/file", service.file),
        ("GET", "/health/live", service.live),
        ("GET", "/health/ready", service.ready),
        ("GET", "/health/learner", service.learner),
        ("GET", "/metrics", service.metrics_text),
        ("GET", "/openapi.json", service.openapi),
        *(route for part in _PARTS for route in part(service)),
    ]
    handlers = {(method, path): told(handler, path, service) for method, path, handler in routes}
    busiest = {verb: handlers["POST", f"{model}/{verb}"] for verb in ("learn", "predict")}
    return Starlette(
        routes=[
            Route(path, handler, methods=[method], name=f"{method} {path}")
            for (method, path), handler in handlers.items()
        ],
        middleware=[Middleware(Shortcut, busiest)],
        lifespan=service.lifespan,
        exception_handlers={HTTPException: _http_problem},  # type: ignore[dict-item]
    )


async def _http_problem(_request: Request, error: HTTPException) -> Response:
    return respond(Problem(error.status_code, str(error.detail) + "."))


def _present(column: str | None, batch: ColumnBatch) -> str | None:
    return column if column in batch.columns else None


def _check_names(names: Iterable[str]) -> list[str]:
    """Ids or subjects that a row can have."""
    odd = next((name for name in names if not wire.is_name(name)), None)
    if odd is not None:
        raise Problem(422, f"no row can have the id or subject {odd[:40]!r} ({len(odd)} characters).")
    return list(names)


def _truth(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in {"1", "true", "yes"})


def _moment(as_of: Any) -> tuple[int | None, float | None]:
    """A version, or a time in seconds."""
    if isinstance(as_of, int) or (isinstance(as_of, str) and as_of.isdecimal() and len(as_of) < 19):
        return int(as_of), None
    return None, _seconds(as_of)


def _seconds(value: Any) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float) else seconds_of(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    # A year of many digits would wrap around to some other time.
    if not abs(seconds) < _FARTHEST or len(str(value)) > 64:
        raise Problem(422, f"expected a time; got {str(value)[:60]!r}.", "for example 2026-01-31T12:30:00Z")
    return seconds
