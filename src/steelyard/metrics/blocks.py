"""Confusion counts by blocks of consecutive rows, for windows, totals and confidence bands of a stream.

A tally is an array of shape (..., 3, n_classes): hits, true rows and predicted rows of each class. All
measures here are computed from tallies, so the positive class can be chosen after counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.metrics import formulas

__all__ = [
    "MEASURES",
    "BlockConfusion",
    "block_tallies",
    "bootstrap_bands",
    "measures",
    "pad_classes",
    "rows_per_block",
]

Codes = NDArray[np.intp]
Tallies = NDArray[np.int64]

MEASURES = (
    "sensitivity",
    "specificity",
    "g_mean",
    "f1",
    "rs",
    "accuracy",
    "imbalance_ratio",
    "macro_recall",
    "cohen_kappa",
)
_BANDED = ("sensitivity", "specificity", "g_mean", "f1", "macro_recall")
_CONFIDENCE = 0.95
_BLOCKS_PER_WINDOW = 20
_MAX_STREAM_BLOCKS = 256  # maximum number of blocks; beyond it, adjacent blocks are merged
_MAX_CELLS_PER_BATCH = 1 << 16
# Up to this number of classes, counting the full confusion matrix of each block is faster.
_MAX_CLASSES_FOR_TABLES = 8


def measures(tallies: NDArray[Any], positive: int | None) -> dict[str, FloatArray]:
    """Return the measures of one or several tallies, or nan if a denominator is zero.

    Parameters
    ----------
    tallies : ndarray of shape (..., 3, n_classes)
        Hits, true rows and predicted rows of each class.
    positive : int or None
        The positive class. With None all classes count equally: sensitivity is the mean recall, f1 is the
        mean F1 of all classes, and specificity and rs are nan.

    Returns
    -------
    dict of str to ndarray
        One array for each of :data:`MEASURES`, with the leading axes of ``tallies``.
    """
    counts = formulas.ClassCounts.of_tallies(tallies)
    values = {name: formulas.ALL_CLASSES[name](counts) for name in ("accuracy", "imbalance_ratio")}
    values |= {name: formulas.ALL_CLASSES[name](counts) for name in ("macro_recall", "cohen_kappa")}
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

    The bootstrap draws whole blocks, because neighbouring rows are correlated; with single rows the bands
    would be too narrow.

    Parameters
    ----------
    blocks : ndarray of shape (n_blocks, 3, n_classes)
        Tallies of consecutive blocks of rows.
    draws : ndarray of shape (n_resamples, n_blocks)
        Number of times that each block is drawn.
    positive : int or None
        As for :func:`measures`.
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
    if n_classes <= _MAX_CLASSES_FOR_TABLES:
        return _tallies_of(_block_confusions(true, predicted, blocks, n_blocks, n_classes))
    first = blocks * n_classes
    cells = (first[true == predicted] + true[true == predicted], first + true, first + predicted)
    counts = [np.bincount(cell, minlength=n_blocks * n_classes) for cell in cells]
    return np.stack([count.reshape(n_blocks, n_classes) for count in counts], axis=1)


def _block_confusions(true: Codes, predicted: Codes, blocks: Codes, n_blocks: int, n: int) -> Tallies:
    cells = np.bincount((blocks * n + true) * n + predicted, minlength=n_blocks * n * n)
    return cells.reshape(n_blocks, n, n)


def _tallies_of(confusions: Tallies) -> Tallies:
    """Return the tallies of confusion matrices, whose last two axes are true and predicted class."""
    tallies = np.empty((*confusions.shape[:-2], 3, confusions.shape[-1]), dtype=np.int64)
    tallies[..., 0, :] = confusions.diagonal(axis1=-2, axis2=-1)
    confusions.sum(axis=-1, out=tallies[..., 1, :])
    confusions.sum(axis=-2, out=tallies[..., 2, :])
    return tallies


class BlockConfusion:
    """Confusion counts of all rows, of blocks of consecutive rows, and of recent windows.

    Memory is bounded: earlier rows are stored as counts of blocks, and adjacent blocks are merged if there
    are too many. Only the rows of the last update and of the window before it are stored individually.

    Parameters
    ----------
    window : int
        Number of rows of a window.

    Attributes
    ----------
    confusion : ndarray of shape (n_classes, n_classes)
        Counts of all rows, indexed by true and predicted class.
    recent : list of ndarray
        Codes of true and predicted labels and further columns, for the last update and the window before it.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.n_rows = 0
        self.n_classes = 0
        self.confusion: Tallies = np.zeros((0, 0), dtype=np.int64)
        self.recent: list[NDArray[Any]] = []
        self._block_rows = max(1, window // _BLOCKS_PER_WINDOW)
        self._blocks: list[Tallies] = []

    def update(self, true: Codes, predicted: Codes, n_classes: int, *columns: FloatArray) -> None:
        """Count rows. Additional columns, such as scores, are only stored in ``recent``."""
        new: list[NDArray[Any]] = [true, predicted, *columns]
        old = self.recent or [column[:0] for column in new]
        self.recent = [np.concatenate([a[-self.window :], b]) for a, b in zip(old, new, strict=True)]
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
        return _tallies_of(self.confusion)

    def blocks(self) -> tuple[Tallies, int]:
        """Return the tallies of the full blocks, oldest first, and the number of rows per block."""
        full = self._blocks[: self.n_rows // self._block_rows]
        padded = [pad_classes(block, self.n_classes) for block in full]
        return np.array(padded, dtype=np.int64).reshape(len(full), 3, self.n_classes), self._block_rows

    def window_blocks(self, agos: Sequence[int] = (0,)) -> list[Tallies]:
        """Return the tallies of the blocks of each window.

        Window i ends ``agos[i]`` rows before the last row. A window has up to 20 blocks. The ends of the
        windows must be within the rows of the last update.
        """
        ends = len(self.recent[0]) - np.asarray(agos, dtype=np.intp)
        lengths = np.minimum(ends, self.window)
        batch = max(1, _MAX_CELLS_PER_BATCH // (_BLOCKS_PER_WINDOW * max(self.n_classes, 1)))
        return [
            tallies
            for some in _runs(lengths, batch)
            for tallies in self._tallies_between(ends[some, None] - _borders(int(lengths[some.start])))
        ]

    def _tallies_between(self, borders: Codes) -> Tallies:
        """Return the tallies between adjacent block borders for each window.

        Each row is counted only once, even if several windows contain it.
        """
        true, predicted, *_ = self.recent
        edges = np.unique(borders)
        part = slice(int(edges[0]), int(edges[-1]))
        segments = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        tallies = block_tallies(true[part], predicted[part], segments, len(edges) - 1, self.n_classes)
        before = np.zeros((len(edges), 3, self.n_classes), dtype=np.int64)
        tallies.cumsum(axis=0, out=before[1:])
        return np.diff(before[np.searchsorted(edges, borders)], axis=1)

    def window_slices(self, agos: Sequence[int]) -> list[slice]:
        """Return the slices of ``recent`` for windows that end ``agos`` rows before the last row."""
        ends = [len(self.recent[0]) - ago for ago in agos]
        return [slice(max(end - self.window, 0), end) for end in ends]


def rows_per_block(n_rows: int) -> int:
    """Return the number of rows per block for a window of ``n_rows``; the first block may be shorter."""
    return max(1, -(-n_rows // _BLOCKS_PER_WINDOW))


def _borders(n_rows: int) -> Codes:
    """Return the distance from the end of a window to each border of its blocks."""
    rows = rows_per_block(n_rows)
    return np.minimum(rows * np.arange(-(-n_rows // rows), -1, -1), n_rows)


def _runs(lengths: Codes, max_size: int) -> Iterator[slice]:
    """Yield slices of consecutive equal values of ``lengths``, each with at most ``max_size`` entries."""
    begin = 0
    while begin < len(lengths):
        same = lengths[begin : begin + max_size] == lengths[begin]
        end = begin + (len(same) if same.all() else int(same.argmin()))
        yield slice(begin, end)
        begin = end
