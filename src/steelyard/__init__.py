"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""

from steelyard.exact import IncrementalSVC
from steelyard.features import RandomFeatures
from steelyard.persistence import load, save
from steelyard.proximal import ProximalSVC

__all__ = ["IncrementalSVC", "ProximalSVC", "RandomFeatures", "load", "save"]
