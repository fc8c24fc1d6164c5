"""Models per key: one small exact model for every customer or machine, shrunk towards all rows."""

from steelyard.keyed.classifier import KeyedClassifier

__all__ = ["KeyedClassifier"]
