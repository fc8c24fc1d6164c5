"""The line in which requests wait for the one writer, who takes those together that come together."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from itertools import islice

from steelyard.service.commands import QueueFullError, Request, Unavailable

__all__ = ["RequestQueue", "stopping"]

_MANY = 8  # of fewer that are expected, the first does not wait for the others
_EACH = 1e-4  # seconds that are waited for each who is expected
_LONGEST = 0.01  # seconds that the first of many waits for the others, at the most
_GAP = 0.002  # seconds in which none has come: those who are still expected will not come now


def stopping() -> Unavailable:
    """What is told to whoever comes too late."""
    return Unavailable("the service is stopping; nothing was changed.", hint="try again shortly")


class RequestQueue:
    """Requests in the order in which they came; anybody puts one, one thread takes them.

    Clients that were answered together send again together, one after the other as they are read. Whoever is
    written alone pays a sync of the disk alone, so the first of them waits until all are there: those who
    were just answered and those who stand here already are as many as can be expected. It does not wait
    longer than they keep coming.

    Parameters
    ----------
    most : int
        More requests than this are sent away.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.is_closed = False
        self._waiting: deque[Request] = deque()
        self._turn = threading.Lock()
        self._bell = threading.Event()
        self._enough: float = math.inf  # requests at which the bell rings
        self._n_taken = 0  # by the last group

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: Request) -> None:
        """Stand at the end; refused where too many wait, or where nobody takes any longer."""
        with self._turn:
            if self.is_closed:
                raise stopping()
            if len(self._waiting) >= self.most:
                raise QueueFullError(
                    f"{self.most:,} requests wait already; nothing was changed.",
                    hint="wait a little and send it again, with the same idempotency key",
                )
            self._waiting.append(request)
        if len(self._waiting) >= self._enough:  # once for many: to wake a thread takes long
            self._bell.set()

    def close(self) -> None:
        """Nobody else is let in."""
        with self._turn:
            self.is_closed = True
        self._bell.set()

    def first(self, most: int) -> list[Request]:
        """Whoever is next; they stay where they are."""
        with self._turn:
            return list(islice(self._waiting, most))

    def take(self, n_requests: int) -> list[Request]:
        """The first of the line, or as many as there are."""
        return [self._waiting.popleft() for _ in range(min(n_requests, len(self._waiting)))]

    def next_group(self, most: int, seconds: float) -> list[Request]:
        """The next who are taken together; none where none comes in this time."""
        n_expected = min(self._n_taken + len(self._waiting), most)
        self._wait_for(1, seconds)
        if n_expected >= _MANY:
            self._gather(n_expected)
        group = self.take(most)
        self._n_taken = len(group)
        return group

    def _gather(self, n_expected: int) -> None:
        seconds = min(_EACH * (n_expected - len(self._waiting)), _LONGEST)
        end, n_before = time.monotonic() + seconds, 0
        while n_before < len(self._waiting) < n_expected and time.monotonic() < end:
            n_before = len(self._waiting)
            self._wait_for(n_expected, min(_GAP, seconds))

    def _wait_for(self, n_requests: int, seconds: float) -> None:
        """Until so many wait, or the line is closed, or it has taken so long."""
        self._bell.clear()
        self._enough = n_requests  # before the look: whoever comes after it rings
        if len(self._waiting) < n_requests and not self.is_closed:
            self._bell.wait(seconds)
        self._enough = math.inf
