"""Honest measuring: every row is predicted before its label is learned.

:func:`prequential` runs a :class:`Race` of models to its end; ``tracking``,
``counting``, ``measures`` and ``samples`` measure, ``peers`` lets models of other libraries take part, and
:class:`PrequentialResult` is what came out.
"""

from steelyard.evaluation.displays import BoundaryDisplay, ForgetDisplay, PrequentialDisplay
from steelyard.evaluation.peers import RiverPeer, SklearnPeer
from steelyard.evaluation.race import Event, Race, prequential
from steelyard.evaluation.results import PrequentialResult

__all__ = [
    "BoundaryDisplay",
    "Event",
    "ForgetDisplay",
    "PrequentialDisplay",
    "PrequentialResult",
    "Race",
    "RiverPeer",
    "SklearnPeer",
    "prequential",
]
