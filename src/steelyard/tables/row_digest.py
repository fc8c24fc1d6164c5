"""Digest (hash) of a set of rows, independent of their order."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._labels import encode_labels
from steelyard._validation import canonical_csr

_BITS_OF_ONE = np.float64(1.0).view(np.uint64)


class RowDigest:
    """Digest of a set of rows that does not depend on their order, the chunk size or the machine.

    >>> import numpy as np
    >>> X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "a"])
    >>> forward, backward = RowDigest(), RowDigest()
    >>> forward.add(X, y)
    >>> backward.add(X[::-1].copy(), y[::-1])
    >>> forward.id == backward.id
    True
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._sum = 0

    def add(
        self, X: Any, y: Any, sample_weight: Any = None, *, categories: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Add rows, of which the last features belong to ``categories``, as in ``TableEncoder.categories_``.

        These features are hashed by name, because their order depends on the order of the rows.
        """
        hashes = _row_hashes(X[:, : X.shape[1] - len(categories)] if categories else X)
        if categories:
            names = np.array([_label_hash(pair) for pair in categories], dtype=np.uint64)
            last = X[:, X.shape[1] - len(categories) :]
            rows, columns = np.nonzero(last)
            values = np.ascontiguousarray(last[rows, columns], dtype=np.float64).view(np.uint64)
            np.add.at(hashes, rows, _mix(names[columns] ^ values ^ _BITS_OF_ONE))
        labels, codes = encode_labels(np.asarray(y))
        hashes = hashes ^ np.array([_label_hash(label) for label in labels], dtype=np.uint64)[codes]
        if sample_weight is not None:
            hashes ^= np.asarray(sample_weight, dtype=np.float64).view(np.uint64)
        # Mixing before the addition makes the sum depend on which label belongs to which row.
        total = int(_mix(hashes).sum(dtype=np.uint64))
        self._sum = (self._sum + total) % 2**64
        self.n_rows += len(hashes)

    @property
    def id(self) -> str:
        """Digest of the rows: a 64-bit hash in hexadecimal, and the number of rows."""
        return f"{self._sum:016x}-{self.n_rows}"


def _row_hashes(X: Any) -> NDArray[np.uint64]:
    if sp.issparse(X):
        rows = canonical_csr(X)
        return _native.sparse_row_hashes(rows.data.astype(np.float64), rows.indices, rows.indptr)
    return _native.row_hashes(np.ascontiguousarray(X, dtype=np.float64))


def _label_hash(label: Any) -> int:
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # integer columns may be read as float
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")


def _mix(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of 64-bit hashes. The multiplication overflows on purpose."""
    shift, factor = np.uint64(32), np.uint64(0xD6E8FEB86659FD93)
    for _ in range(2):
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> shift)
