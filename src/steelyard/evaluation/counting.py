"""The one counter of a model's answers: blocks of consecutive rows, the last window, and all rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.evaluation.measures import widened
from steelyard.streams.labels import Codes

__all__ = ["AnswerCounter", "block_tallies"]

Tallies = NDArray[np.int64]

N_BLOCKS = 20  # in a window
_MAX_COARSE = 256
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


class AnswerCounter:
    """Counts true and answered labels, given as numbers.

    Parameters
    ----------
    window : int
        Rows of the last window, which is kept row by row; of all rows only blocks are kept, in bounded
        memory: when there are too many, two become one.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.n_rows = 0
        self.n_classes = 0
        self.confusion: Tallies = np.zeros((0, 0), dtype=np.int64)  # [true, answered], of all rows
        self._rows = max(1, window // N_BLOCKS)
        self._coarse: list[Tallies] = []
        self._in_coarse = 1  # blocks in a coarse one
        self._recent = _Ring(window)

    def update(self, true: Codes, predicted: Codes, scores: FloatArray | None, n_classes: int) -> None:
        """Count rows."""
        self.n_classes = n_classes
        self._recent.push(true, predicted, scores)
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

    def window_blocks(self, ago: int = 0) -> Tallies:
        """Tallies of the window that ended ``ago`` rows before the last, in up to twenty blocks."""
        true, predicted, _ = self._recent.content(ago)
        rows = max(1, -(-len(true) // N_BLOCKS))
        age = np.arange(len(true) - 1, -1, -1) // rows  # 0 is the block that ends now
        n_blocks = int(age[0]) + 1 if len(true) else 0
        return block_tallies(true, predicted, n_blocks - 1 - age, n_blocks, self.n_classes)

    def window_scores(self, ago: int = 0) -> tuple[Codes, FloatArray]:
        """True labels and scores of the window that ended ``ago`` rows before the last."""
        true, _, scores = self._recent.content(ago)
        return true, scores


class _Ring:
    """The last rows, of two windows: true label, answer and score of each."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = 4 * size
        self._true = np.zeros(self._room, dtype=np.intp)
        self._predicted = np.zeros(self._room, dtype=np.intp)
        self._scores = np.zeros(self._room)
        self._end = 0

    def push(self, true: Codes, predicted: Codes, scores: FloatArray | None) -> None:
        n = min(len(true), 2 * self._size)
        if self._end + n > self._room:  # the last rows go to the front: once in so many rows
            keep = min(self._end, 2 * self._size)
            for array in (self._true, self._predicted, self._scores):
                array[:keep] = array[self._end - keep : self._end]
            self._end = keep
        new = slice(self._end, self._end + n)
        self._true[new], self._predicted[new] = true[-n:], predicted[-n:]
        self._scores[new] = 0.0 if scores is None else scores[-n:]
        self._end += n

    def content(self, ago: int) -> tuple[Codes, Codes, FloatArray]:
        end = max(0, self._end - ago)
        last = slice(max(0, end - self._size), end)
        return self._true[last], self._predicted[last], self._scores[last]
