"""Ctrl-C that ends a stream between two chunks, so that the report is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Self, TypeVar

__all__ = ["StopOnInterrupt"]

Item = TypeVar("Item")


class StopOnInterrupt:
    """While this is open, the first Ctrl-C ends :meth:`until_stopped`; the second one ends at once.

    Parameters
    ----------
    end_feed : callable, optional
        Lets a live feed end by itself. Its rows come once and never again, so those that have come are
        still given; without it the items end where they are.
    """

    def __init__(self, end_feed: Callable[[], None] | None = None) -> None:
        self.stopped = False
        self._end_feed = end_feed
        self._waiting = False  # for the next item: then nothing is half done and Ctrl-C may come through
        self._before: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.stopped or (self._waiting and self._end_feed is None):
            self.stopped = True
            raise KeyboardInterrupt
        self.stopped = True
        if self._end_feed is not None:
            self._end_feed()

    def until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, until there are no more or Ctrl-C was pressed."""
        iterator = iter(items)
        while not self.stopped or self._end_feed is not None:
            self._waiting = True
            try:
                item = next(iterator)
            except (StopIteration, KeyboardInterrupt):
                return
            finally:
                self._waiting = False
            yield item
