"""Forwarding of requests to the process that learns the model, if several processes share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import httpx
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from steelyard.service.errors import Unavailable
from steelyard.service.http.protocol import ON_SHUTDOWN
from steelyard.service.http.routes import EVENTS
from steelyard.service.writer import Writer

_FORWARDED = "x-steelyard-forwarded"
_READ_VERBS = frozenset({"predict", "infer", "explain"})
_TIMEOUT = httpx.Timeout(120.0, connect=2.0)
_LIST_TIMEOUT = httpx.Timeout(5.0, connect=1.0)
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100)
_REQUEST_ID = "x-request-id"
_DROPPED_HEADERS = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "date", "server", _REQUEST_ID}
)


class Forwarder:
    """HTTP client that forwards requests to other processes.

    ``check_key`` raises Problem if a request needs a key and has none. The other process checks the scopes.
    """

    def __init__(self, writer: Writer, check_key: Callable[[Request], Any]) -> None:
        self._writer, self._check_key = writer, check_key

    async def target(self, request: Request) -> str | None:
        """Return the address of the process that must answer; raise Unavailable while a model moves."""
        model = request.path_params.get("model")
        if model is None:
            return None
        verb = request.url.path.rpartition("/")[2]
        changes = request.method not in {"GET", "HEAD"} and verb not in _READ_VERBS
        if self._writer.can_answer(model, changes=changes):
            return None
        self._check_key(request)
        url = self._writer.owners.get(model)
        if url is None:
            exists, url = await run_in_threadpool(self._writer.store.find_learner, model)
            if not exists or (url is None and request.method == "PUT"):
                return None  # this process creates the model, takes it over, or reports that it is missing
        is_here = url == self._writer.store.address
        if url is None or is_here or _FORWARDED in request.headers:  # a request is never forwarded twice
            raise Unavailable(
                f"the model {model!r} is moving to another process; nothing was changed.",
                hint="try again shortly",
            )
        return url if url.startswith("http") else None

    async def forward(self, request: Request, url: str, body: bytes) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(n, v) for n, v in request.headers.items() if n not in _DROPPED_HEADERS]
        headers.append((_REQUEST_ID, request.scope["steelyard.id"]))  # both processes then log the same id
        outgoing = self._http.build_request(
            request.method, url + path, headers=[*headers, (_FORWARDED, "1")], content=body
        )
        try:
            response = await self._http.send(outgoing, stream=True)
            kept = {n: v for n, v in response.headers.items() if n not in _DROPPED_HEADERS}
            if response.headers.get("content-type", "").startswith(EVENTS):
                request.scope[ON_SHUTDOWN] = partial(_close_soon, response)
                return StreamingResponse(_stream(response), response.status_code, kept)
            content = await response.aread()
            kept.pop("content-encoding", None)  # httpx has already decoded the content
            return Response(content, response.status_code, kept)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unavailable(
                "the process that learns this model cannot be reached; nothing was changed.",
                hint="try again shortly; another process takes the model over",
            ) from error
        except httpx.HTTPError as error:
            raise Unavailable(
                "the process that learns this model did not answer; it is not known whether the request took "
                "effect.",
                hint="send the request again with the same key",
            ) from error

    async def models(self, request: Request) -> list[dict[str, Any]]:
        """Return the models of the other processes, except for processes that do not respond."""
        if _FORWARDED in request.headers:
            return []
        urls = {url for url in self._writer.owners.values() if url.startswith("http")}
        headers = {_FORWARDED: "1"}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        found = await asyncio.gather(*(self._list(url, headers) for url in urls))
        return [model for models in found for model in models]

    async def _list(self, url: str, headers: dict[str, str]) -> list[dict[str, Any]]:
        try:
            response = await self._http.get(f"{url}/v1/models", headers=headers, timeout=_LIST_TIMEOUT)
            models: list[dict[str, Any]] = response.json()["models"] if response.is_success else []
        except (httpx.HTTPError, ValueError, KeyError):
            return []
        return models

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS, trust_env=False)

    async def close(self) -> None:
        if "_http" in self.__dict__:
            await self._http.aclose()


async def _stream(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        with suppress(httpx.HTTPError, httpx.StreamError):  # one of the two processes has ended the stream
            async for part in response.aiter_raw():
                yield part
    finally:
        await response.aclose()


def _close_soon(response: httpx.Response) -> None:
    _closing.add(task := asyncio.ensure_future(response.aclose()))
    task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[None]] = set()  # references that keep the tasks alive
