"""Second writer thread of a process, for models that take long to learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Adopt, Delete, Rename, Request, Response, Tick
from steelyard.service.stores.sql import Store
from steelyard.service.writer import Writer


class SlowWriter(Writer):
    """Second writer thread of a process. The first one forwards the requests for slow models to it."""

    def __init__(self, store: Store, first: Writer) -> None:
        self._first = first
        super().__init__(
            store,
            clock=first.clock,
            max_waiting=first.queue.max_requests,
            max_models=first.max_models,
            max_remembered=first.max_remembered,
            audit_days=first.audit_seconds / 86_400.0,
        )
        self.statistics, self.group_times = first.statistics, first.group_times
        self.published, self.listeners, self.slow_models = first.published, first.listeners, set()

    def _is_own(self, name: str) -> bool:
        return name in self._first.slow_models

    def _take_share(self) -> list[str]:
        names = [name for name in self._first.slow_models if not self.store.holds_lease(name)]
        taken = self.store.acquire_leases(names, len(names))
        for name in names:
            if not self.store.holds_lease(name):
                self._give_up(name)
        return taken

    def _give_up(self, name: str) -> None:
        """Stop using a model that another process has taken over."""
        self._first.slow_models.discard(name)
        self._first.published.pop(name, None)

    def continue_with(self, request: Adopt) -> Response:
        response = super().continue_with(request)
        if request.model not in self.sessions:
            self._give_up(request.model)
        return response

    def _rebalance(self) -> None:
        """Do nothing, because the first writer balances the models between processes."""

    def _balance(self, group: Sequence[Request]) -> None:
        """Hand back models that are no longer slow. Many models are slow only with their first rows."""
        queued = {request.model for request in self.queue.first(self.queue.max_requests)}
        for name in ({request.model for request in group} & self.sessions.keys()) - queued:
            if not self.group_times.is_slow(name, self._first.sessions, was_slow=True):
                self._hand_back(name)

    def process(self, requests: list[Request], *, seconds: float = math.inf) -> None:  # noqa: ARG002
        """Process requests with one transaction per kind and model, then write snapshots.

        A transaction locks a SQLite file from its first write on. Rows are learned before the first write, so
        the first writer waits for this thread only while rows are written.
        """
        for (kind, name), same in groupby(requests, key=lambda request: (type(request), request.model)):
            is_own = kind in {Tick, Adopt} or self._is_own(name)
            if is_own and kind not in {Delete, Rename}:
                super().process(list(same))
            else:
                self._pass_on(name, list(same))
        with self.store.transaction():
            super()._write_snapshots()

    def _pass_on(self, name: str, requests: Sequence[Request]) -> None:
        """Forward requests to the first writer; if this thread has the model, hand the model back first."""
        for request in requests:
            try:
                if self._is_own(name):
                    self._hand_back(name)
                self._first.submit(request)
            except SteelyardError as error:
                request.future.set_exception(error)

    def _hand_back(self, name: str) -> None:
        """Hand a model back to the first writer, which also renames and deletes models."""
        with self._first._move_lock:
            session = self.sessions.pop(name, None)
            self._first._handed_over = name
            self.store.release_leases([name])
            try:
                if session is not None:
                    self._first.queue.put(Adopt(name, session))  # queued before the forwarded requests
            except SteelyardError:
                self._first._handed_over = None
                raise  # the queue is full, and the next request loads the model again
            self._first.slow_models.discard(name)

    def _background_work(self) -> Callable[[], None] | None:
        """Return None, because this thread does not learn rows of later requests during a commit.

        A group has several transactions here, and they must not contain rows of later requests.
        """
        return None

    def _write_snapshots(self) -> None:
        """Do nothing, because :meth:`process` writes snapshots in a transaction of their own."""

    def _set_problem(self, reason: str | None) -> None:
        super()._set_problem(reason)
        self._first.problem = reason
