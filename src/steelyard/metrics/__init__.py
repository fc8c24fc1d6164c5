"""Measures for imbalanced classes, for batches of predictions and for streams."""

from steelyard.metrics.batch import (
    ImbalanceReport,
    cohen_kappa_score,
    f_beta_score,
    g_mean_score,
    get_scorer,
    get_scorer_names,
    imbalance_ratio,
    imbalance_report,
    make_scorer,
    relative_sensitivity_score,
    sensitivity_score,
    specificity_score,
)
from steelyard.metrics.batch_scores import (
    average_precision_score,
    brier_score,
    expected_calibration_error,
    log_loss_score,
    pmauc_score,
    precision_at_k_score,
    recall_at_k_score,
    reliability_curve,
    roc_auc_score,
)
from steelyard.metrics.confidence import rate_interval
from steelyard.metrics.formulas import ReliabilityCurve
from steelyard.metrics.streaming import (
    ConfusionStream,
    CumulativeConfusion,
    FadingConfusion,
    StreamingMetric,
    WindowConfusion,
)
from steelyard.metrics.window_auc import WindowAUC, WindowPMAUC, WindowScores, streaming_metric

__all__ = [
    "ConfusionStream",
    "CumulativeConfusion",
    "FadingConfusion",
    "ImbalanceReport",
    "ReliabilityCurve",
    "StreamingMetric",
    "WindowAUC",
    "WindowConfusion",
    "WindowPMAUC",
    "WindowScores",
    "average_precision_score",
    "brier_score",
    "cohen_kappa_score",
    "expected_calibration_error",
    "f_beta_score",
    "g_mean_score",
    "get_scorer",
    "get_scorer_names",
    "imbalance_ratio",
    "imbalance_report",
    "log_loss_score",
    "make_scorer",
    "pmauc_score",
    "precision_at_k_score",
    "rate_interval",
    "recall_at_k_score",
    "relative_sensitivity_score",
    "reliability_curve",
    "roc_auc_score",
    "sensitivity_score",
    "specificity_score",
    "streaming_metric",
]
