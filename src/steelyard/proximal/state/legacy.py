"""Statistics of earlier versions, sums of floating-point numbers, as whole numbers on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard.base import Batch
from steelyard.proximal.state.quantizer import Quantizer

if TYPE_CHECKING:
    from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["from_state"]

_RESOLUTION = 37  # a standard deviation has at least so many bits of quanta


def from_state(state: Mapping[str, Any], cls: type[ClassStatistics]) -> ClassStatistics:
    """What an earlier version kept: triangles of doubles relative to an origin, and waiting rows."""
    n_features, origin = state["n_features"], state["origin"]
    entries = [
        (
            entry["label"],
            None if entry["triangle"] is None else _lower(entry["triangle"], n_features),
            _finite(entry["rows"], (len(entry["weights"]), n_features)),
            _finite(entry["weights"], (len(entry["weights"]),)),
        )
        for entry in state["classes"]
    ]
    grams = [gram for _, gram, _, _ in entries if gram is not None]
    if not grams:
        statistics = cls(n_features)
    else:
        if origin is None:
            raise ValueError("a matrix without an origin")
        statistics = cls(
            n_features, quantizer=_quantizer(_finite(origin, (n_features,)), np.sum(grams, axis=0))
        )
        statistics._sums.set_weight_exponent(-20)
        statistics.from_floats = True
        _put_sums(statistics, entries)
    for label, _, rows, weights in entries:
        if len(weights):
            codes = np.zeros(len(weights), dtype=np.int32)
            statistics.add_batch(Batch(rows, [label], codes, weights))
    return statistics


def _quantizer(origin: NDArray[np.float64], total: NDArray[np.float64]) -> Quantizer:
    """Quanta as fine as the spread of each feature asks for, and an origin that is a multiple of them."""
    count = max(float(total[-1, -1]), 1.0)
    variance = np.diagonal(total)[:-1] / count - np.square(total[-1, :-1] / count)
    spread = np.sqrt(np.maximum(variance, 0.0))
    size = np.where(spread > 0.0, spread, np.maximum(np.abs(origin), 1.0))
    wanted = np.frexp(size)[1] - _RESOLUTION
    whole = np.frexp(np.where(origin == 0.0, 1e-300, origin))[1] - 52  # origins keep all their digits
    exponents = np.maximum(wanted, np.where(origin == 0.0, wanted, whole))
    return Quantizer(exponents, np.round(np.ldexp(origin, -exponents)))


def _put_sums(statistics: ClassStatistics, entries: list[Any]) -> None:
    quantizer = statistics.quantizer
    n_features = statistics.n_features
    scales = [Fraction(2) ** -int(e) for e in quantizer.exponents] + [
        Fraction(-1)
    ]  # the last column was -1, is 1
    none = np.empty(0), np.empty(0, dtype=np.int64)
    for label, gram, _, _ in entries:
        slot = len(statistics._slots)
        statistics._slots[label] = slot
        if gram is None:
            continue
        numbers = [
            round(Fraction(float(gram[a, b])) * scales[a] * scales[b] * 2**20)
            for a in range(n_features + 1)
            for b in range(a + 1)
        ]
        each = max(number.bit_length() for number in numbers) // 8 + 1
        data = b"".join(number.to_bytes(each, "little", signed=True) for number in numbers)
        statistics._sums.set_slot(slot, data, each, *none)


def _lower(triangle: Any, n_features: int) -> NDArray[np.float64]:
    places = np.tril_indices(n_features + 1)
    lower = np.zeros((n_features + 1,) * 2)
    lower[places] = _finite(triangle, (len(places[0]),))
    return lower


def _finite(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"an array of shape {shape} with finite numbers was expected")
    return array.copy()
