"""Detection of concept drift from the hit rates of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray

__all__ = ["DriftDetector"]

_HALF_LIVES_ROWS = np.array([[75.0], [1000.0]])  # half-lives of the short-term and of the long-term average
_MIN_DECAYED_ROWS = 5.0  # minimum decayed number of rows of a class for a comparison
_MIN_DEVIATIONS = 4.0  # number of standard deviations by which the hit rate must fall
_MIN_FALL = 0.05  # minimum fall of the mean hit rate that counts as a drift
_QUIET_ROWS = 500  # number of rows without drift reports at the start of a stream and after a drift
_MAX_DRIFTS = 100  # maximum number of drifts that are remembered


@dataclass(frozen=True)
class DriftDetector:
    """Comparison of short-term and long-term hit rates; immutable.

    Both are exponentially decayed averages per class, so a change of the class frequencies is not reported. A
    drift is reported when the short-term rate, averaged over classes, is significantly lower than the
    long-term rate.
    """

    rows: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    hits: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    drifts: tuple[int, ...] = ()
    quiet_until: int = _QUIET_ROWS

    def after(self, codes: IntArray, hit: NDArray[np.bool_], n_classes: int, n_seen: int) -> DriftDetector:
        """Return the detector updated with these rows; ``n_seen`` is the total number of rows so far."""
        decay = 0.5 ** (len(codes) / _HALF_LIVES_ROWS)
        rows, hits = self.rows * decay, self.hits * decay
        n_new = n_classes - rows.shape[1]
        if n_new > 0:
            rows, hits = (np.pad(part, ((0, 0), (0, n_new))) for part in (rows, hits))
        rows += np.bincount(codes, minlength=n_classes)
        hits += np.bincount(codes, hit, minlength=n_classes)
        if n_seen < self.quiet_until or not _has_fallen(rows, hits):
            return DriftDetector(rows, hits, self.drifts, self.quiet_until)
        rows[1], hits[1] = rows[0], hits[0]  # the long-term average restarts
        return DriftDetector(rows, hits, (*self.drifts, n_seen)[-_MAX_DRIFTS:], n_seen + _QUIET_ROWS)

    def is_within(self, n_rows: int, n_seen: int) -> bool:
        """Return whether a drift was reported within the last ``n_rows`` rows."""
        return bool(self.drifts) and n_seen - self.drifts[-1] < n_rows

    def get_state(self) -> dict[str, Any]:
        """Return the counts as arrays and plain values."""
        numbers = {"drifts": list(self.drifts), "quiet_until": self.quiet_until}
        return {"rows": self.rows, "hits": self.hits, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> DriftDetector:
        """Restore the detector from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        if not state:
            return cls()
        rows, hits = (np.asarray(state[name], dtype=np.float64) for name in ("rows", "hits"))
        if rows.ndim != 2 or len(rows) != 2 or rows.shape != hits.shape:
            raise ValueError("hits and rows must be counted for the same classes")
        return cls(rows, hits, tuple(int(row) for row in state["drifts"]), int(state["quiet_until"]))


def _has_fallen(rows: FloatArray, hits: FloatArray) -> bool:
    compared = (rows >= _MIN_DECAYED_ROWS).all(axis=0)
    n = int(np.count_nonzero(compared))
    if not n:
        return False
    short, long = (hits[:, compared] + 0.5) / (rows[:, compared] + 1.0)
    # A decayed average with total weight w has the variance of a plain average over about 2 * w rows.
    effective = 2.0 * rows[0, compared]
    deviation = np.sqrt((long * (1.0 - long) / effective).sum()) / n
    return bool((long - short).mean() > max(_MIN_FALL, _MIN_DEVIATIONS * deviation))
