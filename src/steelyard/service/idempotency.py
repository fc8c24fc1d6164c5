"""Idempotency keys: a repeated request returns the stored response of the first request, changing nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from steelyard.service.errors import Conflict, GoneError
from steelyard.service.stores.sql import Store

if TYPE_CHECKING:
    from steelyard.service.commands import Request, Response

ERASED_RESPONSE = '{"erased": true}'  # replaces a stored response that mentioned a forgotten row


def store_response(store: Store, request: Request, response: Response, now: float) -> None:
    """Store the response of a request with a key, in the transaction of the request."""
    assert request.key is not None
    store.put_response(
        request.model,
        request.key,
        request.fingerprint,
        json.dumps(response),
        at=now,
        rows=request.mentioned_rows(response),
    )


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
