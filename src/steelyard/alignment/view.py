"""Views of a kernel after all transformations so far, and the variants of kernel boundary alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.params import Constraint, Fraction, OneOf

Indices = NDArray[np.intp]
InputDistances = Callable[[slice | Indices, Indices], FloatArray]

_MAX_BLOCK_ENTRIES = 2**18  # maximum size of temporary blocks, much smaller than the kernel matrix


@dataclass(frozen=True)
class Variant:
    """Settings of kernel boundary alignment for which the paper is ambiguous or its formula works poorly.

    The defaults gave the best results.
    """

    # How the bumps are combined into one factor: "max", "mean" or "sum". The paper uses the mean, but then
    # the factor is nearly constant.
    combine: str = "max"
    # How the factor is scaled. "trace" preserves the trace of the kernel matrix, so C keeps its meaning from
    # round to round. "peak" makes the largest factor 1. None does not scale the factor, as in the paper.
    normalize: str | None = "trace"
    # Boundary points that determine the width of a bump: the "nearest" five; those with a *squared* distance
    # below the margin ("printed", equation 7 of the paper); those with a distance below the margin
    # ("margin"); or "all".
    neighbours: str = "nearest"
    # Constant part of the factor. With a positive floor, similarities far from all boundary points decrease
    # but do not vanish.
    floor: float = 0.3

    @classmethod
    def from_parameter(cls, variant: str | Mapping[str, Any]) -> Variant:
        """Return the settings for the parameter ``variant``: a name, or a dict of changes to the defaults."""
        if variant == "printed":
            return cls("mean", None, "printed", 0.0)
        return cls() if isinstance(variant, str) else cls(**variant)


_CHOICES: dict[str, Constraint] = {
    "combine": OneOf("max", "mean", "sum"),
    "normalize": OneOf("trace", "peak", None),
    "neighbours": OneOf("nearest", "printed", "margin", "all"),
    "floor": Fraction(),
}


VARIANT = Constraint(
    "'adapted', 'printed' or a dict with some of "
    + ", ".join(f"{name!r} ({choice.description})" for name, choice in _CHOICES.items()),
    lambda value: (
        all(name in _CHOICES and _CHOICES[name].accepts(value[name]) for name in value)
        if isinstance(value, Mapping)
        else isinstance(value, str) and value in {"adapted", "printed"}
    ),
)


@dataclass(frozen=True)
class View:
    """Kernel values between rows and reference rows after all rounds so far.

    The current kernel, ``row_factor[x] * reference_factor[z] * kernel[x, z]``, is never stored.
    """

    kernel: FloatArray  # kernel before the first round, shape (n_rows, n_reference)
    diagonal: FloatArray  # k(x, x) before the first round, shape (n_rows,)
    row_factor: FloatArray  # product of the factors of all rounds so far, shape (n_rows,)
    # Product of the factors of all rounds for the reference rows, shape (n_reference,).
    reference_factor: FloatArray
    input_distances: InputDistances | None = None  # distances in input space, used only by ACT

    @property
    def n_rows(self) -> int:
        return len(self.diagonal)

    def values(self, rows: slice | Indices, reference: Indices) -> FloatArray:
        """Return the current kernel values between selected rows and selected reference rows."""
        chosen = (
            self.kernel[rows][:, reference]
            if isinstance(rows, slice)
            else self.kernel[np.ix_(rows, reference)]
        )
        return np.asarray(chosen * self.reference_factor[reference] * self.row_factor[rows, None])

    def pair_values(self, rows: Indices, reference: Indices) -> FloatArray:
        """Return the current kernel value of each row with the reference row at the same index."""
        chosen = self.kernel[rows, reference]
        return np.asarray(chosen * self.reference_factor[reference] * self.row_factor[rows])

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return kernel, row factors, reference factors and self-similarities for native functions."""
        return self.kernel, self.row_factor, self.reference_factor, self.self_similarity()

    def self_similarity(self) -> FloatArray:
        return np.asarray(self.diagonal * self.row_factor**2)


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield consecutive slices of rows whose matrix blocks have a bounded number of entries."""
    step = max(1, _MAX_BLOCK_ENTRIES // max(1, n_columns))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(n_rows, begin + step))
