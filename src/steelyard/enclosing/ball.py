"""The smallest ball around weighted rows: what the native solver is asked, and what it answers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import sqrt

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray

__all__ = ["Ball", "smallest_ball", "weight_bounds"]


TOLERANCE = 1e-6  # of the optimality conditions, as a fraction of the squared radius
CACHE_BYTES = 256 << 20
MAX_STEPS = 10_000_000


@dataclass(frozen=True)
class Ball:
    """Weights of the rows in the centre, and the radius."""

    alpha: FloatArray
    radius: float


def weight_bounds(weights: FloatArray, C: float | None, outliers: float) -> FloatArray:
    """Return the largest weight that each row may have in the centre.

    The weights sum to 1, so bounds of 1 say nothing and keep every row inside. Bounds that could not sum
    to 1 (fewer than 1 / C rows) are raised until they can: the centre is then the mean.
    """
    total = weights.sum()
    if C is None:
        C = 1.0 / (outliers * total) if outliers > 0.0 else np.inf
    return np.minimum(1.0, weights * max(C, 1.0 / total) * (1.0 + 1e-12))


def smallest_ball(
    spec: _native.KernelSpec, X: FloatArray, bounds: FloatArray, *, tolerance: float = TOLERANCE
) -> Ball:
    """Return the smallest ball around the rows in the space of the kernel."""
    X = np.ascontiguousarray(X)
    answer = _native.enclosing_ball(spec, X, bounds, tolerance, CACHE_BYTES, MAX_STEPS, num_threads())
    if answer["gap"] > 10 * tolerance:
        warnings.warn(
            f"EnclosingClassifier: after {answer['steps']:,} steps the smallest body around {len(X):,} rows "
            f"is known to {answer['gap']:.1e} of its squared radius only.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Ball(answer["alpha"], sqrt(answer["squared_radius"]))
