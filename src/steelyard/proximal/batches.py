"""Cutting checked batches into parts."""

from __future__ import annotations

import numpy as np

from steelyard.base import Batch

__all__ = ["one_class", "without_zero_weights"]


def without_zero_weights(batch: Batch) -> Batch:
    """The same batch without rows that do not count, so that their labels do not become classes."""
    if batch.weights is None or batch.weights.all():
        return batch
    keep = batch.weights != 0.0
    used = np.unique(batch.codes[keep])
    renumber = np.zeros(len(batch.labels), dtype=np.int32)
    renumber[used] = np.arange(len(used))
    labels = [batch.labels[code] for code in used]
    return Batch(batch.X[keep], labels, renumber[batch.codes[keep]], batch.weights[keep])


def one_class(batch: Batch, code: int) -> Batch:
    if len(batch.labels) == 1:
        return batch
    mine = batch.codes == code
    weights = None if batch.weights is None else batch.weights[mine]
    return Batch(batch.X[mine], [batch.labels[code]], np.zeros(int(mine.sum()), dtype=np.int32), weights)
