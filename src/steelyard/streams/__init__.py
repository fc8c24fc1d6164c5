"""Streams of rows: chunks, generators with a schedule of class imbalance, and a demonstration stream.

Some names of the packages ``tables``, ``windowing`` and ``evaluation`` can also be imported from here.
"""

from importlib import import_module
from typing import Any

from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.streams.generators import (
    SEA,
    Drift,
    Gaussians,
    GeneratedStream,
    ImbalanceSchedule,
    KOILMixture,
    RotatingHyperplane,
    demo_stream,
)
from steelyard.streams.payments import Payments

# Names defined in packages that import this one. A lazy import avoids the import cycle.
_PACKAGES = {
    "evaluation": ("PrequentialEvaluator", "PrequentialResult", "RiverPeer", "SklearnPeer", "prequential"),
    "tables": ("TableEncoder", "TableModel", "TableStream", "open_stream"),
    "windowing": ("AdaptiveWindows", "ExponentialDecay", "SlidingWindow"),
}
_ELSEWHERE = {name: package for package, names in _PACKAGES.items() for name in names}

__all__ = [  # noqa: PLE0604  names that __getattr__ imports
    "SEA",
    "ArrayStream",
    "Chunk",
    "Drift",
    "Gaussians",
    "GeneratedStream",
    "ImbalanceSchedule",
    "KOILMixture",
    "Payments",
    "RotatingHyperplane",
    "RowStream",
    "demo_stream",
    *_ELSEWHERE,
]


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"steelyard.{_ELSEWHERE[name]}"), name)
