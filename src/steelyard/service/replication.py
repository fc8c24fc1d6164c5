"""Replication: a follower replays the events that the leader has written to the store."""

from __future__ import annotations

from steelyard.service.pool import recover_session
from steelyard.service.session import ModelSession
from steelyard.service.stores.sql import Store

__all__ = ["catch_up"]


def catch_up(store: Store, sessions: dict[str, ModelSession]) -> list[str]:
    """Bring models up to date with the store; return the names of the models that changed.

    New events are replayed. If events were deleted (a snapshot replaced them, or rows were forgotten), the
    model is recovered from its snapshot.
    """
    changed = []
    with store.read_snapshot():
        specs, versions = dict(store.models()), store.last_versions()
        for name in [name for name in sessions if name not in specs]:
            del sessions[name]
            changed.append(name)
        for name, spec in specs.items():
            session, version = sessions.get(name), versions.get(name, 0)
            if session is not None and session.engine.version == version:
                continue
            if session is None or not session.follow(version):
                sessions[name] = recover_session(store, name, spec)
            changed.append(name)
    return changed
