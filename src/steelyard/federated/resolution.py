"""The steps in which a site counts its values where nobody has agreed on any.

A sum of products on a grid has about twice the bits of a value, and all of them are information: no coding
makes a bulletin shorter than that. So the steps are what decides its length. A learner by itself takes 2**33
to 2**37 steps to a typical deviation; for what is sent, 2**25 to 2**29 are taken. A column with long tails,
whose sums grow far beyond those of its typical values, has 16 times fewer. Whole numbers, flags and fractions
that need no more bits keep all of theirs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.proximal import ClassStatistics, ProximalSVC, Quantizer
from steelyard.proximal.state.messages import get_state

__all__ = ["ENOUGH", "is_open", "settle", "settled"]

ENOUGH = 255
"""Rows that settle the steps of a site: with the next one a learner settles finer ones by itself."""

_RESOLUTION = 25  # a typical deviation has at least 2**25 steps
_TAIL = 32  # typical deviations; values farther away are a tail


def is_open(learner: ProximalSVC) -> bool:
    """Whether the steps of a learner are still to be settled."""
    return learner.quantizer is None and not (hasattr(learner, "classes_") and learner.statistics_.is_settled)


def settle(learner: ProximalSVC) -> ProximalSVC:
    """A learner of the same rows, on the steps of a site."""
    rows, labels, weights = _waiting(learner.statistics_)
    quantizer = _coarser(learner.statistics_.quantizer, rows)
    fresh: ProximalSVC = clone(learner).set_params(quantizer=quantizer)
    return fresh.partial_fit(rows, labels, sample_weight=weights)


def settled(statistics: ClassStatistics) -> ClassStatistics:
    """The same rows on the steps of a site, where these are still open; else the statistics themselves."""
    if statistics.is_settled:
        return statistics
    rows, labels, weights = _waiting(statistics)
    fresh = ClassStatistics(statistics.n_features, quantizer=_coarser(statistics.quantizer, rows))
    if len(rows):
        fresh.add(rows, labels, sample_weight=weights)
    return fresh


def _coarser(quantizer: Quantizer, rows: FloatArray) -> Quantizer:
    """A grid that these rows have settled, with steps that suit what is sent."""
    wanted = [
        max(int(e), _wanted(column, int(e))) for e, column in zip(quantizer.exponents, rows.T, strict=True)
    ]
    exponents = np.array(wanted, dtype=np.int32)
    shifts = exponents - quantizer.exponents
    origins = np.round(np.ldexp(quantizer.origins, -shifts))
    return Quantizer(exponents, origins, quantizer.rounds | (shifts > 0), quantizer.mixed)


def _wanted(column: FloatArray, finest: int) -> int:
    """The exponent that these values need, a multiple of four so that similar places agree."""
    values = np.unique(column)
    if len(values) < 2:
        return finest  # one value needs no step
    middle = values[(len(values) - 1) // 2]
    with np.errstate(over="ignore"):
        deviations = np.sort(np.abs(values[values != middle] - middle))
    typical = deviations[len(deviations) // 2]
    if not math.isfinite(typical):
        return finest
    tail = 4 if deviations[-1] > _TAIL * typical else 0
    return (math.frexp(typical)[1] - 1 - _RESOLUTION) // 4 * 4 + tail


def _waiting(statistics: ClassStatistics) -> tuple[FloatArray, NDArray[Any], FloatArray]:
    """Rows that came before the grid was settled, as they came, with their labels and weights."""
    state = get_state(statistics)
    early, names = state["early"], [entry["label"] for entry in state["classes"]]
    labels = np.array([names[place] for place in early["classes"]])
    weights = np.ldexp(early["weights"].astype(np.float64), state["weight_exponent"])
    return early["rows"].reshape(-1, statistics.n_features), labels, weights
