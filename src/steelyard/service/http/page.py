"""Web page of the service and its files, with a strict content security policy."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steelyard.service.http.problems import Problem
from steelyard.service.http.routes import route

_SCRIPTS = ("base.js", "charts.js", "tables.js", "overview.js", "model.js", "page.js")
_TYPES = {
    **dict.fromkeys(_SCRIPTS, "text/javascript"),
    "uplot.js": "text/javascript",
    "style.css": "text/css",
    "uplot.css": "text/css",
    "icon.svg": "image/svg+xml",
    "uplot-LICENSE.txt": "text/plain",
}
_HEADERS = {
    # uPlot sets sizes in style attributes, so these are allowed. Inline style sheets are not.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@route("GET", "/")
@route("GET", "/models/{name}")
async def page(_service: Any, _request: Request) -> Response:
    """Return the page."""
    return Response(_file("index.html"), media_type="text/html", headers=_HEADERS)


@route("GET", "/page/{name}")
async def file(_service: Any, request: Request) -> Response:
    """Return a file of the page."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise Problem(404, f"there is no file {name!r}.")
    return Response(_file(name), media_type=_TYPES[name], headers=_HEADERS)


def _file(name: str) -> bytes:
    return files("steelyard.service").joinpath("page", name).read_bytes()
