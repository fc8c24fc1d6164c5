"""Reference implementation of class statistics in Python integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from steelyard.proximal import ClassStatistics


def nearest_step(value, exponent):
    """Return ``value`` in steps of 2**exponent, rounded to the nearest integer. Ties are rounded up."""
    return math.floor(Fraction(float(value)) / Fraction(2) ** int(exponent) + Fraction(1, 2))


def exact_statistics(X, y, quantizer, weights=None):
    """Return the statistics of rows for a quantizer, from the definition."""
    X = np.asarray(X, dtype=np.float64)
    d = X.shape[1]
    fractional = weights is not None and any(float(w) != int(w) for w in weights)
    step = 2**20 if fractional else 1
    statistics = ClassStatistics(d, quantizer=quantizer)
    statistics._sums.set_weight_exponent(-20 if fractional else 0)
    for slot, label in enumerate(sorted(set(np.asarray(y).tolist()))):
        sums = [0] * ((d + 1) * (d + 2) // 2)
        for i in np.flatnonzero(np.asarray(y) == label):
            weight = (
                step if weights is None else math.floor(Fraction(float(weights[i])) * step + Fraction(1, 2))
            )
            row = [
                nearest_step(x, k) - int(o)
                for x, k, o in zip(X[i], quantizer.exponents, quantizer.origins, strict=True)
            ]
            row.append(1)
            at = 0
            for a in range(d + 1):
                for b in range(a + 1):
                    sums[at] += weight * row[a] * row[b]
                    at += 1
        n_bytes = max(number.bit_length() for number in sums) // 8 + 1
        data = b"".join(number.to_bytes(n_bytes, "little", signed=True) for number in sums)
        statistics._slots[label] = slot
        statistics._sums.set_slot(slot, data, n_bytes, np.empty(0), np.empty(0, dtype=np.int64))
    return statistics
