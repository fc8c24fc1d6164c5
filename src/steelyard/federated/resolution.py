"""Default quantizer of a site, used if the sites have not agreed on a quantizer.

A sum of products of quantized values has about twice as many bits as a value, and compression cannot remove
these bits. The quantization step therefore determines the length of a site update. ``ProximalSVC`` chooses
2**33 to 2**37 steps per typical deviation; sites use 2**25 to 2**29. A column with long tails has large sums
and gets 16 times fewer steps. Integers, flags and fractions that fit into this resolution are represented
exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.proximal import ClassStatistics, ProximalSVC, Quantizer
from steelyard.proximal.quantizer import QUANTIZER_ROWS
from steelyard.proximal.serialization import get_state

N_CALIBRATION_ROWS = QUANTIZER_ROWS - 1
"""Number of rows from which a site chooses a quantizer. One row later the estimator would choose its own."""

_STEP_BITS = 25  # minimum number of quantization steps (as a power of two) of a typical deviation
_TAIL_DEVIATIONS = 32  # a column has a long tail if a value exceeds this many typical deviations


def needs_quantizer(estimator: ProximalSVC) -> bool:
    """Return whether an estimator has no quantizer yet."""
    if estimator.quantizer is not None:
        return False
    return not (hasattr(estimator, "classes_") and estimator.statistics_.is_frozen)


def with_quantizer(estimator: ProximalSVC) -> ProximalSVC:
    """Return an estimator with the default quantizer of a site, fitted on the same rows."""
    rows, labels, weights = _buffered_rows(estimator.statistics_)
    quantizer = _coarser(estimator.statistics_.quantizer, rows)
    fresh: ProximalSVC = clone(estimator).set_params(quantizer=quantizer)
    return fresh.partial_fit(rows, labels, sample_weight=weights)


def quantized(statistics: ClassStatistics) -> ClassStatistics:
    """Return statistics with a quantizer: their own, or the default quantizer of a site."""
    if statistics.is_frozen:
        return statistics
    rows, labels, weights = _buffered_rows(statistics)
    fresh = ClassStatistics(statistics.n_features, quantizer=_coarser(statistics.quantizer, rows))
    if len(rows):
        fresh.add(rows, labels, sample_weight=weights)
    return fresh


def _coarser(quantizer: Quantizer, rows: FloatArray) -> Quantizer:
    """Return a quantizer whose steps are at least as coarse as the default steps of a site."""
    chosen = [
        max(int(e), _step_exponent(column, int(e)))
        for e, column in zip(quantizer.exponents, rows.T, strict=True)
    ]
    exponents = np.array(chosen, dtype=np.int32)
    shifts = exponents - quantizer.exponents
    origins = np.round(np.ldexp(quantizer.origins, -shifts))
    return Quantizer(exponents, origins, quantizer.rounds | (shifts > 0), quantizer.mixed)


def _step_exponent(column: FloatArray, finest: int) -> int:
    """Return the step exponent of a column, a multiple of four so that similar sites have equal steps."""
    values = np.unique(column)
    if len(values) < 2:
        return finest  # any step represents a constant column exactly
    middle = values[(len(values) - 1) // 2]
    with np.errstate(over="ignore"):
        deviations = np.sort(np.abs(values[values != middle] - middle))
    typical = deviations[len(deviations) // 2]
    if not math.isfinite(typical):
        return finest
    tail = 4 if deviations[-1] > _TAIL_DEVIATIONS * typical else 0
    return (math.frexp(typical)[1] - 1 - _STEP_BITS) // 4 * 4 + tail


def _buffered_rows(statistics: ClassStatistics) -> tuple[FloatArray, NDArray[Any], FloatArray]:
    """Return the rows that were learned before the quantizer was fixed, with labels and weights."""
    state = get_state(statistics)
    early, names = state["early"], [entry["label"] for entry in state["classes"]]
    labels = np.array([names[index] for index in early["classes"]])
    weights = np.ldexp(early["weights"].astype(np.float64), state["weight_exponent"])
    return early["rows"].reshape(-1, statistics.n_features), labels, weights
