"""Serialization of class statistics as plain values and as bytes, for files and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard import persistence
from steelyard._labels import restored_labels
from steelyard.base import Batch
from steelyard.exceptions import FileFormatError
from steelyard.features import RandomFeatures
from steelyard.proximal.quantizer import LARGEST_VALUE, WEIGHT_FRACTION_BITS, Quantizer
from steelyard.proximal.row_ledger import FoldLabel

if TYPE_CHECKING:
    from steelyard.proximal.statistics import ClassStatistics

_DEVIATION_BITS = 37  # steps are chosen so that a standard deviation is 2**36 to 2**37 steps


@contextmanager
def reading(what: str, source: str) -> Iterator[None]:
    """Raise FileFormatError instead of the errors that damaged data cause while they are interpreted."""
    try:
        yield
    except FileFormatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FileFormatError(f"the {what} is damaged ({error}).", source=source) from error


def check_format(tree: Any, what: str, form: str, versions: Sequence[int], source: str) -> None:
    """Raise FileFormatError if a message has another format than ``form``, or an unknown version of it."""
    if not isinstance(tree, Mapping) or tree.get("format") != form:
        raise FileFormatError(f"these bytes do not contain {what}.", source=source)
    if tree.get("version") not in versions:
        raise unknown_version("message", tree.get("version"), versions[0], source)


def unknown_version(what: str, found: object, known: int, source: str) -> FileFormatError:
    """Return the error for data in a format version that this library does not know."""
    return FileFormatError(
        f"the {what} has version {found!r}; this library reads version {known}.",
        source=source,
        hint="install a newer version",
    )


def get_state(statistics: ClassStatistics) -> dict[str, Any]:
    """Return the statistics as arrays and plain values."""
    sums, slots = statistics._sums.copy(), statistics._slots
    frozen, exponents, origins, rounds, mixed = sums.quantizer()
    rows, weights, early_slots, sparse = sums.get_early()
    present = sums.has_rows(len(slots))
    used = {label: slot for label, slot in slots.items() if present[slot]}
    renumber = np.cumsum(present, dtype=np.int32) - 1
    return {
        "n_features": statistics.n_features,
        "grid": Quantizer(exponents, origins, rounds, mixed).to_dict() if frozen else None,
        "weight_exponent": sums.weight_exponent,
        "from_floats": statistics.from_floats,
        "early": {"rows": rows, "weights": weights, "classes": renumber[early_slots], "sparse": sparse},
        "classes": [_class_state(label, sums.get_slot(slot)) for label, slot in used.items()],
    }


def _class_state(label: Any, block: Any) -> dict[str, Any]:
    name, fold = label if isinstance(label, FoldLabel) else (label, None)
    state = {"label": name, "fold": fold, "sums": None}
    if block is None:  # all rows of the class arrived before the quantizer was fixed
        return state
    sums, bytes_per_number, rows, weights = block
    packed = None if sums is None else np.frombuffer(sums, dtype=np.uint8)
    return {**state, "sums": packed, "each": bytes_per_number, "rows": rows, "weights": weights}


def from_state(state: Mapping[str, Any], cls: type[ClassStatistics]) -> ClassStatistics:
    """Restore statistics from the result of :func:`get_state`; raise an error for invalid values."""
    if "origin" in state:
        return _from_float_state(state, cls)
    quantizer = None if state["grid"] is None else Quantizer(**state["grid"])
    statistics = cls(state["n_features"], quantizer=quantizer)
    sums = statistics._sums
    sums.set_weight_exponent(state["weight_exponent"])
    for slot, entry in enumerate(state["classes"]):
        label = entry["label"] if entry["fold"] is None else FoldLabel(entry["label"], int(entry["fold"]))
        statistics._slots[label] = slot
        if "rows" in entry:
            triangle = None if entry["sums"] is None else _array(entry["sums"], np.uint8).tobytes()
            weights = _array(entry["weights"], np.int64)
            sums.set_slot(slot, triangle, int(entry["each"]), _rows(entry["rows"]), weights)
    if len(statistics._slots) != len(state["classes"]):
        raise ValueError("a class occurs twice in the statistics")
    if len({entry["fold"] is None for entry in state["classes"]}) > 1:
        raise ValueError("some classes have folds and others do not")
    restored_labels((entry["label"] for entry in state["classes"]), "a message")
    early = state["early"]
    if len(early["weights"]):
        classes = _array(early["classes"], np.int32)
        if classes.min() < 0 or classes.max() >= len(statistics._slots):
            raise ValueError("some pending rows belong to no class")
        weights = _array(early["weights"], np.int64)
        sums.set_early(_rows(early["rows"]), weights, classes, bool(early["sparse"]))
    statistics.from_floats = bool(state["from_floats"])
    return statistics


def from_integer_sums(
    quantizer: Quantizer, sums: Mapping[Any, Sequence[int]], cls: type[ClassStatistics], *, fractions: bool
) -> ClassStatistics:
    """Return statistics with the given integer sums of each class, which may contain noise.

    With ``fractions``, the sums are multiples of ``2**-WEIGHT_FRACTION_BITS``, as of scaled weights.
    """
    statistics = cls(quantizer.n_features, quantizer=quantizer)
    statistics._sums.set_weight_exponent(-WEIGHT_FRACTION_BITS if fractions else 0)
    for label, triangle in sums.items():
        _set_triangle(statistics, label, triangle)
    return statistics


def to_integer_sums(statistics: ClassStatistics) -> tuple[dict[Any, list[int]], bool]:
    """Return the arguments ``sums`` and ``fractions`` of :func:`from_integer_sums`.

    The statistics must contain no stored rows, see :meth:`ClassStatistics.fold`.
    """
    sums, slots = statistics._sums, statistics._slots
    present = sums.has_rows(len(slots))
    triangles = {}
    for label, slot in slots.items():
        if present[slot]:
            block: Any = sums.get_slot(slot)
            triangles[label] = unpack_integers(*block[:2])
    return triangles, sums.weight_exponent != 0


def triangle_size(n_features: int) -> int:
    """Return the number of sums per class: one for each pair of columns, including a constant column."""
    return (n_features + 1) * (n_features + 2) // 2


def unpack_integers(data: bytes, n_bytes: int) -> list[int]:
    """Return the signed integers in ``data``, which has ``n_bytes`` for each of them."""
    starts = range(0, len(data), n_bytes)
    return [int.from_bytes(data[at : at + n_bytes], "little", signed=True) for at in starts]


def _set_triangle(statistics: ClassStatistics, label: Any, triangle: Sequence[int]) -> None:
    """Set the sums of a new class, which gets a new slot."""
    slot = statistics._slots.setdefault(label, len(statistics._slots))
    bytes_per_number = max(value.bit_length() for value in triangle) // 8 + 1
    data = b"".join(value.to_bytes(bytes_per_number, "little", signed=True) for value in triangle)
    statistics._sums.set_slot(slot, data, bytes_per_number, np.empty(0), np.empty(0, dtype=np.int64))


def _rows(values: Any) -> NDArray[np.float64]:
    """Return rows as an array of doubles; raise ValueError for NaN and for values that are too large."""
    rows = _array(values, np.float64)
    if not (np.abs(rows) <= LARGEST_VALUE).all():
        raise ValueError("a pending row has a value that no learner accepts")
    return rows


def _array(values: Any, dtype: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"a list of {np.dtype(dtype).name} numbers was expected")
    return np.ascontiguousarray(array)


# -- feature maps -----------------------------------------------------------------------------------


def convert_maps(convert: Callable[[Any], Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with converted feature maps. Model files store maps as objects, messages as arrays."""
    result = {**state, "map": convert(state["map"])}
    if state.get("gathered") is not None:
        result["gathered"] = {**state["gathered"], "unsettled": convert(state["gathered"]["unsettled"])}
    return result


def map_to_array(feature_map: RandomFeatures | None) -> NDArray[np.uint8] | None:
    """Return a feature map as an array of bytes."""
    return None if feature_map is None else np.frombuffer(persistence.to_bytes(feature_map), dtype=np.uint8)


def map_from_array(data: Any) -> RandomFeatures | None:
    """Return the feature map that :func:`map_to_array` wrote."""
    feature_map = None if data is None else persistence.from_bytes(data.tobytes())
    if not isinstance(feature_map, RandomFeatures | None):
        raise TypeError("a feature map must be a RandomFeatures")
    return feature_map


# -- files of version 0.1 ---------------------------------------------------------------------------


def _from_float_state(state: Mapping[str, Any], cls: type[ClassStatistics]) -> ClassStatistics:
    """Return the statistics of a version 0.1 file: matrices of doubles about an origin, and pending rows."""
    n_features, origin = state["n_features"], state["origin"]
    size = n_features + 1
    places, entries = np.tril_indices(size), []
    for entry in state["classes"]:
        gram, n_rows = None, len(entry["weights"])
        if entry["triangle"] is not None:
            gram = np.zeros((size, size))
            gram[places] = _finite(entry["triangle"], (len(places[0]),))
        rows, weights = _finite(entry["rows"], (n_rows, n_features)), _finite(entry["weights"], (n_rows,))
        entries.append((entry["label"], gram, rows, weights))
    grams = [gram for _, gram, _, _ in entries if gram is not None]
    if not grams:
        statistics = cls(n_features)
    else:
        if origin is None:
            raise ValueError("a matrix has no origin")
        quantizer = _fit_quantizer(_finite(origin, (n_features,)), np.sum(grams, axis=0))
        statistics = cls(n_features, quantizer=quantizer)
        statistics._sums.set_weight_exponent(-WEIGHT_FRACTION_BITS)
        statistics.from_floats = True
        for label, gram, _, _ in entries:
            statistics._slots[label] = len(statistics._slots)
            if gram is not None:
                _set_triangle(statistics, label, _rounded(gram, quantizer))
    for label, _, rows, weights in entries:
        if len(weights):
            codes = np.zeros(len(weights), dtype=np.int32)
            statistics.add_batch(Batch(rows, [label], codes, weights))
    return statistics


def _fit_quantizer(origin: NDArray[np.float64], total: NDArray[np.float64]) -> Quantizer:
    """Return a quantizer whose steps resolve the standard deviation of each feature."""
    count = max(float(total[-1, -1]), 1.0)
    variance = np.diagonal(total)[:-1] / count - np.square(total[-1, :-1] / count)
    deviation = np.sqrt(np.maximum(variance, 0.0))
    size = np.where(deviation > 0.0, deviation, np.maximum(np.abs(origin), 1.0))
    wanted = np.frexp(size)[1] - _DEVIATION_BITS
    # The origin has 53 bits, so it is an integer multiple of any step that is not finer than its last bit.
    last_bit = np.frexp(np.where(origin == 0.0, 1e-300, origin))[1] - 52
    exponents = np.maximum(wanted, np.where(origin == 0.0, wanted, last_bit))
    return Quantizer(exponents, np.round(np.ldexp(origin, -exponents)))


def _rounded(gram: NDArray[np.float64], quantizer: Quantizer) -> list[int]:
    """Return the lower triangle as integers in units of the steps. The constant column -1 becomes 1."""
    scales = [*(Fraction(2) ** -int(exponent) for exponent in quantizer.exponents), Fraction(-1)]
    return [
        round(Fraction(float(gram[a, b])) * scales[a] * scales[b] * 2**WEIGHT_FRACTION_BITS)
        for a in range(len(scales))
        for b in range(a + 1)
    ]


def _finite(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"an array of shape {shape} with finite numbers was expected")
    return array.copy()
