"""Requests to the writer, their futures, and the errors that they can raise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from steelyard.exceptions import SteelyardError
from steelyard.federated import SiteUpdate
from steelyard.service.spec import Spec
from steelyard.service.stores import PendingRow
from steelyard.tables.columns import ColumnBatch

__all__ = [
    "Adopt",
    "Challenge",
    "Conflict",
    "Consume",
    "Delete",
    "Drop",
    "Forget",
    "GoneError",
    "Label",
    "Learn",
    "NotFoundError",
    "Origin",
    "PositionMoved",
    "Promote",
    "Publish",
    "Put",
    "QueueFullError",
    "Release",
    "Remember",
    "Rename",
    "Request",
    "RequestFuture",
    "Tick",
    "Unavailable",
]


class NotFoundError(SteelyardError, LookupError):
    """The model, row or version does not exist."""


class Conflict(SteelyardError, ValueError):  # noqa: N818  a state, not an error of the caller
    """The request contradicts the current state."""


class PositionMoved(Conflict):
    """Another request has moved the position in the topic, so the messages were already consumed."""


class GoneError(SteelyardError, LookupError):
    """The requested data has been erased."""


class QueueFullError(SteelyardError, RuntimeError):
    """The queue of requests is full."""


class Unavailable(SteelyardError, RuntimeError):  # noqa: N818  a state, not an error of the caller
    """The store cannot be written at the moment."""


_PENDING, _RUNNING, _CANCELLED, _FINISHED = range(4)
# All futures share one lock, because creating a lock for each takes longer than waiting for a shared lock.
_future_lock = threading.Lock()


class RequestFuture:
    """Result of a request, with the part of the interface of concurrent.futures.Future that is needed.

    Creating and resolving this class takes 3 microseconds; the standard class takes 12, which lowers the
    throughput of single rows by 15 % (``benchmarks/speed/bench_service.py --only single``).
    """

    __slots__ = ("_error", "_event", "_result", "_state", "callback")

    def __init__(self) -> None:
        # Function that is called with the future when the request ends, in the thread that finishes or
        # cancels the request. It must be set before the request is submitted.
        self.callback: Callable[[RequestFuture], None] | None = None
        self._state = _PENDING
        self._result: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None

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

    def cancelled(self) -> bool:
        """Return whether the request was cancelled."""
        return self._state == _CANCELLED

    def done(self) -> bool:
        """Return whether the request is finished or cancelled."""
        return self._state >= _CANCELLED

    def set_result(self, result: dict[str, Any]) -> None:
        """Finish the request with a result."""
        self._finish(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Finish the request with an exception."""
        self._finish(None, error)

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the result and return it, or raise the exception of the request."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the request and return its exception, or None if it has a result."""
        if self._state < _CANCELLED:
            self._wait(timeout)
        if self._state == _CANCELLED:
            raise CancelledError
        return self._error

    def _finish(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        with _future_lock:
            if self._state >= _CANCELLED:
                raise RuntimeError("the request is finished already")
            self._result, self._error, self._state = result, error, _FINISHED
        self._notify()

    def _notify(self) -> None:
        if self._event is not None:
            self._event.set()
        if self.callback is not None:
            self.callback(self)

    def _wait(self, timeout: float | None) -> None:
        with _future_lock:
            if self._state >= _CANCELLED:
                return
            if self._event is None:
                self._event = threading.Event()
        if not self._event.wait(timeout):
            raise TimeoutError


class Origin(NamedTuple):
    """Origin of a request: id of the API key, network address, and request id."""

    key: str | None
    address: str | None
    request_id: str


@dataclass
class Request:
    """One request of a client.

    Parameters
    ----------
    model : str
        Name of the model.
    key : str, optional
        Idempotency key: a repeated request with the same key gets the stored response of the first request.
    fingerprint : str
        Hash of the request; a key cannot be used again with another fingerprint.
    origin : Origin, optional
        Sender of the request, for the audit log.
    """

    erases: ClassVar[bool] = False  # whether deleted data must be erased from disk before the response
    takes_key: ClassVar[bool] = True  # whether the request can have an idempotency key

    model: str
    key: str | None = field(default=None, kw_only=True)
    fingerprint: str = field(default="", kw_only=True)
    origin: Origin | None = field(default=None, kw_only=True)
    # Whether the stored response of an earlier request was returned.
    is_repeated: bool = field(default=False, init=False)
    future: RequestFuture = field(default_factory=RequestFuture, kw_only=True, repr=False)


@dataclass
class Put(Request):
    """Create a model or change its settings."""

    spec: Spec


@dataclass
class Delete(Request):
    """Delete a model and all its data in the store, except its audit log."""

    erases: ClassVar[bool] = True


@dataclass
class Rename(Request):
    """Rename a model."""

    new_name: str


@dataclass
class Learn(Request):
    """Learn labelled rows."""

    batch: ColumnBatch


@dataclass
class Remember(Request):
    """Store predicted rows until their labels arrive."""

    rows: Sequence[PendingRow]
    prediction: Mapping[str, Any] = field(default_factory=dict)  # copied into the response


@dataclass
class Label(Request):
    """Learn pending rows whose labels have arrived; ``labels`` maps row ids to labels.

    With ``correct``, rows that were learned with another label are forgotten and learned with the new one.
    """

    labels: Mapping[str, Any]
    correct: bool = False


@dataclass
class Consume(Request):
    """Apply messages of a topic and move the position in the topic, in one transaction.

    Parameters
    ----------
    topic : str
        Name of the topic in the store.
    moves : mapping of str to (str or None, str)
        For each partition of the topic, the positions before and after the messages. If the stored position
        is not the position before, the request raises PositionMoved and changes nothing.
    learn : ColumnBatch, optional
        Labelled rows.
    remember : sequence of PendingRow
        Rows that wait for their labels. Rows whose labels have already arrived are learned.
    labels : mapping of str to label
        Labels by row id. Labels of unknown rows are stored until the rows arrive.
    unused : sequence of str
        Ids of stored labels to delete.
    skips_known : bool
        Whether to skip rows that were learned before, because the broker may deliver messages again.
    """

    topic: str
    moves: Mapping[str, tuple[str | None, str]]
    learn: ColumnBatch | None = None
    remember: Sequence[PendingRow] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    unused: Sequence[str] = ()
    skips_known: bool = False


@dataclass
class Forget(Request):
    """Forget rows that are selected by exactly one of the fields."""

    erases: ClassVar[bool] = True

    ids: Sequence[str] | None = None
    subject: str | None = None
    before: float | None = None
    batch: ColumnBatch | None = None
    request_key: str | None = None  # idempotency key of the request that added the rows
    learned: tuple[float, float] | None = None  # range of arrival times, including both ends

    @property
    def by(self) -> str:
        """Selection of the rows: "ids", "subject", "time", "rows", "batch" or "arrival"."""
        options = {
            "ids": self.ids,
            "subject": self.subject,
            "time": self.before,
            "rows": self.batch,
            "batch": self.request_key,
            "arrival": self.learned,
        }
        return next(name for name, value in options.items() if value is not None)


@dataclass
class Release(Request):
    """Learn or delete rows in quarantine, selected by number."""

    erases: ClassVar[bool] = True

    numbers: Sequence[int]
    learn: bool


@dataclass
class Challenge(Request):
    """Start a challenger with the given settings, or end the current challenger if the settings are None."""

    spec: Spec | None
    replay: bool = True  # whether the challenger first learns the stored rows of the model


@dataclass
class Promote(Request):
    """Swap a model and its challenger."""


@dataclass
class Publish(Request):
    """Receive the latest update of a site, for a federated model. A repeated update changes nothing."""

    takes_key: ClassVar[bool] = False

    site_update: SiteUpdate


@dataclass
class Drop(Request):
    """Remove a site from a federated model."""

    erases: ClassVar[bool] = True

    site: str


@dataclass
class Adopt(Request):
    """Take over a session from another writer thread. The writer itself submits this request."""

    session: Any


@dataclass
class Tick(Request):
    """Delete expired rows and stored responses. The writer itself submits this request."""
