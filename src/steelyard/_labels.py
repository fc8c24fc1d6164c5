"""Labels: told apart, numbered and sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PLAIN_LABELS", "Label", "encode_labels", "is_plain_labels", "sorted_classes"]

Label = Any  # str, int, float or bool: whatever the user's labels are

# Kinds of numpy types whose values are labels whatever they are: integers, booleans and strings.
PLAIN_LABELS = "iubU"


def is_plain_labels(y: Any, n_rows: int) -> bool:
    return type(y) is np.ndarray and y.ndim == 1 and y.shape[0] == n_rows and y.dtype.kind in PLAIN_LABELS


def encode_labels(y: NDArray[Any]) -> tuple[list[Label], NDArray[np.int32]]:
    """Distinct labels, sorted, and for each row the position of its label among them.

    >>> labels, codes = encode_labels(np.array(["ok", "fraud", "ok"]))
    >>> labels
    ['fraud', 'ok']
    >>> codes
    array([1, 0, 1], dtype=int32)
    """
    if len(y) == 1:
        return y.tolist(), np.zeros(1, dtype=np.int32)
    if y.dtype.kind in "iub":
        low, high = int(y.min()), int(y.max())
        if high - low < 10_000:  # a table of the few labels beats sorting many rows
            present = np.zeros(high - low + 1, dtype=np.int32)
            positions = y.astype(np.int64) - low
            present[positions] = 1
            ranks = np.cumsum(present, dtype=np.int32) - 1
            labels = (np.flatnonzero(present) + low).astype(y.dtype).tolist()
            return labels, ranks[positions]
    distinct, codes = np.unique(y, return_inverse=True)
    return distinct.tolist(), codes.astype(np.int32)


def sorted_classes(labels: list[Label]) -> NDArray[Any]:
    """Labels as the sorted array that ``classes_`` shows."""
    return np.array(sorted(labels))
