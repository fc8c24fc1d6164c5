"""What shows that rows which are to be taken out were never there."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError

__all__ = ["check_enough", "check_nothing_left", "check_semidefinite", "never_learned"]

_INDEFINITE = 1e-8  # relative; above what rounding leaves after long histories of adding and removing


def check_enough(amount: float, present: float, who: str, label: Label) -> None:
    """Refuse to take out more rows than there are."""
    if amount > present * (1 + 1e-12):
        raise DataError(
            f"{amount:g} rows of class {label!r} were to be forgotten, but only {present:g} are "
            "learned; nothing was changed.",
            who=who,
            hint="forget only rows that were learned before; check what decides which rows retire",
        )


def check_semidefinite(before: FloatArray, after: FloatArray, who: str, label: Label) -> None:
    """Rows that were learned leave a matrix without negative directions; others need not.

    ``before`` is the diagonal of the matrix that ``after`` was.
    """
    size = np.sqrt(before)
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
    scaled = scale[:, None] * after * scale
    scaled[np.diag_indices_from(scaled)] += _INDEFINITE
    if lapack.dpotrf(scaled.T, lower=0, clean=0, overwrite_a=1)[1] != 0:
        raise never_learned(who, label)


def check_nothing_left(before: FloatArray, after: FloatArray, who: str, label: Label) -> None:
    """A class that has lost all its rows has a matrix of zeros, up to rounding."""
    if _largest(after) > _INDEFINITE * _largest(before):
        raise never_learned(who, label)


def never_learned(who: str, label: Label) -> DataError:
    return DataError(
        f"some rows of class {label!r} that were to be forgotten were never learned; nothing was changed.",
        who=who,
        hint="forget rows with exactly the values, labels and weights with which they were learned",
    )


def _largest(lower: FloatArray) -> float:
    return float(np.abs(lower).max(initial=0.0))
