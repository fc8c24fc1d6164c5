"""Statistics as one flat list of whole numbers, and back: what masks and noise are added to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics
from steelyard.proximal.state.messages import from_state, get_state
from steelyard.proximal.state.quantizer import Quantizer

__all__ = ["from_numbers", "on_quantizer", "to_numbers", "triangle_size"]

_FRACTIONS = 20  # weights are whole or in steps of 2**-20


def triangle_size(n_features: int) -> int:
    """How many numbers a class has: the lower triangle of ``E'E`` with ``E = [V, 1]``."""
    return (n_features + 1) * (n_features + 2) // 2


def on_quantizer(statistics: ClassStatistics, quantizer: Quantizer, source: str) -> ClassStatistics:
    """The same statistics counted in the steps of an agreed grid; refused where that would not be exact."""
    if statistics.from_floats:
        raise DataError(
            "sums of floating-point numbers, of an earlier version, are not whole.", source=source
        )
    if not quantizer.rounds.all():
        raise DataError(
            "the agreed grid may still become finer.",
            source=source,
            hint="make it with rounds=True everywhere",
        )
    placed = ClassStatistics(quantizer.n_features, quantizer=quantizer).merge(statistics).fold()
    now = placed.quantizer
    same = np.array_equal(now.exponents, quantizer.exponents) and np.array_equal(
        now.origins, quantizer.origins
    )
    if not same or now.mixed.any():
        raise DataError(
            "these rows were not learned on the agreed grid.",
            source=source,
            hint="give every site's learner the agreed grid: Site(..., learner=ProximalSVC(quantizer=grid))",
        )
    return placed


def to_numbers(
    statistics: ClassStatistics, labels: Sequence[Label], quantizer: Quantizer, source: str
) -> list[int]:
    """Class by class the lower triangle, row by row, weights in steps of 2**-20; zeros where no rows are."""
    strange = [label for label in statistics.classes if label not in labels]
    if strange:
        raise DataError(f"class {strange[0]!r} is none of those agreed on, {list(labels)}.", source=source)
    state = get_state(on_quantizer(statistics, quantizer, source))
    shift = _FRACTIONS + int(state["weight_exponent"])
    known = {entry["label"]: entry for entry in state["classes"]}
    numbers: list[int] = []
    for label in labels:
        if label not in known:
            numbers += [0] * triangle_size(quantizer.n_features)
            continue
        each, data = int(known[label]["each"]), known[label]["sums"].tobytes()
        numbers += [
            int.from_bytes(data[at : at + each], "little", signed=True) << shift
            for at in range(0, len(data), each)
        ]
    return numbers


def from_numbers(numbers: Sequence[int], labels: Sequence[Label], quantizer: Quantizer) -> ClassStatistics:
    """The statistics of such a list."""
    whole = all(number % (1 << _FRACTIONS) == 0 for number in numbers)
    numbers = [number >> _FRACTIONS for number in numbers] if whole else numbers
    size = triangle_size(quantizer.n_features)
    classes = []
    for place, label in enumerate(labels):
        part = numbers[place * size : (place + 1) * size]
        if any(part):
            classes.append(_class_state(label, part))
    early = {"rows": np.empty(0), "weights": np.empty(0, np.int64), "classes": [], "sparse": False}
    state = {
        "n_features": quantizer.n_features,
        "grid": quantizer.get_params(),
        "weight_exponent": 0 if whole else -_FRACTIONS,
        "from_floats": False,
        "early": early,
        "classes": classes,
    }
    return from_state(state, ClassStatistics)


def _class_state(label: Label, numbers: Sequence[int]) -> dict[str, Any]:
    each = max(number.bit_length() for number in numbers) // 8 + 1  # one bit for the sign
    data = b"".join(number.to_bytes(each, "little", signed=True) for number in numbers)
    return {
        "label": label,
        "fold": None,
        "sums": np.frombuffer(data, dtype=np.uint8),
        "each": each,
        "rows": np.empty(0),
        "weights": np.empty(0, np.int64),
    }
