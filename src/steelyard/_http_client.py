"""What all who talk to a service share: connections to let go, several tries, what an answer says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import httpx

__all__ = ["TRY_AGAIN", "HttpClient", "headers_with", "said_in", "tries"]

TRY_AGAIN = frozenset({429, 503})  # answers of a service that is busy
_TRIES = 4


class HttpClient:
    """Keeps connections until it is closed; can stand in a with statement."""

    _http: httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()


def headers_with(key: str | None) -> dict[str, str]:
    """What shows a key to a service, if there is one."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def tries() -> Iterator[None]:
    """A few turns, with longer and longer pauses between them."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(min(2.0, 0.1 * 2.0**attempt))
        yield


def said_in(response: httpx.Response) -> dict[str, Any]:
    """The object in an answer; empty where there is none."""
    try:
        said = response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
