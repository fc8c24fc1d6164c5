"""Nearest remembered rows of each class, and changes of a row that would change its prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from steelyard._labels import winners
from steelyard._types import FloatArray, IntArray

_NEAREST_ROWS = 3  # number of nearest rows per class
_MAX_CHANGES = 3  # maximum number of changes per row
_MAX_CHANGED_COLUMNS = 4  # maximum number of columns per change
_MAX_TRIED_COLUMNS = 20  # number of columns to try: those that support the prediction most
_TRIED_QUANTILES = np.linspace(0.02, 0.98, 13)
_MAX_COMPARED_ROWS = 2000
_MAX_DISTANCES = 1 << 22  # maximum number of distances in memory at a time


@dataclass(frozen=True)
class NearRow:
    """Remembered row near an explained row.

    Attributes
    ----------
    label : label
        Class of the remembered row.
    distance : float
        Mean over the columns of the absolute differences, in standard deviations; 0 for equal rows.
    number : int or None
        Index of the remembered row in the stream, counted from 0, or None if the learner does not count rows.
    values : ndarray of shape (n_columns,) or None
        Values of the remembered row, or None if the learner does not keep the original columns.
    """

    label: Any
    distance: float
    number: int | None
    values: NDArray[Any] | None


@dataclass(frozen=True)
class Change:
    """Changed values of a row with which the model would predict another class.

    Attributes
    ----------
    values : dict of str to object
        New value of each changed column.
    label : label
        The class that would be predicted.
    score : float or ndarray of shape (n_classes,)
        The score with these values.
    """

    values: dict[str, Any]
    label: Any
    score: Any


@dataclass(frozen=True)
class RememberedRows:
    """Remembered rows of a learner with their labels."""

    # The rows. If ``has_values`` is False, they are already transformed for the comparison.
    X: FloatArray
    labels: NDArray[Any] | None = None  # classes of the rows, or None if they are unknown, shape (n_rows,)
    # Indices of the rows in the stream, or None if they are unknown, shape (n_rows,).
    numbers: IntArray | None = None
    # Transformation of rows before distances are computed. With None, the columns are standardized.
    compare: Callable[[FloatArray], FloatArray] | None = None
    has_values: bool = True  # whether ``X`` has the original columns

    def near_row(self, place: int, distance: float) -> NearRow:
        """Return the remembered row with index ``place``, and its distance from the explained row."""
        label = None if self.labels is None else self.labels[place]
        number = None if self.numbers is None else int(self.numbers[place])
        return NearRow(label, float(distance), number, self.X[place] if self.has_values else None)

    def compared(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``X`` and the remembered rows in the coordinates in which distances are computed."""
        if self.compare is not None:
            return self.compare(X), self.compare(self.X) if self.has_values else self.X
        spread = self.X.std(axis=0)
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0)
        return X * scale, self.X * scale


def find_nearest(remembered: RememberedRows | None, X: FloatArray) -> list[list[NearRow]]:
    """Return the three nearest remembered rows of each class for each row, nearest first."""
    if remembered is None or remembered.labels is None or not len(remembered.X):
        return [[] for _ in X]
    near: list[list[NearRow]] = [[] for _ in X]
    labels = remembered.labels.tolist()
    rows, others = remembered.compared(X)
    for label in sorted(set(labels)):
        own = np.flatnonzero([known == label for known in labels])[-_MAX_COMPARED_ROWS:]
        step = max(1, _MAX_DISTANCES // len(own))
        for begin in range(0, len(X), step):
            distances = cdist(rows[begin : begin + step], others[own], "cityblock") / others.shape[1]
            for row, line in enumerate(distances, begin):
                near[row] += [remembered.near_row(own[place], line[place]) for place in _smallest(line)]
    return [sorted(found, key=lambda one: one.distance) for found in near]


def _smallest(distances: FloatArray) -> list[int]:
    """Return the indices of the smallest distances; of equal distances, newer rows come first."""
    k = min(_NEAREST_ROWS, len(distances))
    limit = np.partition(distances, k - 1)[k - 1]
    places = np.flatnonzero(distances <= limit)[::-1]
    nearest: list[int] = places[np.argsort(distances[places], kind="stable")][:k].tolist()
    return nearest


# -- changes of a row that change the prediction -----------------------------------------------------


@dataclass(frozen=True)
class ChangeSearch:
    """Search for small changes of a row that change its prediction.

    Columns are tried one at a time, with values of remembered rows. If no single column suffices, the value
    that helps most is kept and another column is tried, up to four columns.
    """

    # Function that returns the scores of rows, of shape (n_rows, n_scores).
    decide: Callable[[FloatArray], FloatArray]
    classes: NDArray[Any]  # labels of the classes, shape (n_classes,)
    names: Sequence[str]  # column names
    remembered: RememberedRows | None  # source of the values to try; if None, no changes are found

    def of_row(self, row: FloatArray, support: FloatArray) -> list[Change]:
        """Return the changes of a row, smallest first.

        ``support`` has the contribution of each column to the score of the predicted class.
        """
        if self.remembered is None or not self.remembered.has_values or len(self.classes) < 2:
            return []
        now = int(winners(self.decide(row[None]), len(self.classes))[0])
        has_values = np.asarray(~np.isnan(self.remembered.X).all(axis=0))
        columns = [c for c in np.argsort(-support, kind="stable").tolist() if has_values[c]]
        columns = columns[:_MAX_TRIED_COLUMNS]
        tried, changed = row, list[int]()
        while columns and len(changed) < _MAX_CHANGED_COLUMNS:
            trials, places, sizes = self._trials(tried, columns)
            scores = self.decide(trials)
            is_other = winners(scores, len(self.classes)) != now
            if is_other.any():
                sizes[~is_other] = np.inf
                smallest = {c: int(np.where(places == c, sizes, np.inf).argmin()) for c in columns}
                best_first = sorted(
                    (sizes[t], t) for c, t in smallest.items() if is_other[t] and places[t] == c
                )
                return [
                    self._change(trials[trial], scores[trial], [*changed, int(places[trial])])
                    for _, trial in best_first[:_MAX_CHANGES]
                ]
            best = int(np.argmin(_margins(scores, now)))
            tried, changed = trials[best], [*changed, int(places[best])]
            columns.remove(changed[-1])
        return []

    def _trials(self, row: FloatArray, columns: list[int]) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return copies of a row with one changed column each, the changed columns, and the sizes of changes.

        Only ``columns`` are changed.
        """
        assert self.remembered is not None
        values, sizes = zip(*(_tried_values(self.remembered.X[:, c], row[c]) for c in columns), strict=True)
        places = np.repeat(columns, [len(part) for part in values])
        trials = np.repeat(row[None], len(places), axis=0)
        trials[np.arange(len(places)), places] = np.concatenate(values)
        return trials, places, np.concatenate(sizes)

    def _change(self, row: FloatArray, score: FloatArray, columns: Sequence[int]) -> Change:
        label = self.classes[winners(score[None], len(self.classes))[0]]
        values = {self.names[c]: float(row[c]) for c in columns}
        return Change(values, label, float(score[0]) if len(score) == 1 else score)


def _margins(scores: FloatArray, place: int) -> FloatArray:
    """Return how much the score of each row can change before another class than ``place`` is predicted."""
    if scores.shape[1] == 1:
        return scores[:, 0] if place else -scores[:, 0]
    return np.asarray(scores[:, place] - np.delete(scores, place, axis=1).max(axis=1))


def _tried_values(column: FloatArray, now: float) -> tuple[FloatArray, FloatArray]:
    """Return remembered values of a column, and the share of rows between each and the current value."""
    known = np.sort(column[~np.isnan(column)])
    if not len(known):
        return known, known
    values = np.unique(known[np.round(_TRIED_QUANTILES * (len(known) - 1)).astype(int)])
    rank, own = np.searchsorted(known, values) / len(known), np.searchsorted(known, now) / len(known)
    return values, np.abs(rank - own)
