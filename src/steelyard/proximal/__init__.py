"""Proximal support vector machines: sufficient statistics, planes, and the estimator ProximalSVC."""

from steelyard._deprecation import former_names
from steelyard.proximal.certificate import Certificate
from steelyard.proximal.drift_report import DriftReport, compare_statistics
from steelyard.proximal.estimator import ProximalSVC
from steelyard.proximal.folds import FoldedStatistics
from steelyard.proximal.quantizer import Quantizer
from steelyard.proximal.statistics import ClassStatistics

__all__ = [
    "Certificate",
    "ClassStatistics",
    "DriftReport",
    "FoldedStatistics",
    "ProximalSVC",
    "Quantizer",
    "compare_statistics",
]

__getattr__ = former_names(__name__, Grid="Quantizer")
