"""Streams of rows: sources, generators, windows and honest measuring."""

from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.streams.drift_windows import DriftWindows
from steelyard.streams.encoding import TableEncoder
from steelyard.streams.generators import (
    SEA,
    Drift,
    Gaussians,
    GeneratedStream,
    KOILMixture,
    RotatingHyperplane,
)
from steelyard.streams.schedules import ImbalanceSchedule
from steelyard.streams.table_stream import TableStream, open_stream
from steelyard.streams.windows import Fading, SlidingWindow

__all__ = [
    "SEA",
    "ArrayStream",
    "Chunk",
    "Drift",
    "DriftWindows",
    "Fading",
    "Gaussians",
    "GeneratedStream",
    "ImbalanceSchedule",
    "KOILMixture",
    "RotatingHyperplane",
    "RowStream",
    "SlidingWindow",
    "TableEncoder",
    "TableStream",
    "open_stream",
]
