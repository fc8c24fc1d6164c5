"""Routes of federated models: publish, read and remove site updates."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.exceptions import FileFormatError
from steelyard.federated import SiteUpdate
from steelyard.persistence import to_bytes
from steelyard.service import commands
from steelyard.service.http import bodies
from steelyard.service.http.bodies import Handler
from steelyard.service.http.problems import Problem
from steelyard.service.pool import PublishedPooledModel, StaleVersionError

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["routes"]

_BYTES = "application/octet-stream"
_MAX_NAME_CHARACTERS = 200
_MAX_UPDATE_BYTES = 16 << 20  # sufficient for about 1,000 columns with two classes


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """Return the routes for sites."""
    sites = _Sites(service)
    model = "/v1/models/{model}"
    return [
        ("GET", f"{model}/sites", sites.table),
        ("GET", f"{model}/sites/{{site:path}}", sites.get),
        ("PUT", f"{model}/sites/{{site:path}}", sites.put),
        ("DELETE", f"{model}/sites/{{site:path}}", sites.drop),
        ("GET", f"{model}/pooled", sites.model),
    ]


class _Sites:
    def __init__(self, service: Service) -> None:
        self.service = service

    def _pool(self, name: str) -> PublishedPooledModel:
        published = self.service.model(name)
        if not isinstance(published, PublishedPooledModel):
            raise Problem(409, f"the model {name!r} is not federated.", "create one with sites = true")
        return published

    async def put(self, request: Request) -> Response:
        """Apply the update of a site. The update is durable before the response is sent."""
        name, site = _names(request)
        self.service.authorize(request, "site", name, site)
        self._pool(name)
        content_type = request.headers.get("content-type", _BYTES).partition(";")[0].strip().lower()
        if content_type != _BYTES:
            raise Problem(415, f"the content type {content_type!r} is not supported.", f"use {_BYTES}")
        body = await bodies.read_body(
            request, min(self.service.limits.body, _MAX_UPDATE_BYTES), self.service.budget
        )
        site_update = await run_in_threadpool(self._site_update, body, site)
        try:
            response = await self.service.submit(
                commands.Publish(name, site_update, origin=self.service.context(request, b"")["origin"])
            )
        except StaleVersionError as stale:
            epoch, version = stale.age
            raise Problem(
                409, stale.summary, stale.hint, reason="stale", epoch=epoch, version=version
            ) from stale
        return JSONResponse(response)

    def _site_update(self, body: bytes, site: str) -> SiteUpdate:
        try:
            site_update = SiteUpdate.from_bytes(body)
        except FileFormatError as error:
            raise Problem(422, f"{error.summary} Nothing was changed.", error.hint) from error
        if site_update.site != site:
            raise Problem(422, f"the update belongs to site {site_update.site!r}, but was sent as {site!r}.")
        n_features, limit = site_update.schema.n_features, self.service.limits.columns
        if n_features > limit:
            raise Problem(413, f"a model can have at most {limit:,} features; got {n_features:,}.")
        return site_update

    async def get(self, request: Request) -> Response:
        """Return the latest update of a site."""
        name, site = _names(request)
        self.service.authorize(request, "site", name, site)
        hub = self._pool(name).hub
        if site not in hub.sites:
            raise Problem(404, f"there is no site {site!r}.", reason="no site")
        return Response(await run_in_threadpool(hub.site_update(site).to_bytes), media_type=_BYTES)

    async def drop(self, request: Request) -> Response:
        """Remove a site from the model."""
        name, site = _names(request)
        self.service.authorize(request, "site", name, site)
        self._pool(name)
        command = commands.Drop(name, site, **self.service.context(request, b""))
        return JSONResponse(await self.service.submit(command))

    async def table(self, request: Request) -> Response:
        """Return the contribution of each site, and the quality of the pooled model on its rows."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        published = self._pool(name)
        return JSONResponse(await run_in_threadpool(_table, published))

    async def model(self, request: Request) -> Response:
        """Return the pooled model as a file for ``steelyard predict``."""
        name = request.path_params["model"]
        self.service.authorize(request, "site", name)
        hub = self._pool(name).hub
        if not hub.sites:
            raise Problem(404, "no site has published yet, so there is no pooled model.")
        data = await run_in_threadpool(lambda: to_bytes(hub.model()))
        return bodies.file_response(name, data)


def _table(published: PublishedPooledModel) -> dict[str, Any]:
    hub = published.hub
    rows = []
    for summary in hub.compare() if hub.sites else []:
        site_update = hub.site_update(summary.site)
        facts = {"epoch": site_update.epoch, "version": site_update.version, **asdict(summary)}
        rows.append({key: _plain(value) for key, value in facts.items()})
    return {
        "model_version": published.version,
        "digest": hub.digest() if hub.sites else None,
        "rows": hub.statistics.n_rows if hub.sites else 0.0,
        "sites": rows,
        "gone": {site: list(age) for site, age in hub.gone.items()},
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _names(request: Request) -> tuple[str, str]:
    site = request.path_params["site"]
    if not 1 <= len(site) <= _MAX_NAME_CHARACTERS:
        raise Problem(
            422, f"the name of a site must have 1 to {_MAX_NAME_CHARACTERS} characters; got {len(site)}."
        )
    return request.path_params["model"], site
