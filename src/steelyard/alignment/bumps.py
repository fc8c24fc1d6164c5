"""Conformal factors: Gaussian bumps at boundary points in feature space (KBA), or at support rows (ACT).

Symbols of the papers and their names in this module: beta is ``beta``, tau_b^2 is ``squared_widths``, and
D(x) is ``factor``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.alignment.view import Indices, InputDistances, Variant, View, blocks

_N_NEAREST = 5  # number of nearest boundary points that determine a width if neighbours="nearest"


class Bumps(ABC):
    """Gaussian bumps, which are combined into one factor for each row. Names of fields are keys in files."""

    kind: ClassVar[str]  # name of the class in files
    positions: ClassVar[tuple[str, ...]]  # fields with indices of reference rows

    squared_widths: FloatArray  # shape (n_bumps,)
    combine: str  # as in Variant
    floor: float
    scale: float  # factor by which the combined bumps are multiplied

    @abstractmethod
    def squared_distances(self, view: View, rows: slice) -> FloatArray:
        """Return squared distances from rows to the centers of the bumps."""

    def factor(self, view: View) -> FloatArray:
        """Return the conformal factor D(x) of every row of the view."""
        result = np.empty(view.n_rows)
        for rows in blocks(view.n_rows, len(self.squared_widths)):
            bumps = np.exp(-self.squared_distances(view, rows) / self.squared_widths)
            result[rows] = getattr(bumps, self.combine)(axis=1)  # maximum, mean or sum
        return self._scaled(result)

    def _scaled(self, bumps: FloatArray) -> FloatArray:
        return self.scale * (self.floor + (1.0 - self.floor) * bumps)

    def centers_in_reference(self) -> list[Indices]:
        """Return the indices of the reference rows that determine the centers."""
        return [getattr(self, name) for name in self.positions]

    def renumbered(self, reference: Indices) -> Self:
        """Return these bumps for a subset of the reference rows, given by sorted indices."""
        indices = zip(self.positions, self.centers_in_reference(), strict=True)
        changed: Any = {name: np.searchsorted(reference, rows) for name, rows in indices}
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

    def factor(self, view: View) -> FloatArray:
        if self.combine != "max":
            return super().factor(view)
        largest, is_symmetric = np.empty(view.n_rows), view.row_factor is view.reference_factor
        _native.largest_exponents(
            *view.arrays(), self.rare, self.other, self.beta, self.lengths, self.squared_widths,
            largest, is_symmetric, num_threads(),
        )  # fmt: skip
        return self._scaled(np.exp(largest))


def make_boundary_bumps(
    view: View, pairs: tuple[Indices, Indices], beta: float, margin: float, variant: Variant
) -> BoundaryBumps:
    """Return bumps centred between the rows of each pair. The kernel view must be symmetric.

    The squared width of a bump is the mean squared distance of its boundary point to its neighbours (equation
    7 of the paper). Unlike in the paper, boundary points at the same location are not counted as neighbours
    of each other. This matters at beta = 1, where many points share a row. A point without neighbours gets
    the squared distance to the nearest point at another location. If all points coincide, it gets the squared
    distance of its two rows, or 1 if this is 0.
    """
    rare, other = pairs
    own, between = view.self_similarity(), view.pair_values(rare, other)
    lengths = (1.0 - beta) ** 2 * own[rare] + beta**2 * own[other] + 2.0 * beta * (1.0 - beta) * between
    gaps = own[rare] + own[other] - 2.0 * between
    limit = {"margin": margin**2, "printed": margin}.get(variant.neighbours, np.inf)
    max_neighbours = _N_NEAREST if variant.neighbours == "nearest" else len(lengths)
    squared_widths, (kernel, factor, _, _) = np.empty(len(lengths)), view.arrays()
    _native.mean_near_distances(
        kernel, factor, rare, other, beta, lengths, limit, max_neighbours, squared_widths, num_threads()
    )  # 0 if all points coincide
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
    """Return bumps around the support rows, with widths that depend on the class imbalance.

    The squared width of a bump is the mean squared distance to nearby support rows of the other class. This
    width is scaled so that the class with fewer support rows gets wider bumps than the other class.
    """
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


def input_distances(X: Any, reference: Any, norm: str = "l2") -> InputDistances:
    """Return a function that computes distances between rows of ``X`` and reference rows, as ACT needs them.

    Distances are squared Euclidean for "l2" and sums of absolute differences for "l1".
    """

    def distances(rows: slice | Indices, positions: Indices) -> FloatArray:
        if norm == "l1":
            return np.asarray(manhattan_distances(X[rows], reference[positions]))
        return np.asarray(euclidean_distances(X[rows], reference[positions], squared=True))

    return distances


# -- persistence ---------------------------------------------------------------------------------------

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
    for name in ("floor", "scale", *(["beta"] if isinstance(bumps, BoundaryBumps) else [])):
        check_number(getattr(bumps, name), name)
    arrays = [bumps.squared_widths, *([bumps.lengths] if isinstance(bumps, BoundaryBumps) else [])]
    if any(array.dtype != np.float64 or array.shape != bumps.squared_widths.shape for array in arrays):
        raise ValueError("the widths and lengths of bumps differ in shape or are not float64")
    if bumps.combine not in {"max", "mean", "sum"}:
        raise ValueError(f"unknown value of combine: {bumps.combine!r}")
    for positions in bumps.centers_in_reference():
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
