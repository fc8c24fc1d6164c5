"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""

from steelyard.alignment import AlignedSVC
from steelyard.features import RandomFeatures
from steelyard.persistence import load, save
from steelyard.proximal import ProximalSVC

__all__ = ["AlignedSVC", "ProximalSVC", "RandomFeatures", "load", "save"]
