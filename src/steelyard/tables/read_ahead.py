"""Reading beside learning: batches come from a thread that is a few of them ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["END", "ReadAhead"]

Batch = TypeVar("Batch")

_AHEAD = 4  # batches that wait at most, so that memory stays flat
_PATIENCE = 0.05  # seconds until a full or stopped queue is looked at again


class _End:
    """What comes after the last batch."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


END = _End()


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
        self._queue: queue.Queue[Batch | _End] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="steelyard reads ahead", daemon=True)
        self._thread.start()

    def get(self, timeout: float | None) -> Batch | _End | None:
        """The next batch, :data:`END` after the last one, None if nothing comes in time.

        An error of the iterator is raised after all batches before it.
        """
        try:
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return END
        return item

    def close(self) -> None:
        """Read no further; the thread has ended when this returns, unless it waits for a pipe."""
        self._closed.set()
        self._thread.join(timeout=2.0)

    def _read(self) -> None:
        end = END
        try:
            for batch in self._batches:
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  it is raised where the batches are used
            end = _End(error)
        self._put(end)

    def _put(self, item: Batch | _End) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False
