"""The one counter of a model's answers: blocks of consecutive rows, the last window, and all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.evaluation.measures import widened, window_aucs
from steelyard.streams.labels import Codes

__all__ = ["ConfusionCounter", "block_tallies", "rows_in_a_block"]

Tallies = NDArray[np.int64]

N_BLOCKS = 20  # in a window
_MAX_COARSE = 256
_CELLS_AT_ONCE = 1 << 16
_FEW = 8  # classes up to which whole tables are counted, block by block


def block_tallies(true: Codes, predicted: Codes, blocks: Codes, n_blocks: int, n_classes: int) -> Tallies:
    """Hits, rows and answers of each class in each block, as an array (n_blocks, 3, n_classes)."""
    if n_classes <= _FEW:
        return _tallies_of(_block_confusions(true, predicted, blocks, n_blocks, n_classes))
    cells, first = n_blocks * n_classes, blocks * n_classes
    rows, answers = first + true, first + predicted
    counts = [np.bincount(part, minlength=cells) for part in (rows[true == predicted], rows, answers)]
    return np.stack([count.reshape(n_blocks, n_classes) for count in counts], axis=1)


def _block_confusions(true: Codes, predicted: Codes, blocks: Codes, n_blocks: int, n: int) -> Tallies:
    cells = np.bincount((blocks * n + true) * n + predicted, minlength=n_blocks * n * n)
    return cells.reshape(n_blocks, n, n)


def _tallies_of(confusions: Tallies) -> Tallies:
    """Tallies of tables [..., true, answered]."""
    tallies = np.empty((*confusions.shape[:-2], 3, confusions.shape[-1]), dtype=np.int64)
    tallies[..., 0, :] = confusions.diagonal(axis1=-2, axis2=-1)
    confusions.sum(axis=-1, out=tallies[..., 1, :])
    confusions.sum(axis=-2, out=tallies[..., 2, :])
    return tallies


class ConfusionCounter:
    """Counts true and answered labels, given as numbers.

    Parameters
    ----------
    window : int
        Rows of a window. Those of the last update and of the window before it are kept row by row; of all
        rows only blocks are kept, in bounded memory: when there are too many, two become one.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.n_rows = 0
        self.n_classes = 0
        self.confusion: Tallies = np.zeros((0, 0), dtype=np.int64)  # [true, answered], of all rows
        self._rows = max(1, window // N_BLOCKS)
        self._coarse: list[Tallies] = []
        self._in_coarse = 1  # blocks in a coarse one
        none = np.zeros(0, dtype=np.intp)
        self._recent: tuple[Codes, Codes, FloatArray] = none, none, np.zeros(0)

    def update(self, true: Codes, predicted: Codes, scores: FloatArray | None, n_classes: int) -> None:
        """Count rows."""
        self.n_classes = n_classes
        new = true, predicted, np.zeros(len(true)) if scores is None else scores
        recent = zip(self._recent, new, strict=True)
        true_, predicted_, scores_ = (np.concatenate([old[-self.window :], more]) for old, more in recent)
        self._recent = true_, predicted_, scores_
        size = self._rows * self._in_coarse
        begin, end = self.n_rows // size, (self.n_rows + len(true) - 1) // size
        blocks = np.arange(self.n_rows, self.n_rows + len(true)) // size - begin
        self._count(true, predicted, blocks, begin, end - begin + 1)
        self.n_rows += len(true)

    def _count(self, true: Codes, predicted: Codes, blocks: Codes, begin: int, n_blocks: int) -> None:
        n = self.n_classes
        missing = n - len(self.confusion)
        if missing:
            self.confusion = np.pad(self.confusion, ((0, missing), (0, missing)))
        if n <= _FEW:
            confusions = _block_confusions(true, predicted, blocks, n_blocks, n)
            self.confusion += confusions.sum(axis=0)
            tallies = _tallies_of(confusions)
        else:
            np.add.at(self.confusion, (true, predicted), 1)
            tallies = block_tallies(true, predicted, blocks, n_blocks, n)
        if begin < len(self._coarse):
            self._coarse[begin] = widened(self._coarse[begin], n) + tallies[0]
            tallies = tallies[1:]
        self._coarse.extend(tallies)
        while len(self._coarse) > _MAX_COARSE:
            if len(self._coarse) % 2:  # a last one alone grows on
                self._coarse.append(np.zeros_like(self._coarse[-1]))
            wide = [widened(block, self.n_classes) for block in self._coarse]
            self._coarse = [a + b for a, b in zip(wide[::2], wide[1::2], strict=True)]
            self._in_coarse *= 2

    # -- reading ------------------------------------------------------------------------------------

    def total(self) -> Tallies:
        """The tally of all rows."""
        return _tallies_of(self.confusion)

    def blocks(self) -> tuple[Tallies, int]:
        """Tallies of consecutive blocks of all rows, oldest first, and the rows in a block.

        A last block that is not full yet is left out.
        """
        size = self._rows * self._in_coarse
        whole = self._coarse[: self.n_rows // size]
        wide = [widened(block, self.n_classes) for block in whole]
        return np.array(wide, dtype=np.int64).reshape(len(wide), 3, self.n_classes), size

    def window_blocks(self, agos: Sequence[int] = (0,)) -> list[Tallies]:
        """Tallies of the windows that ended so many rows before the last, each in up to twenty blocks.

        They must have ended within the last update.
        """
        ends = len(self._recent[0]) - np.asarray(agos, dtype=np.intp)
        lengths = np.minimum(ends, self.window)
        most = max(1, _CELLS_AT_ONCE // (N_BLOCKS * max(self.n_classes, 1)))
        return [
            tallies
            for some in _alike(lengths, most)
            for tallies in self._between(ends[some, None] - _borders(int(lengths[some.start])))
        ]

    def _between(self, borders: Codes) -> Tallies:
        """Tallies between the borders of each window: a row is counted once, however many it is in."""
        true, predicted, _ = self._recent
        cuts = np.unique(borders)
        part = slice(int(cuts[0]), int(cuts[-1]))
        segments = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
        tallies = block_tallies(true[part], predicted[part], segments, len(cuts) - 1, self.n_classes)
        before = np.zeros((len(cuts), 3, self.n_classes), dtype=np.int64)
        tallies.cumsum(axis=0, out=before[1:])
        return np.diff(before[np.searchsorted(cuts, borders)], axis=1)

    def window_aucs(self, agos: Sequence[int], positive: int) -> list[float]:
        """The AUC of the windows that ended so many rows before the last; nan where a side has no rows."""
        true, _, scores = self._recent
        ends = len(true) - np.asarray(agos, dtype=np.intp)
        return window_aucs(true == positive, scores, np.maximum(ends - self.window, 0), ends)


def rows_in_a_block(n_rows: int) -> int:
    """Rows in each block of a window of so many, but maybe the first."""
    return max(1, -(-n_rows // N_BLOCKS))


def _borders(n_rows: int) -> Codes:
    """How many rows before the end of a window its blocks begin, and where the last one ends."""
    rows = rows_in_a_block(n_rows)
    return np.minimum(rows * np.arange(-(-n_rows // rows), -1, -1), n_rows)


def _alike(lengths: Codes, most: int) -> Iterator[slice]:
    """Slices of equal lengths that stand together, at most so many in each."""
    begin = 0
    while begin < len(lengths):
        same = lengths[begin : begin + most] == lengths[begin]
        end = begin + (len(same) if same.all() else int(same.argmin()))
        yield slice(begin, end)
        begin = end
