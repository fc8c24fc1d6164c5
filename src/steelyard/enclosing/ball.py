"""Smallest enclosing ball of weighted rows, computed by the native solver."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import sqrt

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray

TOLERANCE = 1e-6  # tolerance of the optimality conditions, relative to the squared radius
CACHE_BYTES = 256 << 20
MAX_STEPS = 10_000_000


@dataclass(frozen=True)
class Ball:
    """Smallest enclosing ball: its radius, and the weights ``alpha`` of the rows whose mean is the center."""

    alpha: FloatArray
    radius: float


def weight_bounds(weights: FloatArray, C: float | None, outliers: float) -> FloatArray:
    """Return the upper bound of the weight of each row in the center of the ball.

    The weights sum to 1, so a bound of 1 has no effect: every row is then inside the ball. If the bounds sum
    to less than 1 (fewer than 1 / C rows), they are raised to a sum of 1. The center is then the mean of the
    rows.
    """
    total = weights.sum()
    if C is None:
        C = 1.0 / (outliers * total) if outliers > 0.0 else np.inf
    return np.minimum(1.0, weights * max(C, 1.0 / total) * (1.0 + 1e-12))


def smallest_ball(
    spec: _native.KernelSpec, X: FloatArray, bounds: FloatArray, *, tolerance: float = TOLERANCE
) -> Ball:
    """Return the smallest ball that encloses the rows in the feature space of the kernel."""
    X = np.ascontiguousarray(X)
    solution = _native.enclosing_ball(spec, X, bounds, tolerance, CACHE_BYTES, MAX_STEPS, num_threads())
    if solution["gap"] > 10 * tolerance:
        warnings.warn(
            f"EnclosingClassifier: the solver stopped after {solution['steps']:,} steps; the sphere or "
            f"ellipsoid around {len(X):,} rows is only accurate to {solution['gap']:.1e} of its squared "
            "radius.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Ball(solution["alpha"], sqrt(solution["squared_radius"]))
