"""Which cell of a cube each row belongs to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import Coded, ColumnBatch
from steelyard.tables.table_stream import seconds_of

__all__ = ["FARTHEST", "buckets_of", "gathered", "key_of", "missing_last", "named", "numbered", "seconds"]

FARTHEST = 253_402_300_800.0  # seconds to the end of the year 9999


def named(parts: Sequence[Coded]) -> tuple[list[str], NDArray[np.int32]]:
    """What statistics call the cells of some rows, and for each row which one it is in.

    Parameters
    ----------
    parts : sequence of (values, codes)
        What the rows are told apart by: values of a column, and the place of each row's among them.
    """
    places, codes = _told_apart([codes for _, codes in parts], [len(values) for values, _ in parts])
    columns = [[values[k] for k in at] for at, (values, _) in zip(places, parts, strict=True)]
    return [_name_of(key) for key in zip(*columns, strict=True)], codes


@lru_cache(maxsize=1 << 16)
def _name_of(key: tuple[Any, ...]) -> str:
    return json.dumps(key)


def key_of(name: object) -> tuple[Any, ...]:
    """Values, bucket, fold if there are any, and class of a cell, by its name."""
    return tuple(json.loads(str(name)))


def numbered(values: NDArray[np.int64]) -> Coded:
    """Whole numbers, told apart."""
    found, codes = np.unique(values, return_inverse=True)
    return found.tolist(), codes


def missing_last(key: Any) -> list[tuple[bool, Any]]:
    """What sorts values of slices of which some are None."""
    return [(value is None, value) for value in (key if isinstance(key, tuple) else (key,))]


def _told_apart(
    columns: Sequence[NDArray[np.int64]], sizes: Sequence[int]
) -> tuple[Sequence[NDArray[Any]], NDArray[np.int32]]:
    """The different rows of some columns of numbers below these sizes, and for each row which one it is."""
    sizes = [max(size, 1) for size in sizes]
    if math.prod(sizes) < 2**63:
        found, codes = _distinct(np.ravel_multi_index(columns, sizes), math.prod(sizes))
        return np.unravel_index(found, sizes), codes
    rows, places = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    return list(rows.T), places.ravel().astype(np.int32)


def _distinct(numbers: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Which numbers below n there are, in order, and the place of each; counted where that is faster."""
    if n > 4 * len(numbers):
        found, codes = np.unique(numbers, return_inverse=True)
        return found, codes.astype(np.int32)
    found = np.flatnonzero(np.bincount(numbers, minlength=n))
    places = np.empty(n, dtype=np.int32)
    places[found] = np.arange(len(found))
    return found, places.take(numbers)


def buckets_of(batch: ColumnBatch, time: str | None, length: float, source: str) -> Coded:
    """Buckets of time of so many seconds, told apart; without a column of time there is one."""
    if time is None:
        return [0], np.zeros(batch.n_rows, dtype=np.int64)
    values = batch.columns[time]
    moments = np.array(
        [seconds(value) for value in values] if values.dtype == object else values, dtype=np.float64
    )
    odd = ~(np.abs(moments) < FARTHEST)
    if odd.any():
        row = int(odd.argmax())
        raise DataError(
            f"expected a time in row {row + 1:,}, column {time!r}; got {values[row]!r}.",
            source=source,
            hint="times are numbers of seconds or like 2026-01-31T12:30:00",
        )
    return numbered(np.floor(moments / length).astype(np.int64))


def seconds(value: Any) -> float:
    """A moment in seconds; nan for what is none."""
    try:
        return seconds_of(value)
    except (TypeError, ValueError):
        return math.nan


def gathered(batches: Iterable[ColumnBatch], enough: Callable[[], int]) -> Iterator[ColumnBatch]:
    """The same rows in batches as large as is worth it."""
    waiting: list[ColumnBatch] = []
    n_waiting = 0
    for batch in batches:
        waiting.append(batch)
        n_waiting += batch.n_rows
        if n_waiting >= enough():
            yield ColumnBatch.concat(waiting)
            waiting, n_waiting = [], 0
    if waiting:
        yield ColumnBatch.concat(waiting)
