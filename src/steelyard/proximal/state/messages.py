"""Class statistics as plain values and as bytes: what is saved and what crosses a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import FileFormatError
from steelyard.persistence import decode, encode
from steelyard.proximal.state.moments import Moments

if TYPE_CHECKING:
    from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["from_bytes", "from_state", "get_state", "to_bytes"]

_FORMAT = "steelyard class statistics"
_VERSION = 1


def to_bytes(statistics: ClassStatistics) -> bytes:
    """A compact message: one triangle a class, a version and a checksum."""
    return encode({"format": _FORMAT, "version": _VERSION, **get_state(statistics)})


def from_bytes(data: bytes, cls: type[ClassStatistics]) -> ClassStatistics:
    """The statistics of a message; anything else is refused with a sentence."""
    tree = decode(data)
    if not isinstance(tree, Mapping) or tree.get("format") != _FORMAT:
        raise FileFormatError("these bytes are not class statistics.", who="ClassStatistics.from_bytes")
    if tree.get("version") != _VERSION:
        raise FileFormatError(
            f"the message has version {tree.get('version')!r}; this library reads version {_VERSION}.",
            who="ClassStatistics.from_bytes",
            hint="update the library on this side",
        )
    try:
        return from_state(tree, cls)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileFormatError(
            f"the message is damaged ({error}).", who="ClassStatistics.from_bytes"
        ) from error


def get_state(statistics: ClassStatistics) -> dict[str, Any]:
    """Everything that the statistics hold, as arrays and plain values."""
    lower = np.tril_indices(statistics.n_features + 1)
    return {
        "n_features": statistics.n_features,
        "row_tolerance": statistics.row_tolerance,
        "origin": statistics.origin,
        "touched": [statistics.touched, statistics.look_after],
        "classes": [
            {
                "label": label,
                "triangle": None if moments.gram is None else moments.gram[lower],
                "rows": moments.rows.copy(),
                "weights": moments.weights.copy(),
            }
            for label, moments in ((label, statistics.moments(label)) for label in statistics.classes)
        ],
    }


def from_state(state: Mapping[str, Any], cls: type[ClassStatistics]) -> ClassStatistics:
    """The statistics that such values describe; ValueError and its like if they make no sense."""
    n_features, origin = state["n_features"], state["origin"]
    statistics = cls(n_features, row_tolerance=float(state["row_tolerance"]))
    lower = np.tril_indices(n_features + 1)
    if origin is not None:
        statistics.origin = _finite_array(origin, (n_features,))
    for entry in state["classes"]:
        moments = Moments(n_features)
        if entry["triangle"] is not None:
            moments.gram = np.zeros((n_features + 1,) * 2)
            moments.gram[lower] = _finite_array(entry["triangle"], (len(lower[0]),))
            if origin is None:
                raise ValueError("a matrix without an origin")
        weights = _finite_array(entry["weights"], (len(entry["weights"]),))
        moments.wait(_finite_array(entry["rows"], (len(weights), n_features)), weights)
        statistics.set_moments(entry["label"], moments)
    statistics.touched, statistics.look_after = map(float, state["touched"])
    return statistics


def _finite_array(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"an array of shape {shape} with finite numbers was expected")
    return array.copy()
