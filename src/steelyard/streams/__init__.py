"""Streams of rows: chunks, generators with schedules of imbalance, and the demonstration.

What stands on streams (tables, memories, honest measuring) has rooms of its own; its names can be imported
from here too.
"""

from importlib import import_module
from typing import Any

from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.streams.demo import demo_stream
from steelyard.streams.generators import (
    SEA,
    Drift,
    Gaussians,
    GeneratedStream,
    KOILMixture,
    RotatingHyperplane,
)
from steelyard.streams.schedules import ImbalanceSchedule

# Names that live in rooms above this one, imported when asked for: those rooms import this one.
_ELSEWHERE = {
    "AdaptiveWindows": "windowing",
    "ExponentialDecay": "windowing",
    "PrequentialResult": "evaluation",
    "PrequentialEvaluator": "evaluation",
    "RiverPeer": "evaluation",
    "SklearnPeer": "evaluation",
    "SlidingWindow": "windowing",
    "TableEncoder": "tables",
    "TableModel": "tables",
    "TableStream": "tables",
    "open_stream": "tables",
    "prequential": "evaluation",
}

__all__ = [  # noqa: PLE0604  the rest comes by __getattr__
    "SEA",
    "ArrayStream",
    "Chunk",
    "Drift",
    "Gaussians",
    "GeneratedStream",
    "ImbalanceSchedule",
    "KOILMixture",
    "RotatingHyperplane",
    "RowStream",
    "demo_stream",
    *_ELSEWHERE,
]


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"steelyard.{_ELSEWHERE[name]}"), name)
