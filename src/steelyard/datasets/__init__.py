"""Data to try learners on: named sets from where they can be had, and generators."""

from steelyard.datasets.dataset import Dataset, Split, Splits
from steelyard.datasets.loading import available, load, load_splits

__all__ = ["Dataset", "Split", "Splits", "available", "load", "load_splits"]
