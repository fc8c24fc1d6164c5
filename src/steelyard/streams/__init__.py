"""Streams of rows: sources, generators, windows and honest measuring."""

from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.streams.demo import demo_stream
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
from steelyard.streams.peers import RiverPeer, SklearnPeer
from steelyard.streams.race import Race, prequential
from steelyard.streams.results import PrequentialResult
from steelyard.streams.schedules import ImbalanceSchedule
from steelyard.streams.table_model import TableModel
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
    "PrequentialResult",
    "Race",
    "RiverPeer",
    "RotatingHyperplane",
    "RowStream",
    "SklearnPeer",
    "SlidingWindow",
    "TableEncoder",
    "TableModel",
    "TableStream",
    "demo_stream",
    "open_stream",
    "prequential",
]
