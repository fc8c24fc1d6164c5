"""How large numbers may be: one limit for the features of every learner, and the one for kernel values."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from steelyard.exceptions import DataError

__all__ = ["LARGEST", "LARGEST_KERNEL_VALUE", "check_magnitude", "largest_value", "too_large"]

LARGEST = 1e75  # of a feature: the square of a product of two of them is still finite
LARGEST_KERNEL_VALUE = 1e100  # sums of products of two of them are still finite


def largest_value(X: Any) -> float:
    """The largest absolute value of a table, 0 of an empty one; values are finite."""
    values = X.data if sp.issparse(X) else X
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) if values.size else 0.0


def check_magnitude(X: Any, who: str) -> None:
    """Refuse rows with values beyond :data:`LARGEST`."""
    largest = largest_value(X)
    if largest > LARGEST:
        raise too_large(largest, who)


def too_large(largest: float, who: str) -> DataError:
    """The sentence for values beyond the limit."""
    return DataError(
        f"X has values beyond {LARGEST:g} (up to {largest:g}), whose squares overflow; nothing was changed.",
        who=who,
        hint="bring the features to a common scale first",
    )
