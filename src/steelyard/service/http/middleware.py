"""What surrounds every handler: errors are told as problems, its time is measured, the log gets a line."""

from __future__ import annotations

import logging
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steelyard.exceptions import SteelyardError
from steelyard.service.http.problems import Problem, problem_of, respond

if TYPE_CHECKING:
    from steelyard.service.http.app import Service

__all__ = ["Handler", "told"]

_log = logging.getLogger("steelyard.service")
Handler = Callable[[Request], Awaitable[Response]]


def told(handler: Handler, path: str, service: Service) -> Handler:
    """The handler with its errors told as problems, its time measured and one line in the log."""

    async def telling(request: Request) -> Response:
        begin = time.perf_counter()
        try:
            response = await handler(request)
        except Problem as problem:
            response = respond(problem)
        except SteelyardError as error:
            response = respond(problem_of(error))
        except service.writer.store.faults as error:
            _log.error("the store does not answer: %s", type(error).__name__)
            response = respond(Problem(503, "the store does not answer.", "try again shortly"))
        except Exception as error:  # noqa: BLE001  the last guard: nothing of a row may leave by a traceback
            name = uuid.uuid4().hex[:12]
            # An error's text may hold values of rows: what it was and where is enough.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("failed %s: %s\n%s", name, type(error).__name__, where)
            response = respond(Problem(500, f"the service failed; its log says more under {name}."))
        seconds = time.perf_counter() - begin
        service.metrics.took(
            request.method, path, response.status_code, seconds, request.path_params.get("model")
        )
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", _log_line(request, path, response.status_code, seconds))
        return response

    return telling


def _log_line(request: Request, path: str, status: int, seconds: float) -> str:
    """What was asked and how it went, without contents of rows."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "method": request.method,
        "route": path,
        "model": request.path_params.get("model"),
        "status": status,
        "ms": round(1000 * seconds, 2),
    }
    return msgspec.json.encode(line).decode()
