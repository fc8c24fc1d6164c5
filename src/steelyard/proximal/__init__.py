"""Proximal support vector machines: statistics (state), planes (rule) and ProximalSVC (estimator)."""

from steelyard.proximal.certificate import Certificate
from steelyard.proximal.classifier import ProximalSVC
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.grid import Grid
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["Certificate", "ClassStatistics", "FoldedStatistics", "Grid", "ProximalSVC"]
