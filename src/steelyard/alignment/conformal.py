"""Adaptive conformal transformation: bumps on the support rows themselves, in input space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances, Reading, View, blocks, combined

__all__ = ["SupportBumps", "make_support_bumps"]


@dataclass(frozen=True)
class SupportBumps:
    """Gaussian bumps in input space around support rows.

    Attributes
    ----------
    centers : ndarray of shape (n_bumps,)
        Positions of the support rows among the reference rows.
    widths : ndarray of shape (n_bumps,)
        Squared width of each bump.
    combine, floor, scale
        As in :class:`~steelyard.alignment.boundary.BoundaryBumps`.
    """

    centers: Indices
    widths: FloatArray
    combine: str
    floor: float
    scale: float = 1.0

    def factor(self, view: View) -> FloatArray:
        """D(x) of every row of the view."""
        assert view.input_distances is not None
        result = np.empty(view.n_rows)
        for rows in blocks(view.n_rows, len(self.centers)):
            squared = view.input_distances(rows, self.centers)
            result[rows] = combined(np.exp(-squared / self.widths), self.combine)
        return self.scale * (self.floor + (1.0 - self.floor) * result)


def make_support_bumps(view: View, rare: Indices, other: Indices, reading: Reading) -> SupportBumps:
    """Bumps as wide as the way to the nearer opposite support rows, times the imbalance of support rows.

    A support row of the side with fewer of them gets a wider bump, one of the other side a narrower one.
    """
    assert view.input_distances is not None
    widths = np.concatenate(
        [
            _way_to_opposite(view, rare, other, view.input_distances) * (len(other) / len(rare)),
            _way_to_opposite(view, other, rare, view.input_distances) * (len(rare) / len(other)),
        ]
    )
    widths = np.where(widths > 0.0, widths, 1.0)
    return SupportBumps(np.concatenate([rare, other]), widths, reading.combine, reading.floor)


def _way_to_opposite(view: View, mine: Indices, opposite: Indices, distances: InputDistances) -> FloatArray:
    """Mean squared input distance to those opposite rows that are near in feature space.

    Near is below the middle between the nearest and the farthest of them.
    """
    own, result = view.self_similarity(), np.empty(len(mine))
    for part in blocks(len(mine), len(opposite)):
        rows = mine[part]
        squared = own[rows, None] + own[opposite] - 2.0 * view.values(rows, opposite)
        middle = (squared.min(axis=1) + squared.max(axis=1)) / 2.0
        near = squared <= middle[:, None]
        result[part] = np.where(near, distances(rows, opposite), 0.0).sum(axis=1) / near.sum(axis=1)
    return result
