"""Sites publish to a model, hub and sites look at it: bulletins over HTTP."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.exceptions import FileFormatError
from steelyard.federated import SiteUpdate
from steelyard.persistence import to_bytes
from steelyard.service import commands as wishes
from steelyard.service.http import bodies
from steelyard.service.http.problems import Problem
from steelyard.service.pool import PublishedPool, StaleVersionError

if TYPE_CHECKING:
    from steelyard.service.http.app import Service

__all__ = ["routes"]

_BYTES = "application/octet-stream"
_LONGEST_NAME = 200
_LARGEST = 16 << 20  # bytes of a bulletin: some 1,000 columns with two classes

Handler = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """The routes of sites."""
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

    def _pool(self, name: str) -> PublishedPool:
        published = self.service.latest(name)
        if not isinstance(published, PublishedPool):
            raise Problem(409, f"the model {name!r} is not pooled from sites.", "make one with sites = true")
        return published

    async def put(self, request: Request) -> Response:
        """The latest bulletin of a site, as bytes; on disk before the answer."""
        name, site = _names(request)
        self.service.check(request, "site", name, site)
        self._pool(name)
        said = request.headers.get("content-type", _BYTES).partition(";")[0].strip().lower()
        if said != _BYTES:
            raise Problem(415, f"a bulletin of the type {said!r} cannot be read.", f"send {_BYTES}")
        body = await bodies.read_body(request, min(self.service.limits.body, _LARGEST))
        site_update = await run_in_threadpool(self._site_update, body, site)
        try:
            answer = await self.service.done(wishes.Publish(name, site_update))
        except StaleVersionError as stale:
            epoch, version = stale.age
            raise Problem(
                409, stale.summary, stale.hint, reason="stale", epoch=epoch, version=version
            ) from stale
        return JSONResponse(answer)

    def _site_update(self, body: bytes, site: str) -> SiteUpdate:
        try:
            site_update = SiteUpdate.from_bytes(body)
        except FileFormatError as error:
            raise Problem(422, f"{error.summary} Nothing was changed.", error.hint) from error
        if site_update.site != site:
            raise Problem(422, f"this is a bulletin of {site_update.site!r}; it was sent as {site!r}.")
        most = self.service.limits.columns
        if site_update.schema.n_features > most:
            raise Problem(413, f"there can be {most:,} features; got {site_update.schema.n_features:,}.")
        return site_update

    async def get(self, request: Request) -> Response:
        """The latest bulletin of a site."""
        name, site = _names(request)
        self.service.check(request, "site", name, site)
        hub = self._pool(name).hub
        if site not in hub.sites:
            raise Problem(404, f"there is no site {site!r}.", reason="no site")
        return Response(await run_in_threadpool(hub.site_update(site).to_bytes), media_type=_BYTES)

    async def drop(self, request: Request) -> Response:
        """Leave a site out, as if it had never been there."""
        name, site = _names(request)
        self.service.check(request, "site", name, site)
        self._pool(name)
        once = self.service.once(request, b"")
        return JSONResponse(await self.service.done(wishes.Drop(name, site, **once)))

    async def table(self, request: Request) -> Response:
        """What each site brings, and what the pooled model does for it."""
        name = request.path_params["model"]
        self.service.check(request, "admin", name)
        published = self._pool(name)
        return JSONResponse(await run_in_threadpool(_table, published))

    async def model(self, request: Request) -> Response:
        """The pooled model as a file that ``steelyard predict`` takes."""
        name = request.path_params["model"]
        self.service.check(request, "site", name)
        hub = self._pool(name).hub
        if not hub.sites:
            raise Problem(404, "no site has published yet, so there is no pooled model.")
        data = await run_in_threadpool(lambda: to_bytes(hub.model()))
        return Response(
            data,
            media_type=_BYTES,
            headers={"Content-Disposition": f'attachment; filename="{name}.steelyard"'},
        )


def _table(published: PublishedPool) -> dict[str, Any]:
    hub = published.hub
    rows = []
    for standing in hub.compare() if hub.sites else []:
        site_update = hub.site_update(standing.site)
        facts = {"epoch": site_update.epoch, "version": site_update.version, **asdict(standing)}
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
    if not 1 <= len(site) <= _LONGEST_NAME:
        raise Problem(422, f"the name of a site has 1 to {_LONGEST_NAME} characters; got {len(site)}.")
    return request.path_params["model"], site
