"""A model that is pooled from sites: it sees no row, it keeps the latest bulletin of every site.

The store holds each bulletin as one chunk, replaced when the site publishes anew; events and the snapshot
hold versions and who has left. What is in the chunks is what counts, so a recovery reads them and is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from steelyard.exceptions import DataError
from steelyard.federated import Hub, SiteUpdate
from steelyard.persistence.tree import decode, encode
from steelyard.service.commands import Conflict, Forget, NotFoundError
from steelyard.service.engine import Engine, Published
from steelyard.service.session import ModelSession
from steelyard.service.spec import Spec
from steelyard.service.store import Snapshot, Store
from steelyard.tables.encoding import TableEncoder

__all__ = ["Pool", "PooledModelSession", "PublishedPool", "StaleVersionError", "recovered", "session_for"]

_MAX_SITES = 10_000


class StaleVersionError(Conflict):
    """A bulletin that is older than what is known of its site."""

    def __init__(self, message: str, *, hint: str, age: tuple[int, int]) -> None:
        super().__init__(message, hint=hint)
        self.age = age


class PublishedPool(Published):
    """A finished pooled model, with the hub as it was then."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.hub = pool.hub.copy()


class Pool(Engine):
    """A model at work that is pooled from sites."""

    def __init__(self, name: str, spec: Spec) -> None:
        super().__init__(name, spec)
        self.hub = Hub(**self._learner.get_params(deep=False))

    def receive(self, site_update: SiteUpdate) -> int:
        """Take in a bulletin that is news; returns the new version."""
        if site_update.schema.target != self.spec.target:
            raise DataError(
                f"the bulletin is about the column {site_update.schema.target!r}; this model is about "
                f"{self.spec.target!r}; nothing was changed."
            )
        if site_update.site not in self.hub.sites and len(self.hub.sites) >= _MAX_SITES:
            raise Conflict(f"there are {_MAX_SITES:,} sites, as many as there can be.")
        self.hub.receive(site_update)
        return self._solved()

    def drop(self, site: str) -> int:
        """Leave a site out; returns the new version."""
        self.hub.drop(site)
        return self._solved()

    def configure(self, spec: Spec) -> int:
        """Solve with other parameters; returns the new version."""
        self.spec.check_change(spec)
        self.hub.configure(**spec.make_learner().get_params(deep=False))
        self.spec = spec
        return self._solved()

    def restore(
        self, site_updates: list[SiteUpdate], gone: Mapping[str, tuple[int, int]], version: int
    ) -> None:
        """Be what these bulletins make."""
        for site_update in site_updates:
            self.hub.receive(site_update)
        for site, age in gone.items():
            self.hub.ignore(site, age)
        self._solved()
        self.version = version

    def _solved(self) -> int:
        if self.hub.sites:
            model = self.hub.model()
            self._encoder, self._learner = model.encoder, model.learner
            self.n_rows = self.n_learned = int(self.hub.statistics.n_rows)
        else:
            self._encoder, self._learner = TableEncoder(), self.spec.make_learner()
            self.n_rows = self.n_learned = 0
        return self._next()

    def learn(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _no_rows(self.name)

    def forget(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _no_rows(self.name)

    def published(self) -> PublishedPool:
        """A copy that only answers."""
        return PublishedPool(self)

    def state(self) -> dict[str, Any]:
        """What bulletins do not say."""
        return {"version": self.version, "gone": {site: list(age) for site, age in self.hub.gone.items()}}


def _no_rows(name: str) -> Conflict:
    return Conflict(
        f"the model {name!r} is pooled from sites and sees no rows; nothing was changed.",
        hint="rows are learned and forgotten at their site, which then publishes anew",
    )


class PooledModelSession(ModelSession):
    """All that is done to one pooled model."""

    engine: Pool

    def __init__(self, store: Store, engine: Pool) -> None:
        super().__init__(store, engine)
        self._chunks: dict[str, int] = {}  # where the bulletin of each site lies

    @classmethod
    def recover(cls, store: Store, name: str, spec: str) -> PooledModelSession:
        """The model as it was when its last event was committed."""
        session = cls(store, Pool(name, Spec.from_mapping(json.loads(spec))))
        snapshot = store.last_snapshot(name)
        state: dict[str, Any] = {"version": 0, "gone": {}} if snapshot is None else decode(snapshot.body)
        version, gone = int(state["version"]), {site: tuple(age) for site, age in state["gone"].items()}
        for event in store.events_after(name, version):
            session.events_since_snapshot += 1
            version = event.version
            if event.kind == "drop":
                said: Any = decode(event.body)
                gone[said["site"]] = tuple(said["age"])
        site_updates = []
        for chunk, _, _ in store.chunks(name):
            site_updates.append(SiteUpdate.from_bytes(store.chunk(chunk)))
            session._chunks[site_updates[-1].site] = chunk
        session.engine.restore(site_updates, cast("dict[str, tuple[int, int]]", gone), version)
        return session

    def follow(self) -> bool:
        """Never by events: what counts is in the chunks, so it is read anew."""
        return False

    def receive(self, site_update: SiteUpdate, *, now: float) -> dict[str, Any]:
        """Take in a bulletin; one that is there already changes nothing, an older one is refused."""
        data, name = site_update.to_bytes(), self.engine.name
        known = self.engine.hub.age(site_update.site)
        news = known is None or site_update.age > known
        if news:
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
            "news": news,
            "rows": site_update.statistics.n_rows,
            "model_version": self.engine.version,
            "digest": self.engine.hub.digest(),
        }

    def _check_same(self, site_update: SiteUpdate, data: bytes, known: tuple[int, int]) -> None:
        chunk = self._chunks.get(site_update.site)
        if site_update.age == known and chunk is not None:
            if self.store.chunk(chunk) != data:
                raise Conflict(
                    f"site {site_update.site!r} has published another bulletin under epoch {known[0]}, version "
                    f"{known[1]}; nothing was changed.",
                    hint="a version names one bulletin: publish the next",
                )
            return
        left = "left with" if chunk is None else "has published"
        raise StaleVersionError(
            f"site {site_update.site!r} {left} epoch {known[0]}, version {known[1]}; a bulletin of epoch "
            f"{site_update.epoch}, version {site_update.version} is older; nothing was changed.",
            hint="a site that starts anew takes a larger epoch",
            age=known,
        )

    def drop(self, site: str, *, now: float) -> dict[str, Any]:
        """Leave a site out and erase its bulletin; the answer has the certificate."""
        engine = self.engine
        if site not in self._chunks:
            raise NotFoundError(f"there is no site {site!r}; nothing was changed.")
        before, age = self._account(), engine.hub.age(site)
        rows = int(engine.hub.site_update(site).statistics.n_rows)
        engine.drop(site)
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
            "after": self._account(),
        }
        self.store.add_certificate(engine.name, engine.version, now, json.dumps(certificate))
        return {"dropped": site, "model_version": engine.version, "certificate": certificate}

    def learn(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _no_rows(self.engine.name)

    def forget(self, request: Forget, *, now: float) -> NoReturn:  # noqa: ARG002  as for every desk
        """Refused."""
        raise _no_rows(self.engine.name)

    def snapshot(self, now: float, keep: int = 1) -> None:
        """Write down versions and who has left; the one before goes, and bulletins stay where they are."""
        engine = self.engine
        body = encode(engine.state())
        self.store.put_snapshot(
            engine.name, Snapshot(engine.version, now, engine.digest(), body), min(keep, 1)
        )
        self.store.drop_events(engine.name, engine.version)
        self.rows_since_snapshot = self.events_since_snapshot = 0


def session_for(store: Store, name: str, spec: Spec) -> ModelSession:
    """The desk of a new model."""
    return (
        PooledModelSession(store, Pool(name, spec)) if spec.sites else ModelSession(store, Engine(name, spec))
    )


def recovered(store: Store, name: str, spec: str) -> ModelSession:
    """The desk of a model that is in the store."""
    kind = PooledModelSession if Spec.from_mapping(json.loads(spec)).sites else ModelSession
    return kind.recover(store, name, spec)
