"""Assignment of rows to the cells of a cube."""

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
from steelyard.tables.frames import seconds_of

MAX_SECONDS = 253_402_300_800.0  # seconds from 1970 to the end of the year 9999


def cell_codes(columns: Sequence[Coded]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the names of the distinct cells of the rows, and for each row the index of its cell."""
    indices, codes = _distinct_rows([codes for _, codes in columns], [len(values) for values, _ in columns])
    found = [[values[k] for k in index] for index, (values, _) in zip(indices, columns, strict=True)]
    return [_name_of(key) for key in zip(*found, strict=True)], codes


@lru_cache(maxsize=1 << 16)
def _name_of(key: tuple[Any, ...]) -> str:
    return json.dumps(key)


def key_of(name: object) -> tuple[Any, ...]:
    """Decode the name of a cell: column values, time bucket, fold (if any) and class."""
    return tuple(json.loads(str(name)))


def encode(values: NDArray[np.int64]) -> Coded:
    """Return the distinct values, and for each value its index in the list of distinct values."""
    found, codes = np.unique(values, return_inverse=True)
    return found.tolist(), codes


def missing_last(key: Any) -> list[tuple[bool, Any]]:
    """Return a sort key for slice values that places None last."""
    return [(value is None, value) for value in (key if isinstance(key, tuple) else (key,))]


def _distinct_rows(
    columns: Sequence[NDArray[np.int64]], sizes: Sequence[int]
) -> tuple[Sequence[NDArray[Any]], NDArray[np.int32]]:
    """Return the distinct rows of integer columns, and for each row its index among the distinct rows."""
    sizes = [max(size, 1) for size in sizes]
    if math.prod(sizes) < 2**63:
        found, codes = _distinct(np.ravel_multi_index(columns, sizes), math.prod(sizes))
        return np.unravel_index(found, sizes), codes
    rows, indices = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    return list(rows.T), indices.ravel().astype(np.int32)


def _distinct(numbers: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the sorted distinct numbers (all below ``n``), and for each number its index among them."""
    if n > 4 * len(numbers):
        found, codes = np.unique(numbers, return_inverse=True)
        return found, codes.astype(np.int32)
    found = np.flatnonzero(np.bincount(numbers, minlength=n))
    indices = np.empty(n, dtype=np.int32)
    indices[found] = np.arange(len(found))
    return found, indices.take(numbers)


def bucket_codes(batch: ColumnBatch, time: str | None, length: float, source: str) -> Coded:
    """Return the time buckets of ``length`` seconds, and for each row the index of its bucket.

    If ``time`` is None, all rows belong to one bucket.
    """
    if time is None:
        return [0], np.zeros(batch.n_rows, dtype=np.int64)
    values = batch.columns[time]
    times = np.array(
        [seconds(value) for value in values] if values.dtype == object else values, dtype=np.float64
    )
    invalid = ~(np.abs(times) < MAX_SECONDS)
    if invalid.any():
        row = int(invalid.argmax())
        raise DataError(
            f"expected a time in row {row:,}, column {time!r}; got {values[row]!r}.",
            source=source,
            hint="give seconds as a number or a time such as 2026-01-31T12:30:00",
        )
    return encode(np.floor(times / length).astype(np.int64))


def seconds(value: Any) -> float:
    """Return a time in seconds, or nan if the value is not a time."""
    try:
        return seconds_of(value)
    except (TypeError, ValueError):
        return math.nan


def batched(batches: Iterable[ColumnBatch], min_rows: Callable[[], int]) -> Iterator[ColumnBatch]:
    """Yield the rows in batches of at least ``min_rows()`` rows; the last batch may have fewer."""
    buffered: list[ColumnBatch] = []
    n_buffered = 0
    for batch in batches:
        buffered.append(batch)
        n_buffered += batch.n_rows
        if n_buffered >= min_rows():
            yield ColumnBatch.concat(buffered)
            buffered, n_buffered = [], 0
    if buffered:
        yield ColumnBatch.concat(buffered)
