"""Queue of requests to the writer, which removes them in groups and commits each group at once."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

from steelyard.service.commands import QueueFullError, Request, Unavailable

__all__ = ["RequestQueue", "stopping_error"]

_MIN_EXPECTED_REQUESTS = 8  # if fewer requests are expected, the writer does not wait to fill a group
_SECONDS_PER_EXPECTED_REQUEST = 1e-4
_MAX_GATHER_SECONDS = 0.01
_MAX_GAP_SECONDS = 0.002  # a group is complete if no request arrives within this time


def stopping_error() -> Unavailable:
    """Return the error for requests that arrive while the service is stopping."""
    return Unavailable("the service is stopping; nothing was changed.", hint="try again shortly")


class RequestQueue:
    """Queue of requests in order of arrival. Any thread can add requests; one thread removes them.

    Clients whose requests were committed together send their next requests at nearly the same time. Every
    commit costs one disk sync, however many requests it contains. :meth:`next_group` therefore waits for as
    many new requests as the last group had. It stops waiting when no new request arrives for a short time.

    Parameters
    ----------
    max_requests : int
        Maximum length; further requests raise QueueFullError.
    """

    def __init__(self, max_requests: int) -> None:
        self.max_requests = max_requests
        self.is_closed = False
        self._requests: deque[Request] = deque()
        self._lock = threading.Lock()
        self._wake_up = threading.Event()
        self._wake_up_length: float = math.inf  # queue length at which put() wakes the waiting thread
        self._last_group_size = 0

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: Request) -> None:
        """Append a request; raise QueueFullError if the queue is full, Unavailable if it is closed."""
        with self._lock:
            if self.is_closed:
                raise stopping_error()
            if len(self._requests) >= self.max_requests:
                raise QueueFullError(
                    f"the queue is full: {self.max_requests:,} requests are waiting; nothing was changed.",
                    hint="wait a little and send the request again, with the same idempotency key",
                )
            self._requests.append(request)
        if len(self._requests) >= self._wake_up_length:  # one wake-up per group, because wake-ups are slow
            self._wake_up.set()

    def close(self) -> None:
        """Refuse further requests. Queued requests stay in the queue."""
        with self._lock:
            self.is_closed = True
        self._wake_up.set()

    def first(self, max_requests: int) -> list[Request]:
        """Return the first requests without removing them."""
        with self._lock:
            return list(islice(self._requests, max_requests))

    def take(self, n_requests: int) -> list[Request]:
        """Remove and return up to a given number of requests from the front of the queue."""
        with self._lock:
            return [self._requests.popleft() for _ in range(min(n_requests, len(self._requests)))]

    def remove(self, requests: Sequence[Request]) -> None:
        """Remove requests, wherever they are in the queue."""
        removed = set(map(id, requests))
        with self._lock:
            self._requests = deque(request for request in self._requests if id(request) not in removed)

    def put_back(self, requests: Sequence[Request]) -> None:
        """Return requests to the front of the queue; the next group begins with them without waiting."""
        with self._lock:
            self._requests.extendleft(reversed(requests))
        self._last_group_size = 0

    def next_group(self, max_requests: int, seconds: float) -> list[Request]:
        """Remove and return the next group, or an empty list if no request arrives within ``seconds``."""
        n_expected = min(self._last_group_size + len(self._requests), max_requests)
        self._wait_for(1, seconds)
        if n_expected >= _MIN_EXPECTED_REQUESTS:
            self._gather(n_expected)
        group = self.take(max_requests)
        self._last_group_size = len(group)
        return group

    def _gather(self, n_expected: int) -> None:
        seconds = min(_SECONDS_PER_EXPECTED_REQUEST * (n_expected - len(self._requests)), _MAX_GATHER_SECONDS)
        end, n_before = time.monotonic() + seconds, 0
        while n_before < len(self._requests) < n_expected and time.monotonic() < end:
            n_before = len(self._requests)
            self._wait_for(n_expected, min(_MAX_GAP_SECONDS, seconds))

    def _wait_for(self, n_requests: int, seconds: float) -> None:
        """Wait until the queue has a given length, is closed, or ``seconds`` have passed."""
        self._wake_up.clear()
        self._wake_up_length = n_requests  # set before the length is read, so that no request is missed
        if len(self._requests) < n_requests and not self.is_closed:
            self._wake_up.wait(seconds)
        self._wake_up_length = math.inf
