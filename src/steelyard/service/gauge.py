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
_NOT_IN_POINTS = ("confusion", "scores", "rarest")
_PICTURE_EVERY = 2000  # rows from one picture of the scores to the next
_BINS = 40
_CUTS = 7


class Gauge:
    """Confusion and AUC of the last rows; ``take_points`` gives what is new of their course."""

    def __init__(self) -> None:
        self.confusion = WindowConfusion(WINDOW)
        self.auc: WindowAUC | None = None  # when two classes have come
        self.totals: dict[str, int] = {}  # rows of each class, ever
        self.n_counted = 0
        self._next = _EVERY
        self._next_picture = 0
        self._points: list[dict[str, Any]] = []
        self._scores: dict[str, Any] | None = None  # made anew now and then

    def count(self, labels: NDArray[Any], answers: Answers, *, row: int, at: float) -> None:
        """Count answers against labels."""
        self.confusion.update(labels, answers.labels)
        if len(answers.classes) == 2:
            self._count_scores(labels, answers)
        self.n_counted += len(labels)
        for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
            self.totals[str(label)] = self.totals.get(str(label), 0) + int(n)
        if self.n_counted >= self._next:
            self._next = (self.n_counted // _EVERY + 1) * _EVERY
            if self.n_counted >= self._next_picture and self.auc is not None:
                self._next_picture = self.n_counted + _PICTURE_EVERY
                self._scores = _score_picture(self.auc, self._rarest())
            point = {key: value for key, value in self.measures().items() if key not in _NOT_IN_POINTS}
            self._points.append({"row": row + len(labels), "at": at, **point})

    def _count_scores(self, labels: NDArray[Any], answers: Answers) -> None:
        positive = answers.classes[1]
        known = np.isin(labels, np.array(answers.classes))
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
            "scores": self._scores,
            "rarest": self._rarest(),
        }

    def _rarest(self) -> str | None:
        """The class with the fewest rows of all that were counted."""
        return min(self.totals, key=self.totals.__getitem__) if len(self.totals) > 1 else None

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
            "totals": dict(self.totals),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Gauge:
        """The gauge that :meth:`state` described."""
        gauge = cls()
        gauge.confusion = WindowConfusion.from_state(dict(state["confusion"]))
        gauge.auc = None if state["auc"] is None else WindowAUC.from_state(dict(state["auc"]))
        gauge.n_counted = int(state["n_counted"])
        gauge.totals = {str(label): int(n) for label, n in state["totals"].items()}
        gauge._next = (gauge.n_counted // _EVERY + 1) * _EVERY
        return gauge


def _score_picture(auc: WindowAUC, rarest: str | None) -> dict[str, Any] | None:
    """Histograms of the scores of the rarest class and of the rest, and what other cuts would have found."""
    state = auc.to_state()
    positive = np.asarray(state["codes"]) == 1
    scores = np.asarray(state["scores"], dtype=np.float64).ravel()
    if rarest != str(auc.pos_label):  # scores speak for the second class
        positive, scores = ~positive, -scores
    if not positive.any() or positive.all():
        return None
    low, high = (float(v) for v in np.quantile(scores, [0.005, 0.995]))
    if not low < high:
        return None
    edges = np.linspace(low, high, _BINS + 1)
    shown = np.clip(scores, low, high)
    heights = [np.histogram(shown[side], edges)[0] / side.sum() for side in (positive, ~positive)]
    cuts = np.unique(np.append(np.quantile(scores, np.linspace(0.05, 0.95, _CUTS)), 0.0))
    return {
        "label": rarest,
        "low": low,
        "high": high,
        "positive": heights[0].round(5).tolist(),
        "negative": heights[1].round(5).tolist(),
        "cuts": [_cut(scores, positive, float(cut)) for cut in cuts if low <= cut <= high],
    }


def _cut(scores: NDArray[Any], positive: NDArray[Any], cut: float) -> dict[str, float]:
    called = scores > cut
    found, false_alarms = float(called[positive].mean()), float(called[~positive].mean())
    return {
        "cut": cut,
        "found": found,
        "false_alarms": false_alarms,
        "g_mean": math.sqrt(found * (1.0 - false_alarms)),
    }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)
