"""What is kept of one class: its Gram matrix, and the latest rows not yet folded into it.

With extended rows ``e = [x - origin, -1]`` the Gram matrix is ``sum of weight * e e'``. A few rows are
smaller than the matrix that they make and cheaper to keep, so they wait in a buffer and are folded in
together; a class that never fills its buffer never has a matrix. Only lower triangles are stored.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray

__all__ = ["Moments", "buffer_capacity", "symmetric"]


def buffer_capacity(n_features: int) -> int:
    """How many rows wait at most: as many as take half the room of a Gram matrix, and never few."""
    return max(64, (n_features + 1) // 2)


def symmetric(lower: FloatArray) -> FloatArray:
    """The full matrix of a lower triangle."""
    return lower + np.tril(lower, -1).T


class Moments:
    """Gram matrix and waiting rows of one class.

    Parameters
    ----------
    n_features : int
        Width of a row.

    Attributes
    ----------
    gram : ndarray of shape (n_features + 1, n_features + 1) or None
        Lower triangle relative to the origin that the owner keeps; None while all rows wait.
    n_waiting : int
        Rows in the buffer.
    """

    __slots__ = ("_rows", "_weights", "gram", "n_features", "n_waiting")

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.gram: FloatArray | None = None
        self.n_waiting = 0
        self._rows = np.empty((0, n_features))
        self._weights = np.empty(0)

    @property
    def rows(self) -> FloatArray:
        """Waiting rows, in raw coordinates."""
        return self._rows[: self.n_waiting]

    @property
    def weights(self) -> FloatArray:
        """Weights of the waiting rows; negative only in a difference of statistics."""
        return self._weights[: self.n_waiting]

    @property
    def count(self) -> float:
        """Sum of the weights of all rows, folded or waiting."""
        folded = 0.0 if self.gram is None else float(self.gram[-1, -1])
        return folded + float(self.weights.sum())

    def copy(self) -> Moments:
        twin = Moments(self.n_features)
        twin.gram = None if self.gram is None else self.gram.copy()
        twin.n_waiting = self.n_waiting
        twin._rows, twin._weights = self.rows.copy(), self.weights.copy()
        return twin

    def has_room(self, n_rows: int) -> bool:
        return self.n_waiting + n_rows <= buffer_capacity(self.n_features)

    def wait(self, rows: NDArray[np.floating], weights: FloatArray | float = 1.0) -> None:
        """Put rows into the buffer; the caller has made sure that there is room."""
        needed = self.n_waiting + len(rows)
        if needed > len(self._rows):
            self._enlarge(needed)
        self._rows[self.n_waiting : needed] = rows
        self._weights[self.n_waiting : needed] = weights
        self.n_waiting = needed

    def _enlarge(self, needed: int) -> None:
        size = min(max(needed, 2 * len(self._rows), 4), max(needed, buffer_capacity(self.n_features)))
        rows, weights = np.empty((size, self.n_features)), np.empty(size)
        rows[: self.n_waiting], weights[: self.n_waiting] = self.rows, self.weights
        self._rows, self._weights = rows, weights

    def matrix(self) -> FloatArray:
        """The Gram matrix, made if there was none yet: for whoever adds to it in place."""
        if self.gram is None:
            self.gram = np.zeros((self.n_features + 1,) * 2)
        return self.gram

    def folded(self, origin: FloatArray, n_threads: int = 1) -> FloatArray:
        """Lower triangle of the Gram matrix with the waiting rows counted in; may be ``gram`` itself."""
        if self.gram is not None and not self.n_waiting:
            return self.gram
        twin = Moments(self.n_features)
        twin.gram = None if self.gram is None else self.gram.copy()
        twin._rows, twin._weights, twin.n_waiting = self._rows, self._weights, self.n_waiting
        twin.fold(origin, n_threads)
        return twin.matrix()

    def fold(self, origin: FloatArray, n_threads: int = 1) -> None:
        """Fold the waiting rows into the Gram matrix."""
        codes = np.zeros(self.n_waiting, dtype=np.int32)
        _native.add_class_grams(self.rows, codes, self.weights, origin, [self.matrix()], n_threads)
        self.n_waiting = 0

    def sums(self, origin: FloatArray) -> FloatArray:
        """Weighted sum of ``x - origin``."""
        total = self.weights @ (self.rows - origin)
        return total if self.gram is None else total - self.gram[-1, :-1]

    def squares(self, origin: FloatArray) -> FloatArray:
        """Weighted sum of ``(x - origin)**2``, feature by feature."""
        total = self.weights @ np.square(self.rows - origin)
        return total if self.gram is None else total + np.diagonal(self.gram)[:-1]

    def cancel(self, rows: NDArray[np.floating], weights: FloatArray, tolerance: float = 0.0) -> FloatArray:
        """Take rows out of the buffer where they wait there; return the weights that found no partner.

        Rows are equal if all values are, or differ by at most ``tolerance`` of the largest.
        """
        left = np.array(weights, dtype=np.float64)
        if not self.n_waiting:
            return left
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, row in enumerate(self.rows + 0.0):  # + 0.0 turns -0.0 into 0.0
            places[row.tobytes()].append(place)
        waiting = self.weights.copy()
        for i, row in enumerate(np.asarray(rows, dtype=np.float64) + 0.0):
            found = places.get(row.tobytes(), [])
            if not found and tolerance > 0.0:
                near = np.abs(self.rows - row).max(axis=1) <= tolerance * np.abs(row).max()
                found = np.flatnonzero(near).tolist()
            # From the newest back, which keeps what is left in the order in which it came.
            for place in reversed(found):
                taken = min(left[i], max(waiting[place], 0.0))
                left[i] -= taken
                waiting[place] -= taken
        stays = waiting != 0.0
        self._rows, self._weights = self.rows[stays], waiting[stays]
        self.n_waiting = len(self._weights)
        return left

    def move(self, shift: FloatArray) -> None:
        """Make the Gram matrix relative to ``origin + shift``; waiting rows are raw and stay."""
        if self.gram is None:
            return
        count, sums = self.gram[-1, -1], -self.gram[-1, :-1]
        cross = np.outer(sums, shift)
        self.gram = self.gram.copy()
        self.gram[:-1, :-1] += np.tril(count * np.outer(shift, shift) - cross - cross.T)
        self.gram[-1, :-1] += count * shift

    def grow(self, n_features: int) -> None:
        """Append features that were zero in all rows so far (and have origin zero)."""
        added = n_features - self.n_features
        if self.gram is not None:
            gram = np.zeros((n_features + 1,) * 2)
            gram[: self.n_features, : self.n_features] = self.gram[:-1, :-1]
            gram[-1, : self.n_features] = self.gram[-1, :-1]
            gram[-1, -1] = self.gram[-1, -1]
            self.gram = gram
        self._rows = np.pad(self.rows, ((0, 0), (0, added)))
        self._weights = self.weights.copy()
        self.n_features = n_features

    def rearrange(self, old: NDArray[np.intp]) -> None:
        """Bring the feature at ``old[k]`` to place ``k``, for every ``k``."""
        if self.gram is not None:
            places = np.append(old, self.n_features)
            self.gram = np.tril(symmetric(self.gram)[np.ix_(places, places)])
        self._rows = np.ascontiguousarray(self.rows[:, old])
        self._weights = self.weights.copy()

    def scale(self, factor: float) -> None:
        """Multiply the weight of every row."""
        if self.gram is not None:
            self.gram = self.gram * factor
        self._weights = self.weights * factor
        self._rows = self.rows
