"""Handlers of requests about the process: web page, health, status, metrics and OpenAPI description."""

from __future__ import annotations

import logging
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from steelyard.service.http.responses import JSON, Problem
from steelyard.service.http.routes import ANY, description, route

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_log = logging.getLogger("steelyard.service")
_MAX_LAG_SECONDS = 15.0  # a follower with a larger lag is not ready
NOT_READY = {503: "Not ready."}
_SCRIPTS = ("base.js", "charts.js", "tables.js", "overview.js", "model.js", "page.js")
_TYPES = {
    **dict.fromkeys(_SCRIPTS, "text/javascript"),
    "uplot.js": "text/javascript",
    "style.css": "text/css",
    "uplot.css": "text/css",
    "icon.svg": "image/svg+xml",
    "uplot-LICENSE.txt": "text/plain",
}
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


@route("GET", "/v1/status", "predict", response="Status")
async def status(service: Service, _: Request) -> dict[str, Any]:
    """Return the role, the lag, the failures and the disk usage of this process."""
    writer, store = service.writer, service.writer.store
    size: int | None = None
    free: int | None = None
    try:
        size, free = await run_in_threadpool(lambda: (store.n_bytes(), store.free_bytes()))
    except store.errors:
        _log.warning("the size of the store cannot be read")
    return {
        "version": version("steelyard"),
        "role": "learner" if writer.leads else "predictor",
        "writer_alive": writer.is_alive,
        "behind": writer.behind,
        "requests_waiting": writer.n_waiting,
        "write_failures": sum(writer.statistics.write_failures.values()),
        "store_bytes": size,
        "disk_free_bytes": free,
        "is_store_up": size is not None,
    }


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
    answer = {"ready": is_ready, "role": "learner" if writer.leads else "predictor"}
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
    return Response(_file("index.html"), media_type="text/html", headers=_PAGE_HEADERS)


@route("GET", "/page/{name}")
async def file(_service: Any, request: Request) -> Response:
    """Return a file of the page."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise Problem(404, f"there is no file {name!r}.")
    return Response(_file(name), media_type=_TYPES[name], headers=_PAGE_HEADERS)


def _file(name: str) -> bytes:
    return files("steelyard.service").joinpath("page", name).read_bytes()
