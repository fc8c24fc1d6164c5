"""Class statistics as plain values and as bytes: what is saved and what crosses a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard import persistence
from steelyard._labels import check_label_types, check_sortable
from steelyard._validation import MAX_QUANTIZED_FEATURE
from steelyard.exceptions import DataError, FileFormatError
from steelyard.features import RandomFeatures
from steelyard.persistence.tree import decode, encode
from steelyard.proximal.state import legacy
from steelyard.proximal.state.batches import FoldLabel
from steelyard.proximal.state.quantizer import Quantizer

if TYPE_CHECKING:
    from steelyard.proximal.state.statistics import ClassStatistics

__all__ = [
    "from_bytes",
    "from_state",
    "from_sums",
    "get_state",
    "maps_as",
    "opened",
    "packed",
    "to_bytes",
    "unpacked",
]

_FORMAT = "steelyard class statistics"
_VERSION = 2
_EARLIER = 1  # sums of floating-point numbers
_FRACTIONS = 20  # weights that are not whole are counted in steps of 2**-20

T = TypeVar("T")


def to_bytes(statistics: ClassStatistics) -> bytes:
    """A compact message: one triangle a class, a version and a checksum."""
    return encode({"format": _FORMAT, "version": _VERSION, **get_state(statistics)})


def from_bytes(data: bytes, cls: type[ClassStatistics]) -> ClassStatistics:
    """The statistics of a message; anything else is refused with a sentence."""
    source = "ClassStatistics.from_bytes"
    tree = decode(data)
    if not isinstance(tree, Mapping) or tree.get("format") != _FORMAT:
        raise FileFormatError("these bytes are not class statistics.", source=source)
    return opened(tree, (_VERSION, _EARLIER), lambda state: from_state(state, cls), source)


def opened(tree: Mapping[str, Any], versions: Sequence[int], make: Callable[[Any], T], source: str) -> T:
    """What a message describes; other versions (the newest comes first) and damaged ones are refused."""
    if tree.get("version") not in versions:
        raise FileFormatError(
            f"the message has version {tree.get('version')!r}; this library reads version {versions[0]}.",
            source=source,
            hint="update the library on this side",
        )
    try:
        return make(tree)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileFormatError(f"the message is damaged ({error}).", source=source) from error


def get_state(statistics: ClassStatistics) -> dict[str, Any]:
    """Everything that the statistics hold, as arrays and plain values."""
    sums, slots = statistics._sums.copy(), statistics._slots
    settled, exponents, origins, rounds, mixed = sums.grid()
    rows, weights, places, sparse = sums.get_early()
    present = sums.has_rows(len(slots))
    used = {label: slot for label, slot in slots.items() if present[slot]}
    renumber = np.full(len(slots), -1, dtype=np.int32)
    renumber[list(used.values())] = np.arange(len(used))
    return {
        "n_features": statistics.n_features,
        "grid": Quantizer(exponents, origins, rounds, mixed).to_dict() if settled else None,
        "weight_exponent": sums.weight_exponent,
        "from_floats": statistics.from_floats,
        "early": {
            "rows": rows,
            "weights": weights,
            "classes": renumber[places],
            "sparse": sparse,
        },
        "classes": [_class_state(label, sums.get_slot(slot)) for label, slot in used.items()],
    }


def _class_state(label: Any, block: Any) -> dict[str, Any]:
    name, fold = (label.label, label.fold) if isinstance(label, FoldLabel) else (label, None)
    if block is None:  # all its rows are early ones
        return {"label": name, "fold": fold, "sums": None}
    sums, each, rows, weights = block
    return {
        "label": name,
        "fold": fold,
        "sums": None if sums is None else np.frombuffer(sums, dtype=np.uint8),
        "each": each,
        "rows": rows,
        "weights": weights,
    }


def from_state(state: Mapping[str, Any], cls: type[ClassStatistics]) -> ClassStatistics:
    """The statistics that such values describe; ValueError and its like if they make no sense."""
    if "origin" in state:
        return legacy.from_state(state, cls)
    quantizer = None if state["grid"] is None else Quantizer(**state["grid"])
    statistics = cls(state["n_features"], quantizer=quantizer)
    sums = statistics._sums
    sums.set_weight_exponent(state["weight_exponent"])
    for slot, entry in enumerate(state["classes"]):
        label = entry["label"] if entry["fold"] is None else FoldLabel(entry["label"], int(entry["fold"]))
        statistics._slots[label] = slot
        if "rows" in entry:
            triangle = None if entry["sums"] is None else _array(entry["sums"], np.uint8).tobytes()
            sums.set_slot(
                slot,
                triangle,
                int(entry["each"]),
                _rows(entry["rows"]),
                _array(entry["weights"], np.int64),
            )
    if len(statistics._slots) != len(state["classes"]):
        raise ValueError("a class comes twice")
    if len({entry["fold"] is None for entry in state["classes"]}) > 1:
        raise ValueError("some classes are in folds and others are not")
    labels = [entry["label"] for entry in state["classes"]]
    check_label_types(labels, "a message")
    check_sortable(labels, "a message")
    first = state["early"]
    if len(first["weights"]):
        classes = _array(first["classes"], np.int32)
        if classes.min() < 0 or classes.max() >= len(statistics._slots):
            raise ValueError("rows of no class")
        sums.set_early(
            _rows(first["rows"]),
            _array(first["weights"], np.int64),
            classes,
            bool(first["sparse"]),
        )
    statistics.from_floats = bool(state["from_floats"])
    return statistics


def from_sums(
    quantizer: Quantizer, sums: Mapping[Any, Sequence[int]], cls: type[ClassStatistics], *, fractions: bool
) -> ClassStatistics:
    """The statistics that whole sums make; DataError where no rows could have them."""
    statistics = cls(quantizer.n_features, quantizer=quantizer)
    statistics._sums.set_weight_exponent(-_FRACTIONS if fractions else 0)
    n = quantizer.n_features + 1
    diagonal = [k * (k + 3) // 2 for k in range(n)]
    for slot, (label, triangle) in enumerate(sums.items()):
        if len(triangle) != n * (n + 1) // 2 or min(triangle[place] for place in diagonal) < 0:
            raise DataError(
                f"the sums of class {label!r} are not those of rows with {quantizer.n_features} features.",
                source="ClassStatistics.from_sums",
            )
        each = max(value.bit_length() for value in triangle) // 8 + 1
        numbers = b"".join(value.to_bytes(each, "little", signed=True) for value in triangle)
        statistics._slots[label] = slot
        statistics._sums.set_slot(slot, numbers, each, np.empty(0), np.empty(0, dtype=np.int64))
    return statistics


def _rows(values: Any) -> NDArray[np.float64]:
    """Values of rows that a learner would have taken."""
    rows = _array(values, np.float64)
    if not (np.abs(rows) <= MAX_QUANTIZED_FEATURE).all():
        raise ValueError("a row has a value that no learner takes")
    return rows


def _array(values: Any, dtype: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"a list of {np.dtype(dtype).name} numbers was expected")
    return np.ascontiguousarray(array)


def maps_as(form: Callable[[Any], Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with maps in another form: files of models hold objects, messages plain values."""
    result = {**state, "map": form(state["map"])}
    if state.get("gathered") is not None:
        result["gathered"] = {**state["gathered"], "unsettled": form(state["gathered"]["unsettled"])}
    return result


def packed(feature_map: RandomFeatures | None) -> NDArray[np.uint8] | None:
    """A feature map as bytes, for a message."""
    return None if feature_map is None else np.frombuffer(persistence.to_bytes(feature_map), dtype=np.uint8)


def unpacked(data: Any) -> RandomFeatures | None:
    """The feature map of a message."""
    feature_map = None if data is None else persistence.from_bytes(data.tobytes())
    if not isinstance(feature_map, RandomFeatures | None):
        raise TypeError("rows pass through feature maps only")
    return feature_map
