"""Measures for imbalanced classes: of a whole set of answers, and of a stream of them."""

from steelyard.metrics.batch import (
    f_beta_score,
    g_mean_score,
    imbalance_ratio,
    pmauc_score,
    relative_sensitivity_score,
    roc_auc_score,
    sensitivity_score,
    specificity_score,
)
from steelyard.metrics.report import ImbalanceReport, imbalance_report
from steelyard.metrics.scorers import get_scorer, get_scorer_names, make_scorer
from steelyard.metrics.streaming import (
    ConfusionStream,
    CumulativeConfusion,
    FadingConfusion,
    StreamingMetric,
    WindowAUC,
    WindowConfusion,
    WindowPMAUC,
    streaming_metric,
)

__all__ = [
    "ConfusionStream",
    "CumulativeConfusion",
    "FadingConfusion",
    "ImbalanceReport",
    "StreamingMetric",
    "WindowAUC",
    "WindowConfusion",
    "WindowPMAUC",
    "f_beta_score",
    "g_mean_score",
    "get_scorer",
    "get_scorer_names",
    "imbalance_ratio",
    "imbalance_report",
    "make_scorer",
    "pmauc_score",
    "relative_sensitivity_score",
    "roc_auc_score",
    "sensitivity_score",
    "specificity_score",
    "streaming_metric",
]
