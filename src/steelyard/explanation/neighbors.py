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
                for nearest in _smallest(line):
                    place = own[nearest]
                    number = None if remembered.numbers is None else int(remembered.numbers[place])
                    values = remembered.X[place] if remembered.has_values else None
                    near[row].append(NearRow(remembered.labels[place], float(line[nearest]), number, values))
    return [sorted(found, key=lambda one: one.distance) for found in near]


def _smallest(distances: FloatArray) -> list[int]:
    """Return the indices of the smallest distances; of equal distances, newer rows come first."""
    k = min(_NEAREST_ROWS, len(distances))
    limit = np.partition(distances, k - 1)[k - 1]
    places = np.flatnonzero(distances <= limit)[::-1]
    nearest: list[int] = places[np.argsort(distances[places], kind="stable")][:k].tolist()
    return nearest


# -- changes of a row that change the prediction -----------------------------------------------------


def find_changes(
    row: FloatArray,
    support: FloatArray,
    remembered: RememberedRows | None,
    learner: Any,
    names: Sequence[str],
) -> list[Change]:
    """Return small changes of a row with which a learner would predict another class, smallest first.

    Columns are tried one at a time, with values of remembered rows. If no single column suffices, the value
    that helps most is kept and another column is tried, up to four columns. ``support`` has the contribution
    of each column to the score of the predicted class.
    """
    scores, classes = learner._explained_scores(row[None])
    if remembered is None or not remembered.has_values or len(classes) < 2:
        return []
    now = int(winners(scores, len(classes))[0])
    has_values = np.asarray(~np.isnan(remembered.X).all(axis=0))
    columns = [c for c in np.argsort(-support, kind="stable").tolist() if has_values[c]]
    columns = columns[:_MAX_TRIED_COLUMNS]
    tried, changed = row, list[int]()
    while columns and len(changed) < _MAX_CHANGED_COLUMNS:
        # Each trial is a copy of the row with one more changed column.
        parts = [_tried_values(remembered.X[:, c], tried[c]) for c in columns]
        values, sizes = (np.concatenate(each) for each in zip(*parts, strict=True))
        places = np.repeat(columns, [len(part) for part, _ in parts])
        trials = np.repeat(tried[None], len(places), axis=0)
        trials[np.arange(len(places)), places] = values
        scores = learner._explained_scores(trials)[0]
        predicted = winners(scores, len(classes))
        if (predicted != now).any():
            sizes[predicted == now] = np.inf
            smallest = [int(np.where(places == c, sizes, np.inf).argmin()) for c in columns]
            best_first = sorted(
                (sizes[t], t)
                for c, t in zip(columns, smallest, strict=True)
                if places[t] == c and predicted[t] != now
            )
            return [
                Change(
                    {names[c]: float(trials[t, c]) for c in (*changed, int(places[t]))},
                    classes[predicted[t]],
                    float(scores[t, 0]) if scores.shape[1] == 1 else scores[t],
                )
                for _, t in best_first[:_MAX_CHANGES]
            ]
        best = int(np.argmin(_margins(scores, now)))
        tried, changed = trials[best], [*changed, int(places[best])]
        columns.remove(changed[-1])
    return []


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
