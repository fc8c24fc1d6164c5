"""The busiest routes, found without a search through all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Shortcut"]

_MODELS = "/v1/models/"


class Shortcut:
    """Hands ``POST /v1/models/{model}/{verb}`` to its handler; everything else goes on to the router.

    The handlers are those of the router, with all their guards. What the router would do on the way to them
    takes a fifth of the time of a request with one row.

    Parameters
    ----------
    app : ASGI application
        Where everything else goes.
    verbs : mapping of str to callable
        What is done for each verb.
    """

    def __init__(self, app: ASGIApp, verbs: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> None:
        self._app, self._verbs = app, verbs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            path: str = scope["path"]
            model, _, verb = path[len(_MODELS) :].partition("/")
            handler = self._verbs.get(verb)
            if handler is not None and model and path.startswith(_MODELS):
                scope["path_params"] = {"model": model}
                response = await handler(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
