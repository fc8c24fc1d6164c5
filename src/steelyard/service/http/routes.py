"""Declaration of routes: method, path, handler, the scope that a key needs, and the OpenAPI schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

MODELS = "/v1/models"
MODEL = f"{MODELS}/{{model}}"
BINARY = "application/octet-stream"
ANY = ""  # a response without schema
# Called with the service, the request and, if the path contains {model}, the name of the model.
Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """One route of the service. The first line of the docstring of its handler is its OpenAPI summary."""

    method: str
    path: str
    handler: Handler  # returns a response, or a value that is sent as JSON
    scope: str | None = None  # scope that the key needs; None if the handler checks the key, or for no key
    response: str | None = None  # schema, ANY or BINARY; None if the route is not in the OpenAPI description
    body: str | None = None  # OpenAPI schema of the body
    takes_rows: bool = False  # whether the body can have any format of rows, such as CSV
    is_idempotent: bool = False  # whether the request can have an idempotency key
    query: Mapping[str, Any] | None = None  # OpenAPI schemas of the query parameters
    statuses: Mapping[int, str] | None = None  # further statuses and their descriptions

    @property
    def is_audited(self) -> bool:
        """Whether refused requests are logged, because the route changes a model."""
        is_change = self.path.startswith(MODEL) and not self.path.endswith(("/predict", "/explain"))
        return is_change and self.method != "GET"


ROUTES: list[Route] = []  # all routes, in the order of their declaration


def route(
    method: str, path: str, scope: str | None = None, **description: Any
) -> Callable[[Handler], Handler]:
    """Declare the decorated function as the handler of a route."""

    def declare(handler: Handler) -> Handler:
        ROUTES.append(Route(method, path, handler, scope, **description))
        return handler

    return declare
