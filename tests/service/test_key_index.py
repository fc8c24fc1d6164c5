"""Index of idempotency keys: every key is found after many groups of keys were added and deleted."""

from __future__ import annotations

from steelyard.service.stores.sql import _MAX_DELETED, KeyIndex, key_hashes


def test_key_index_finds_every_key_except_those_of_deleted_groups():
    index, groups = (
        KeyIndex(),
        {number: [f"{number}-{k}" for k in range(number % 5 + 1)] for number in range(400)},
    )
    index.add((number, key_hashes(keys)) for number, keys in list(groups.items())[:100])
    for number, keys in list(groups.items())[100:]:
        index.add([(number, key_hashes(keys))])
    assert all(index.groups_of(key_hashes(keys)) == [number] for number, keys in groups.items())
    index.delete(range(50))
    index.delete(range(1_000, 1_001 + _MAX_DELETED))  # removes deleted groups from the arrays
    found = [index.groups_of(key_hashes(keys)) for keys in groups.values()]
    assert found == [[] if number < 50 else [number] for number in groups]
    assert index.groups_of(key_hashes(["unknown"])) == []
    assert KeyIndex().groups_of(key_hashes(["unknown"])) == []
