"""Speculative learning: rows of the next requests are learned while a group of requests is being committed.

Without speculative learning, Arrow batches reach about 70 % of the throughput
(``benchmarks/speed/bench_service.py --only learn``), because learning and the disk sync alternate instead of
overlapping.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Learn, Request
from steelyard.service.published import PublishedModel
from steelyard.service.queue import GroupTimes, RequestQueue
from steelyard.service.session import LearnedRows, ModelSession

_log = logging.getLogger("steelyard.service")
# If the number of rows and their expected learning time are both below these limits, a thread for the commit
# costs more than it gains. A group of 64 single rows takes about 1 ms.
_MIN_ROWS = 200
_MIN_SECONDS = 0.003


@dataclass
class SpeculativeBatch:
    """Requests that will be the next group of the writer, with their learned rows."""

    requests: list[Request]
    committed: PublishedModel | None = None  # the model without the rows of this batch
    learned: LearnedRows | None = None  # None if the rows are learned later, when the requests are processed


class Speculation:
    """At most one batch of requests whose rows are learned but not written yet.

    The batch is written, published and answered like any other group of requests. Until then,
    :meth:`committed_model` returns the model without the rows of the batch. If the preceding commit fails,
    the writer recovers its models and calls :meth:`invalidate`. The rows are then learned again.
    """

    def __init__(
        self,
        queue: RequestQueue,
        clock: Callable[[], float],
        group_times: GroupTimes,
        max_requests: int,
    ) -> None:
        self._queue, self._clock, self._max_requests = queue, clock, max_requests
        self._group_times = group_times
        self.batch: SpeculativeBatch | None = None
        self.has_failed = False  # whether an error left the model of the batch in an unknown state

    def prepare(self, sessions: Mapping[str, ModelSession]) -> Callable[[], None] | None:
        """Take requests that take long from the queue; return the function that learns them, or None."""
        if self.batch is not None:
            return None
        requests = self._take(sessions)
        if not requests:
            return None
        self.batch = SpeculativeBatch(list(requests))
        return partial(self._learn, self.batch, requests, sessions[requests[0].model])

    def _take(self, sessions: Mapping[str, ModelSession]) -> list[Learn]:
        """Take the learn requests of the first model that precede the first request of another kind."""
        queued = self._queue.first(self._max_requests)
        requests: list[Learn] = []
        for request in queued:
            if not isinstance(request, Learn) or request.key is not None:
                break
            if request.model == queued[0].model:
                requests.append(request)
        session = sessions.get(requests[0].model) if requests else None
        if session is None or not session.can_learn_ahead:
            return []
        expected_seconds = self._group_times.typical(requests[0].model) or 0.0
        n_rows = sum(request.batch.n_rows for request in requests)
        if n_rows < _MIN_ROWS and expected_seconds < _MIN_SECONDS:
            return []
        self._queue.remove(requests)
        return [request for request in requests if request.future.set_running()]

    def _learn(self, batch: SpeculativeBatch, requests: list[Learn], session: ModelSession) -> None:
        try:
            batch.committed = session.engine.published()
            begin = time.thread_time()
            learned = session.learn_in_memory(
                session.concatenated([request.batch for request in requests]), now=self._clock()
            )
            batch.learned = learned._replace(seconds=time.thread_time() - begin)
        except SteelyardError:
            pass  # a request has bad rows; it is found later, when requests are processed one by one
        except Exception as error:  # noqa: BLE001  the commit that is in progress must not fail
            self.has_failed = True
            _log.error("rows could not be learned ahead of the commit: %s", type(error).__name__)

    def take(self, requests: list[Request]) -> LearnedRows | None:
        """End the batch if it consists of ``requests``; return its learned rows, or None."""
        batch = self.batch
        if batch is None or not requests or batch.requests[0] is not requests[0]:
            return None
        self.batch = None
        return batch.learned

    def committed_model(self, name: str) -> PublishedModel | None:
        """Return the model without the rows of the batch, or None if there are no uncommitted rows."""
        batch = self.batch
        return batch.committed if batch is not None and batch.requests[0].model == name else None

    def invalidate(self) -> None:
        """Discard the learned state after the models were recovered, but keep the requests."""
        self.has_failed = False
        if self.batch is not None:
            self.batch = SpeculativeBatch(self.batch.requests)

    def reject(self, error: Callable[[], Exception]) -> bool:
        """Fail the requests of the batch; return whether there was a batch."""
        batch, self.batch = self.batch, None
        for request in [] if batch is None else batch.requests:
            request.future.set_exception(error())
        return batch is not None
