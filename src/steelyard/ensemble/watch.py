"""When answers became worse: the hit rates of the last rows beside those of a longer time.

Both are faded averages for each class, so that a class that becomes rarer is no drift. What is compared is
the mean over classes; the shorter average must fall below the longer one by more than chance would explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray

__all__ = ["Watch"]

_HALF_LIVES = np.array([[75.0], [1000.0]])  # rows of the last time and of a longer one
_ENOUGH = 5.0  # faded rows of a class below which it is not compared
_SURPRISE = 4.0  # standard deviations
_LEAST = 0.05  # of the mean hit rate, by which it falls at least
_PAUSE = 500  # rows at the beginning and after a drift during which none is looked for
_MOST = 100  # drifts that are remembered


@dataclass(frozen=True)
class Watch:
    """Faded numbers of rows and of hits by class number, of a short and of a long time; it never changes."""

    rows: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    hits: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    drifts: tuple[int, ...] = ()
    quiet_until: int = _PAUSE

    def after(self, codes: IntArray, hit: NDArray[np.bool_], n_classes: int, n_seen: int) -> Watch:
        """What it is after these rows, the last of which was row ``n_seen``."""
        fading = 0.5 ** (len(codes) / _HALF_LIVES)
        rows, hits = self.rows * fading, self.hits * fading
        newcomers = n_classes - rows.shape[1]
        if newcomers > 0:
            rows, hits = (np.pad(part, ((0, 0), (0, newcomers))) for part in (rows, hits))
        rows += np.bincount(codes, minlength=n_classes)
        hits += np.bincount(codes, hit, minlength=n_classes)
        if n_seen < self.quiet_until or not _has_fallen(rows, hits):
            return Watch(rows, hits, self.drifts, self.quiet_until)
        rows[1], hits[1] = rows[0], hits[0]  # from now on this is what was known before
        return Watch(rows, hits, (*self.drifts, n_seen)[-_MOST:], n_seen + _PAUSE)

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        numbers = {"drifts": list(self.drifts), "quiet_until": self.quiet_until}
        return {"rows": self.rows, "hits": self.hits, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Watch:
        """What ``get_state`` describes; ValueError if it makes no sense."""
        if not state:
            return cls()
        rows, hits = (np.asarray(state[name], dtype=np.float64) for name in ("rows", "hits"))
        if rows.ndim != 2 or len(rows) != 2 or rows.shape != hits.shape:
            raise ValueError("hits and rows must be counted for the same classes")
        return cls(rows, hits, tuple(int(row) for row in state["drifts"]), int(state["quiet_until"]))


def _has_fallen(rows: FloatArray, hits: FloatArray) -> bool:
    compared = (rows >= _ENOUGH).all(axis=0)
    n = int(np.count_nonzero(compared))
    if not n:
        return False
    short, long = (hits[:, compared] + 0.5) / (rows[:, compared] + 1.0)
    # A faded sum of n rows, as it counts them, has the variance of an average over about 2 n rows.
    effective = 2.0 * rows[0, compared]
    deviation = np.sqrt((long * (1.0 - long) / effective).sum()) / n
    return bool((long - short).mean() > max(_LEAST, _SURPRISE * deviation))
