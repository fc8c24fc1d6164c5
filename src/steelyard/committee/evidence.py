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

from steelyard._types import FloatArray
from steelyard.base import Label

__all__ = ["Evidence", "Sides"]

_HORIZON = 1000  # rows that the evidence covers
_LEAST = 100  # rows of a class that are looked at however rare it is
_SHARE_HALF_LIFE = 1000.0  # rows, of the shares of the classes


@dataclass(frozen=True)
class Sides:
    """Recent scores of both sides of a plane, oldest first, one column an expert."""

    positive: FloatArray
    negative: FloatArray
    share: float  # of the positive side among recent rows


class _Ring:
    """The last rows of one class: their scores, and what tells them apart."""

    __slots__ = ("keys", "n", "next", "scores")

    def __init__(self, n_experts: int, n_planes: int) -> None:
        self.scores = np.full((_HORIZON, n_experts, n_planes), np.nan)
        self.keys = np.zeros(_HORIZON, dtype=np.uint64)
        self.n = self.next = 0

    def copy(self) -> _Ring:
        twin = object.__new__(_Ring)
        twin.scores, twin.keys = self.scores.copy(), self.keys.copy()
        twin.n, twin.next = self.n, self.next
        return twin

    def push(self, scores: FloatArray, keys: NDArray[np.uint64]) -> None:
        scores, keys = scores[-_HORIZON:], keys[-_HORIZON:]
        places = (self.next + np.arange(len(keys))) % _HORIZON
        self.scores[places], self.keys[places] = scores, keys
        self.next = int((self.next + len(keys)) % _HORIZON)
        self.n = min(self.n + len(keys), _HORIZON)

    def last(self, most: int) -> FloatArray:
        """The newest rows, oldest first."""
        n = min(self.n, most)
        return self.scores[(self.next - n + np.arange(n)) % _HORIZON]

    def drop(self, keys: NDArray[np.uint64]) -> None:
        """Take out one row for each of the keys that is there."""
        order = (self.next - self.n + np.arange(self.n)) % _HORIZON
        kept_scores, kept_keys = self.scores[order], self.keys[order]
        stays = np.ones(len(order), dtype=bool)
        for key in keys:
            found = np.flatnonzero(stays & (kept_keys == key))
            stays[found[:1]] = False
        self.n = self.next = 0
        self.push(kept_scores[stays], kept_keys[stays])


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
        self._rings: dict[Label, _Ring] = {}
        self._counts: dict[Label, float] = {}

    @property
    def n_planes(self) -> int:
        """Columns of a score."""
        return n_planes(len(self.classes))

    def know(self, classes: Sequence[Label]) -> None:
        """Follow the classes that there are now."""
        if list(classes) == self.classes:
            return
        old, self.classes = self.classes, list(classes)
        rings: dict[Label, _Ring] = {}
        for label in self.classes:
            ring = rings[label] = _Ring(self.n_experts, self.n_planes)
            before = self._rings.get(label)
            if before is not None:
                scores, n = before.last(_HORIZON), before.n
                keys = before.keys[(before.next - n + np.arange(n)) % _HORIZON]
                ring.push(align(scores, old, self.classes), keys)
        self._rings = rings
        self._counts = {label: self._counts.get(label, 0.0) for label in self.classes}

    def push(
        self,
        labels: Sequence[Label],
        codes: NDArray[np.int32],
        scores: FloatArray | None,
        keys: NDArray[np.uint64],
    ) -> None:
        """Take in rows whose labels are known now; without scores they count for the shares alone."""
        fading = 0.5 ** (len(codes) / _SHARE_HALF_LIFE)
        for label in self._counts:
            self._counts[label] *= fading
        for code, label in enumerate(labels):
            mine = np.flatnonzero(codes == code)
            self._counts[label] += float(len(mine))
            if scores is not None and len(mine):
                self._rings[label].push(scores[mine], keys[mine])

    def drop(self, label: Label, keys: NDArray[np.uint64]) -> None:
        """Take out what is there of rows that are forgotten."""
        if label in self._rings:
            self._rings[label].drop(keys)
            self._counts[label] = max(0.0, self._counts[label] - len(keys))

    def shares(self) -> FloatArray:
        """Share of each class among recent rows."""
        counts = np.array([self._counts[label] for label in self.classes])
        total = counts.sum()
        return counts / total if total > 0.0 else np.full(len(counts), 1.0 / max(len(counts), 1))

    def sides(self) -> list[Sides]:
        """Recent scores of both sides of every plane."""
        shares = self.shares()
        recent = [
            self._rings[label].last(int(np.clip(round(_HORIZON * share), _LEAST, _HORIZON)))
            for label, share in zip(self.classes, shares, strict=True)
        ]
        planes = [1] if len(self.classes) == 2 else range(len(self.classes))
        return [
            Sides(
                recent[c][:, :, p],
                np.concatenate([rows[:, :, p] for other, rows in enumerate(recent) if other != c]),
                float(shares[c]),
            )
            for p, c in enumerate(planes)
        ]

    def copy(self) -> Evidence:
        """The same on its own."""
        twin = Evidence(self.n_experts)
        twin.classes, twin._counts = list(self.classes), dict(self._counts)
        twin._rings = {label: ring.copy() for label, ring in self._rings.items()}
        return twin

    # -- files --------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values."""
        rings = [self._rings[label] for label in self.classes]
        return {
            "classes": list(self.classes),
            "counts": [self._counts[label] for label in self.classes],
            "scores": [ring.last(_HORIZON) for ring in rings],
            "keys": [ring.keys[(ring.next - ring.n + np.arange(ring.n)) % _HORIZON] for ring in rings],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> Self:
        """What such values describe; ValueError if they make no sense."""
        evidence = cls(n_experts)
        evidence.know(state["classes"])
        parts = zip(state["classes"], state["counts"], state["scores"], state["keys"], strict=True)
        for label, count, scores, keys in parts:
            if scores.shape != (len(keys), n_experts, evidence.n_planes) or keys.dtype != np.uint64:
                raise ValueError("the evidence does not have the shape of the experts")
            evidence._rings[label].push(scores, keys)
            evidence._counts[label] = float(count)
        return evidence


def n_planes(n_classes: int) -> int:
    """Two classes share one plane; a single class has one that says nothing."""
    return n_classes if n_classes > 2 else 1


def align(scores: FloatArray, known: Sequence[Label], classes: Sequence[Label]) -> FloatArray:
    """Scores over the classes that an expert knew, as columns of the classes that there are.

    The last axis of ``scores`` has a column for each of ``known``, or a single one if these are two (or
    fewer). A class that was not known has no score (NaN), and whoever knew fewer than two has none at all.
    """
    known, classes = list(known), list(classes)
    if known == classes and len(classes) >= 2:
        return scores
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
