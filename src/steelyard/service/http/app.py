"""ASGI application: routes, origin check and a fast path for learn and predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from steelyard.service.consumption import TopicConsumer
from steelyard.service.http import explanations, federated, health, inference, operations, overview, page
from steelyard.service.http.bodies import HEADERS
from steelyard.service.http.keys import Keys
from steelyard.service.http.middleware import Handler, error_middleware, origin_problem
from steelyard.service.http.problems import respond
from steelyard.service.http.service import Limits, Service
from steelyard.service.writer import Writer

__all__ = ["Limits", "ServiceApp", "make_app"]

_MODELS = "/v1/models/"
# Functions of other modules, each of which returns a list of routes (method, path, handler).
_ROUTE_MODULES = (
    overview.routes,
    health.routes,
    inference.routes,
    explanations.routes,
    federated.routes,
    operations.routes,
    page.routes,
)


class ServiceApp(Starlette):
    """ASGI application that calls the handlers of learn and predict without middleware and router.

    The router calls the same handlers, but middleware and routing of Starlette take a fifth of the time of a
    request with one row.

    Parameters
    ----------
    service : Service
        The service.
    handlers : mapping of (str, str) to callable
        Handler of each method and path.
    allowed_hosts : sequence of str
        Host names that are accepted in addition to those of this machine, if there are no keys.
    """

    def __init__(
        self, service: Service, handlers: Mapping[tuple[str, str], Handler], allowed_hosts: Sequence[str]
    ) -> None:
        super().__init__(
            routes=[
                Route(path, handler, methods=[method], name=f"{method} {path}")
                for (method, path), handler in handlers.items()
            ],
            lifespan=service.lifespan,
            exception_handlers={HTTPException: service.http_problem},  # type: ignore[dict-item]
        )
        self._verbs = {verb: handlers["POST", f"{_MODELS}{{model}}/{verb}"] for verb in ("learn", "predict")}
        self._service, self._checks_origin = service, service.keys is None
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = scope[HEADERS] = dict(scope["headers"])
        if self._checks_origin:
            problem = origin_problem(headers, scope["method"], self._allowed_hosts)
            if problem is not None:
                self._service.count_unrouted(scope["method"], "refused", problem.status)
                await respond(problem)(scope, receive, send)
                return
        path: str = scope["path"]
        model, _, verb = path[len(_MODELS) :].partition("/")
        if verb in self._verbs and model and path.startswith(_MODELS) and scope["method"] == "POST":
            scope["path_params"] = {"model": model}
            response = await self._verbs[verb](Request(scope, receive, send))
            await response(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def make_app(
    writer: Writer,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    allowed_hosts: Sequence[str] = (),
    consumers: Sequence[TopicConsumer] = (),
) -> ServiceApp:
    """Return the service as an ASGI application.

    Parameters
    ----------
    writer : Writer
        The writer; it is started and stopped with the application.
    keys : Keys, optional
        API keys. Without keys, requests from this machine are allowed, except those of foreign web pages.
    limits : Limits, optional
        Limits of requests.
    allowed_hosts : sequence of str, optional
        Host names that are accepted in addition to those of this machine, if there are no keys.
    consumers : sequence of TopicConsumer, optional
        Consumers of message brokers; they are started and stopped with the application.
    """
    service = Service(writer, keys, limits or Limits(), consumers)
    model = f"{_MODELS}{{model}}"
    routes: list[tuple[str, str, Handler]] = [
        ("POST", f"{model}/learn", service.learn),
        ("POST", f"{model}/predict", service.predict),
        ("PUT", model, service.put_model),
        ("POST", f"{model}/labels", service.label),
        ("POST", f"{model}/forget", service.forget),
        ("GET", f"{model}/events", service.event_streams.events),
        *(route for routes_of in _ROUTE_MODULES for route in routes_of(service)),
    ]
    handlers = {(method, path): error_middleware(handler, path, service) for method, path, handler in routes}
    return ServiceApp(service, handlers, allowed_hosts)
