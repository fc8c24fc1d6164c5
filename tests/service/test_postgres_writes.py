"""Statements of PostgreSQL transactions that are sent together, and numbers of chunks."""

from __future__ import annotations

import pytest

from steelyard.service import open_store
from steelyard.service.stores import Event


@pytest.fixture
def stores(cluster):
    """Yield two stores of one empty database, for two learner processes."""
    url = cluster.empty()
    stores = [open_store(url) for _ in range(2)]
    for store in stores:
        assert store.acquire_write_lock()
    yield stores
    for store in stores:
        store.close()


def test_unsent_inserts_are_visible_in_their_transaction_and_discarded_after_an_error(stores):
    store, other = stores
    with pytest.raises(RuntimeError), store.transaction():  # noqa: PT012  statements before the error
        chunk = store.add_chunk("m", 1, b"rows")
        assert store.chunk(chunk) == b"rows"
        store.append("m", Event(1, 0.0, "learn", b""))
        raise RuntimeError
    assert other.chunks("m") == []
    with store.transaction():
        store.append("m", Event(1, 0.0, "learn", b""))
    assert [event.version for event in other.events_after("m", 0)] == [1]


def test_failed_insert_fails_the_commit_of_its_transaction(stores):
    store, other = stores
    with pytest.raises(store.errors), store.transaction():  # noqa: PT012  the commit raises
        store.append("m", Event(1, 0.0, "learn", b""))
        store.append("m", Event(1, 0.0, "learn", b""))  # the same version
    assert list(other.events_after("m", 0)) == []
    with store.transaction():
        store.append("m", Event(1, 0.0, "learn", b""))
    assert [event.version for event in other.events_after("m", 0)] == [1]


def test_chunk_numbers_of_a_model_ascend_when_processes_take_turns(stores):
    numbers = []
    for turn in range(6):
        store = stores[turn % 2]
        assert store.acquire_leases(["m"], 1) == ["m"]
        with store.transaction():
            numbers += [store.add_chunk("m", 1, b"rows") for _ in range(3)]
        store.release_leases(["m"])
    assert numbers == sorted(numbers)
    assert [chunk for chunk, _, _ in stores[0].chunks("m")] == numbers
