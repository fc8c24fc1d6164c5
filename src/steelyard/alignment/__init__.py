"""Kernel boundary alignment: an SVM whose kernel is transformed near the decision boundary."""

from steelyard.alignment.classifier import AlignedSVC
from steelyard.alignment.machine import Round

__all__ = ["AlignedSVC", "Round"]
