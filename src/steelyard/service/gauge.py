"""What a model's answers were worth: running measures over the last rows, and their course over time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics import WindowAUC, WindowConfusion
from steelyard.streams.answers import Answers

__all__ = ["Gauge"]

WINDOW = 1000  # rows that the running measures are taken over
_EVERY = 100  # rows from one point of the course to the next


class Gauge:
    """Confusion and AUC of the last rows; ``take_points`` gives what is new of their course."""

    def __init__(self) -> None:
        self.confusion = WindowConfusion(WINDOW)
        self.auc: WindowAUC | None = None  # when two classes have come
        self.n_counted = 0
        self._next = _EVERY
        self._points: list[dict[str, Any]] = []

    def count(self, labels: NDArray[Any], answers: Answers, *, row: int, at: float) -> None:
        """Count answers against labels."""
        self.confusion.update(labels, answers.labels)
        if len(answers.classes) == 2:
            self._count_scores(labels, answers)
        self.n_counted += len(labels)
        if self.n_counted >= self._next:
            self._next = (self.n_counted // _EVERY + 1) * _EVERY
            self._points.append({"row": row + len(labels), "at": at, **self.measures()})

    def _count_scores(self, labels: NDArray[Any], answers: Answers) -> None:
        positive = answers.classes[1]
        known = np.isin(labels, np.array(answers.classes, dtype=labels.dtype))
        scores = answers.scores[:, 1]
        usable = known & np.isfinite(scores)
        if self.auc is None:
            self.auc = WindowAUC(WINDOW, pos_label=positive)
        if usable.any():
            self.auc.update(labels[usable], y_score=scores[usable])

    def measures(self) -> dict[str, Any]:
        """The measures of the last rows; None where one is not known."""
        labels, counts = self.confusion.confusion()
        totals = np.asarray(counts).sum(axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            auc = math.nan if self.auc is None else self.auc.get()
        hits = np.diagonal(counts) / np.maximum(totals, 1)
        present = totals > 0
        recall = {str(label): float(h) for label, h, ok in zip(labels, hits, present, strict=True) if ok}
        g_mean = float(np.prod(hits[present]) ** (1 / present.sum())) if present.sum() > 1 else math.nan
        shares = totals / max(totals.sum(), 1)
        return {
            "g_mean": _or_none(g_mean),
            "auc": _or_none(auc),
            "recall": recall,
            "share": {str(label): float(share) for label, share in zip(labels, shares, strict=True)},
            "confusion": {
                "labels": [str(label) for label in labels],
                "counts": np.asarray(counts).astype(int).tolist(),
            },
        }

    def take_points(self) -> list[dict[str, Any]]:
        """What has been noted since this was asked last."""
        points, self._points = self._points, []
        return points

    def state(self) -> dict[str, Any]:
        """Everything but the points that were taken."""
        return {
            "confusion": self.confusion.to_state(),
            "auc": None if self.auc is None else self.auc.to_state(),
            "n_counted": self.n_counted,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Gauge:
        """The gauge that :meth:`state` described."""
        gauge = cls()
        gauge.confusion = WindowConfusion.from_state(dict(state["confusion"]))
        gauge.auc = None if state["auc"] is None else WindowAUC.from_state(dict(state["auc"]))
        gauge.n_counted = int(state["n_counted"])
        gauge._next = (gauge.n_counted // _EVERY + 1) * _EVERY
        return gauge


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)
