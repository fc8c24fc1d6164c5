"""Conversion of statistics to a flat list of integers and back, for masking and noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics
from steelyard.proximal.quantizer import WEIGHT_FRACTION_BITS, Quantizer
from steelyard.proximal.serialization import from_any_sums, get_state, triangle_size, unpack_integers


def on_quantizer(statistics: ClassStatistics, quantizer: Quantizer, source: str) -> ClassStatistics:
    """Convert statistics to the steps of the agreed quantizer; raise an error if this is not exact."""
    if statistics.from_floats:
        raise DataError(
            "the statistics contain floating-point sums of an earlier version; integer sums are needed.",
            source=source,
        )
    if not quantizer.rounds.all():
        raise DataError(
            "the agreed quantizer may refine its steps, so sums of different sites may have different steps.",
            source=source,
            hint="create the quantizer with rounds=True for all features",
        )
    converted = ClassStatistics(quantizer.n_features, quantizer=quantizer).merge(statistics).fold()
    now = converted.quantizer
    same = np.array_equal(now.exponents, quantizer.exponents) and np.array_equal(
        now.origins, quantizer.origins
    )
    if not same or now.mixed.any():
        raise DataError(
            "these rows were not learned with the agreed quantizer.",
            source=source,
            hint="use the agreed quantizer at every site: "
            "Site(..., estimator=ProximalSVC(quantizer=quantizer))",
        )
    return converted


def to_numbers(
    statistics: ClassStatistics, labels: Sequence[Label], quantizer: Quantizer, source: str
) -> list[int]:
    """Return the sums of all classes as one list of integers.

    For each class it contains the lower triangle of the sums of products, row by row, with weights in steps
    of 2**-20. The sums of a class without rows are zeros.
    """
    unknown = [label for label in statistics.classes if label not in labels]
    if unknown:
        raise DataError(f"class {unknown[0]!r} is not among the agreed labels {list(labels)}.", source=source)
    state = get_state(on_quantizer(statistics, quantizer, source))
    shift = WEIGHT_FRACTION_BITS + int(state["weight_exponent"])
    known = {entry["label"]: entry for entry in state["classes"]}
    numbers: list[int] = []
    for label in labels:
        if label not in known:
            numbers += [0] * triangle_size(quantizer.n_features)
            continue
        sums = unpack_integers(known[label]["sums"].tobytes(), int(known[label]["each"]))
        numbers += [number << shift for number in sums]
    return numbers


def from_numbers(numbers: Sequence[int], labels: Sequence[Label], quantizer: Quantizer) -> ClassStatistics:
    """Restore statistics from the result of :func:`to_numbers`."""
    are_integers = all(number % (1 << WEIGHT_FRACTION_BITS) == 0 for number in numbers)
    numbers = [number >> WEIGHT_FRACTION_BITS for number in numbers] if are_integers else numbers
    size = triangle_size(quantizer.n_features)
    triangles = {label: numbers[k * size : (k + 1) * size] for k, label in enumerate(labels)}
    present = {label: triangle for label, triangle in triangles.items() if any(triangle)}
    return from_any_sums(quantizer, present, ClassStatistics, fractions=not are_integers)
