"""How large numbers may be: features of learners in doubles and in whole numbers, and kernel values."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from steelyard.exceptions import DataError

__all__ = [
    "LARGEST",
    "LARGEST_KERNEL_VALUE",
    "LARGEST_WHOLE",
    "check_magnitude",
    "largest_value",
    "too_large",
]

LARGEST = 1e75  # of a feature: the square of a product of two of them is still finite
LARGEST_WHOLE = 1e300  # of a feature that is learned in whole numbers, whose squares have room
LARGEST_KERNEL_VALUE = 1e100  # sums of products of two of them are still finite


def largest_value(X: Any) -> float:
    """The largest absolute value of a table, 0 of an empty one; values are finite."""
    values = X.data if sp.issparse(X) else X
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) if values.size else 0.0


def check_magnitude(X: Any, source: str, limit: float = LARGEST) -> None:
    """Refuse rows with values beyond a limit."""
    largest = largest_value(X)
    if largest > limit:
        raise too_large(largest, source, limit)


def too_large(largest: float, source: str, limit: float = LARGEST) -> DataError:
    """The sentence for values beyond the limit."""
    why = "whose squares overflow" if limit == LARGEST else "near the end of the numbers"
    return DataError(
        f"X has values beyond {limit:g} (up to {largest:g}), {why}; nothing was changed.",
        source=source,
        hint="bring the features to a common scale first",
    )
