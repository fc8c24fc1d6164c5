"""Streaming measures by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard.exceptions import ParameterError
from steelyard.metrics.confusion import (
    ConfusionStream,
    CumulativeConfusion,
    FadingConfusion,
    WindowConfusion,
)
from steelyard.metrics.plain_values import StreamingMetric
from steelyard.metrics.window_auc import WindowAUC, WindowPMAUC

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from steelyard.metrics.labels import Label

__all__ = [
    "ConfusionStream",
    "CumulativeConfusion",
    "FadingConfusion",
    "StreamingMetric",
    "WindowAUC",
    "WindowConfusion",
    "WindowPMAUC",
    "streaming_metric",
]


def streaming_metric(
    measure: str,
    *,
    window: int | None = None,
    factor: float | None = None,
    half_life: float | None = None,
    pos_label: Label | None = None,
    beta: float = 1.0,
    labels: ArrayLike | None = None,
) -> StreamingMetric:
    """The streaming form of a measure, by name.

    Parameters
    ----------
    measure : str
        ``"roc_auc"``, ``"pmauc"`` or any measure of :meth:`ConfusionStream.get`.
    window : int, optional
        Only the last rows count. Needed for ``"roc_auc"`` and ``"pmauc"``.
    factor, half_life : float, optional
        Older rows count less, see :class:`FadingConfusion`. Without these and ``window`` all rows count.
    pos_label : label, optional
        The positive class.
    beta : float, default=1.0
        For ``"f_beta"``.
    labels : array-like, optional
        For ``"pmauc"``: the class of each column of the scores.

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
    fades = factor is not None or half_life is not None
    if window is not None and fades:
        raise ParameterError(
            "rows can leave by window or fade, not both; got both.", source="streaming_metric"
        )
    if measure in {"roc_auc", "pmauc"}:
        if window is None:
            raise ParameterError(f"{measure} needs a window; got None.", source="streaming_metric")
        if measure == "roc_auc":
            return WindowAUC(window, pos_label=pos_label)
        if labels is None:
            raise ParameterError(
                "pmauc needs labels, one for each column of scores; got None.", source="streaming_metric"
            )
        return WindowPMAUC(window, labels=labels)
    if window is not None:
        return WindowConfusion(window, measure, pos_label=pos_label, beta=beta)
    if fades:
        return FadingConfusion(factor, half_life=half_life, measure=measure, pos_label=pos_label, beta=beta)
    return CumulativeConfusion(measure, pos_label=pos_label, beta=beta)
