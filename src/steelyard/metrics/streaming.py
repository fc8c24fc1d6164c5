"""Factory function for streaming metrics."""

from __future__ import annotations

from numpy.typing import ArrayLike

from steelyard.exceptions import ParameterError
from steelyard.metrics._validation import Label
from steelyard.metrics.base import StreamingMetric
from steelyard.metrics.confusion import CumulativeConfusion, FadingConfusion, WindowConfusion
from steelyard.metrics.window_auc import SCORE_MEASURES, WindowAUC, WindowPMAUC, WindowScores


def streaming_metric(
    measure: str,
    *,
    window: int | None = None,
    factor: float | None = None,
    half_life: float | None = None,
    pos_label: Label | None = None,
    beta: float = 1.0,
    labels: ArrayLike | None = None,
    k: int = 100,
    n_bins: int = 10,
) -> StreamingMetric:
    """Return a streaming metric by the name of its measure.

    Parameters
    ----------
    measure : str
        ``"roc_auc"``, ``"pmauc"``, any measure of :class:`WindowScores`, or any measure of
        :meth:`ConfusionStream.get`.
    window : int, optional
        Number of most recent rows that count. Required for measures of scores.
    factor, half_life : float, optional
        Exponential decay, see :class:`FadingConfusion`. If neither these nor ``window`` are given, all rows
        count equally.
    pos_label : label, optional
        The positive class.
    beta : float, default=1.0
        Parameter of ``"f_beta"``.
    labels : array-like, optional
        For ``"pmauc"``: the class of each column of the scores.
    k : int, default=100
        Number of highest scores for ``"precision_at_k"`` and ``"recall_at_k"``.
    n_bins : int, default=10
        Number of bins for ``"expected_calibration_error"``.

    Returns
    -------
    StreamingMetric

    Examples
    --------
    >>> from steelyard.metrics import streaming_metric
    >>> streaming_metric("g_mean", window=500)
    WindowConfusion(window=500, measure='g_mean', pos_label=None, beta=1.0)
    >>> streaming_metric("roc_auc", window=500, pos_label="fraud")
    WindowAUC(window=500, pos_label='fraud')
    """
    decays = factor is not None or half_life is not None
    if window is not None and decays:
        raise ParameterError("use either a window or exponential decay; got both.", source="streaming_metric")
    if measure in {"roc_auc", "pmauc", *SCORE_MEASURES}:
        if window is None:
            raise ParameterError(f"{measure} needs a window; got None.", source="streaming_metric")
        if measure == "roc_auc":
            return WindowAUC(window, pos_label=pos_label)
        if measure != "pmauc":
            return WindowScores(window, measure, pos_label=pos_label, k=k, n_bins=n_bins)
        if labels is None:
            raise ParameterError(
                "pmauc needs labels, one for each column of scores; got None.", source="streaming_metric"
            )
        return WindowPMAUC(window, labels=labels)
    if window is not None:
        return WindowConfusion(window, measure, pos_label=pos_label, beta=beta)
    if decays:
        return FadingConfusion(factor, half_life=half_life, measure=measure, pos_label=pos_label, beta=beta)
    return CumulativeConfusion(measure, pos_label=pos_label, beta=beta)
