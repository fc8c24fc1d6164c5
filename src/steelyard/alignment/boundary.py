"""Kernel boundary alignment (KBA): the shift of the boundary, and pairs of rows on both sides of it.

Everything is computed from kernel values alone. The eta of the paper is ``shift``. SI+ are the support rows
of the rarer class (sign +1), and SI- those of the other class.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, View, blocks

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
