"""In-memory index of idempotency keys: finds the records of stored responses that may contain a key.

A record, here called a group, contains the responses to requests that were committed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MAX_DELETED = 10_000  # maximum number of deleted groups before the arrays are cleaned up
Hashes = NDArray[np.uint64]


def key_hashes(keys: Iterable[str]) -> bytes:
    """Return the 64-bit hashes of keys, 8 bytes each."""
    return b"".join(hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys)


class KeyIndex:
    """Hashes of the keys of a model and the groups that contain them, 16 bytes per key.

    Keys are random. In a database index, each new key would change a different page, and a group of 64
    requests would write a megabyte. This index keeps keys in sorted arrays. An array is merged with the
    preceding one when both have about the same length, so there are few arrays, and each key is merged only a
    few times. Because different keys can have the same hash, a group that the index returns need not contain
    the key.
    """

    def __init__(self) -> None:
        self._arrays: list[tuple[Hashes, NDArray[np.int64]]] = []  # sorted hashes, and the group of each hash
        self._deleted: set[int] = set()  # deleted groups that are still in the arrays

    def add(self, groups: Iterable[tuple[int, bytes]]) -> None:
        """Add groups, each with the hashes of its keys."""
        numbers: list[int] = []
        hashes = []
        for number, part in groups:
            hashes.append(part)
            numbers += [number] * (len(part) // 8)
        added = np.frombuffer(b"".join(hashes), dtype="<u8")
        self._arrays.append(_sorted(added, np.array(numbers, dtype=np.int64)))
        while len(self._arrays) > 1 and len(self._arrays[-2][0]) <= 2 * len(self._arrays[-1][0]):
            self._arrays[-2:] = [_merged(self._arrays[-2:])]

    def delete(self, groups: Iterable[int]) -> None:
        """Remove groups."""
        self._deleted.update(groups)
        if len(self._deleted) > _MAX_DELETED:
            hashes, numbers = _merged(self._arrays)
            keep = ~np.isin(numbers, list(self._deleted))
            self._arrays, self._deleted = [(hashes[keep], numbers[keep])], set()

    def groups_of(self, hashes: bytes) -> list[int]:
        """Return the groups that may contain one of the keys with the given hashes."""
        wanted = np.frombuffer(hashes, dtype="<u8")
        found: set[int] = set()
        for known, groups in self._arrays:
            begins, ends = known.searchsorted(wanted, "left"), known.searchsorted(wanted, "right")
            for k in np.flatnonzero(begins < ends).tolist():
                found.update(groups[begins[k] : ends[k]].tolist())
        return sorted(found - self._deleted)


def _merged(arrays: Iterable[tuple[Hashes, NDArray[np.int64]]]) -> tuple[Hashes, NDArray[np.int64]]:
    hashes, groups = zip(*arrays, strict=True)
    return _sorted(np.concatenate(hashes), np.concatenate(groups))


def _sorted(hashes: Hashes, groups: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64]]:
    order = np.argsort(hashes, kind="stable")  # linear time if the array consists of two sorted parts
    return hashes[order], groups[order]
