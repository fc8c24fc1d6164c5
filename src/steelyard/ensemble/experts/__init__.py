"""The experts of StreamClassifier.

To add an expert, write a subclass of :class:`~steelyard.ensemble.experts.base.Expert` in a new file and
append one entry to ``EXPERTS``. Do not change the order of the entries: files of earlier versions store
experts by position.
"""

from __future__ import annotations

from functools import partial

from steelyard.ensemble.experts.base import Expert, ExpertConfig, Rule, Stream
from steelyard.ensemble.experts.boosting import BoostingExpert
from steelyard.ensemble.experts.incremental import (
    KernelExpert,
    LinearExpert,
    MappedLinearExpert,
    RecentLinearExpert,
)
from steelyard.ensemble.experts.lookup import LabelFrequencyExpert, NearestNeighborExpert
from steelyard.ensemble.experts.wide import WideExpert

__all__ = ["EXPERTS", "Expert", "ExpertConfig", "Rule", "Stream"]

EXPERTS = (
    ExpertConfig("linear", "proximal SVM over all rows", 1.0, LinearExpert),
    ExpertConfig(
        "recent", "proximal SVM over the last 200 rows, more with many classes", 1.0, RecentLinearExpert
    ),
    ExpertConfig("mapped", "proximal SVM over 300 random features, all rows", 1.0, MappedLinearExpert),
    ExpertConfig(
        "kernel", "kernel SVM over the last 1,000 rows and the last 200 of each class", 4.0, KernelExpert
    ),
    ExpertConfig(
        "labels",
        "frequencies of the last labels, half-life 20 rows",
        0.3,
        partial(LabelFrequencyExpert, half_life_rows=20.0),
    ),
    ExpertConfig(
        "trees",
        "boosted trees over the last 5,000 rows and the last 100 of each class",
        6.0,
        partial(BoostingExpert, window_rows=5000, n_rows_per_class=100, n_trees=40, share=0.2),
    ),
    ExpertConfig(
        "trees 20k",
        "boosted trees over the rarest class and a sample of the others, last 20,000 rows",
        4.0,
        partial(BoostingExpert, window_rows=20_000, starts_at=20_000, n_trees=60, max_leaves=31, share=0.12),
    ),
    ExpertConfig(
        "trees all",
        "boosted trees over the rarest class and a sample of the others, all rows",
        12.0,
        partial(
            BoostingExpert,
            window_rows=None,
            starts_at=500,
            n_trees=100,
            max_leaves=31,
            max_bins=255,
            share=0.2,
        ),
    ),
    ExpertConfig(
        "last labels",
        "frequencies of the last labels, half-life 0.7 rows",
        0.3,
        partial(LabelFrequencyExpert, half_life_rows=0.7),
    ),
    ExpertConfig(
        "neighbors",
        "nearest neighbors among the last 200 rows and the last 20 of each class",
        0.3,
        NearestNeighborExpert,
    ),
    ExpertConfig(
        "trees 80k",
        "boosted trees over the rarest class and a sample of the others, last 80,000 rows",
        6.0,
        partial(
            BoostingExpert,
            window_rows=80_000,
            frequent_per_rare=40,
            starts_at=80_000,
            n_trees=100,
            max_leaves=31,
            max_bins=255,
            share=0.15,
        ),
    ),
    ExpertConfig(
        "wide",
        "linear SVM over rows with more than 256 columns, before they are hashed",
        12.0,
        WideExpert,
    ),
)
