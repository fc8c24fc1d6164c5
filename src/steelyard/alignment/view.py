"""Rows as the current kernel sees them, and what is open to reading in the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.params import Constraint, Fraction, OneOf

__all__ = ["FloatArray", "Indices", "Reading", "ReadingConstraint", "View", "blocks", "combined"]

Indices = NDArray[np.intp]
InputDistances = Callable[[slice | Indices, Indices], FloatArray]

_BLOCK = 2**18  # numbers held at a time: never a second matrix of the size of the kernel's


@dataclass(frozen=True)
class Reading:
    """How the paper is read where it is open, or where what it prints does not help; the defaults did best.

    Attributes
    ----------
    combine : {"max", "mean", "sum"}
        How bumps become one factor. The paper prints the mean; then the factor hardly varies.
    normalize : {"trace", "peak", None}
        "trace" keeps the trace of the kernel matrix, so that C keeps its meaning from round to round;
        "peak" makes the largest factor 1; None takes the factor as printed.
    neighbours : {"nearest", "printed", "margin", "all"}
        Which other boundary points make the width of a bump: the nearest five; as equation 7 is printed,
        those whose *squared* distance is below the margin; those whose distance is; or all of them.
    floor : float
        Part of the factor that is the same everywhere, so that far from all boundary points similarities
        fade but do not vanish.
    """

    combine: str = "max"
    normalize: str | None = "trace"
    neighbours: str = "nearest"
    floor: float = 0.3

    @classmethod
    def named(cls, reading: str | Mapping[str, Any]) -> Reading:
        """The reading of that name, or the default with some values changed."""
        if reading == "printed":
            return cls("mean", None, "printed", 0.0)
        return cls() if isinstance(reading, str) else cls(**reading)


_CHOICES: dict[str, Constraint] = {
    "combine": OneOf("max", "mean", "sum"),
    "normalize": OneOf("trace", "peak", None),
    "neighbours": OneOf("nearest", "printed", "margin", "all"),
    "floor": Fraction(),
}


class ReadingConstraint:
    """What the parameter ``reading`` may be."""

    description = "'adapted', 'printed' or a dict with some of " + ", ".join(
        f"{name!r} ({choice.description})" for name, choice in _CHOICES.items()
    )

    def accepts(self, value: object) -> bool:
        if isinstance(value, Mapping):
            return all(name in _CHOICES and _CHOICES[name].accepts(value[name]) for name in value)
        return isinstance(value, str) and value in {"adapted", "printed"}


@dataclass(frozen=True)
class View:
    """Kernel values of some rows with reference rows, after the rounds so far.

    The current kernel is ``row_factor[x] * reference_factor[z] * kernel[x, z]``; it is never formed here.
    """

    kernel: FloatArray  # (n_rows, n_reference), as before the first round
    diagonal: FloatArray  # (n_rows,): each row with itself, as before the first round
    row_factor: FloatArray  # (n_rows,): product of the factors of all rounds so far
    reference_factor: FloatArray  # (n_reference,)
    input_distances: InputDistances | None = None  # squared, in input space, where there is one

    @property
    def n_rows(self) -> int:
        return len(self.diagonal)

    @property
    def is_symmetric(self) -> bool:
        """Whether the rows are the reference rows themselves, so that the matrix is its own transpose."""
        return self.row_factor is self.reference_factor

    def values(self, rows: slice | Indices, reference: Indices) -> FloatArray:
        """Return the current kernel between some rows and some reference rows."""
        chosen = (
            self.kernel[rows][:, reference]
            if isinstance(rows, slice)
            else self.kernel[np.ix_(rows, reference)]
        )
        return np.asarray(chosen * self.reference_factor[reference] * self.row_factor[rows, None])

    def pair_values(self, rows: Indices, reference: Indices) -> FloatArray:
        """Return the current kernel of each row with the reference row at the same place."""
        chosen = self.kernel[rows, reference]
        return np.asarray(chosen * self.reference_factor[reference] * self.row_factor[rows])

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """What native loops take: the kernel, both factors, and the current self-similarities."""
        return self.kernel, self.row_factor, self.reference_factor, self.self_similarity()

    def self_similarity(self) -> FloatArray:
        return np.asarray(self.diagonal * self.row_factor**2)


def combined(bumps: FloatArray, how: str) -> FloatArray:
    """One number a row of bumps."""
    if how == "max":
        return np.asarray(bumps.max(axis=1))
    return np.asarray(bumps.mean(axis=1) if how == "mean" else bumps.sum(axis=1))


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Consecutive runs of rows, of a bounded number of entries each."""
    step = max(1, _BLOCK // max(1, n_columns))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(n_rows, begin + step))
