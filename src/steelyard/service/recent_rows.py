"""Recent rows of a model in memory, for statistics of missing values, drift and column importance."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.service import rows as wire
from steelyard.tables.columns import ColumnBatch, as_texts

__all__ = ["RecentRows", "column_statistics"]

_MAX_ROWS = 1_000
_MAX_VALUES = 2_000_000  # maximum number of stored values, so wide models keep fewer rows
_IMPORTANCE_ROWS, _MAX_COLUMNS = 200, 60  # computing importance needs one prediction of 200 rows per column


class RecentRows:
    """The last 1,000 learned rows and, as a reference, the first 1,000 rows since the process started.

    Adding rows only stores a reference to them. Statistics are computed when the web page requests them. When
    rows are forgotten, :meth:`clear` removes all rows. The writer thread adds rows; request threads read.
    """

    def __init__(self) -> None:
        self.n_seen = 0
        self._n_kept = self._n_reference = self._limit = 0
        self._batches: deque[ColumnBatch] = deque()
        self._reference: list[ColumnBatch] = []

    def add(self, batch: ColumnBatch) -> None:
        """Add learned rows."""
        self.n_seen += batch.n_rows
        limit = self._limit
        if not limit:  # the limit is set once, because the columns of a model do not change
            limit = self._limit = max(1, min(_MAX_ROWS, _MAX_VALUES // max(len(batch.columns), 1)))
        if self._n_reference < limit:
            self._reference.append(batch)
            self._n_reference += batch.n_rows
        self._batches.append(batch)
        self._n_kept += batch.n_rows
        while self._n_kept - self._batches[0].n_rows >= limit:
            self._n_kept -= self._batches.popleft().n_rows

    def clear(self) -> None:
        """Remove all rows, which is necessary after some of them were forgotten."""
        self.__init__()  # type: ignore[misc]

    def recent(self) -> ColumnBatch | None:
        """Return the most recent rows, or None if there are none."""
        return _last(list(self._batches))

    def reference(self) -> ColumnBatch | None:
        """Return the reference rows, or None if they overlap with the most recent rows."""
        return _last(list(self._reference)) if self.n_seen >= 2 * self._n_reference else None


def _last(batches: Sequence[ColumnBatch]) -> ColumnBatch | None:
    if not batches:
        return None
    rows = wire.joined(batches)
    return rows.take(max(0, rows.n_rows - _MAX_ROWS), rows.n_rows)


def column_statistics(
    rows: RecentRows, kinds: dict[str, str], scores: Callable[[ColumnBatch], FloatArray]
) -> dict[str, Any]:
    """Return share of missing values, drift and importance of each column, most important column first.

    For numbers, drift is the Kolmogorov-Smirnov distance between the reference rows and the recent rows; for
    categories it is the total variation distance. Importance is the mean change of the scores when the values
    of the column are permuted, relative to the spread of the scores.
    """
    recent, reference = rows.recent(), rows.reference()
    if recent is None:
        return {"rows": 0, "columns": []}
    names = [name for name in kinds if name in recent.columns][:_MAX_COLUMNS]
    importance = _importances(recent, names, scores)
    found: list[dict[str, Any]] = []
    for name in names:
        drift = None
        if reference is not None and name in reference.columns:
            drift = _drift(reference, recent, name, kinds[name])
        missing = np.mean([value is None for value in wire.texts(recent, name)])
        found.append(
            {
                "name": name,
                "kind": kinds[name],
                "missing": float(missing),
                "drift": drift,
                "importance": importance.get(name),
            }
        )
    found.sort(key=lambda column: -(column["importance"] or 0.0))
    return {"rows": recent.n_rows, "columns": found, "more": len(kinds) - len(found)}


def _importances(
    recent: ColumnBatch, names: Sequence[str], scores: Callable[[ColumnBatch], FloatArray]
) -> dict[str, float]:
    rows = recent.take(max(0, recent.n_rows - _IMPORTANCE_ROWS), recent.n_rows)
    before = scores(rows)
    spread = float(np.std(before))
    if not np.isfinite(spread) or spread <= 0.0:
        return {}
    order = np.random.default_rng(0).permutation(rows.n_rows)
    found = {}
    for name in names:
        permuted = ColumnBatch({**rows.columns, name: rows.columns[name][order]}, rows.n_rows)
        found[name] = float(np.mean(np.abs(scores(permuted) - before)) / spread)
    return found


def _drift(reference: ColumnBatch, recent: ColumnBatch, name: str, kind: str) -> float | None:
    old, new = reference.columns[name], recent.columns[name]
    if kind == "number":
        return _distance_of_numbers(_finite(old), _finite(new))
    if kind == "time":
        return None  # times always increase
    counts = [Counter(as_texts(values)) for values in (old, new)]
    shares = [{key: n / max(sum(c.values()), 1) for key, n in c.items()} for c in counts]
    return 0.5 * sum(abs(shares[0].get(k, 0.0) - shares[1].get(k, 0.0)) for k in {*shares[0], *shares[1]})


def _finite(values: NDArray[Any]) -> FloatArray:
    numbers = values.astype(np.float64) if values.dtype != object else np.empty(0)
    return np.sort(numbers[np.isfinite(numbers)])


def _distance_of_numbers(old: FloatArray, new: FloatArray) -> float | None:
    if not len(old) or not len(new):
        return None
    points = np.concatenate([old, new])
    shares = [np.searchsorted(values, points, side="right") / len(values) for values in (old, new)]
    return float(np.max(np.abs(shares[0] - shares[1])))
