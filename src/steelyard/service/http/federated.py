"""Handlers of requests about federated models: publish, read and remove site updates."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from steelyard.exceptions import FileFormatError
from steelyard.federated import Hub, SiteUpdate
from steelyard.persistence import to_bytes
from steelyard.service import commands
from steelyard.service.errors import StaleVersionError
from steelyard.service.http.responses import Problem, file_response
from steelyard.service.http.routes import BINARY, MODEL, route
from steelyard.service.published import PublishedModel

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_SITE = f"{MODEL}/sites/{{site:path}}"
_MAX_NAME_CHARACTERS = 200
_MAX_UPDATE_BYTES = 16 << 20  # sufficient for about 1,000 columns with two classes


def _hub_of(published: PublishedModel) -> Hub:
    if published.hub is None:
        raise Problem(409, f"the model {published.name!r} is not federated.", "create one with sites = true")
    return published.hub


@route("PUT", _SITE, "site", response="Received", body=BINARY)
async def put_update(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Apply the update of a site. The update is durable before the response is sent."""
    site = _site_of(request)
    _hub_of(service.model(name))
    content_type = request.headers.get("content-type", BINARY).partition(";")[0].strip().lower()
    if content_type != BINARY:
        raise Problem(415, f"the content type {content_type!r} is not supported.", f"use {BINARY}")
    body = await service.read_body(request, min(service.limits.body, _MAX_UPDATE_BYTES))
    site_update = await run_in_threadpool(_parsed_update, body, site, service.limits.columns)
    try:
        return await service.change(request, commands.Publish(name, site_update))
    except StaleVersionError as stale:
        epoch, version = stale.age
        raise Problem(409, stale.summary, stale.hint, reason="stale", epoch=epoch, version=version) from stale


def _parsed_update(body: bytes, site: str, max_features: int) -> SiteUpdate:
    try:
        site_update = SiteUpdate.from_bytes(body)
    except FileFormatError as error:
        raise Problem(422, f"{error.summary} Nothing was changed.", error.hint) from error
    if site_update.site != site:
        raise Problem(422, f"the update belongs to site {site_update.site!r}, but was sent as {site!r}.")
    n_features = site_update.schema.n_features
    if n_features > max_features:
        raise Problem(413, f"a model can have at most {max_features:,} features; got {n_features:,}.")
    return site_update


@route("GET", _SITE, "site", response=BINARY)
async def get_update(service: Service, request: Request, name: str) -> Response:
    """Return the latest update of a site."""
    site, hub = _site_of(request), _hub_of(service.model(name))
    if site not in hub.sites:
        raise Problem(404, f"there is no site {site!r}.", reason="no site")
    return Response(await run_in_threadpool(hub.site_update(site).to_bytes), media_type=BINARY)


@route("DELETE", _SITE, "site", response="Dropped", is_idempotent=True)
async def drop(service: Service, request: Request, name: str) -> dict[str, Any]:
    """Remove a site from the model."""
    site = _site_of(request)
    _hub_of(service.model(name))
    return await service.change(request, commands.Drop(name, site))


@route("GET", f"{MODEL}/sites", "admin", response="Sites")
async def table(service: Service, _: Request, name: str) -> dict[str, Any]:
    """Return the contribution of each site, and the quality of the pooled model on its rows."""
    return await run_in_threadpool(_table, service.model(name))


@route("GET", f"{MODEL}/pooled", "site", response=BINARY)
async def pooled(service: Service, _: Request, name: str) -> Response:
    """Return the pooled model as a file for ``steelyard predict``."""
    hub = _hub_of(service.model(name))
    if not hub.sites:
        raise Problem(404, "no site has published yet, so there is no pooled model.")
    return file_response(name, await run_in_threadpool(lambda: to_bytes(hub.model())))


def _table(published: PublishedModel) -> dict[str, Any]:
    hub = _hub_of(published)
    rows = []
    for summary in hub.compare() if hub.sites else []:
        site_update = hub.site_update(summary.site)
        rows.append({"epoch": site_update.epoch, "version": site_update.version, **asdict(summary)})
    return {
        "model_version": published.version,
        "digest": hub.digest() if hub.sites else None,
        "rows": hub.statistics.n_rows if hub.sites else 0.0,
        "sites": rows,
        "gone": {site: list(age) for site, age in hub.gone.items()},
    }


def _site_of(request: Request) -> str:
    site: str = request.path_params["site"]
    if not 1 <= len(site) <= _MAX_NAME_CHARACTERS:
        raise Problem(
            422, f"the name of a site must have 1 to {_MAX_NAME_CHARACTERS} characters; got {len(site)}."
        )
    return site
