"""Enclosing bodies: one sphere or ellipsoid a class. Classes come and go, and strangers are told apart."""

from steelyard.enclosing.classifier import EnclosingClassifier

__all__ = ["EnclosingClassifier"]
