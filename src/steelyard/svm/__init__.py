"""Exact incremental kernel SVM: the estimator IncrementalSVC, its state and its decision function."""

from steelyard.svm.estimator import IncrementalSVC

__all__ = ["IncrementalSVC"]
