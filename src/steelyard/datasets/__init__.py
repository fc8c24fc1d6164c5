"""Named datasets from installed packages, local folders or OpenML, and data generators."""

from steelyard.datasets.loading import Dataset, Split, Splits, available, load, load_splits

__all__ = ["Dataset", "Split", "Splits", "available", "load", "load_splits"]
