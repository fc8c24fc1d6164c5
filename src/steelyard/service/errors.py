"""Errors of requests to the service, with the HTTP status of the response."""

from __future__ import annotations

from steelyard.exceptions import DataError, SteelyardError


class NotFoundError(SteelyardError, LookupError):
    """The model, row or version does not exist."""

    status = 404


class Conflict(SteelyardError, ValueError):  # noqa: N818  a state, not an error of the caller
    """The request contradicts the current state."""

    status = 409


class PositionMoved(Conflict):
    """Another request has moved the position in the topic, so the messages were already consumed."""


class StaleVersionError(Conflict):
    """The site update is older than the latest update of the same site, whose age is ``age``."""

    def __init__(self, message: str, *, hint: str, age: tuple[int, int]) -> None:
        super().__init__(message, hint=hint)
        self.details = {"reason": "stale", "epoch": age[0], "version": age[1]}  # fields of the response


class GoneError(SteelyardError, LookupError):
    """The requested data has been erased."""

    status = 410


class QueueFullError(SteelyardError, RuntimeError):
    """The queue of requests is full."""

    status = 429


class Unavailable(SteelyardError, RuntimeError):  # noqa: N818  a state, not an error of the caller
    """The store cannot be written at the moment."""

    status = 503


class TooLargeError(DataError):
    """The request has more rows, columns or values than allowed."""

    status = 413


class NotJSONError(DataError):
    """The body is not JSON."""


def stopping_error() -> Unavailable:
    """Return the error for requests that arrive while the service is stopping."""
    return Unavailable("the service is stopping; nothing was changed.", hint="try again shortly")


def federated_error(name: str) -> Conflict:
    """Return the error for rows that are sent to a federated model."""
    return Conflict(
        f"the model {name!r} is federated and learns no rows; nothing was changed.",
        hint="learn and forget rows at their site, then publish its update",
    )


def follower_error() -> Unavailable:
    """Return the error for requests that another process must answer."""
    return Unavailable(
        "this process does not learn this model, because another process learns it; nothing was changed.",
        hint="send the request to the process whose /health/learner answers 200",
    )
