"""ASGI application: routes, origin check, error responses, fast path, and handlers about the process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import logging
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from steelyard.exceptions import SteelyardError
from steelyard.service.http import models  # noqa: F401  routes
from steelyard.service.http.keys import Keys
from steelyard.service.http.responses import JSON, Problem, problem_of, respond
from steelyard.service.http.routes import ANY, MODEL, MODELS, NOT_READY, ROUTES, description, route
from steelyard.service.http.routes import Route as RouteInfo
from steelyard.service.http.service import HEADERS, Service
from steelyard.service.rows import Limits
from steelyard.service.system import is_local
from steelyard.service.writer import Writer

if TYPE_CHECKING:
    from steelyard.brokers.consumer import Consumer

_log = logging.getLogger("steelyard.service")
_RELEASE_SECONDS = 0.2
_PREFIX = f"{MODELS}/"
_MAX_LAG_SECONDS = 15.0  # a follower with a larger lag is not ready
_PAGE = files("steelyard.service").joinpath("page")
_PAGE_FILES = frozenset(file.name for file in _PAGE.iterdir()) - {"index.html"}
_PAGE_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}
_PAGE_HEADERS = {
    # uPlot sets sizes in style attributes, so these are allowed. Inline style sheets are not.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
Handler = Callable[[Request], Awaitable[Response]]


class ServiceApp(Starlette):
    """ASGI application that calls the handlers of learn and predict without middleware and router.

    Middleware and routing of Starlette take a fifth of the time of a request with one row.
    """

    def __init__(self, service: Service, allowed_hosts: Sequence[str]) -> None:
        handlers = {(one.method, one.path): _with_errors(one, service) for one in ROUTES}
        super().__init__(
            routes=[
                Route(path, handler, methods=[method], name=f"{method} {path}")
                for (method, path), handler in handlers.items()
            ],
            lifespan=service.lifespan,
            exception_handlers={HTTPException: service.http_problem},  # type: ignore[dict-item]
        )
        self._verbs = {verb: handlers["POST", f"{MODEL}/{verb}"] for verb in ("learn", "predict")}
        self.service, self._checks_origin = service, service.keys is None
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = scope[HEADERS] = dict(scope["headers"])
        if self._checks_origin:
            problem = origin_problem(headers, scope["method"], self._allowed_hosts)
            if problem is not None:
                self.service.count_unrouted(scope["method"], "refused", problem.status)
                await respond(problem)(scope, receive, send)
                return
        path: str = scope["path"]
        model, _, verb = path[len(_PREFIX) :].partition("/")
        if verb in self._verbs and model and path.startswith(_PREFIX) and scope["method"] == "POST":
            scope["path_params"] = {"model": model}
            response = await self._verbs[verb](Request(scope, receive, send))
            await response(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def make_app(
    writer: Writer,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    allowed_hosts: Sequence[str] = (),
    consumers: Sequence[Consumer] = (),
) -> ServiceApp:
    """Return the service as an ASGI application.

    Parameters
    ----------
    writer : Writer
        The writer; it is started and stopped with the application.
    keys : Keys, optional
        API keys. Without keys, requests from this machine are allowed, except those of foreign web pages.
    limits : Limits, optional
        Limits of requests.
    allowed_hosts : sequence of str, optional
        Host names that are accepted in addition to those of this machine, if there are no keys.
    consumers : sequence of Consumer, optional
        Consumers of message brokers; they are started and stopped with the application.
    """
    return ServiceApp(Service(writer, keys, limits or Limits(), consumers), allowed_hosts)


def origin_problem(
    headers: Mapping[bytes, bytes], method: str, allowed_hosts: Container[str]
) -> Problem | None:
    """Return the reason why a request to a service without keys is refused, or None if it is accepted.

    The Host header must name this machine or an allowed host. Otherwise a page whose domain name resolves to
    127.0.0.1 (DNS rebinding) could read and change models. Requests that change something must not come from
    another origin: browsers send simple cross-origin requests without a preflight request.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_local(name) and name not in allowed_hosts:
        return Problem(421, f"this service is not {host[:80]!r}.", "use the address that it printed, or keys")
    if method in {"GET", "HEAD"}:
        return None
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
    is_foreign = site not in {b"same-origin", b"none"} or (
        origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host
    )
    if is_foreign:
        return Problem(403, "requests from other web pages are refused.", "use keys to allow them")
    return None


_TRACE = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Prefix and counter of generated request ids.
_prefix, _numbers = secrets.token_hex(10), itertools.count()


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of a request: its W3C trace id, its X-Request-Id, or a new id."""
    trace = _TRACE.fullmatch(headers.get(b"traceparent", b""))
    if trace is not None:
        return str(trace.group(1), "ascii")
    given = headers.get(b"x-request-id", b"")
    if _REQUEST_ID.fullmatch(given):
        return str(given, "ascii")
    return f"{_prefix}{next(_numbers) & 0xFFFFFFFFFFFF:012x}"


def _with_errors(info: RouteInfo, service: Service) -> Handler:
    """Return a function that calls a handler, turns errors into problem details, and measures and logs."""
    takes_model = "{model}" in info.path
    # Refused requests of routes that change a model are audited.
    is_change = info.path.startswith(MODEL) and not info.path.endswith(("/predict", "/explain"))
    is_change = is_change and info.method != "GET"
    # Handlers that are no coroutines run in a thread, because they read the store or take long.
    is_async = inspect.iscoroutinefunction(info.handler)
    call = info.handler if is_async else functools.partial(run_in_threadpool, info.handler)

    async def handle(request: Request) -> Response:
        begin, params = time.perf_counter(), request.path_params
        request_id = request.scope["steelyard.id"] = request_id_of(request.scope[HEADERS])
        model = params.get("model")
        try:
            url = await service.forwarder.target(request) if service.writer.store.has_leases else None
            if url is not None:
                body = await service.read_body(request)
                response = await service.forwarder.forward(request, url, body)
                request.scope["steelyard.audited"] = True  # the other process will add the audit entry
            else:
                if info.scope is not None:
                    service.authorize(request, info.scope, model, params.get("site"))
                answer = await call(service, request, *([model] if takes_model else []))
                response = answer if isinstance(answer, Response) else JSON(answer)
        except Exception as error:  # noqa: BLE001  any error becomes a response without values of rows
            response = respond(_problem(error, service, request_id))
        response.raw_headers.append((b"x-request-id", request_id.encode()))
        if service.memory.is_due_after(service.release_bytes(request)):
            # Memory is released after this coroutine ends, because its local variables hold the rows.
            loop = asyncio.get_running_loop()
            loop.call_later(_RELEASE_SECONDS, loop.run_in_executor, None, service.memory.release)
        if response.status_code >= 400 and is_change:
            service.audit_refusal(request, info.path, response.status_code)
        seconds = time.perf_counter() - begin
        service.metrics.request_finished(request.method, info.path, response.status_code, seconds, model)
        if _log.isEnabledFor(logging.INFO):
            line = {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "method": request.method,
                "route": info.path,
                "model": model,
                "status": response.status_code,
                "ms": round(1000 * seconds, 2),
                "request_id": request_id,
                "key": request.scope.get("steelyard.key"),
            }
            _log.info("%s", msgspec.json.encode(line).decode())
        return response

    return handle


def _problem(error: Exception, service: Service, request_id: str) -> Problem:
    """Return the problem for an error, and log the error if it is not the client's."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, SteelyardError):
        return problem_of(error)
    extra = {"request_id": request_id}
    if isinstance(error, service.writer.store.errors):
        _log.error("the store failed: %s", type(error).__name__, extra=extra)
        return Problem(503, "the store is not available.", "try again shortly")
    # The message of the error is not logged, because it could contain values of rows.
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("failure %s: %s\n%s", request_id, type(error).__name__, where, extra=extra)
    return Problem(500, f"the service failed; see {request_id} in its log.")


# -- handlers of requests about the process ------------------------------------------------------


@route("GET", "/v1/status", "predict", response="Status")
def status(service: Service, _: Request) -> dict[str, Any]:
    """Return the role, the lag, the failures and the disk usage of this process."""
    found = service.metrics.process()
    if not found["store_up"]:
        _log.warning("the size of the store cannot be read")
    shared = ("writer_alive", "requests_waiting", "store_bytes", "disk_free_bytes")
    return {
        "version": version("steelyard"),
        "role": _role(service),
        "behind": found["follower_lag_seconds"],
        "write_failures": sum(service.writer.statistics.write_failures.values()),
        "is_store_up": found["store_up"],
        **{name: found[name] for name in shared},
    }


def _role(service: Service) -> str:
    return "learner" if service.writer.leads else "predictor"


@route("GET", "/health/live", response=ANY)
@route("GET", "/v2/health/live")
async def live(_service: Service, _request: Request) -> dict[str, Any]:
    """Return status 200 (liveness probe)."""
    return {"live": True}


@route("GET", "/health/ready", response=ANY, statuses=NOT_READY)
@route("GET", "/v2/health/ready")
async def ready(service: Service, _: Request) -> Response:
    """Return 200 if the keys can be read, the store works, and the writer is running and up to date."""
    writer, problem = service.writer, service.writer.problem
    is_ready = writer.is_alive and writer.behind < _MAX_LAG_SECONDS
    is_ready = is_ready and (service.keys is None or service.keys.problem() is None) and problem is None
    answer = {"ready": is_ready, "role": _role(service)}
    more = {} if problem is None else {"problem": problem}
    return JSON({**answer, **more}, 200 if is_ready else 503)


@route("GET", "/health/learner", response=ANY, statuses=NOT_READY)
async def learner(service: Service, _: Request) -> Response:
    """Return 200 if this process accepts changes, for load balancers."""
    leads = service.writer.is_alive and service.writer.leads and service.writer.problem is None
    return JSON({"learner": leads}, 200 if leads else 503)


@route("GET", "/metrics")
async def metrics_text(service: Service, request: Request) -> Response:
    """Return metrics in the text format of Prometheus."""
    key = service.authorize(request, "predict")
    if key is not None and "*" not in key.models:
        raise Problem(
            403, "metrics contain all models, but this key is for some.", "use a key for all models"
        )
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@route("GET", "/openapi.json")
async def openapi(_service: Service, _request: Request) -> dict[str, Any]:
    """Return the OpenAPI description."""
    return description()


# -- web page, with a strict content security policy ------------------------------------------------


@route("GET", "/")
@route("GET", "/models/{name}")
async def page(_service: Any, _request: Request) -> Response:
    """Return the page."""
    return _page_file("index.html", "text/html")


@route("GET", "/page/{name}")
async def file(_service: Any, request: Request) -> Response:
    """Return a file of the page."""
    name = request.path_params["name"]
    if name not in _PAGE_FILES:
        raise Problem(404, f"there is no file {name!r}.")
    return _page_file(name, _PAGE_TYPES[name.rpartition(".")[2]])


def _page_file(name: str, media_type: str) -> Response:
    return Response(_PAGE.joinpath(name).read_bytes(), media_type=media_type, headers=_PAGE_HEADERS)
