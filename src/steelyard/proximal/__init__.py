"""Proximal support vector machines: statistics (state), planes (rule) and ProximalSVC (estimator)."""

from steelyard._deprecation import renamed_class
from steelyard.proximal.certificate import Certificate
from steelyard.proximal.classifier import ProximalSVC
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.quantizer import Quantizer
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["Certificate", "ClassStatistics", "FoldedStatistics", "ProximalSVC", "Quantizer"]


def __getattr__(name: str) -> type:
    return renamed_class(__name__, {"Grid": "Quantizer"}, name)
