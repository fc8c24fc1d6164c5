"""Federated models in the service. They learn no rows and combine the latest updates of all sites.

Each site update is one chunk of the store, which the next update of the site replaces.
"""

from __future__ import annotations

import json
from typing import Any

from steelyard.exceptions import DataError
from steelyard.federated import Hub, SiteUpdate
from steelyard.persistence.tree import decode, encode
from steelyard.service.engine import Engine
from steelyard.service.errors import Conflict, NotFoundError, StaleVersionError
from steelyard.service.session import ModelSession
from steelyard.service.spec import Spec
from steelyard.service.stored_rows import unpack_event
from steelyard.service.stores import Snapshot
from steelyard.service.stores.sql import Store
from steelyard.tables.encoding import TableEncoder

_MAX_SITES = 10_000


class PooledEngine(Engine):
    """Engine of a federated model."""

    hub: Hub

    def __init__(self, name: str, spec: Spec) -> None:
        super().__init__(name, spec)
        self.hub = Hub(**self.learner.get_params(deep=False))

    def receive(self, site_update: SiteUpdate) -> int:
        """Apply a new site update; return the new version."""
        if site_update.schema.target != self.spec.target:
            raise DataError(
                f"the target of the site update is {site_update.schema.target!r}, but this model has the "
                f"target {self.spec.target!r}; nothing was changed."
            )
        if site_update.site not in self.hub.sites and len(self.hub.sites) >= _MAX_SITES:
            raise Conflict(f"there are {_MAX_SITES:,} sites already, which is the maximum.")
        self.hub.receive(site_update)
        return self.solve()

    def configure(self, spec: Spec) -> int:
        """Change parameters of the learner; return the new version."""
        self.spec.check_change(spec)
        self.hub.configure(**spec.make_learner().get_params(deep=False))
        self.spec = spec
        return self.solve()

    def solve(self) -> int:
        """Compute the model from the updates of the hub; return the new version."""
        if self.hub.sites:
            model = self.hub.model()
            self.encoder, self.learner = model.encoder, model.estimator
            self.n_rows = self.n_learned = int(self.hub.statistics.n_rows)
        else:
            self.encoder, self.learner = TableEncoder(), self.spec.make_learner()
            self.n_rows = self.n_learned = 0
        return self._next()

    def state(self) -> dict[str, Any]:
        """Return the state without the site updates."""
        return {"version": self.version, "gone": {site: list(age) for site, age in self.hub.gone.items()}}


class PooledSession(ModelSession):
    """Federated model and its data in the store."""

    engine: PooledEngine

    def __init__(self, store: Store, engine: PooledEngine) -> None:
        super().__init__(store, engine)
        self._chunks: dict[str, int] = {}  # chunk number of the update of each site

    @classmethod
    def recover(cls, store: Store, name: str, spec: str) -> PooledSession:
        """Restore a model from its site updates, its snapshot and the events after the snapshot."""
        session = cls(store, PooledEngine(name, Spec.from_store(json.loads(spec))))
        snapshot = store.snapshot(name, committed=False)
        state: dict[str, Any] = {"version": 0, "gone": {}} if snapshot is None else decode(snapshot.body)
        version, gone = int(state["version"]), dict(state["gone"])
        for event in store.events_after(name, version):
            session.events_since_snapshot += 1
            version = event.version
            if event.kind == "drop":
                body = unpack_event(event.body)
                gone[body["site"]] = body["age"]
        engine = session.engine
        for chunk, _, _ in store.chunks(name):
            site_update = SiteUpdate.from_bytes(store.chunk(chunk))
            session._chunks[site_update.site] = chunk
            engine.hub.receive(site_update)
        for site, age in gone.items():
            engine.hub.ignore(site, (age[0], age[1]))
        engine.solve()
        engine.version = version
        return session

    def follow(self, version: int) -> bool:  # noqa: ARG002  the interface of ModelSession
        """Return False: events cannot be replayed, because they do not contain the site updates."""
        return False

    def receive(self, site_update: SiteUpdate, *, now: float) -> dict[str, Any]:
        """Apply a site update. A repeated update changes nothing. An older one raises StaleVersionError."""
        data, name = site_update.to_bytes(), self.engine.name
        known = self.engine.hub.age(site_update.site)
        is_new = known is None or site_update.age > known
        if is_new:
            self.engine.receive(site_update)
            n_rows = int(site_update.statistics.n_rows)
            if site_update.site in self._chunks:
                self.store.replace_chunk(self._chunks[site_update.site], n_rows, data)
            else:
                self._chunks[site_update.site] = self.store.add_chunk(name, n_rows, data)
            self._append("bulletin", {"site": site_update.site, "age": list(site_update.age)}, now)
        else:
            assert known is not None
            self._check_same(site_update, data, known)
        return {
            "site": site_update.site,
            "epoch": site_update.epoch,
            "version": site_update.version,
            "news": is_new,
            "rows": site_update.statistics.n_rows,
            "model_version": self.engine.version,
            "digest": self.engine.hub.digest(),
        }

    def _check_same(self, site_update: SiteUpdate, data: bytes, known: tuple[int, int]) -> None:
        chunk = self._chunks.get(site_update.site)
        if site_update.age == known and chunk is not None:
            if self.store.chunk(chunk) != data:
                raise Conflict(
                    f"site {site_update.site!r} has published another update as epoch {known[0]}, version "
                    f"{known[1]}; nothing was changed.",
                    hint="increase the version for each update",
                )
            return
        left = "left with" if chunk is None else "has published"
        raise StaleVersionError(
            f"site {site_update.site!r} {left} epoch {known[0]}, version {known[1]}; an update of epoch "
            f"{site_update.epoch}, version {site_update.version} is older; nothing was changed.",
            hint="a site that restarts from an empty model uses a larger epoch",
            age=known,
        )

    def drop(self, site: str, *, now: float) -> dict[str, Any]:
        """Remove a site and erase its update. The response contains a certificate."""
        engine = self.engine
        if site not in self._chunks:
            raise NotFoundError(f"there is no site {site!r}; nothing was changed.")
        before, age = self.statement(), engine.hub.age(site)
        rows = int(engine.hub.site_update(site).statistics.n_rows)
        engine.hub.drop(site)
        engine.solve()
        self.store.drop_chunks([self._chunks.pop(site)])
        self._append("drop", {"site": site, "age": list(age or ())}, now)
        self.snapshot(now)
        certificate = {
            "model": engine.name,
            "by": "site",
            "site": site,
            "forgotten": rows,
            "at": now,
            "version": engine.version,
            "before": before,
            "after": self.statement(),
        }
        self.store.add_certificate(engine.name, engine.version, now, json.dumps(certificate))
        return {"dropped": site, "model_version": engine.version, "certificate": certificate}

    def snapshot(self, now: float, keep: int = 1, encoded: Snapshot | None = None) -> None:  # noqa: ARG002
        """Write a snapshot of the version and the dropped sites. Site updates stay in their chunks."""
        engine = self.engine
        body = encode(engine.state())
        self.store.put_snapshot(engine.name, Snapshot(engine.version, now, engine.digest(), body), 1)
        self.store.drop_events(engine.name, engine.version)
        self.rows_since_snapshot = self.events_since_snapshot = 0


def new_session(store: Store, name: str, spec: Spec) -> ModelSession:
    """Return the session of a new model."""
    if spec.sites:
        return PooledSession(store, PooledEngine(name, spec))
    return ModelSession(store, Engine(name, spec))


def recover_session(store: Store, name: str, spec: str) -> ModelSession:
    """Restore the session of a model from the store."""
    kind = PooledSession if Spec.from_store(json.loads(spec)).sites else ModelSession
    return kind.recover(store, name, spec)
