"""Confusion counts by blocks of consecutive rows, for windows, totals and confidence bands of a stream.

A tally is an array of shape (..., 3, n_classes): hits, true rows and predicted rows of each class. All
measures here are computed from tallies, so the positive class can be chosen after counting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.metrics import formulas

Codes = NDArray[np.intp]
Tallies = NDArray[np.int64]

MEASURES = (
    "sensitivity", "specificity", "g_mean", "f1", "rs", "accuracy", "imbalance_ratio", "macro_recall",
    "cohen_kappa",
)  # fmt: skip
_BANDED = ("sensitivity", "specificity", "g_mean", "f1", "macro_recall")
_CONFIDENCE = 0.95
_BLOCKS_PER_WINDOW = 20
_MAX_STREAM_BLOCKS = 256  # maximum number of blocks; beyond it, adjacent blocks are merged


def measures(tallies: NDArray[Any], positive: int | None) -> dict[str, FloatArray]:
    """Return the measures of one or several tallies by name, or nan if a denominator is zero.

    Without a positive class all classes count equally: sensitivity is the mean recall, f1 is the mean F1 of
    all classes, and specificity and rs are nan.
    """
    tallies = np.asarray(tallies, dtype=np.float64)
    counts = formulas.ClassCounts(tallies[..., 0, :], tallies[..., 1, :], tallies[..., 2, :])
    names = ("accuracy", "imbalance_ratio", "macro_recall", "cohen_kappa")
    values = {name: formulas.ALL_CLASSES[name](counts) for name in names}
    if positive is None:
        undefined = np.full(counts.true.shape[:-1], np.nan)
        values |= {
            "sensitivity": values["macro_recall"],
            "specificity": undefined,
            "g_mean": formulas.multiclass_g_mean(counts),
            "f1": formulas.macro_f1(counts),
            "rs": undefined,
        }
    else:
        binary = counts.one_vs_rest(positive)
        values |= {
            "sensitivity": formulas.sensitivity(binary),
            "specificity": formulas.specificity(binary),
            "g_mean": formulas.g_mean(binary),
            "f1": formulas.f_beta(binary),
            "rs": formulas.relative_sensitivity(binary),
        }
    return {name: values[name] for name in MEASURES}


def bootstrap_bands(
    blocks: NDArray[Any], draws: FloatArray, positive: int | None
) -> dict[str, tuple[float, float]]:
    """Return the central 95 % interval of the bootstrap values of each measure.

    The bootstrap draws whole blocks of consecutive rows, because neighbouring rows are correlated; with
    single rows the bands would be too narrow. ``draws[r, b]`` is how often resample r contains block b.
    """
    drawn = (draws @ blocks.reshape(len(blocks), -1)).reshape(len(draws), *blocks.shape[1:])
    values = measures(drawn, positive)
    bands = {}
    for name in _BANDED:
        sample = np.sort(values[name])  # nan values are sorted to the end
        n = int(np.isfinite(sample).sum())
        tail = int((1 - _CONFIDENCE) / 2 * n)
        bands[name] = (float(sample[tail]), float(sample[n - 1 - tail])) if n else (np.nan, np.nan)
    return bands


def pad_classes(tallies: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Append zero counts for classes that appeared later, up to ``n_classes`` classes."""
    missing = n_classes - tallies.shape[-1]
    return np.pad(tallies, [(0, 0)] * (tallies.ndim - 1) + [(0, missing)]) if missing > 0 else tallies


def block_tallies(true: Codes, predicted: Codes, blocks: Codes, n_blocks: int, n_classes: int) -> Tallies:
    """Return the tallies of all blocks as an array of shape (n_blocks, 3, n_classes)."""
    first = blocks * n_classes
    cells = ((first + true)[true == predicted], first + true, first + predicted)
    counts = [np.bincount(cell, minlength=n_blocks * n_classes) for cell in cells]
    return np.stack([count.reshape(n_blocks, n_classes) for count in counts], axis=1)


class BlockConfusion:
    """Confusion counts of all rows, of blocks of consecutive rows, and of recent windows.

    Memory is bounded: earlier rows are stored as counts of blocks, and adjacent blocks are merged if there
    are too many. Only the rows of the last update and of the window before it are stored individually.
    """

    def __init__(self, window: int) -> None:
        self.window_rows = window
        self.n_rows = 0
        self.n_classes = 0
        self.confusion: Tallies = np.zeros((0, 0), dtype=np.int64)  # by true and predicted class
        # Codes of true and predicted labels and further columns, of the last update and the window before it.
        self.recent: list[NDArray[Any]] = []
        self._block_rows = max(1, window // _BLOCKS_PER_WINDOW)
        self._blocks: list[Tallies] = []

    def update(self, true: Codes, predicted: Codes, n_classes: int, *columns: FloatArray) -> None:
        """Count rows. Additional columns, such as scores, are only stored in ``recent``."""
        new: list[NDArray[Any]] = [true, predicted, *columns]
        old = self.recent or [column[:0] for column in new]
        self.recent = [np.concatenate([a[-self.window_rows :], b]) for a, b in zip(old, new, strict=True)]
        self.n_classes = n_classes
        missing = n_classes - len(self.confusion)
        self.confusion = np.pad(self.confusion, ((0, missing), (0, missing))) if missing else self.confusion
        cells = np.bincount(true * n_classes + predicted, minlength=n_classes**2)
        self.confusion = self.confusion + cells.reshape(n_classes, n_classes)
        first = self.n_rows // self._block_rows
        blocks = np.arange(self.n_rows, self.n_rows + len(true)) // self._block_rows - first
        tallies = block_tallies(true, predicted, blocks, int(blocks[-1]) + 1, n_classes)
        if first < len(self._blocks):  # the first rows belong to the last block
            self._blocks[first] = pad_classes(self._blocks[first], n_classes) + tallies[0]
            tallies = tallies[1:]
        self._blocks.extend(tallies)
        while len(self._blocks) > _MAX_STREAM_BLOCKS:
            padded = [pad_classes(block, n_classes) for block in self._blocks]
            if len(padded) % 2:
                padded.append(np.zeros_like(padded[-1]))
            self._blocks = [a + b for a, b in zip(padded[::2], padded[1::2], strict=True)]
            self._block_rows *= 2
        self.n_rows += len(true)

    def total(self) -> Tallies:
        """Return the tally of all rows."""
        counts = self.confusion
        return np.stack([counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)])

    def blocks(self) -> tuple[Tallies, int]:
        """Return the tallies of the full blocks, oldest first, and the number of rows per block."""
        full = self._blocks[: self.n_rows // self._block_rows]
        padded = [pad_classes(block, self.n_classes) for block in full]
        return np.array(padded, dtype=np.int64).reshape(len(full), 3, self.n_classes), self._block_rows

    def window(self, ago: int = 0) -> tuple[list[NDArray[Any]], Tallies]:
        """Return the rows of the window that ends ``ago`` rows before the last row, and their tallies.

        The rows are parts of the columns of ``recent``. The tallies are those of at most 20 blocks, of which
        the first may be shorter. The end of the window must be within the rows of the last update.
        """
        end = len(self.recent[0]) - ago
        columns = [column[max(end - self.window_rows, 0) : end] for column in self.recent]
        true, predicted = columns[:2]
        blocks = np.arange(-len(true), 0) // rows_per_block(len(true))  # -1 for the rows of the last block
        n_blocks = -int(blocks[0])
        return columns, block_tallies(true, predicted, blocks + n_blocks, n_blocks, self.n_classes)


def rows_per_block(n_rows: int) -> int:
    """Return the number of rows per block for a window of ``n_rows``."""
    return max(1, -(-n_rows // _BLOCKS_PER_WINDOW))
