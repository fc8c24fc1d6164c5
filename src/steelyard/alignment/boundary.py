"""Kernel boundary alignment in kernel values alone: the shift, the boundary points and their bumps.

Letters of the paper and names here: eta ``shift``, beta ``beta``, tau_b^2 ``widths``, D(x) ``factor``, SI+
and SI- the support rows of the rarer side (sign +1) and of the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, Reading, View, blocks, combined

__all__ = [
    "COST_NAMES",
    "DEFAULT_COSTS",
    "BoundaryBumps",
    "boundary_shift",
    "bump_widths",
    "make_boundary_bumps",
    "match_pairs",
    "shift_cost",
]

Cost = Callable[[FloatArray], FloatArray]  # of margins, decreasing
Costs = tuple[str | Cost, str | Cost]  # c_p of missed rows of the rarer side, c_n of false alarms
_LOSSES: dict[str, Cost] = {
    "exponential": lambda margins: np.exp(-margins),
    "logistic": lambda margins: np.logaddexp(0.0, -margins),
    "hinge": lambda margins: np.maximum(0.0, 1.0 - margins),
}
COST_NAMES = tuple(_LOSSES)
DEFAULT_COSTS: Costs = ("exponential", "logistic")  # of the paper, where nothing better is known
_TRIED = 33  # shifts that are tried before the best is refined
_MOST_PAIRS = 2000  # of pairs="all"; beyond that an even selection of them
_NEAREST = 5  # of neighbours="nearest"


def shift_cost(shift: float, scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Cost of moving the boundary: c_p of missed rows of the rarer side and c_n of the others.

    Only rows that are misclassified inside the margin count.
    """
    counted = (np.abs(scores) <= 1.0) & (scores * signs < 0.0)
    margins = signs[counted] * (scores[counted] + shift)
    rare = signs[counted] > 0
    of_missed, of_others = (_LOSSES[cost] if isinstance(cost, str) else cost for cost in costs)
    return float(np.sum(of_missed(margins[rare])) + np.sum(of_others(margins[~rare])))


def boundary_shift(scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Return the shift in [0, 1] of least cost; costs need not be convex in it."""
    counted = (np.abs(scores) <= 1.0) & (scores * signs < 0.0)
    scores, signs = scores[counted], signs[counted]
    if not (signs > 0).any():
        return 0.0  # only false alarms: no shift is too small
    if not (signs < 0).any():
        return 1.0
    tried = np.linspace(0.0, 1.0, _TRIED)
    best = min(tried, key=lambda shift: shift_cost(shift, scores, signs, costs))
    bounds = (max(0.0, best - tried[1]), min(1.0, best + tried[1]))
    found = minimize_scalar(
        shift_cost, bounds=bounds, args=(scores, signs, costs), method="bounded", options={"xatol": 1e-8}
    )
    ends = [(shift_cost(end, scores, signs, costs), end) for end in (0.0, 1.0)]
    return float(min([(float(found.fun), float(found.x)), *ends])[1])


def match_pairs(view: View, rare: Indices, other: Indices, pairs: str) -> tuple[Indices, Indices]:
    """Pairs of support rows of opposite sides: each with its nearest opposite, or every pair."""
    if pairs == "all":
        first, second = (grid.ravel() for grid in np.meshgrid(rare, other, indexing="ij"))
        wanted = min(len(first), _MOST_PAIRS)
        chosen = np.linspace(0, len(first) - 1, wanted).astype(np.intp)
        return first[chosen], second[chosen]
    own = view.self_similarity()
    nearest_of_rare = np.empty(len(rare), np.intp)
    nearest_of_other, best = np.zeros(len(other), np.intp), np.full(len(other), np.inf)
    for part in blocks(len(rare), len(other)):
        mine = rare[part]
        squared = own[mine, None] + own[other] - 2.0 * view.values(mine, other)
        nearest_of_rare[part] = other[squared.argmin(axis=1)]
        closest = squared.argmin(axis=0)
        distance = squared[closest, np.arange(len(other))]
        nearest_of_other = np.where(distance < best, mine[closest], nearest_of_other)
        best = np.minimum(best, distance)
    matched = np.concatenate(
        [np.column_stack([rare, nearest_of_rare]), np.column_stack([nearest_of_other, other])]
    )
    first, second = np.unique(matched, axis=0).T
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


@dataclass(frozen=True)
class BoundaryBumps:
    """Gaussian bumps in feature space around points between rows of opposite sides.

    Attributes
    ----------
    rare, other : ndarray of shape (n_points,)
        Positions of the two rows among the reference rows.
    beta : float
        A point is ``(1 - beta)`` of the first row and ``beta`` of the second.
    lengths : ndarray of shape (n_points,)
        Squared length of each point in feature space.
    widths : ndarray of shape (n_points,)
        Squared width of each bump.
    combine, floor
        See :class:`~steelyard.alignment.view.Reading`.
    scale : float
        What the combined bumps are multiplied by.
    """

    rare: Indices
    other: Indices
    beta: float
    lengths: FloatArray
    widths: FloatArray
    combine: str
    floor: float
    scale: float = 1.0

    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        """Equation 6: from rows to boundary points, by the kernel trick."""
        products = (1.0 - self.beta) * view.values(rows, self.rare) + self.beta * view.values(
            rows, self.other
        )
        squared = view.self_similarity()[rows, None] + self.lengths - 2.0 * products
        return np.maximum(squared, 0.0)

    def factor(self, view: View) -> FloatArray:
        """D(x) of every row of the view."""
        result = np.empty(view.n_rows)
        if self.combine == "max":
            _native.largest_exponents(
                *view.arrays(),
                self.rare,
                self.other,
                self.beta,
                self.lengths,
                self.widths,
                result,
                view.is_symmetric,
                num_threads(),
            )
            return self.scale * (self.floor + (1.0 - self.floor) * np.exp(result))
        for rows in blocks(view.n_rows, len(self.rare)):
            bumps = np.exp(-self.squared_distances(view, rows) / self.widths)
            result[rows] = combined(bumps, self.combine)
        return self.scale * (self.floor + (1.0 - self.floor) * result)


def make_boundary_bumps(
    view: View, pairs: tuple[Indices, Indices], beta: float, margin: float, reading: Reading
) -> BoundaryBumps:
    """Bumps on the points between the given pairs of rows; rows and reference rows are the same here."""
    rare, other = pairs
    own, between = view.self_similarity(), view.pair_values(rare, other)
    lengths = (1.0 - beta) ** 2 * own[rare] + beta**2 * own[other] + 2.0 * beta * (1.0 - beta) * between
    gaps = own[rare] + own[other] - 2.0 * between
    widths = bump_widths(view, pairs, beta, lengths, margin=margin, neighbours=reading.neighbours)
    # A lone point takes the distance between its two rows; rows of equal features take any width.
    widths = np.where(widths > 0.0, widths, np.where(gaps > 0.0, gaps, 1.0))
    return BoundaryBumps(rare, other, beta, lengths, widths, reading.combine, reading.floor)


def bump_widths(
    view: View,
    pairs: tuple[Indices, Indices],
    beta: float,
    lengths: FloatArray,
    *,
    margin: float,
    neighbours: str,
) -> FloatArray:
    """Equation 7: mean squared distance to the other boundary points that are near; 0 where there is none."""
    kernel, factor, _, _ = view.arrays()
    limit = {"margin": margin**2, "printed": margin}.get(neighbours, np.inf)
    most = _NEAREST if neighbours == "nearest" else len(lengths)
    widths = np.empty(len(lengths))
    _native.mean_near_distances(kernel, factor, *pairs, beta, lengths, limit, most, widths, num_threads())
    return widths
