"""Reading beside learning: batches come from a thread that is a few of them ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from steelyard.exceptions import DataError

__all__ = ["End", "ReadAhead", "ReadDirectly"]

Batch = TypeVar("Batch")

_AHEAD = 4  # batches that wait at most, so that memory stays flat
_PATIENCE = 0.05  # seconds until a full or stopped queue is looked at again


class End:
    """What comes after the last batch; with the error, if one is why it is the last."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class ReadDirectly(Generic[Batch]):
    """Takes batches from an iterator when they are asked for.

    Parameters
    ----------
    batches : iterator
        Where they come from.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches

    def get(self, _: float | None) -> Batch | End:
        """The next batch, or the end."""
        try:
            return next(self._batches, End())
        except DataError as error:
            return End(error)

    def close(self) -> None:
        """Nothing is ahead."""


class ReadAhead(Generic[Batch]):
    """Takes batches from an iterator in a thread of its own.

    Parsing lets other threads run, so on two cores it costs nothing; and who waits for a live feed can do
    so for a limited time.

    Parameters
    ----------
    batches : iterator
        Only the thread touches it.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._queue: queue.Queue[Batch | End] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="steelyard reads ahead", daemon=True)
        self._thread.start()

    def get(self, timeout: float | None) -> Batch | End | None:
        """The next batch, the end after the last one, None if nothing comes in time."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Read no further; the thread has ended when this returns, unless it waits for a pipe."""
        self._closed.set()
        self._thread.join(timeout=2.0)

    def _read(self) -> None:
        end = End()
        try:
            for batch in self._batches:
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  it is raised where the batches are used
            end = End(error)
        self._put(end)

    def _put(self, item: Batch | End) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False
