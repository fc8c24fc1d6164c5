"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""

from steelyard.enclosing import EnclosingClassifier
from steelyard.exact import IncrementalSVC
from steelyard.features import RandomFeatures
from steelyard.persistence import load, save
from steelyard.proximal import ProximalSVC

__all__ = ["EnclosingClassifier", "IncrementalSVC", "ProximalSVC", "RandomFeatures", "load", "save"]
