"""Errors as RFC 9457 problem details, with a message and a hint."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from starlette.responses import Response

from steelyard.exceptions import FileAccessError, FileFormatError, SteelyardError
from steelyard.service.errors import (
    Conflict,
    GoneError,
    NotFoundError,
    QueueFullError,
    TooLargeError,
    Unavailable,
)
from steelyard.service.hints import service_hint
from steelyard.tables.columns import RowError

_log = logging.getLogger("steelyard.service")
_TITLES = {
    400: "The request could not be read",
    401: "A key is required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Timeout",
    406: "Response format not supported",
    409: "Conflict with the current state",
    410: "Gone",
    413: "Too large",
    415: "Content type not supported",
    421: "Not this service",
    422: "The content was refused; nothing was changed",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}
_STATUS: tuple[tuple[type[SteelyardError], int], ...] = (
    (NotFoundError, 404),
    (GoneError, 410),
    (TooLargeError, 413),
    (Conflict, 409),
    (QueueFullError, 429),
    (Unavailable, 503),
    (FileAccessError, 500),
    (FileFormatError, 500),
    (SteelyardError, 422),
)


class Problem(Exception):  # noqa: N818  the term of RFC 9457
    """An error response with an HTTP status."""

    def __init__(self, status: int, detail: str, hint: str | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.more = status, detail, hint, more


def problem_of(error: SteelyardError) -> Problem:
    """Convert an error of the library to a problem."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    more: dict[str, Any] = {}
    if isinstance(error, RowError):
        more["row"] = error.row
        if error.column is not None:
            more["column"] = error.column
    # The source of the error is a path or an address of the operator's machine, so clients do not get it.
    if status == 500:
        _log.error("a request failed: %s", error.summary)
        return Problem(status, "the store of the service has a problem; see its log.")
    hint = None if error.hint is None else service_hint(error.hint)
    return Problem(status, error.summary, hint, **more)


def respond(problem: Problem) -> Response:
    """Return a problem as an HTTP response."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES.get(problem.status, "Refused"),
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.hint is not None:
        body["hint"] = problem.hint
    headers = {"Retry-After": "1"} if problem.status in {429, 503} else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        msgspec.json.encode({**body, **problem.more}),
        status_code=problem.status,
        headers=headers,
        media_type="application/problem+json",
    )
