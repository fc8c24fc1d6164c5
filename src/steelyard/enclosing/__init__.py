"""Enclosing bodies: one sphere or ellipsoid a class, so that classes come and go and strangers are told apart."""

from steelyard.enclosing.classifier import EnclosingClassifier

__all__ = ["EnclosingClassifier"]
