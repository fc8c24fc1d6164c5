"""Exact incremental kernel SVM: the estimator IncrementalSVC, its state and its kernel expansion."""

from steelyard.svm.estimator import IncrementalSVC

__all__ = ["IncrementalSVC"]
