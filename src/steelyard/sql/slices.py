"""Cells and slices of a cube: the cell of each row, shrinkage of small slices, and summaries of slices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import (
    CANDIDATE_ROWS,
    borrowed_share,
    compare_with_own_model,
    measure,
)
from steelyard.tables.columns import Coded, ColumnBatch, Place
from steelyard.tables.frames import column_seconds

MAX_SECONDS = 253_402_300_800.0  # seconds from 1970 to the end of the year 9999
_CANDIDATE_ROWS = (0.0, *CANDIDATE_ROWS)


def cell_codes(columns: Sequence[Coded]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the names of the distinct cells of the rows, and for each row the index of its cell."""
    sizes = [max(len(values), 1) for values, _ in columns]
    indices: Sequence[NDArray[Any]]
    if math.prod(sizes) < 2**63:
        cells, codes = _distinct(np.ravel_multi_index([c for _, c in columns], sizes), math.prod(sizes))
        indices = np.unravel_index(cells, sizes)
    else:
        rows, inverse = np.unique(np.column_stack([c for _, c in columns]), axis=0, return_inverse=True)
        indices, codes = list(rows.T), inverse.ravel().astype(np.int32)
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


def _distinct(numbers: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the sorted distinct numbers (all below ``n``), and for each number its index among them."""
    if n > 4 * len(numbers):
        found, codes = np.unique(numbers, return_inverse=True)
        return found, codes.astype(np.int32)
    found = np.flatnonzero(np.bincount(numbers, minlength=n))
    indices = np.empty(n, dtype=np.int32)
    indices[found] = np.arange(len(found))
    return found, indices.take(numbers)


def bucket_codes(batch: ColumnBatch, time: str | None, length: float, place: Place) -> Coded:
    """Return the time buckets of ``length`` seconds, and for each row the index of its bucket.

    If ``time`` is None, all rows belong to one bucket.
    """
    if time is None:
        return [0], np.zeros(batch.n_rows, dtype=np.int64)
    times = column_seconds(batch.columns[time], time, place)
    invalid = np.abs(times) >= MAX_SECONDS
    if invalid.any():
        row = int(invalid.argmax())
        raise place.error(f"expected a time; got {batch.columns[time][row]!r}.", row, time)
    return encode(np.floor(times / length).astype(np.int64))


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


# -- models of slices ---------------------------------------------------------------------------------


def shrink(all_rows: ClassStatistics, borrow: float) -> ClassStatistics:
    """Scale statistics in place to a total weight of at most ``borrow`` rows, and return them."""
    return all_rows.scale(borrowed_share(all_rows.n_rows, borrow))


def select_shrinkage(
    sum_of: Callable[[Mapping[Any, Any]], ClassStatistics],
    cells: Mapping[Any, tuple[int, Any]],
    own: Mapping[Any, Any],
    n_folds: int,
    parameters: Mapping[str, Any],
) -> float:
    """Return how many rows the statistics of the whole cube count as in the model of a slice.

    This is the candidate with the smallest cross-validated error. ``own`` maps the cells of the slice to
    their classes, ``cells`` all cells to fold and class. ``sum_of`` returns the sum of the statistics of the
    cells in such a mapping from cells to classes.
    """
    errors = dict.fromkeys(_CANDIDATE_ROWS, 0.0)
    for fold in range(n_folds):
        left_out = {label: c for label, c in own.items() if cells[label][0] == fold}
        if len(set(left_out.values())) < 2:
            continue  # a fold with a single class cannot be evaluated
        test = sum_of(left_out)
        rest = {label: c for label, c in own.items() if label not in left_out}
        others = {label: c for label, (_, c) in cells.items() if label not in left_out}
        all_rows = sum_of(others)
        for borrow in _CANDIDATE_ROWS:
            training = sum_of(rest) if rest else all_rows.empty()
            if borrow:
                training.merge(shrink(all_rows.copy(), borrow))
            if len(training.classes) < 2:
                errors[borrow] = np.inf
                continue
            errors_of_fold = measure(ProximalSVC(**parameters).merge(training), test)
            errors[borrow] += errors_of_fold["squared_error"] * test.n_rows
    return min(errors, key=lambda borrow: errors[borrow])


@dataclass(frozen=True)
class SliceSummary:
    """Errors of the common model and of the local model on one slice.

    Attributes
    ----------
    slice : tuple of str
        Values of the slice in the requested columns. A missing value is None.
    rows : float
        Number of rows.
    shares : mapping of str to float
        Fraction of the rows in each class.
    squared_error, own_squared_error : float
        Exact squared errors of the common model and of the local model on the rows of the slice.
    auc, own_auc, gmean, own_gmean : float
        AUC and G-mean of both models, computed from exact means and variances of the scores under the
        assumption that scores are normal. They are nan if the slice has fewer than two classes.
    """

    slice: tuple[str | None, ...]
    rows: float
    shares: Mapping[str, float]
    squared_error: float
    own_squared_error: float
    auc: float
    own_auc: float
    gmean: float
    own_gmean: float

    @property
    def name(self) -> str:
        """Values of the slice as text."""
        return format_slice(self.slice)


def format_slice(values: Iterable[str | None]) -> str:
    """Return the column values of a slice as one line of text."""
    return " · ".join("no value" if value is None else value for value in values)


def summarize_slices(
    all_rows: ClassStatistics, slices: Mapping[Any, ClassStatistics], parameters: Mapping[str, Any]
) -> list[SliceSummary]:
    """Return the summaries of all slices, sorted by decreasing number of rows.

    ``all_rows`` are the statistics of the common model. Both models have the given parameters.
    """
    common = ProximalSVC(**parameters).merge(all_rows)
    summaries = []
    for key, part in slices.items():
        pair = compare_with_own_model(common, part, ProximalSVC(**parameters))
        errors = [measures[name] for name in ("squared_error", "auc", "gmean") for measures in pair]
        shares = {str(label): part.count(label) / part.n_rows for label in part.classes}
        values = key if isinstance(key, tuple) else (key,)
        summaries.append(SliceSummary(values, part.n_rows, shares, *errors))
    return sorted(summaries, key=lambda summary: -summary.rows)
