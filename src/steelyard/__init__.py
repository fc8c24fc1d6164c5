"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""

from importlib.metadata import version as _version

from steelyard.alignment import AlignedSVC
from steelyard.enclosing import EnclosingClassifier
from steelyard.exact import IncrementalSVC
from steelyard.features import RandomFeatures
from steelyard.online import KOIL, MultiKernelKOIL
from steelyard.persistence import load, save
from steelyard.proximal import ProximalSVC

__all__ = [
    "KOIL",
    "AlignedSVC",
    "EnclosingClassifier",
    "IncrementalSVC",
    "MultiKernelKOIL",
    "ProximalSVC",
    "RandomFeatures",
    "__version__",
    "load",
    "save",
]

__version__ = _version("steelyard")
