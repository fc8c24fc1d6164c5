"""Routes that describe models: summaries, quality, activity, columns, versions, certificates and files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from steelyard.persistence import to_bytes
from steelyard.service import commands
from steelyard.service.http import bodies
from steelyard.service.http.bodies import Handler

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["routes"]

_MAX_POINTS, _MAX_CERTIFICATES = 2_000, 50  # maximum numbers of entries in a response


class _Overview:
    def __init__(self, service: Service) -> None:
        self.service = service

    async def list_models(self, request: Request) -> Response:
        """Return the models that the key has access to."""
        key = self.service.authorize(request, "predict")
        names = [
            name
            for name in sorted(self.service.writer.published)
            if key is None or key.allows("predict", name)
        ]
        models = await run_in_threadpool(self._summaries, names) + await self.service.forwarder.models(
            request
        )
        return JSONResponse({"models": sorted(models, key=lambda model: model["name"])})

    def _summaries(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the summaries of models, except those that have just moved to another process."""
        found = []
        for name in names:
            with suppress(commands.NotFoundError, commands.Unavailable):
                found.append({**self._summary(name), **self._quality(name)})
        return found

    def _quality(self, name: str) -> dict[str, Any]:
        """Return the quality values by which the web page sorts models."""
        published = self.service.model(name)
        measures = published.measures
        recent = self.service.metrics.activity.points(name, time.time() - 3_600.0)["points"]
        return {
            "quality": {"g_mean": measures["g_mean"], "auc": measures["auc"]},
            "errors_per_hour": sum(point["errors"] for point in recent),
            "requests_per_hour": sum(point["learn"] + point["predict"] for point in recent),
            "has_challenger": published.challenger is not None,
        }

    def _summary(self, name: str) -> dict[str, Any]:
        published = self.service.model(name)
        return {
            "name": name,
            "version": published.version,
            **published.summary(),
            "waiting_for_labels": self.service.writer.store.n_pending(name),
            "spec": published.spec.as_dict(),
        }

    async def get_model(self, request: Request) -> Response:
        """Return the version, digest, classes, row counts, experts and latency of a model."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        details = self.service.model(name).experts_and_drifts()
        # Runs in a thread, because the digest of a model with thousands of columns takes seconds.
        summary = await run_in_threadpool(self._summary, name)
        more = {**details, **self._quality(name), "latency_ms": self.service.metrics.latency(name)}
        more["realised_rates"] = self.service.model(name).realised_rates()
        more["topics"] = [
            consumer.describe() for consumer in self.service.consumers if consumer.model == name
        ]
        return JSONResponse({**summary, **more})

    async def measures(self, request: Request) -> Response:
        """Return the quality of predictions, current and over time."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        published = self.service.model(name)
        since = request.query_params.get("since")
        moment = None if since is None else self.service.seconds(since)
        points = await run_in_threadpool(self.service.writer.store.points, name, moment, _MAX_POINTS)
        return JSONResponse({"now": published.measures, "points": points})

    async def activity(self, request: Request) -> Response:
        """Return requests, errors, latency and label delay over time, since this process started."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        self.service.model(name)
        since = request.query_params.get("since")
        moment = time.time() - 3_600.0 if since is None else self.service.seconds(since)
        return JSONResponse(self.service.metrics.activity.points(name, moment))

    async def columns(self, request: Request) -> Response:
        """Return missing values, drift and importance of each column, on recent rows."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        return JSONResponse(await run_in_threadpool(self.service.model(name).column_statistics))

    async def versions(self, request: Request) -> Response:
        """Return the versions with snapshots; with ``compare``, the agreement with one of these versions."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        current, chosen = self.service.model(name), request.query_params.get("compare")
        found = await run_in_threadpool(self.service.writer.store.snapshots, name, _MAX_POINTS)
        answer: dict[str, Any] = {
            "versions": [{"version": v, "at": at, "digest": d, "bytes": size} for v, at, d, size in found]
        }
        if chosen is not None:
            past = await self.service.model_as_of(name, chosen)
            agreement = await run_in_threadpool(current.agreement, past)
            answer["compared"] = {"version": past.version, **agreement}
        return JSONResponse(answer)

    async def certificates(self, request: Request) -> Response:
        """Return the latest certificates of forget requests."""
        name = request.path_params["model"]
        self.service.authorize(request, "predict", name)
        self.service.model(name)
        found = await run_in_threadpool(self.service.writer.store.certificates, name, _MAX_CERTIFICATES)
        return JSONResponse({"certificates": found})

    async def file(self, request: Request) -> Response:
        """Return the learner in the file format of ``steelyard.save``."""
        name = request.path_params["model"]
        self.service.authorize(request, "admin", name)
        data = await run_in_threadpool(to_bytes, self.service.model(name).learner)
        return bodies.file_response(name, data)


def routes(service: Service) -> list[tuple[str, str, Handler]]:
    """Return the routes that describe models."""
    overview, model = _Overview(service), "/v1/models/{model}"
    return [
        ("GET", "/v1/models", overview.list_models),
        ("GET", model, overview.get_model),
        ("GET", f"{model}/measures", overview.measures),
        ("GET", f"{model}/activity", overview.activity),
        ("GET", f"{model}/columns", overview.columns),
        ("GET", f"{model}/versions", overview.versions),
        ("GET", f"{model}/certificates", overview.certificates),
        ("GET", f"{model}/file", overview.file),
    ]
