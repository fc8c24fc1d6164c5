"""Bodies of requests and responses: JSON, JSON lines, CSV and Arrow streams."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from steelyard.service import rows as wire
from steelyard.service.http.problems import Problem

__all__ = [
    "HEADERS",
    "ByteBudget",
    "Handler",
    "file_response",
    "form_of",
    "json_object",
    "read_body",
    "read_json",
    "write_columns",
]

Handler = Callable[[Request], Awaitable[Response]]
HEADERS = "steelyard.headers"  # key of the request scope for the headers as a dictionary
_MAX_BODY_SECONDS = 120.0
_TIMEOUT = "timeout of the body"
_MAX_BYTES_ON_LOOP = 100_000
_ARROW = "application/vnd.apache.arrow.stream"


class ByteBudget:
    """Limit of the total size of bodies in memory. A body counts from its arrival until the response.

    Parameters
    ----------
    max_bytes : int
        The limit; further bodies are refused with status 503.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0

    def add(self, request: Request, n_bytes: int) -> None:
        """Count bytes of the body of a request."""
        if self.n_bytes + n_bytes > self.max_bytes:
            raise Problem(503, "too many large requests at once; nothing was changed.", "try again shortly")
        self.n_bytes += n_bytes
        request.scope["steelyard.bytes"] = request.scope.get("steelyard.bytes", 0) + n_bytes

    def release(self, request: Request) -> int:
        """Stop counting the bytes of a request; return their number."""
        n_bytes: int = request.scope.pop("steelyard.bytes", 0)
        self.n_bytes -= n_bytes
        return n_bytes


async def read_body(request: Request, max_bytes: int, budget: ByteBudget) -> bytes:
    """Read the body; raise Problem as soon as it is too large or too slow."""
    declared = request.scope[HEADERS].get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    task = asyncio.current_task()
    assert task is not None
    # asyncio.timeout would take longer than reading a small body.
    timer = task.get_loop().call_later(_MAX_BODY_SECONDS, task.cancel, _TIMEOUT)
    parts, size, is_more = [], 0, True
    try:
        while is_more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "the client disconnected before the body was complete.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            budget.add(request, len(parts[-1]))
            if size > max_bytes:
                raise _too_large(max_bytes)
            is_more = message.get("more_body", False)
    except asyncio.CancelledError as error:
        if _TIMEOUT not in error.args or task.uncancel() > 0:
            raise
        raise Problem(408, f"the body did not arrive within {_MAX_BODY_SECONDS:g} seconds.") from None
    finally:
        timer.cancel()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(max_bytes: int) -> Problem:
    detail = f"the body is larger than {max_bytes:,} bytes; nothing was changed."
    return Problem(413, detail, "send it in several requests")


def form_of(request: Request) -> str:
    """Return the format of the body according to its content type.

    A content type is required, and the simple types of CORS are not accepted. For requests without a content
    type or with a simple type, a browser sends no preflight request to other origins.
    """
    content_type = request.scope[HEADERS].get(b"content-type", b"").decode("latin-1")
    form = wire.CONTENT_TYPES.get(content_type)
    if form is None:
        content_type = content_type.partition(";")[0].strip().lower()
        form = wire.CONTENT_TYPES.get(content_type)
    if form is None:
        known = ", ".join(wire.CONTENT_TYPES)
        raise Problem(415, f"the content type {content_type!r} is not supported.", f"use one of {known}")
    return form


async def read_json(
    request: Request, max_bytes: int, budget: ByteBudget, limits: wire.RequestLimits
) -> tuple[bytes, dict[str, Any]]:
    """Read a body of content type JSON; return its bytes and the parsed object."""
    body = await read_body(request, max_bytes, budget)
    if form_of(request) != "json":
        raise Problem(415, "expected a JSON object.", "use the content type application/json")
    return body, await json_object(body, limits)


async def json_object(body: bytes, limits: wire.RequestLimits) -> dict[str, Any]:
    """Return the JSON object of a body. Large bodies are parsed in a thread."""
    if len(body) < _MAX_BYTES_ON_LOOP:
        return _json_object(body, limits)
    return await run_in_threadpool(_json_object, body, limits)


def _json_object(body: bytes, limits: wire.RequestLimits) -> dict[str, Any]:
    limits.check_json(body)
    try:
        value = msgspec.json.decode(body)
        wire.check_duplicate_fields(body, value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Problem(400, f"the body must be a JSON object; got {type(value).__name__}.")
    return value


def write_columns(
    request: Request, response: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]
) -> Response:
    """Return a response in the format of the Accept header: JSON, JSON lines, CSV or Arrow."""
    accepted = request.headers.get("accept", "*/*")
    if "text/csv" in accepted:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return Response(text.getvalue(), media_type="text/csv")
    if _ARROW in accepted:
        import pyarrow as pa

        table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Response(sink.getvalue(), media_type=_ARROW)
    if "application/x-ndjson" in accepted or "application/jsonl" in accepted:
        rows = zip(*columns.values(), strict=True)
        lines = b"\n".join(msgspec.json.encode(dict(zip(columns, row, strict=True))) for row in rows)
        return Response(lines + b"\n", media_type="application/x-ndjson")
    return Response(msgspec.json.encode(response), media_type="application/json")


def file_response(name: str, data: bytes) -> Response:
    """Return a model file as a download."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.steelyard"'}
    return Response(data, media_type="application/octet-stream", headers=headers)
