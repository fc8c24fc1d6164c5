"""Speculative learning: rows of the next requests are learned while a group of requests is being committed.

Without it, Arrow batches reach about 70 % of the throughput (``bench_service.py --only learn``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Learn, Request
from steelyard.service.published import PublishedModel
from steelyard.service.session import LearnedRows, ModelSession

if TYPE_CHECKING:
    from steelyard.service.writer import Writer

_log = logging.getLogger("steelyard.service")
# If the number of rows and their expected learning time are both below these limits, a thread for the commit
# costs more than it gains. A group of 64 single rows takes about 1 ms.
_MIN_ROWS = 200
_MIN_SECONDS = 0.003


class Speculation:
    """At most one batch of requests whose rows are learned but not written yet.

    The batch is the next group of the writer: it is written, published and answered like any other group.
    Until then, :meth:`committed_model` returns the model without the rows of the batch. If the preceding
    commit or learning fails, the writer recovers its models and calls :meth:`invalidate`. The rows are then
    learned again.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.is_enabled = True
        self.requests: list[Learn] = []
        self.learned: LearnedRows | None = None  # None if the rows are learned when the batch is processed
        self._committed: PublishedModel | None = None

    def prepare(self, max_requests: int) -> Callable[[], None] | None:
        """Move learn requests of one model from the queue to the batch if learning them takes long.

        Return the function that learns them, or None. The requests are of the model of the first request, and
        before any request of another kind or with an idempotency key.
        """
        if self.requests or not self.is_enabled:
            return None
        writer, found = self._writer, list[Learn]()
        for request in writer.queue.first(max_requests):
            if not isinstance(request, Learn) or request.key is not None:
                break
            if not found or request.model == found[0].model:
                found.append(request)
        session = writer.sessions.get(found[0].model) if found else None
        # Rows with ids cannot be learned ahead, because the store is needed to recognize known ids.
        if session is None or not session.can_learn_together or session.engine.spec.id is not None:
            return None
        expected_seconds = writer.group_times.typical(found[0].model) or 0.0
        if sum(one.batch.n_rows for one in found) < _MIN_ROWS and expected_seconds < _MIN_SECONDS:
            return None
        writer.queue.remove(found)
        self.requests = [request for request in found if request.future.set_running()]
        return (lambda: self._learn(session)) if self.requests else None

    def _learn(self, session: ModelSession) -> None:
        try:
            self._committed = session.engine.published()
            begin = time.thread_time()
            batch = session.concatenated([request.batch for request in self.requests])
            learned = session.learn_in_memory(batch, now=self._writer.clock())
            self.learned = learned._replace(seconds=time.thread_time() - begin)
        except SteelyardError:
            pass  # a request has bad rows; it is found later, when requests are processed one by one
        except Exception as error:  # noqa: BLE001  the commit that is in progress must not fail
            self._writer.needs_recovery = True
            _log.error("rows could not be learned ahead of the commit: %s", type(error).__name__)

    def take(self, requests: list[Request]) -> LearnedRows | None:
        """End the batch if it consists of ``requests``; return its learned rows, or None."""
        if not requests or self.requests[0] is not requests[0]:
            return None
        learned, self.requests = self.learned, []
        self.invalidate()
        return learned

    def committed_model(self, name: str) -> PublishedModel | None:
        """Return the model without the rows of the batch, or None if there are no uncommitted rows."""
        return self._committed if self.requests and self.requests[0].model == name else None

    def invalidate(self) -> None:
        """Discard the learned state after the models were recovered, but keep the requests."""
        self.learned = self._committed = None

    def reject(self, error: Callable[[], Exception]) -> bool:
        """Fail the requests of the batch; return whether there was a batch."""
        requests, self.requests = self.requests, []
        self.invalidate()
        for request in requests:
            request.future.finish(error())
        return bool(requests)
