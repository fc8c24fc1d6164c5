"""Models per key: one small exact model for each key (such as a customer), shrunk towards a common model."""

from steelyard.keyed.classifier import KeyedClassifier

__all__ = ["KeyedClassifier"]
