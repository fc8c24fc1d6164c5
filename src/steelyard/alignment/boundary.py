"""Kernel boundary alignment (KBA): boundary shift, pairs of rows on both sides, and conformal factors.

Everything is computed from kernel values. Symbols of the papers and their names here: eta is ``shift``, SI+
and SI- are the support rows ``rare`` (of the rarer class, with sign +1) and ``other``, beta is ``beta``,
tau_b^2 is ``squared_widths``, and D(x) is ``factor``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.params import Constraint, Fraction, OneOf, constraints_of, parameter

Indices = NDArray[np.intp]
InputDistances = Callable[[slice | Indices, Indices], FloatArray]
Cost = Callable[[FloatArray], FloatArray]  # decreasing function that maps margins to costs
# Cost functions for missed rows of the rarer class (c_p) and for false alarms (c_n).
Costs = tuple[str | Cost, str | Cost]
LOSSES: dict[str, Cost] = {
    "exponential": lambda margins: np.exp(-margins),
    "logistic": lambda margins: np.logaddexp(0.0, -margins),
    "hinge": lambda margins: np.maximum(0.0, 1.0 - margins),
}
DEFAULT_COSTS: Costs = ("exponential", "logistic")  # cost functions of the paper
_N_GRID_SHIFTS = 33  # number of shifts in the grid search, before the best one is refined
_MAX_PAIRS = 2000  # maximum number of pairs for pairing="all"; larger sets are thinned to evenly spaced pairs
_N_NEAREST = 5  # number of nearest boundary points that determine a width if neighbours="nearest"
_MAX_BLOCK_ENTRIES = 2**18  # maximum size of temporary blocks, much smaller than the kernel matrix


@dataclass(frozen=True)
class Variant:
    """Settings for which the paper is ambiguous or works poorly. The defaults gave the best results."""

    # How the bumps are combined. The paper uses the mean, but then the factor is nearly constant.
    combine: str = parameter("max", OneOf("max", "mean", "sum"))
    # How the factor is scaled. "trace" preserves the trace of the kernel matrix, so C keeps its meaning from
    # round to round; "peak" makes the largest factor 1; None does not scale the factor, as in the paper.
    normalize: str | None = parameter("trace", OneOf("trace", "peak", None))
    # Boundary points that determine the width of a bump: the "nearest" five; those with a *squared* distance
    # below the margin ("printed", equation 7 of the paper); those with a distance below the margin
    # ("margin"); or "all".
    neighbours: str = parameter("nearest", OneOf("nearest", "printed", "margin", "all"))
    # Constant part of the factor, so that similarities far from all boundary points do not vanish.
    floor: float = parameter(0.3, Fraction())

    @classmethod
    def from_parameter(cls, variant: str | Mapping[str, Any]) -> Variant:
        """Return the settings for the parameter ``variant``: a name, or a dict of changes to the defaults."""
        if variant == "printed":
            return cls("mean", None, "printed", 0.0)
        return cls() if isinstance(variant, str) else cls(**variant)


_CONSTRAINTS = constraints_of(Variant)
VARIANT = Constraint(
    "'adapted', 'printed' or a dict with some of "
    + ", ".join(f"{name!r} ({choice.description})" for name, choice in _CONSTRAINTS.items()),
    lambda value: (
        all(name in _CONSTRAINTS and _CONSTRAINTS[name].accepts(value[name]) for name in value)
        if isinstance(value, Mapping)
        else isinstance(value, str) and value in {"adapted", "printed"}
    ),
)


# -- kernel values ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Kernel ``row_factor[x] * reference_factor[z] * kernel[x, z]`` after all rounds so far, never stored."""

    kernel: FloatArray  # kernel before the first round, shape (n_rows, n_reference)
    diagonal: FloatArray  # k(x, x) before the first round, shape (n_rows,)
    row_factor: FloatArray  # product of the factors of all rounds so far, shape (n_rows,)
    # Product of the factors of all rounds for the reference rows, shape (n_reference,).
    reference_factor: FloatArray
    input_distances: InputDistances | None = None  # distances in input space, used only by ACT

    def values(self, rows: slice | Indices, reference: Indices) -> FloatArray:
        """Return the current kernel values between selected rows and selected reference rows."""
        chosen = (
            self.kernel[rows][:, reference]
            if isinstance(rows, slice)
            else self.kernel[np.ix_(rows, reference)]
        )
        return np.asarray(chosen * self.reference_factor[reference] * self.row_factor[rows, None])

    def self_similarity(self) -> FloatArray:
        return np.asarray(self.diagonal * self.row_factor**2)


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield consecutive slices of rows whose matrix blocks have a bounded number of entries."""
    step = max(1, _MAX_BLOCK_ENTRIES // max(1, n_columns))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(n_rows, begin + step))


def input_distances(X: Any, reference: Any, norm: str = "l2") -> InputDistances:
    """Return a function that computes the distances of ACT between rows of ``X`` and reference rows."""

    def distances(rows: slice | Indices, positions: Indices) -> FloatArray:
        if norm == "l1":
            return np.asarray(manhattan_distances(X[rows], reference[positions]))
        return np.asarray(euclidean_distances(X[rows], reference[positions], squared=True))

    return distances


# -- shift of the boundary, and pairs of rows ------------------------------------------------------------


def shift_cost(shift: float, scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Return the cost of a shift: the total cost of the rows misclassified inside the margin (-1 to 1)."""
    counted = (np.abs(scores) <= 1.0) & (scores * signs < 0.0)
    margins = signs[counted] * (scores[counted] + shift)
    rare = signs[counted] > 0
    c_p, c_n = (LOSSES[cost] if isinstance(cost, str) else cost for cost in costs)
    return float(np.sum(c_p(margins[rare])) + np.sum(c_n(margins[~rare])))


def boundary_shift(scores: FloatArray, signs: FloatArray, costs: Costs = DEFAULT_COSTS) -> float:
    """Return the boundary shift in [0, 1] with the lowest cost, which need not be a convex function."""
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


# -- conformal factors -----------------------------------------------------------------------------------


class Bumps(ABC):
    """Gaussian bumps, which are combined into one factor for each row. Names of fields are keys in files."""

    kind: ClassVar[str]  # name of the class in files
    positions: ClassVar[tuple[str, ...]]  # fields with the indices of the reference rows at the centers

    squared_widths: FloatArray  # shape (n_bumps,)
    combine: str  # as in Variant
    floor: float
    scale: float  # factor by which the combined bumps are multiplied

    @abstractmethod
    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        """Return squared distances from rows to the centers of the bumps."""

    def factor(self, view: View) -> FloatArray:
        """Return the conformal factor D(x) of every row of the view."""
        return self.scale * (self.floor + (1.0 - self.floor) * self._combined(view))

    def _combined(self, view: View) -> FloatArray:
        result = np.empty(len(view.diagonal))
        for rows in blocks(len(result), len(self.squared_widths)):
            bumps = np.exp(-self.squared_distances(view, rows) / self.squared_widths)
            result[rows] = getattr(bumps, self.combine)(axis=1)  # maximum, mean or sum
        return result

    def renumbered(self, reference: Indices) -> Self:
        """Return these bumps for a subset of the reference rows, given by sorted indices."""
        changed: Any = {name: np.searchsorted(reference, getattr(self, name)) for name in self.positions}
        return replace(self, **changed)  # type: ignore[type-var]  # all subclasses are data classes


@dataclass(frozen=True)
class BoundaryBumps(Bumps):
    """Gaussian bumps in feature space around points between rows of opposite classes."""

    kind = "boundary"
    positions = ("rare", "other")

    rare: Indices  # index of the first row of each point among the reference rows, shape (n_points,)
    other: Indices  # index of the second row
    beta: float  # a point is ``(1 - beta)`` times the first row plus ``beta`` times the second
    lengths: FloatArray  # squared length of each point in feature space, shape (n_points,)
    squared_widths: FloatArray
    combine: str
    floor: float
    scale: float = 1.0

    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        """Return squared distances from rows to boundary points by the kernel trick (equation 6)."""
        first, second = view.values(rows, self.rare), view.values(rows, self.other)
        products = (1.0 - self.beta) * first + self.beta * second
        squared = view.self_similarity()[rows, None] + self.lengths - 2.0 * products
        return np.maximum(squared, 0.0)

    def _combined(self, view: View) -> FloatArray:
        if self.combine != "max":
            return super()._combined(view)
        largest, is_symmetric = np.empty(len(view.diagonal)), view.row_factor is view.reference_factor
        _native.largest_exponents(
            view.kernel, view.row_factor, view.reference_factor, view.self_similarity(),
            self.rare, self.other, self.beta, self.lengths, self.squared_widths,
            largest, is_symmetric, num_threads(),
        )  # fmt: skip
        return np.exp(largest)


def make_boundary_bumps(
    view: View, pairs: tuple[Indices, Indices], beta: float, margin: float, variant: Variant
) -> BoundaryBumps:
    """Return bumps centred between the rows of each pair. The kernel view must be symmetric.

    The squared width of a bump is the mean squared distance of its boundary point to its neighbours (equation
    7 of the paper), which are at other locations: at beta = 1 many points share a row. A point without
    neighbours gets the squared distance to the nearest point at another location.
    """
    rare, other = pairs
    own, factor = view.self_similarity(), view.row_factor
    between = view.kernel[rare, other] * factor[other] * factor[rare]
    lengths = (1.0 - beta) ** 2 * own[rare] + beta**2 * own[other] + 2.0 * beta * (1.0 - beta) * between
    gaps = own[rare] + own[other] - 2.0 * between
    limit = {"margin": margin**2, "printed": margin}.get(variant.neighbours, np.inf)
    max_neighbours = _N_NEAREST if variant.neighbours == "nearest" else len(lengths)
    squared_widths = np.empty(len(lengths))
    _native.mean_near_distances(
        view.kernel, factor, rare, other, beta, lengths, limit, max_neighbours, squared_widths, num_threads()
    )
    # If all points coincide, the width is the distance of the two rows of the pair.
    squared_widths = np.where(squared_widths > 0.0, squared_widths, np.where(gaps > 0.0, gaps, 1.0))
    return BoundaryBumps(rare, other, beta, lengths, squared_widths, variant.combine, variant.floor)


@dataclass(frozen=True)
class SupportBumps(Bumps):
    """Gaussian bumps in input space around support rows (adaptive conformal transformation, ACT)."""

    kind = "support"
    positions = ("centers",)

    centers: Indices  # indices of the support rows among the reference rows, shape (n_bumps,)
    squared_widths: FloatArray
    combine: str
    floor: float
    scale: float = 1.0

    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        assert view.input_distances is not None
        return view.input_distances(rows, self.centers)


def make_support_bumps(view: View, rare: Indices, other: Indices, variant: Variant) -> SupportBumps:
    """Return bumps around the support rows, which are wider for the class with fewer support rows."""
    squared_widths = np.concatenate(
        [
            _opposite_distances(view, rare, other) * (len(other) / len(rare)),
            _opposite_distances(view, other, rare) * (len(rare) / len(other)),
        ]
    )
    squared_widths = np.where(squared_widths > 0.0, squared_widths, 1.0)
    return SupportBumps(np.concatenate([rare, other]), squared_widths, variant.combine, variant.floor)


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


# -- persistence -----------------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (BoundaryBumps, SupportBumps)}
_WIDTHS_IN_FILES = "widths"  # name of the squared widths in model files


def state_of_bumps(bumps: Bumps) -> dict[str, Any]:
    """Return the bumps as the content of a model file."""
    fields = {_WIDTHS_IN_FILES if name == "squared_widths" else name: x for name, x in vars(bumps).items()}
    return {"kind": bumps.kind, **fields}


def restore_bumps(tree: dict[str, Any], n_reference: int) -> Bumps:
    """Return the bumps of a model file. Raise ValueError if they are not valid."""
    content = dict(tree)
    content["squared_widths"] = content.pop(_WIDTHS_IN_FILES)
    bumps: Bumps = _KINDS[content.pop("kind")](**content)
    for name in ("floor", "scale", "beta"):
        check_number(content.get(name, 1.0), name)
    arrays = [bumps.squared_widths, content.get("lengths", bumps.squared_widths)]
    if any(array.dtype != np.float64 or array.shape != bumps.squared_widths.shape for array in arrays):
        raise ValueError("the widths and lengths of bumps differ in shape or are not float64")
    if not _CONSTRAINTS["combine"].accepts(bumps.combine):
        raise ValueError(f"unknown value of combine: {bumps.combine!r}")
    for positions in (content[name] for name in bumps.positions):
        check_positions(positions, n_reference)
        if positions.shape != bumps.squared_widths.shape:
            raise ValueError("the numbers of bumps and widths differ")
    return bumps


def check_number(value: Any, name: str) -> float:
    """Return a finite number from a file as float. Raise ValueError for any other value."""
    if not isinstance(value, float | int) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number")
    return float(value)


def check_positions(positions: Any, n_rows: int) -> None:
    """Raise ValueError for an array from a file that does not consist of row indices."""
    valid = positions.ndim == 1 and positions.dtype.kind == "i" and positions.size
    if not valid or positions.min() < 0 or positions.max() >= n_rows:
        raise ValueError("row indices are out of range")
