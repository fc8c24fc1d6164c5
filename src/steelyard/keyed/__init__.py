"""Models per key: one small exact model for each customer or machine, shrunk towards a common model."""

from steelyard.keyed.classifier import KeyedClassifier

__all__ = ["KeyedClassifier"]
