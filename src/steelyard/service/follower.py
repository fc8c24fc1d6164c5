"""Following another process: its events are replayed here, so that this one answers as that one does."""

from __future__ import annotations

from steelyard.service.desk import Desk
from steelyard.service.pool import recovered
from steelyard.service.store import Store

__all__ = ["catch_up"]


def catch_up(store: Store, desks: dict[str, Desk]) -> list[str]:
    """Bring models to what the store says now; returns the names of those that have changed.

    Events since the last look are replayed. Where they are gone, because a snapshot took their place or
    something was forgotten, the model is read anew.
    """
    changed = []
    with store.reading():
        known = dict(store.models())
        for name in [name for name in desks if name not in known]:
            del desks[name]
            changed.append(name)
        for name, spec in known.items():
            desk = desks.get(name)
            if desk is not None and desk.engine.version == store.last_version(name):
                continue
            if desk is None or not desk.follow():
                desks[name] = recovered(store, name, spec)
            changed.append(name)
    return changed
