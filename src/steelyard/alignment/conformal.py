"""Adaptive conformal transformation (ACT): Gaussian bumps around the support rows in input space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, Variant, View, blocks, combined


@dataclass(frozen=True)
class SupportBumps:
    """Gaussian bumps in input space around support rows."""

    centers: Indices  # indices of the support rows among the reference rows, shape (n_bumps,)
    widths: FloatArray  # squared width of each bump, shape (n_bumps,)
    combine: str  # as in Variant
    floor: float
    scale: float = 1.0  # factor by which the combined bumps are multiplied

    def factor(self, view: View) -> FloatArray:
        """Return the conformal factor D(x) of every row of the view."""
        assert view.input_distances is not None
        result = np.empty(view.n_rows)
        for rows in blocks(view.n_rows, len(self.centers)):
            squared = view.input_distances(rows, self.centers)
            result[rows] = combined(np.exp(-squared / self.widths), self.combine)
        return self.scale * (self.floor + (1.0 - self.floor) * result)


def make_support_bumps(view: View, rare: Indices, other: Indices, variant: Variant) -> SupportBumps:
    """Return bumps around the support rows, with widths that depend on the class imbalance.

    The squared width of a bump is the mean squared distance to nearby support rows of the other class. This
    width is scaled so that the class with fewer support rows gets wider bumps than the other class.
    """
    widths = np.concatenate(
        [
            _opposite_distances(view, rare, other) * (len(other) / len(rare)),
            _opposite_distances(view, other, rare) * (len(rare) / len(other)),
        ]
    )
    widths = np.where(widths > 0.0, widths, 1.0)
    return SupportBumps(np.concatenate([rare, other]), widths, variant.combine, variant.floor)


def _opposite_distances(view: View, centers: Indices, opposite: Indices) -> FloatArray:
    """Return the mean squared input-space distance of each center to nearby rows of the other class.

    A row is nearby if its squared distance to the center in feature space is at most the mean of the smallest
    and the largest such distance.
    """
    assert view.input_distances is not None
    own, result = view.self_similarity(), np.empty(len(centers))
    for block in blocks(len(centers), len(opposite)):
        rows = centers[block]
        squared = own[rows, None] + own[opposite] - 2.0 * view.values(rows, opposite)
        middle = (squared.min(axis=1) + squared.max(axis=1)) / 2.0
        near = squared <= middle[:, None]
        distances = view.input_distances(rows, opposite)
        result[block] = np.where(near, distances, 0.0).sum(axis=1) / near.sum(axis=1)
    return result
