"""Bodies of requests and answers in their forms: JSON, JSON lines, CSV and Arrow streams."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steelyard.service import rows as wire
from steelyard.service.http.problems import Problem

__all__ = ["FORMS", "form_of", "header", "json_body", "read_body", "write_columns"]

FORMS = wire.CONTENT_TYPES
_SLOWEST = 120.0  # seconds for a whole body
_TOO_SLOW = "the body is too slow"
_ARROW = "application/vnd.apache.arrow.stream"


def header(request: Request, name: bytes) -> str | None:
    """A header, by its name in small letters; the first where there are several."""
    for said, value in request.scope["headers"]:
        if said == name:
            return str(value, "latin-1")
    return None


async def read_body(request: Request, most: int) -> bytes:
    """The whole body, refused as soon as it is too large."""
    declared = header(request, b"content-length") or ""
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    task = asyncio.current_task()
    assert task is not None
    # By hand: asyncio.timeout takes longer than all the rest that is done here for a small body.
    too_slow = task.get_loop().call_later(_SLOWEST, task.cancel, _TOO_SLOW)
    parts, size, is_more = [], 0, True
    try:
        while is_more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "the client went away before its body had come.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            is_more = message.get("more_body", False)
    except asyncio.CancelledError as error:
        if _TOO_SLOW not in error.args or task.uncancel() > 0:
            raise
        raise Problem(408, f"the body did not come within {_SLOWEST:g} seconds.") from None
    finally:
        too_slow.cancel()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem(
        413, f"the body is larger than {most:,} bytes; nothing was changed.", "send it in several parts"
    )


def form_of(request: Request) -> str:
    """The form of the rows, by content type; JSON where none is said."""
    said = header(request, b"content-type")
    said = "application/json" if said is None else said.partition(";")[0].strip().lower()
    form = FORMS.get(said)
    if form is None:
        raise Problem(415, f"rows of the type {said!r} cannot be read.", f"send one of {', '.join(FORMS)}")
    return form


def json_body(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = msgspec.json.decode(body)
        wire.check_fields(body, value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Problem(400, f"the body must be a JSON object; got {type(value).__name__}.")
    return value


def write_columns(
    request: Request, answer: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]
) -> Response:
    """An answer as JSON, or its columns as JSON lines, CSV or Arrow, by what the client accepts."""
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
    return Response(msgspec.json.encode(answer), media_type="application/json")
