"""Exact kernel SVMs: rows and solutions (state), kernel expansions (rule) and IncrementalSVC (estimator)."""

from steelyard.svm.classifier import IncrementalSVC

__all__ = ["IncrementalSVC"]
