"""Prequential evaluation: every row is predicted before its label is learned.

:func:`prequential` runs a :class:`PrequentialEvaluator` over a stream and returns a
:class:`PrequentialResult`. ``tracking`` computes the measures, ``peers`` adapts models of other libraries.
"""

from steelyard._deprecation import former_names
from steelyard.evaluation.displays import BoundaryDisplay, ForgetDisplay, PrequentialDisplay
from steelyard.evaluation.evaluator import Event, PrequentialEvaluator, prequential
from steelyard.evaluation.peers import RiverPeer, SklearnPeer
from steelyard.evaluation.results import PrequentialResult

__all__ = [
    "BoundaryDisplay",
    "Event",
    "ForgetDisplay",
    "PrequentialDisplay",
    "PrequentialEvaluator",
    "PrequentialResult",
    "RiverPeer",
    "SklearnPeer",
    "prequential",
]

__getattr__ = former_names(__name__, Race="PrequentialEvaluator")
