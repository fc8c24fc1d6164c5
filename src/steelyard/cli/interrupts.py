"""Handling of Ctrl-C that ends a stream between two chunks, so that the report is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Self, TypeVar

Item = TypeVar("Item")


class StopOnInterrupt:
    """Context manager in which the first Ctrl-C ends :meth:`until_stopped` and the second Ctrl-C raises.

    ``end_feed`` ends a live feed. Rows of a feed cannot be read again, so the rows that have already arrived
    are still returned. Without ``end_feed`` the iteration ends at once.
    """

    def __init__(self, end_feed: Callable[[], None] | None = None) -> None:
        self.stopped = False
        self._end_feed = end_feed
        self._in_next = False  # True while waiting for the next item; Ctrl-C interrupts only this wait
        self._previous_handler: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.stopped or (self._in_next and self._end_feed is None):
            self.stopped = True
            raise KeyboardInterrupt
        self.stopped = True
        if self._end_feed is not None:
            self._end_feed()

    def until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items until they end or Ctrl-C is pressed."""
        iterator = iter(items)
        while not self.stopped or self._end_feed is not None:
            self._in_next = True
            try:
                item = next(iterator)
            except (StopIteration, KeyboardInterrupt):
                return
            finally:
                self._in_next = False
            yield item
