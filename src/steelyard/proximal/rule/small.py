"""Small systems in one native call: a stream of single rows solves one for every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.base import Label
from steelyard.proximal.rule.planes import Planes
from steelyard.proximal.state.statistics import ClassStatistics

if TYPE_CHECKING:
    from steelyard.proximal.rule.rule import Rule

__all__ = ["solve_small"]

_MOST_FEATURES = 700  # beyond, the blocks of LAPACK make up for the way there
_MOST_CLASSES = 30  # beyond, planes share a factor
_ALONE = 100  # features up to which waking other threads costs more than they give


def solve_small(rule: Rule, statistics: ClassStatistics, labels: list[Label], C: float) -> Planes | None:
    """The planes as :meth:`Rule.reference_planes` has them; None where that is to be asked.

    Natively planes are cut at zero (or half-way), with balanced weights or none, and all matrices must be
    positive definite in rounded numbers too.
    """
    d, n_classes = statistics.n_features, len(labels)
    if (
        d > _MOST_FEATURES
        or n_classes > _MOST_CLASSES
        or rule.threshold != "zero"
        or rule.class_weight not in ("balanced", None)
    ):
        return None
    n_planes = n_classes if n_classes > 2 else 1
    coef, intercept = np.empty((n_planes, d)), np.empty(n_planes)
    slope = _native.solve_planes(
        *statistics.slots_of(labels),
        coef,
        intercept,
        C,
        rule.class_weight is not None,
        rule.standardize,
        rule.objective == "auc",
        rule.penalize_intercept,
        num_threads() if d > _ALONE else 1,
    )
    return Planes(coef, intercept, slope, C) if slope >= 0.0 else None
