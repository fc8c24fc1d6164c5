"""VersionedValue another process: its events are replayed here, so that this one answers as that one does."""

from __future__ import annotations

from steelyard.service.pool import recovered
from steelyard.service.session import ModelSession
from steelyard.service.store import Store

__all__ = ["catch_up"]


def catch_up(store: Store, sessions: dict[str, ModelSession]) -> list[str]:
    """Bring models to what the store says now; returns the names of those that have changed.

    Events since the last look are replayed. Where they are gone, because a snapshot took their place or
    something was forgotten, the model is read anew.
    """
    changed = []
    with store.reading():
        known = dict(store.models())
        for name in [name for name in sessions if name not in known]:
            del sessions[name]
            changed.append(name)
        for name, spec in known.items():
            session = sessions.get(name)
            if session is not None and session.engine.version == store.last_version(name):
                continue
            if session is None or not session.follow():
                sessions[name] = recovered(store, name, spec)
            changed.append(name)
    return changed
