"""Errors on the wire: RFC 9457 problem details with our sentence and hint."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from steelyard.exceptions import FileAccessError, FileFormatError, SteelyardError
from steelyard.service.commands import Conflict, GoneError, NotFoundError, QueueFullError, Unavailable
from steelyard.service.rows import TooMuch
from steelyard.tables.columns import RowError

__all__ = ["Problem", "problem_of", "respond"]

_TITLES = {
    400: "The request could not be read",
    401: "A key is needed",
    403: "This key may not do that",
    404: "There is no such thing",
    405: "This cannot be done here",
    408: "Too slow",
    406: "No such form of answer",
    409: "That contradicts what is there",
    410: "That is gone",
    413: "Too large",
    415: "No such form of rows",
    422: "The content was refused; nothing was changed",
    429: "Too many requests wait",
    500: "Something broke in the service",
    503: "Not available now",
}
_STATUS: tuple[tuple[type[SteelyardError], int], ...] = (
    (NotFoundError, 404),
    (GoneError, 410),
    (TooMuch, 413),
    (Conflict, 409),
    (QueueFullError, 429),
    (Unavailable, 503),
    (FileAccessError, 500),
    (FileFormatError, 500),
    (SteelyardError, 422),
)


class Problem(Exception):  # noqa: N818  its name on the wire
    """A refusal with a status."""

    def __init__(self, status: int, detail: str, hint: str | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.more = status, detail, hint, more


def problem_of(error: SteelyardError) -> Problem:
    """How an error of the library is told to a client."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    more: dict[str, Any] = {}
    if isinstance(error, RowError):
        more["row"] = error.row
        if error.column is not None:
            more["column"] = error.column
    return Problem(status, error.summary, error.hint, **more)


def respond(problem: Problem) -> Response:
    """The answer that tells a problem."""
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
