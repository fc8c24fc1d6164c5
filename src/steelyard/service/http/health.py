"""Routes that describe the process: health, status, metrics and the OpenAPI description."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.service.http.bodies import Handler
from steelyard.service.http.openapi import description
from steelyard.service.http.problems import Problem

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["Health", "routes"]

_log = logging.getLogger("steelyard.service")
_MAX_LAG_SECONDS = 15.0  # a follower with a larger lag is not ready


class Health:
    """Handlers of requests about the process.

    Parameters
    ----------
    service : Service
        The service.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def status(self, request: Request) -> Response:
        """Return the role, the lag, the failures and the disk usage of this process."""
        self.service.authorize(request, "predict")
        writer, store = self.service.writer, self.service.writer.store
        size: int | None = None
        free: int | None = None
        try:
            size, free = await run_in_threadpool(lambda: (store.n_bytes(), store.free_bytes()))
        except store.errors:
            _log.warning("the size of the store cannot be read")
        return JSONResponse(
            {
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
        )

    async def live(self, _request: Request) -> Response:
        """Return status 200 (liveness probe)."""
        return JSONResponse({"live": True})

    async def ready(self, _request: Request) -> Response:
        """Return 200 if the keys can be read, the store works, and the writer is running and up to date."""
        ready = self.service.writer.is_alive and self.service.writer.behind < _MAX_LAG_SECONDS
        ready = ready and (self.service.keys is None or self.service.keys.problem() is None)
        problem = self.service.writer.problem
        ready = ready and problem is None
        answer = {"ready": ready, "role": "learner" if self.service.writer.leads else "predictor"}
        more = {} if problem is None else {"problem": problem}
        return JSONResponse({**answer, **more}, status_code=200 if ready else 503)

    async def learner(self, _request: Request) -> Response:
        """Return 200 if this process accepts changes, for load balancers."""
        leads = (
            self.service.writer.is_alive and self.service.writer.leads and self.service.writer.problem is None
        )
        return JSONResponse({"learner": leads}, status_code=200 if leads else 503)

    async def metrics_text(self, request: Request) -> Response:
        """Return metrics in the text format of Prometheus."""
        key = self.service.authorize(request, "predict")
        if key is not None and "*" not in key.models:
            raise Problem(
                403, "metrics contain all models, but this key is for some.", "use a key for all models"
            )
        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _request: Request) -> Response:
        """Return the OpenAPI description."""
        return JSONResponse(description())


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """Return the routes that describe the process."""
    health = Health(service)
    return [
        ("GET", "/v1/status", health.status),
        ("GET", "/health/live", health.live),
        ("GET", "/health/ready", health.ready),
        ("GET", "/health/learner", health.learner),
        ("GET", "/metrics", health.metrics_text),
        ("GET", "/openapi.json", health.openapi),
    ]
