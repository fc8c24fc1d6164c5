"""Classifiers for imbalanced data that keeps coming, keeps changing and lies in several places."""
