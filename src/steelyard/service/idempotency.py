"""A request that carries a key is carried out once: sent again, it gets the answer of then."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from steelyard.service.commands import Conflict, GoneError, Remember, Request
from steelyard.service.session import BLANK
from steelyard.service.store import About, Store

__all__ = ["Answer", "once"]

Answer = dict[str, Any]


def once(store: Store, request: Request, act: Callable[[], Answer], clock: Callable[[], float]) -> Answer:
    """The answer of then to a request that came before, or what acting gives now."""
    if request.key is None:
        return act()
    known = store.answer_to(request.model, request.key)
    if known is not None:
        return _same_answer(request, *known)
    answer = act()
    store.keep_answer(
        request.model,
        request.key,
        request.fingerprint,
        json.dumps(answer),
        at=clock(),
        about=_about(request, answer),
    )
    return answer


def _same_answer(request: Request, fingerprint: str, body: str) -> Answer:
    if fingerprint != request.fingerprint:
        raise Conflict(
            f"the idempotency key {request.key!r} was used for another request; nothing was changed.",
            hint="a key names one request; make a new one for each",
        )
    if body == BLANK:
        raise GoneError(
            "the answer to this request was erased, because a row that it spoke of was forgotten; "
            "the request was carried out then, and nothing was changed now.",
            hint="a new request needs a new idempotency key",
        )
    answer: Answer = json.loads(body)
    return answer


def _about(request: Request, answer: Answer) -> list[About]:
    """The rows that an answer names; when they are forgotten, it must go too."""
    if isinstance(request, Remember):
        return [(waiting.id, waiting.subject) for waiting in request.waiting]
    return [(row_id, None) for row_id in answer.get("unknown", ())]
