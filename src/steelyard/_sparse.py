"""Sparse rows in the one form that the loops take."""

from __future__ import annotations

from typing import Any

__all__ = ["canonical_csr"]


def canonical_csr(X: Any) -> Any:
    """CSR rows whose columns are sorted and unique: sums over features then have one order.

    The caller's matrix stays as it is; a matrix that is in this form already is not copied.
    """
    rows = X.tocsr()
    if not rows.has_canonical_format:
        if rows is X:
            rows = X.copy()
        rows.sum_duplicates()
    return rows
