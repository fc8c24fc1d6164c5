"""Kernel boundary alignment (KBA): boundary shift, boundary points, and Gaussians at the boundary points.

A *bump* is a Gaussian function in feature space, centred at a boundary point. Everything is computed from
kernel values alone.

Symbols of the paper and their names in this module: eta is ``shift``, beta is ``beta``, tau_b^2 is
``widths``, and D(x) is ``factor``. SI+ are the support rows of the rarer class (sign +1), and SI- those of
the other class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, Variant, View, blocks, combined

Cost = Callable[[FloatArray], FloatArray]  # decreasing function that maps margins to costs
# Cost functions for missed rows of the rarer class (c_p) and for false alarms (c_n).
Costs = tuple[str | Cost, str | Cost]
_LOSSES: dict[str, Cost] = {
    "exponential": lambda margins: np.exp(-margins),
    "logistic": lambda margins: np.logaddexp(0.0, -margins),
    "hinge": lambda margins: np.maximum(0.0, 1.0 - margins),
}
COST_NAMES = tuple(_LOSSES)
DEFAULT_COSTS: Costs = ("exponential", "logistic")  # cost functions of the paper
_N_GRID_SHIFTS = 33  # number of shifts in the grid search, before the best one is refined
_MAX_PAIRS = 2000  # maximum number of pairs for pairing="all"; larger sets are thinned to evenly spaced pairs
_N_NEAREST = 5  # number of nearest boundary points that determine a width if neighbours="nearest"


def shift_cost(shift: float, scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Return the cost of a boundary shift: the total cost of missed rows of the rarer class and false alarms.

    Only misclassified rows with scores from -1 to 1 (inside the margin) are counted.
    """
    counted = (np.abs(scores) <= 1.0) & (scores * signs < 0.0)
    margins = signs[counted] * (scores[counted] + shift)
    rare = signs[counted] > 0
    c_p, c_n = (_LOSSES[cost] if isinstance(cost, str) else cost for cost in costs)
    return float(np.sum(c_p(margins[rare])) + np.sum(c_n(margins[~rare])))


def boundary_shift(scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Return the boundary shift in [0, 1] with the lowest cost.

    The cost need not be convex, so a grid search precedes the refinement.
    """
    counted = (np.abs(scores) <= 1.0) & (scores * signs < 0.0)
    scores, signs = scores[counted], signs[counted]
    if not (signs > 0).any():
        return 0.0  # no row of the rarer class is missed, so every shift increases the cost
    if not (signs < 0).any():
        return 1.0
    grid = np.linspace(0.0, 1.0, _N_GRID_SHIFTS)
    best = min(grid, key=lambda shift: shift_cost(shift, scores, signs, costs))
    bounds = (max(0.0, best - grid[1]), min(1.0, best + grid[1]))
    found = minimize_scalar(
        shift_cost, bounds=bounds, args=(scores, signs, costs), method="bounded", options={"xatol": 1e-8}
    )
    ends = [(shift_cost(end, scores, signs, costs), end) for end in (0.0, 1.0)]
    return float(min([(float(found.fun), float(found.x)), *ends])[1])


def match_pairs(view: View, rare: Indices, other: Indices, pairing: str) -> tuple[Indices, Indices]:
    """Return pairs of support rows from opposite classes, as two arrays of row indices.

    With ``pairing="nearest"``, each support row is paired with the nearest support row of the other class.
    With "all", every row is paired with every row of the other class. At most 2,000 pairs are returned.
    """
    if pairing == "all":
        first, second = (grid.ravel() for grid in np.meshgrid(rare, other, indexing="ij"))
        n_pairs = min(len(first), _MAX_PAIRS)
        chosen = np.linspace(0, len(first) - 1, n_pairs).astype(np.intp)
        return first[chosen], second[chosen]
    own = view.self_similarity()
    nearest_of_rare = np.empty(len(rare), np.intp)
    nearest_of_other, best = np.zeros(len(other), np.intp), np.full(len(other), np.inf)
    for block in blocks(len(rare), len(other)):
        rows = rare[block]
        squared = own[rows, None] + own[other] - 2.0 * view.values(rows, other)
        nearest_of_rare[block] = other[squared.argmin(axis=1)]
        closest = squared.argmin(axis=0)
        distance = squared[closest, np.arange(len(other))]
        nearest_of_other = np.where(distance < best, rows[closest], nearest_of_other)
        best = np.minimum(best, distance)
    matched = np.concatenate(
        [np.column_stack([rare, nearest_of_rare]), np.column_stack([nearest_of_other, other])]
    )
    first, second = np.unique(matched, axis=0).T
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


@dataclass(frozen=True)
class BoundaryBumps:
    """Gaussian bumps in feature space around points between rows of opposite classes."""

    rare: Indices  # index of the first row of each point among the reference rows, shape (n_points,)
    other: Indices  # index of the second row
    beta: float  # a point is ``(1 - beta)`` times the first row plus ``beta`` times the second
    lengths: FloatArray  # squared length of each point in feature space, shape (n_points,)
    widths: FloatArray  # squared width of each bump, shape (n_points,)
    combine: str  # as in Variant
    floor: float
    scale: float = 1.0  # factor by which the combined bumps are multiplied

    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        """Return squared distances from rows to boundary points by the kernel trick (equation 6)."""
        products = (1.0 - self.beta) * view.values(rows, self.rare) + self.beta * view.values(
            rows, self.other
        )
        squared = view.self_similarity()[rows, None] + self.lengths - 2.0 * products
        return np.maximum(squared, 0.0)

    def factor(self, view: View) -> FloatArray:
        """Return the conformal factor D(x) of every row of the view."""
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
    view: View, pairs: tuple[Indices, Indices], beta: float, margin: float, variant: Variant
) -> BoundaryBumps:
    """Return bumps centred between the rows of each pair. The kernel view must be symmetric."""
    rare, other = pairs
    own, between = view.self_similarity(), view.pair_values(rare, other)
    lengths = (1.0 - beta) ** 2 * own[rare] + beta**2 * own[other] + 2.0 * beta * (1.0 - beta) * between
    gaps = own[rare] + own[other] - 2.0 * between
    widths = bump_widths(view, pairs, beta, lengths, margin=margin, neighbours=variant.neighbours)
    # If all points coincide, the squared width is the squared distance of the two rows, or 1 if this is 0.
    widths = np.where(widths > 0.0, widths, np.where(gaps > 0.0, gaps, 1.0))
    return BoundaryBumps(rare, other, beta, lengths, widths, variant.combine, variant.floor)


def bump_widths(
    view: View,
    pairs: tuple[Indices, Indices],
    beta: float,
    lengths: FloatArray,
    *,
    margin: float,
    neighbours: str,
) -> FloatArray:
    """Return the mean squared distance of each boundary point to its neighbours (equation 7 of the paper).

    Unlike in the paper, boundary points at the same location are not counted as neighbours of each other.
    This matters at beta = 1, where many points share a row. A point without neighbours gets the squared
    distance to the nearest point at another location, or 0 if all points coincide.
    """
    kernel, factor, _, _ = view.arrays()
    limit = {"margin": margin**2, "printed": margin}.get(neighbours, np.inf)
    max_neighbours = _N_NEAREST if neighbours == "nearest" else len(lengths)
    widths = np.empty(len(lengths))
    _native.mean_near_distances(
        kernel, factor, *pairs, beta, lengths, limit, max_neighbours, widths, num_threads()
    )
    return widths
