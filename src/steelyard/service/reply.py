"""The answer to a request, when it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

__all__ = ["Reply"]

_WAITS, _BEGUN, _CANCELLED, _DONE = range(4)
_turn = threading.Lock()  # one for all: each holds it for less time than it takes to make another


class Reply:
    """What :class:`concurrent.futures.Future` is, for a quarter of its time: a single row is soon learned."""

    __slots__ = ("_callbacks", "_error", "_event", "_result", "_state")

    def __init__(self) -> None:
        self._state = _WAITS
        self._result: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Reply], None]] = []
        self._event: threading.Event | None = None

    def cancel(self) -> bool:
        """Take the request back; False where it has begun."""
        with _turn:
            if self._state in {_BEGUN, _DONE}:
                return False
            self._state = _CANCELLED
        self._tell()
        return True

    def begin(self) -> bool:
        """From here on the request cannot be taken back; False where it was."""
        with _turn:
            if self._state == _WAITS:
                self._state = _BEGUN
            return self._state == _BEGUN

    def cancelled(self) -> bool:
        """Whether the request was taken back."""
        return self._state == _CANCELLED

    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._state >= _CANCELLED

    def set_result(self, result: dict[str, Any]) -> None:
        """Answer."""
        self._end(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Refuse."""
        self._end(None, error)

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """The answer, or the refusal as an exception; not later than this."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The refusal; None where there is an answer."""
        if self._state < _CANCELLED:
            self._wait(timeout)
        if self._state == _CANCELLED:
            raise CancelledError
        return self._error

    def add_done_callback(self, callback: Callable[[Reply], None]) -> None:
        """Have this called when the answer is there, by whoever gives it."""
        with _turn:
            if self._state < _CANCELLED:
                self._callbacks.append(callback)
                return
        callback(self)

    def _end(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        with _turn:
            if self._state >= _CANCELLED:
                raise RuntimeError("a request is answered once")
            self._result, self._error, self._state = result, error, _DONE
        self._tell()

    def _tell(self) -> None:
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def _wait(self, timeout: float | None) -> None:
        with _turn:
            if self._state >= _CANCELLED:
                return
            if self._event is None:
                self._event = threading.Event()
        if not self._event.wait(timeout):
            raise TimeoutError
