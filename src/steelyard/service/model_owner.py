"""Models of one writer thread: loading, leases, following, publishing and recovery."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable
from functools import partial

from steelyard.exceptions import SteelyardError
from steelyard.service.errors import NotFoundError, Unavailable, follower_error
from steelyard.service.pool import recover_session
from steelyard.service.published import PublishedModel
from steelyard.service.session import ModelSession
from steelyard.service.stores.sql import Store

_log = logging.getLogger("steelyard.service")
POLL_SECONDS = 1.0  # interval at which a follower reads the store and a leader confirms its write lock
_YIELD_SECONDS = 5e-5


class ModelOwner:
    """The models of one writer thread, as sessions, and their published copies."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store, self.clock = store, clock
        self.published: dict[str, PublishedModel] = {}
        self.listeners: list[Callable[[str], None]] = []  # called with the name of a changed model
        self.slow_models: set[str] = set()  # models of the second writer thread
        self.owners: dict[str, str] = {}  # models of other processes, with the address of the process
        self.damaged: dict[str, str] = {}  # models that cannot be loaded, with the reason
        self.sessions: dict[str, ModelSession] = {}
        self._moving: str | None = None  # model that is being handed to the other writer thread
        self._next_balance = time.monotonic() + POLL_SECONDS

    # -- loading ------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Load all models from the store."""
        is_learner = self.store.holds_write_lock
        if is_learner:
            self._take_share()
        with self.store.read_snapshot():
            specs = self.store.models()
            self.sessions, self.damaged = {}, {}
            for name, spec in specs:
                if self._is_own(name) and (not is_learner or self.store.holds_lease(name)):
                    self._recover_model(name, spec)
        for name in [name for name in self.published if self._is_own(name) and name not in self.sessions]:
            del self.published[name]
        for name, session in self.sessions.items():
            self.published[name] = session.engine.published()

    def _is_own(self, name: str) -> bool:
        """Whether the model belongs to this thread and not to another writer thread of this process."""
        return name not in self.slow_models

    def _recover_model(self, name: str, spec: str) -> None:
        """Load a model. If its data is damaged, set the model aside, so that other models can be served."""
        try:
            session = recover_session(self.store, name, spec)
        except self.store.errors:
            raise  # the store is not available
        except Exception as error:  # noqa: BLE001  decoding damaged data can raise any error
            self.set_aside(name, error)
            return
        self.add_session(name, session)

    def add_session(self, name: str, session: ModelSession) -> None:
        """Add a model to this thread."""
        session.engine.yield_to_readers = partial(self._yield_to_readers, name)
        self.sessions[name] = session

    def _yield_to_readers(self, name: str) -> None:
        """Release the CPU core for a moment if the model is serving predictions.

        Native code releases the GIL but keeps its core. If the event loop is woken on the same core, it waits
        until the whole request is learned, even if another core is idle.
        """
        published = self.published.get(name)
        if published is not None and published.is_serving:
            time.sleep(_YIELD_SECONDS)

    def session_of(self, name: str) -> ModelSession:
        """Return the session of a model, loading it if necessary; raise NotFoundError if there is none."""
        session = self.sessions.get(name) or self.adopt(name)
        self.check_not_damaged(name)
        if session is None:
            raise NotFoundError(f"there is no model {name!r}.", hint="PUT /v1/models/NAME creates one")
        return session

    def adopt(self, name: str) -> ModelSession | None:
        """Take over a model that no process learns at the moment; return None if it does not exist."""
        self.check_not_damaged(name)
        spec = self.store.spec_of(name)
        if spec is None:
            return None
        self.need_lease(name)
        self._recover_model(name, spec)
        return self.sessions.get(name)

    def _catch_up(self) -> list[str]:
        """Replay the events that another process has written; return the names of the models that changed.

        If events were deleted (a snapshot replaced them, or rows were forgotten), the model is recovered from
        its snapshot.
        """
        changed = []
        with self.store.read_snapshot():
            specs, versions = dict(self.store.models()), self.store.last_versions()
            for name in [name for name in self.sessions if name not in specs]:
                del self.sessions[name]
                changed.append(name)
            for name, spec in specs.items():
                session, version = self.sessions.get(name), versions.get(name, 0)
                if session is not None and session.engine.version == version:
                    continue
                if session is None or not session.follow(version):
                    self.sessions[name] = recover_session(self.store, name, spec)
                changed.append(name)
        return changed

    # -- leases of several learner processes --------------------------------------------------------

    def need_lease(self, name: str) -> None:
        """Acquire the lease of a model; raise Unavailable if another process has it."""
        if not self.store.holds_lease(name) and not self.store.acquire_leases([name], 1):
            raise follower_error()

    def _take_share(self) -> list[str]:
        """Acquire leases of models that no process learns, up to an equal share; return their names."""
        names = [name for name, _ in self.store.models()]
        learners = self.store.learners(names)
        if learners is None:
            return []
        self.owners = {name: url for name, url in learners.owners.items() if url != self.store.address}
        share = math.ceil(len(names) / max(1, len(learners.n_leases)))
        n_held = learners.n_leases.get(self.store.address, 0)
        free = [name for name in names if name not in learners.owners and self._is_own(name)]
        return self.store.acquire_leases(free, max(0, share - n_held))

    def can_answer(self, name: str, *, changes: bool) -> bool:
        """Return whether this process has the model and, if the request changes it, holds its lease."""
        return name in self.damaged or (
            name in self.published
            and (
                not changes
                or name in self.slow_models
                or name == self._moving
                or self.store.holds_lease(name)
            )
        )

    # -- damaged models -----------------------------------------------------------------------------

    def set_aside(self, name: str, error: Exception) -> None:
        """Stop using a model whose stored data is damaged."""
        reason = error.summary if isinstance(error, SteelyardError) else location(error)
        _log.error("the model %r is set aside: %s (steelyard serve --check --repair)", name, reason)
        self.damaged[name] = reason
        self.sessions.pop(name, None)
        self.published.pop(name, None)

    def check_not_damaged(self, name: str) -> None:
        """Raise Unavailable if the stored data of a model is damaged."""
        if name in self.damaged:
            raise Unavailable(
                f"the stored data of the model {name!r} are damaged; nothing was changed.",
                hint="steelyard serve --check names the damage, --check --repair rebuilds the model",
            )

    def repair(self, name: str) -> dict[str, int]:
        """Rebuild a damaged model from its readable rows; return the numbers of kept and lost rows."""
        with self.store.transaction():
            found = ModelSession.repair(self.store, name, dict(self.store.models())[name], self.clock())
        self.store.erase()
        self.recover()
        return found


def location(error: Exception) -> str:
    """Return the type and the source location of an error. Its message may contain values of rows."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{last}"
