"""What was answered lately, before the labels were known: the evidence that weights and cuts rest on.

A row that is learned was first scored by what had been learned before it. Of every class the last such
scores are kept; they say how well each expert has predicted lately, and what a score of its means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray
from steelyard.base import Label

__all__ = ["Evidence", "Sides", "align", "n_planes", "with_newcomers"]

_HORIZON = 1000  # rows that the evidence covers
_LEAST = (20, 100)  # rows of a class that are looked at however rare it is: of many classes, and of few
_AFTER_DRIFT = (200, 25)  # rows that are kept when answers became worse: the last, and of each class
_SLACK = 0.5  # rows beyond these, as a share of them, before they are cut off
_SHARE_HALF_LIFE = 1000.0  # rows, of the shares of the classes


@dataclass(frozen=True)
class Sides:
    """Recent scores of both sides of a plane, oldest first, one column an expert."""

    positive: FloatArray
    negative: FloatArray
    share: float  # of the positive side among recent rows


class _Log:
    """Rows in the order in which they came: their scores, their classes, and what tells them apart.

    It never changes: what is added makes another one. Both share their storage, so a row costs no copy of the
    others, and whoever still holds the one before may go back to it.
    """

    __slots__ = ("_store", "n")

    def __init__(self, store: tuple[FloatArray, IntArray, NDArray[np.uint64]], n: int) -> None:
        self._store = store
        self.n = n

    @classmethod
    def empty(cls, n_experts: int, n_planes: int, n_rows: int = 0) -> _Log:
        scores = np.empty((n_rows, n_experts, n_planes))
        return cls((scores, np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.uint64)), 0)

    @property
    def scores(self) -> FloatArray:
        return self._store[0][: self.n]

    @property
    def places(self) -> IntArray:
        """Of the classes in the list of classes."""
        return self._store[1][: self.n]

    @property
    def keys(self) -> NDArray[np.uint64]:
        return self._store[2][: self.n]

    def added(self, scores: FloatArray, places: IntArray, keys: NDArray[np.uint64]) -> _Log:
        n = self.n + len(places)
        log = self
        if n > len(self._store[1]):
            _, n_experts, n_planes = self._store[0].shape
            log = _Log.empty(n_experts, n_planes, 2 * n + 64)
            _write(log._store, 0, (self.scores, self.places, self.keys))
        _write(log._store, self.n, (scores, places, keys))
        return _Log(log._store, n)

    def part(self, rows: Any) -> _Log:
        store = self.scores[rows], self.places[rows], self.keys[rows]
        return _Log(store, len(store[1]))


def _write(store: tuple[NDArray[Any], ...], begin: int, rows: tuple[NDArray[Any], ...]) -> None:
    for column, values in zip(store, rows, strict=True):
        column[begin : begin + len(values)] = values


class Evidence:
    """Recent out-of-sample scores of some experts, class by class.

    Parameters
    ----------
    n_experts : int
        Number of experts.

    Notes
    -----
    Two classes have one plane, whose positive side is the second class; more have one each. When a class
    comes or goes, the scores that are there are put in the new order, and what an expert could not know is
    missing (NaN).
    """

    def __init__(self, n_experts: int) -> None:
        self.n_experts = n_experts
        self.classes: list[Label] = []
        self._log = _Log.empty(n_experts, 1)
        self._counts: FloatArray = np.zeros(0)  # faded numbers of rows of the classes

    @property
    def n_planes(self) -> int:
        """Columns of a score."""
        return n_planes(len(self.classes))

    def know(self, classes: Sequence[Label]) -> None:
        """Follow the classes that there are now."""
        if list(classes) == self.classes:
            return
        old, self.classes = self.classes, list(classes)
        now = {label: place for place, label in enumerate(self.classes)}
        moved = np.array([now.get(label, -1) for label in old], dtype=np.int64)
        counts, self._counts = self._counts, np.zeros(len(now))
        self._counts[moved[moved >= 0]] = counts[moved >= 0]
        log, self._log = self._log, _Log.empty(self.n_experts, self.n_planes)
        if log.n:
            log = log.part(moved[log.places] >= 0)
            self._log = self._log.added(align(log.scores, old, self.classes), moved[log.places], log.keys)

    def push(self, places: IntArray, scores: FloatArray | None, keys: NDArray[np.uint64]) -> None:
        """Take in rows whose labels are known now; without scores they count for the shares alone.

        ``places`` are those of their classes in :attr:`classes`, -1 for one that is not there.
        """
        if (places < 0).any():
            known = places >= 0
            scores = None if scores is None else scores[known]
            places, keys = places[known], keys[known]
        fading = 0.5 ** (len(places) / _SHARE_HALF_LIFE)
        self._counts = self._counts * fading + np.bincount(places, minlength=len(self.classes))
        if scores is not None:
            self._log = self._log.added(scores, places, keys)
            if self._log.n > (1.0 + _SLACK) * _HORIZON:  # no use to look before
                looked_at = self._looked_at()
                if self._log.n > (1.0 + _SLACK) * len(looked_at):
                    self._log = self._log.part(looked_at)

    def shorten(self) -> None:
        """Let go of rows from before answers became worse: of each class only a few of them are kept."""
        last_first = self._log.places[::-1]
        behind = np.zeros(len(last_first), dtype=np.int64)  # rows of its own class that came after a row
        for place in range(len(self.classes)):
            mine = last_first == place
            behind[mine] = np.arange(np.count_nonzero(mine))
        kept = (np.arange(len(last_first)) < _AFTER_DRIFT[0]) | (behind < _AFTER_DRIFT[1])
        self._log = self._log.part(kept[::-1])

    def drop(self, label: Label, keys: NDArray[np.uint64]) -> None:
        """Take out what is there of rows that are forgotten."""
        if label not in self.classes:
            return
        place = self.classes.index(label)
        mine = np.flatnonzero(self._log.places == place)
        stays = np.ones(self._log.n, dtype=bool)
        for key in keys:
            stays[mine[stays[mine] & (self._log.keys[mine] == key)][:1]] = False
        self._log = self._log.part(stays)
        self._counts = self._counts.copy()
        self._counts[place] = max(0.0, self._counts[place] - len(keys))

    def shares(self) -> FloatArray:
        """Share of each class among recent rows."""
        total, n = self._counts.sum(), len(self._counts)
        return self._counts / total if total > 0.0 else np.full(n, 1.0 / max(n, 1))

    def _looked_at(self) -> NDArray[np.intp]:
        """Which rows count: the last ones of every class, by its share, oldest first."""
        least = int(np.clip(_HORIZON // max(len(self.classes), 1), *_LEAST))
        wanted = np.clip(np.rint(_HORIZON * self.shares()), least, _HORIZON).astype(np.int64)
        places = self._log.places
        by_class = np.argsort(places, kind="stable")
        places = places[by_class]
        behind = np.bincount(places, minlength=len(wanted)).cumsum()[places] - np.arange(len(places))
        return np.sort(by_class[behind <= wanted[places]])

    def recent(self) -> tuple[IntArray, FloatArray]:
        """Places and scores (n_rows, n_experts, n_planes) of the rows that count, oldest first."""
        rows = self._looked_at()
        return self._log.places[rows], self._log.scores[rows]

    def sides(self) -> list[Sides]:
        """Recent scores of both sides of every plane."""
        places, scores = self.recent()
        shares = self.shares()
        planes = [1] if len(self.classes) == 2 else range(len(self.classes))
        return [
            Sides(scores[places == place, :, plane], scores[places != place, :, plane], float(shares[place]))
            for plane, place in enumerate(planes)
        ]

    def copy(self) -> Evidence:
        """The same, which may go on by itself; only one of the two may."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    # -- files --------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        return {
            "classes": list(self.classes),
            "counts": self._counts.tolist(),
            "places": self._log.places,
            "scores": self._log.scores,
            "keys": self._log.keys,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> Self:
        """What such values describe; ValueError if they make no sense."""
        evidence = cls(n_experts)
        evidence.know(state["classes"])
        scores, keys = state["scores"], state["keys"]
        if isinstance(keys, list):  # files of version 0.2 have the rows class by class
            places = np.repeat(np.arange(len(keys)), [len(part) for part in keys])
            scores, keys = (np.concatenate(parts) if parts else np.zeros(0) for parts in (scores, keys))
        else:
            places = np.asarray(state["places"], dtype=np.int64)
        if len(keys):
            scores = with_newcomers(scores, n_experts, np.nan, axis=1)
            fits = scores.shape == (len(keys), n_experts, evidence.n_planes) and places.shape == keys.shape
            if not fits or keys.dtype != np.uint64:
                raise ValueError("the evidence does not have the shape of the experts")
            if places.min() < 0 or places.max() >= len(evidence.classes):
                raise ValueError("the evidence is of classes that are not there")
            evidence._log = evidence._log.added(scores, places, keys)
        evidence._counts = np.asarray(state["counts"], dtype=np.float64)
        if evidence._counts.shape != (len(evidence.classes),):
            raise ValueError("the evidence does not have the shape of its classes")
        return evidence


def n_planes(n_classes: int) -> int:
    """Two classes share one plane; a single class has one that says nothing."""
    return n_classes if n_classes > 2 else 1


def with_newcomers(known: Any, n_experts: int, value: float, axis: int = 0) -> NDArray[Any]:
    """What a file tells about each expert, with a value for experts that came after it was written."""
    known = np.asarray(known, dtype=np.float64)
    missing = n_experts - known.shape[axis] if known.ndim > axis else 0
    widths = [(0, max(missing, 0) if place == axis else 0) for place in range(known.ndim)]
    return np.pad(known, widths, constant_values=value)


def align(scores: FloatArray, known: Sequence[Label], classes: Sequence[Label]) -> FloatArray:
    """Scores over the classes that an expert knew, as columns of the classes that there are.

    The last axis of ``scores`` has a column for each of ``known``, or a single one if these are two (or
    fewer). A class that was not known has no score (NaN), and whoever knew fewer than two has none at all.
    """
    if known == classes and len(classes) >= 2:
        return scores
    known, classes = list(known), list(classes)
    out = np.full((*scores.shape[:-1], n_planes(len(classes))), np.nan)
    if len(known) < 2:
        return out
    columns = {known[0]: -scores[..., 0], known[1]: scores[..., 0]} if len(known) == 2 else {}
    columns = columns or {label: scores[..., column] for column, label in enumerate(known)}
    if len(classes) == 2:
        if classes[1] in columns and classes[0] in columns:
            out[..., 0] = columns[classes[1]]
        return out
    for column, label in enumerate(classes):
        if label in columns:
            out[..., column] = columns[label]
    return out
