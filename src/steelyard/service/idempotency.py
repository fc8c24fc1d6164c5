"""Idempotency keys: a repeated request returns the stored response of the first request, changing nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from steelyard.service.commands import Conflict, GoneError, Remember, Request
from steelyard.service.stores import RowReference
from steelyard.service.stores.sql import Store

__all__ = ["ERASED_RESPONSE", "Response", "run_once", "stored_response"]

Response = dict[str, Any]
ERASED_RESPONSE = '{"erased": true}'  # replaces a stored response that mentioned a forgotten row


def run_once(store: Store, request: Request, run: Callable[[], Response], now: float) -> Response:
    """Return the stored response if the key is known; otherwise run the request and store its response."""
    if request.key is None:
        return run()
    known = store.response_to(request.model, request.key)
    if known is not None:
        return stored_response(request, *known)
    response = run()
    store.put_response(
        request.model,
        request.key,
        request.fingerprint,
        json.dumps(response),
        at=now,
        rows=_mentioned_rows(request, response),
    )
    return response


def stored_response(request: Request, fingerprint: str, body: str) -> Response:
    """Return the response of a repeated request; raise an error if the key belongs to another request."""
    request.is_repeated = True
    if fingerprint != request.fingerprint:
        raise Conflict(
            f"the idempotency key {request.key!r} was used for another request; nothing was changed.",
            hint="use a new key for each request",
        )
    if body == ERASED_RESPONSE:
        raise GoneError(
            "the response to this request was erased, because it mentioned a row that was forgotten; "
            "the request took effect when it was first sent, and nothing was changed now.",
            hint="use a new idempotency key for a new request",
        )
    response: Response = json.loads(body)
    return response


def _mentioned_rows(request: Request, response: Response) -> list[RowReference]:
    """Return the rows that a response mentions. Forgetting one of them erases the response."""
    if isinstance(request, Remember):
        return [(row.id, row.subject) for row in request.rows]
    return [(row_id, None) for row_id in response.get("unknown", ())]
