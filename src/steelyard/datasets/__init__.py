"""Named datasets from installed packages, local folders or OpenML.

:mod:`steelyard.datasets.trajectories` generates trajectories.
"""

from steelyard.datasets.loading import Dataset, Split, Splits, available, load, load_splits

__all__ = ["Dataset", "Split", "Splits", "available", "load", "load_splits"]
