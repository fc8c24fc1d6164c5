"""Middleware of all handlers: origin check, errors as problem details, metrics and request log."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import itertools
import logging
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from steelyard.exceptions import SteelyardError
from steelyard.service.http.bodies import HEADERS, read_body
from steelyard.service.http.problems import Problem, problem_of, respond

if TYPE_CHECKING:
    from steelyard.service.http.service import Service

__all__ = ["Handler", "error_middleware", "origin_problem"]

_log = logging.getLogger("steelyard.service")
_RELEASE_SECONDS = 0.2
Handler = Callable[[Request], Awaitable[Response]]


def origin_problem(
    headers: Mapping[bytes, bytes], method: str, allowed_hosts: Container[str]
) -> Problem | None:
    """Return the reason why a request to a service without keys is refused, or None if it is accepted.

    The Host header must name this machine or an allowed host. Otherwise a page whose domain name resolves to
    127.0.0.1 (DNS rebinding) could read and change models. Requests that change something must not come from
    another origin: browsers send simple cross-origin requests without a preflight request.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if not _is_local(host) and _hostname(host) not in allowed_hosts:
        return Problem(421, f"this service is not {host[:80]!r}.", "use the address that it printed, or keys")
    if method in {"GET", "HEAD"}:
        return None
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
    is_foreign = site not in {b"same-origin", b"none"} or (
        origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host
    )
    if is_foreign:
        return Problem(403, "requests from other web pages are refused.", "use keys to allow them")
    return None


def _hostname(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


@functools.lru_cache(maxsize=64)
def _is_local(host: str) -> bool:
    """Return whether a Host header names this machine."""
    name = _hostname(host)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_TRACE = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Prefix and counter of generated request ids.
_prefix, _numbers = secrets.token_hex(10), itertools.count()


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of a request: its W3C trace id, its X-Request-Id, or a new id."""
    trace = _TRACE.fullmatch(headers.get(b"traceparent", b""))
    if trace is not None:
        return str(trace.group(1), "ascii")
    given = headers.get(b"x-request-id", b"")
    if _REQUEST_ID.fullmatch(given):
        return str(given, "ascii")
    return f"{_prefix}{next(_numbers) & 0xFFFFFFFFFFFF:012x}"


def error_middleware(handler: Handler, path: str, service: Service) -> Handler:
    """Wrap a handler: errors become problem details, and each request is measured and logged."""

    is_audited = service.audits(path)

    async def handle(request: Request) -> Response:
        begin = time.perf_counter()
        request_id = request.scope["steelyard.id"] = request_id_of(request.scope[HEADERS])
        try:
            url = await service.forwarder.target(request) if service.writer.store.has_leases else None
            if url is None:
                response = await handler(request)
            else:
                body = await read_body(request, service.limits.body, service.budget)
                response = await service.forwarder.forward(request, url, body)
                request.scope["steelyard.audited"] = True  # the other process will add the audit entry
        except Problem as problem:
            response = respond(problem)
        except SteelyardError as error:
            response = respond(problem_of(error))
        except service.writer.store.errors as error:
            _log.error("the store failed: %s", type(error).__name__, extra={"request_id": request_id})
            response = respond(Problem(503, "the store is not available.", "try again shortly"))
        except Exception as error:  # noqa: BLE001  any error becomes a response without values of rows
            # The message of the error is not logged, because it could contain values of rows.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error(
                "failure %s: %s\n%s",
                request_id,
                type(error).__name__,
                where,
                extra={"request_id": request_id},
            )
            response = respond(Problem(500, f"the service failed; see {request_id} in its log."))
        response.raw_headers.append((b"x-request-id", request_id.encode()))
        if service.memory.is_due_after(service.budget.release(request)):
            # Memory is released after this coroutine ends, because its local variables hold the rows.
            asyncio.get_running_loop().call_later(
                _RELEASE_SECONDS, asyncio.get_running_loop().run_in_executor, None, service.memory.release
            )
        if response.status_code >= 400 and is_audited and request.method != "GET":
            service.audit_refusal(request, path, response.status_code)
        seconds = time.perf_counter() - begin
        model = request.path_params.get("model")
        service.metrics.request_finished(request.method, path, response.status_code, seconds, model)
        if _log.isEnabledFor(logging.INFO):
            line = {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "method": request.method,
                "route": path,
                "model": model,
                "status": response.status_code,
                "ms": round(1000 * seconds, 2),
                "request_id": request_id,
                "key": request.scope.get("steelyard.key"),
            }
            _log.info("%s", msgspec.json.encode(line).decode())
        return response

    return handle
