"""Mutations of files and messages: changes of values, text and bytes."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

import numpy as np

from steelyard.persistence.envelope import ALIGNMENT, PRELUDE_SIZE, _digest

__all__ = ["ODD_VALUES", "changed_json", "changed_tree", "flip_bits", "resealed", "with_odd_header"]

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 0.0, -0.0, 0.5, -1.5,
    1e308, 5e-324, float("nan"), float("inf"), float("-inf"), "", "a", "y", "auto", "0", "1e999", "NaN",
    "\0", "\ud800", "é" * 3, "\x1b]0;x\x07", "<script>", "x" * 2000, "2026-01-31T12:30:00Z", "30d", [], [[]],
    [0, 1], ["a", "a"], {}, {"a": 1}, {"class": "os"}, {"": None},
]  # fmt: skip


def changed_tree(tree: Any, rng: np.random.Generator) -> Any:
    """Return the tree with one value replaced, removed, duplicated, moved or renamed."""
    tree = copy.deepcopy(tree)
    places = list(_places(tree))
    if not places:
        return _odd(rng)
    parent, key = places[rng.integers(len(places))]
    how = int(rng.integers(8))
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, list):
        parent.insert(int(key), copy.deepcopy(parent[key]))
    elif how == 1:
        parent[f"{key}{_odd_text(rng)}"] = parent.pop(key)
    elif how == 2:
        other, there = places[rng.integers(len(places))]
        parent[key] = copy.deepcopy(other[there])
    elif how == 3:
        parent[key] = [parent[key]]
    elif how == 4 and isinstance(parent[key], int | float):
        parent[key] = parent[key] * (-1) ** int(rng.integers(2)) + int(rng.integers(-2, 3))
    elif how == 4 and isinstance(parent[key], str):
        place = int(rng.integers(len(parent[key]) + 1))
        parent[key] = parent[key][:place] + _odd_text(rng) + parent[key][place:]
    else:
        parent[key] = _odd(rng)
    return tree


def _places(tree: Any) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _odd(rng: np.random.Generator) -> Any:
    return copy.deepcopy(ODD_VALUES[rng.integers(len(ODD_VALUES))])


def _odd_text(rng: np.random.Generator) -> str:
    return ("", "x", "\0", "\n", '"', "'", "\ud800", ".", "%", "9" * 5)[rng.integers(10)]


def changed_json(text: bytes, rng: np.random.Generator) -> bytes:
    """Return JSON with a few mutations of its values or of its text."""
    if rng.random() < 0.75:
        tree = json.loads(text)
        for _ in range(rng.integers(1, 4)):
            tree = changed_tree(tree, rng)
        return json.dumps(tree).encode()
    changed = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        flip_bits(changed, rng, 0)
    if rng.random() < 0.3:
        del changed[int(rng.integers(len(changed))) :]
    return bytes(changed)


def flip_bits(data: bytearray, rng: np.random.Generator, first: int = PRELUDE_SIZE) -> None:
    """Flip some bits after the first ``first`` bytes."""
    if len(data) > first:
        for place in rng.integers(first, len(data), size=rng.integers(1, 5)):
            data[place] ^= 1 << int(rng.integers(8))


def with_odd_header(data: bytearray, rng: np.random.Generator) -> None:
    """Apply one or two mutations to the header of a file."""
    (n_header,) = struct.unpack_from("<Q", data, 12)
    try:
        tree = json.loads(data[PRELUDE_SIZE : PRELUDE_SIZE + n_header])
    except ValueError:  # an earlier mutation made the header invalid
        return
    for _ in range(rng.integers(1, 3)):
        if rng.random() < 0.1 or not isinstance(tree, dict) or "content" not in tree:
            tree = changed_tree(tree, rng)
        else:
            tree = {**tree, "content": changed_tree(tree["content"], rng)}
    text = json.dumps(tree, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    data[PRELUDE_SIZE : PRELUDE_SIZE + n_header] = text
    struct.pack_into("<Q", data, 12, len(text))


def resealed(data: bytearray) -> bytes:
    """Return a file with a valid length and checksum."""
    if len(data) < PRELUDE_SIZE:
        return bytes(data)
    struct.pack_into("<Q", data, 20, len(data))
    data[28:PRELUDE_SIZE] = _digest([bytes(data[:28]), bytes(data[PRELUDE_SIZE:])])
    return bytes(data)
