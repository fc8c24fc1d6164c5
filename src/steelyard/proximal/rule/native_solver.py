"""Small systems in one native call: a stream of single rows solves one for every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.base import Label
from steelyard.params import class_factors
from steelyard.proximal.rule.planes import Planes
from steelyard.proximal.state.statistics import ClassStatistics

if TYPE_CHECKING:
    from steelyard.proximal.rule.rule import Rule

__all__ = ["is_small", "native_rule", "solve_small"]

_MOST_FEATURES = 2000  # beyond, the threads of LAPACK make up for the way there
_MOST_CLASSES = 30  # beyond, planes share a factor
_FEW_FEATURES = 64  # up to which many planes are solved side by side sooner than one factor is shared
_MOST_INVERTED = 200  # features up to which leverages, which take an inverse, do not call for LAPACK
_ALONE = 100  # features up to which waking other threads costs more than they give


def is_small(rule: Rule, n_features: int, n_classes: int) -> bool:
    """Whether the planes are solved natively: a matter of the rule and of sizes, so never of a history."""
    if rule.threshold == "gmean" and (
        rule.objective == "auc" or (n_classes == 2 and n_features > _MOST_INVERTED)
    ):
        return False
    return n_features <= (_MOST_FEATURES if n_classes <= _MOST_CLASSES else _FEW_FEATURES) and (
        rule.objective == "margin" or n_classes <= _MOST_CLASSES
    )


def native_rule(
    rule: Rule, C: float, labels: list[Label]
) -> tuple[float, bool, bool, bool, bool, bool, list[float]]:
    """The rule as native calls take it."""
    weights = rule.class_weight
    return (
        C,
        weights == "balanced",
        rule.standardize,
        rule.objective == "auc",
        rule.penalize_intercept,
        rule.threshold == "gmean",
        [] if weights is None or weights == "balanced" else class_factors(weights, labels).tolist(),
    )


def solve_small(rule: Rule, statistics: ClassStatistics, labels: list[Label], C: float) -> Planes | None:
    """The planes as :meth:`Rule.reference_planes` has them; None where that is to be asked.

    Natively all matrices must be positive definite in rounded numbers too.
    """
    d, n_classes = statistics.n_features, len(labels)
    if not is_small(rule, d, n_classes):
        return None
    n_planes = n_classes if n_classes > 2 else 1
    coef, intercept = np.empty((n_planes, d)), np.empty(n_planes)
    threads = num_threads() if d > _ALONE else 1
    sums, slots = statistics.slots_of(labels)
    slope = _native.solve_planes(sums, slots, coef, intercept, *native_rule(rule, C, labels), threads)
    return Planes(coef, intercept, slope, C) if slope >= 0.0 else None
