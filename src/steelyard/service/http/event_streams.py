"""Server-sent events: a client is notified whenever a model changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from steelyard.service.errors import QueueFullError
from steelyard.service.http.protocol import ON_SHUTDOWN
from steelyard.service.http.routes import MODEL, route

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

_HEARTBEAT_SECONDS = 15.0


class EventStreams:
    """Open event streams, each with a queue of changed models."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.listeners: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def lines(self, request: Request, name: str) -> AsyncIterator[str]:
        """Yield the events of a model until the client disconnects or the service stops."""
        changes: asyncio.Queue[str | None] = asyncio.Queue(16)
        self._loop = asyncio.get_running_loop()
        self.listeners.add(changes)

        def end_stream() -> None:
            if changes.full():
                changes.get_nowait()
            changes.put_nowait(None)

        request.scope[ON_SHUTDOWN] = end_stream
        try:
            yield await run_in_threadpool(self._event, name)
            while not await request.is_disconnected():
                try:
                    changed = await asyncio.wait_for(changes.get(), _HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield ": heartbeat\n\n"
                    continue
                if changed is None:
                    return  # the service is stopping
                if changed == name:
                    yield await run_in_threadpool(self._event, name)
        finally:
            self.listeners.discard(changes)

    def _event(self, name: str) -> str:
        published = self.service.model(name)
        data = {"version": published.version, **published.summary(), "measures": published.measures}
        return f"event: model\ndata: {json.dumps(data)}\n\n"

    def notify(self, name: str, change: Mapping[str, Any]) -> None:
        """Notify event streams; called in the writer thread when a model changes."""
        if "deleted" in change:
            self.service.metrics.activity.forget(name)
        if self._loop is not None and self.listeners:
            self._loop.call_soon_threadsafe(self._enqueue, name)

    def _enqueue(self, name: str) -> None:
        for changes in self.listeners:
            if not changes.full():  # a slow client misses some versions
                changes.put_nowait(name)


@route("GET", f"{MODEL}/events", "predict")
async def events(service: Service, request: Request, name: str) -> Response:
    """Send a server-sent event whenever the model changes."""
    service.model(name)
    streams, limit = service.event_streams, service.limits.listeners
    if len(streams.listeners) >= limit:
        raise QueueFullError(f"there are {limit} event streams already.")
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(streams.lines(request, name), media_type="text/event-stream", headers=headers)
