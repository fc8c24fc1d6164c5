"""Enclosing classifier: one sphere or ellipsoid per class, with open-set prediction."""

from steelyard.enclosing.classifier import EnclosingClassifier

__all__ = ["EnclosingClassifier"]
