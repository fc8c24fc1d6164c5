"""What shows that rows which are to be taken out were never there.

Always detected: more rows of a class than it has; a class that would be left without rows but not without
sums; negative sums of squares; a mean farther out than the squares allow; a direction in which squares are
negative by more than 1e-8 of their size; a value between the steps of a feature that never rounded; and,
while a class has few rows and is kept as these, any row that is not among them. Whatever leaves sums that
some other rows could have given cannot be told from them: only a ledger of the rows can.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError

__all__ = ["OTHER_GRID", "TOO_MANY", "is_semidefinite", "never_learned"]

OTHER_GRID = "take out statistics that were made on the grid of those they were merged into: grid=model.grid_"
_INDEFINITE = 1e-8  # relative; far above the one rounding of each number
TOO_MANY = 1  # as native code numbers the reasons of a refusal


def is_semidefinite(lower: FloatArray, mixed: NDArray[np.uint8]) -> bool:
    """Whether sums of products (their lower triangle) have no negative direction that is worth the name.

    Features into which values of coarser quanta were merged are left out: what they leave proves nothing.
    """
    size = np.sqrt(np.maximum(np.diagonal(lower), 0.0))
    size[:-1][mixed > 0] = 0.0
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
    scaled = scale[:, None] * lower * scale
    scaled[np.diag_indices_from(scaled)] = 1.0 + _INDEFINITE
    return bool(lapack.dpotrf(scaled.T, lower=0, clean=0, overwrite_a=1)[1] == 0)


def never_learned(who: str, label: Label, hint: str | None = None) -> DataError:
    return DataError(
        f"some rows of class {label!r} that were to be forgotten were never learned; nothing was changed.",
        who=who,
        hint=hint or "forget rows with exactly the values, labels and weights with which they were learned",
    )
