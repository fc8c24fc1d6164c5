"""Queue of requests to the writer, their futures, and the times that groups of requests take."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any

from steelyard.service.errors import QueueFullError, stopping_error

if TYPE_CHECKING:
    from steelyard.service.commands import Request

_MIN_EXPECTED_REQUESTS = 8  # if fewer requests are expected, the writer does not wait to fill a group
_SECONDS_PER_EXPECTED_REQUEST = 1e-4
_MAX_GATHER_SECONDS = 0.01
_MAX_GAP_SECONDS = 0.002  # a group is complete if no request arrives within this time
_SLOW_SECONDS = 0.01  # a model may get its own thread if its requests in a group take longer than this
_SLOW_RATIO = 4.0  # minimum ratio of the time of a slow model to the median time of the other models
_STILL_SLOW_RATIO = 2.0  # minimum ratio for a model that was slow before
_N_GROUPS = 5  # number of recent groups of requests whose median time is compared
_PENDING, _RUNNING, _CANCELLED, _FINISHED = range(4)
# All futures share one lock, because creating a lock for each takes longer than waiting for a shared lock.
_future_lock = threading.Lock()


@dataclass(slots=True, eq=False)
class RequestFuture:
    """Result of a request, with the part of the interface of concurrent.futures.Future that is needed.

    Creating and resolving this class takes 3 microseconds; the standard class takes 12, which lowers the
    throughput of single rows by 15 % (``benchmarks/speed/bench_service.py --only single``).
    """

    # Function that is called with the future when the request ends, in the thread that finishes or cancels
    # the request. It must be set before the request is submitted.
    callback: Callable[[RequestFuture], None] | None = None
    _state: int = _PENDING
    _outcome: dict[str, Any] | BaseException | None = None
    _event: threading.Event | None = None

    def cancel(self) -> bool:
        """Cancel the request; return False if it is running or finished."""
        with _future_lock:
            if self._state in {_RUNNING, _FINISHED}:
                return False
            self._state = _CANCELLED
        self._notify()
        return True

    def set_running(self) -> bool:
        """Mark the request as running, so that it cannot be cancelled; return False if it was cancelled."""
        with _future_lock:
            if self._state == _PENDING:
                self._state = _RUNNING
            return self._state == _RUNNING

    def done(self) -> bool:
        return self._state >= _CANCELLED

    def finish(self, outcome: dict[str, Any] | BaseException) -> None:
        """Finish the request with a result or an exception."""
        with _future_lock:
            if self._state >= _CANCELLED:
                raise RuntimeError("the request is finished already")
            self._outcome, self._state = outcome, _FINISHED
        self._notify()

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the result and return it, or raise the exception of the request."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert isinstance(self._outcome, dict)
        return self._outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the request and return its exception, or None if it has a result."""
        with _future_lock:
            if self._state < _CANCELLED and self._event is None:
                self._event = threading.Event()
        if self._state < _CANCELLED and self._event is not None and not self._event.wait(timeout):
            raise TimeoutError
        if self._state == _CANCELLED:
            raise CancelledError
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def _notify(self) -> None:
        if self._event is not None:
            self._event.set()
        if self.callback is not None:
            self.callback(self)


class RequestQueue:
    """Queue of requests in order of arrival. Any thread can add requests; one thread removes them.

    Clients whose requests were committed together send their next requests at nearly the same time. Every
    commit costs one disk sync, however many requests it contains. :meth:`next_group` therefore waits for as
    many new requests as the last group had. It stops waiting when no new request arrives for a short time.
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


class GroupTimes:
    """Recent processing times of the requests for each model in a commit group, to find slow models."""

    def __init__(self) -> None:
        self.seconds: dict[str, deque[float]] = {}

    def add(self, model: str, seconds: float) -> None:
        """Record the time of the requests for a model in one group."""
        self.seconds.setdefault(model, deque(maxlen=_N_GROUPS)).append(seconds)

    def is_slow(self, model: str, others: Collection[str], *, was_slow: bool = False) -> bool:
        """Return whether the requests for a model take much longer than those for the other models.

        Medians over several groups are compared, because imports and other programs delay single groups.
        """
        seconds = self.typical(model)
        if seconds is None or seconds <= _SLOW_SECONDS:  # most calls end here
            return False
        # ``others`` is copied, because another thread may add or remove models meanwhile.
        typical = [self.typical(name) for name in tuple(others) if name != model]
        known = [one for one in typical if one is not None]
        ratio = _STILL_SLOW_RATIO if was_slow else _SLOW_RATIO
        return bool(known) and seconds > ratio * median(known)

    def typical(self, model: str) -> float | None:
        """Return the median time of a model over the last groups, or None if there were too few."""
        recent = self.seconds.get(model, ())
        return median(recent) if len(recent) == _N_GROUPS else None
