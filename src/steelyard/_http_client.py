"""Code shared by HTTP clients: closing connections, retries, authorization, JSON responses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import httpx

RETRY_STATUSES = frozenset({429, 503})  # HTTP status codes of a busy service
_MIN_ATTEMPTS = 4
_MAX_PAUSE_SECONDS = 2.0


class HttpClient:
    """HTTP client and context manager that keeps connections open until it is closed."""

    _http: httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


def auth_headers(key: str | None) -> dict[str, str]:
    """Return the authorization header for a key, or no header if the key is None."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def attempts(seconds: float = 0.0) -> Iterator[None]:
    """Yield once per attempt, with exponentially increasing pauses.

    There are at least four attempts, and further attempts until ``seconds`` have passed.
    """
    end = time.monotonic() + seconds
    for attempt in itertools.count():
        if attempt >= _MIN_ATTEMPTS and time.monotonic() >= end:
            return
        if attempt:
            time.sleep(min(_MAX_PAUSE_SECONDS, 0.1 * 2.0 ** min(attempt, 10)))
        yield


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in the body of a response, or an empty dict if there is none."""
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
