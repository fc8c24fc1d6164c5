"""How sure a measure is: bands by block bootstrap over consecutive rows."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

__all__ = ["BlockCounts", "confidence_bands"]


_RESAMPLES = 200
_LEVEL = 0.95
_MAX_COARSE = 256


class BlockCounts:
    """Confusion counts of consecutive blocks of rows: of the last window in detail, of all rows coarsely.

    Rows that stand together are alike, so resampling single rows would promise too much; whole blocks
    are resampled instead.

    Parameters
    ----------
    window : int
        Rows of the window; it is cut into twenty blocks.
    seed : int
        For the resampling.
    """

    def __init__(self, window: int, seed: int = 0) -> None:
        self._rows = max(1, window // 20)
        self._recent: deque[FloatArray] = deque(maxlen=max(1, round(window / self._rows)))
        self._coarse: list[FloatArray] = []
        self._coarse_blocks = 1  # fine blocks in a coarse one
        self._n_fine = 0
        self._open: FloatArray = np.zeros((0, 0))
        self._n_open = 0
        self._rng = np.random.default_rng(seed)
        self._draws: dict[int, FloatArray] = {}

    def update(self, true: NDArray[np.intp], predicted: NDArray[np.intp], n_labels: int) -> None:
        """Count rows, given as codes of labels."""
        done = 0
        while done < len(true):
            end = done + min(self._rows - self._n_open, len(true) - done)
            if len(self._open) < n_labels:
                self._open = _wider(self._open, n_labels)
            np.add.at(self._open, (true[done:end], predicted[done:end]), 1.0)
            self._n_open += end - done
            done = end
            if self._n_open == self._rows:
                self._close_block()

    def _close_block(self) -> None:
        self._recent.append(self._open)
        if self._n_fine % self._coarse_blocks == 0:
            self._coarse.append(np.zeros_like(self._open))
        self._coarse[-1] = _wider(self._coarse[-1], len(self._open)) + self._open
        self._n_fine += 1
        if len(self._coarse) > _MAX_COARSE and len(self._coarse) % 2 == 0:
            wide = [_wider(counts, len(self._open)) for counts in self._coarse]
            self._coarse = [a + b for a, b in zip(wide[::2], wide[1::2], strict=True)]
            self._coarse_blocks *= 2
        self._open, self._n_open = np.zeros((len(self._open),) * 2), 0

    def recent_bands(self, positive: int | None) -> dict[str, tuple[float, float]]:
        """Bands of the measures over the last window."""
        return self._bands(list(self._recent), positive)

    def overall_bands(self, positive: int | None) -> dict[str, tuple[float, float]]:
        """Bands of the measures over all rows."""
        return self._bands(self._coarse, positive)

    def recent_changes(self) -> FloatArray:
        """Counts of the coarse blocks, oldest first: where recalls jump, something has changed."""
        width = len(self._open)
        return np.array([_wider(counts, width) for counts in self._coarse]).reshape(-1, width, width)

    @property
    def coarse_rows(self) -> int:
        """Rows in a coarse block."""
        return self._rows * self._coarse_blocks

    def _bands(self, blocks: list[FloatArray], positive: int | None) -> dict[str, tuple[float, float]]:
        if len(blocks) < 2:
            return {}
        width = len(self._open)
        counts = np.array([_wider(block, width) for block in blocks])
        if len(blocks) not in self._draws:
            n = len(blocks)
            self._draws = {n: self._rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)}
        return confidence_bands(counts, self._draws[len(blocks)], positive)


def confidence_bands(
    counts: FloatArray, draws: FloatArray, positive: int | None
) -> dict[str, tuple[float, float]]:
    """Bands of the measures of resampled blocks.

    Parameters
    ----------
    counts : ndarray of shape (n_blocks, n_labels, n_labels)
        Rows of each block by true and predicted label.
    draws : ndarray of shape (n_resamples, n_blocks)
        How often each block is drawn.
    positive : int or None
        Code of the positive label; None: only the G-mean over all classes.

    Returns
    -------
    dict
        For ``g_mean``, and with a positive label ``sensitivity``, ``specificity`` and ``f1``, the two ends
        of the middle 95 % of the resamples.
    """
    n_labels = counts.shape[1]
    drawn = (draws @ counts.reshape(len(counts), -1)).reshape(len(draws), n_labels, n_labels)
    rows = drawn.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        if positive is None:
            recalls = drawn.diagonal(axis1=1, axis2=2) / rows
            present = rows > 0
            logs = np.where(present, np.log(np.where(present, recalls, 1.0)), 0.0)
            values = {"g_mean": np.exp(logs.sum(axis=1) / present.sum(axis=1))}
        else:
            hits = drawn[:, positive, positive]
            false_positive = drawn[:, :, positive].sum(axis=1) - hits
            negatives = rows.sum(axis=1) - rows[:, positive]
            sensitivity = hits / rows[:, positive]
            specificity = 1.0 - false_positive / negatives
            values = {
                "g_mean": np.sqrt(sensitivity * specificity),
                "sensitivity": sensitivity,
                "specificity": specificity,
                "f1": 2 * hits / (rows[:, positive] + hits + false_positive),
            }
    ordered = np.sort(np.array(list(values.values())), axis=1)  # nan comes last
    n_finite = np.isfinite(ordered).sum(axis=1)
    bands = {}
    for name, sample, n in zip(values, ordered.tolist(), n_finite.tolist(), strict=True):
        if n:
            cut = int((1 - _LEVEL) / 2 * n)
            bands[name] = sample[cut], sample[n - 1 - cut]
    return bands


def _wider(counts: FloatArray, width: int) -> FloatArray:
    missing = width - len(counts)
    return np.pad(counts, ((0, missing), (0, missing))) if missing > 0 else counts
