"""Exact incremental kernel SVM: the estimator IncrementalSVC and its state."""

from steelyard.svm.estimator import IncrementalSVC

__all__ = ["IncrementalSVC"]
