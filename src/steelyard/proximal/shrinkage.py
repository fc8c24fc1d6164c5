"""Shrinkage of small groups of rows towards all rows, for statistics cubes and models per key."""

from __future__ import annotations

# Candidate numbers of borrowed rows, from which cross-validation selects one.
CANDIDATE_ROWS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)


def borrowed_share(n_rows: float, borrow: float) -> float:
    """Return the factor that scales the sums of ``n_rows`` rows to the weight of at most ``borrow`` rows."""
    return min(1.0, borrow / n_rows)
