"""What a model's answers were worth: running measures over the last rows, and their course over time."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics import WindowAUC, WindowConfusion
from steelyard.streams.predictions import Predictions

__all__ = ["QualityMonitor"]

WINDOW = 1000  # rows that the running measures are taken over
_EVERY = 100  # rows from one point of the course to the next, at least
_FIRST_POINTS = 50  # come as soon as they can
_PAUSE = 1.0  # seconds between two of the others, unless very many rows come
_MANY = 50 * WINDOW
_BINS = 40
_CUTS = 7


class QualityMonitor:
    """Confusion and AUC of the last rows; ``take_points`` gives what is new of their course.

    The scribe counts; whoever shows the measures may ask at the same time.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self.confusion = WindowConfusion(WINDOW)
        self.auc: WindowAUC | None = None  # when two classes have come
        self.totals: dict[str, int] = {}  # rows of each class, ever
        self.n_counted = 0
        self._waiting: list[tuple[NDArray[Any], Predictions]] = []  # not looked at yet
        self._n_waiting = 0  # rows of them
        self._n_points = self._since_point = 0  # points so far, rows since the last
        self._last_point = -math.inf
        self._points: list[dict[str, Any]] = []
        self._measures: tuple[int, dict[str, Any]] | None = None  # as of so many rows

    def count(self, labels: NDArray[Any], answers: Predictions, *, row: int, at: float) -> None:
        """Count answers against labels; they are looked at when there is enough, or when somebody asks."""
        with self._turn:
            self._waiting.append((labels, answers))
            self._n_waiting += len(labels)
            self.n_counted += len(labels)
            self._since_point += len(labels)
            if self._is_point_due(at):
                self._since_point, self._last_point = 0, at
                self._n_points += 1
                self._look()
                point, _ = self._course()
                self._points.append({"row": row + len(labels), "at": at, **point})
            elif self._n_waiting >= _MANY:
                self._look()

    def _is_point_due(self, at: float) -> bool:
        """Every hundred rows at first; where they come fast, once a second."""
        if self._since_point < _EVERY:
            return False
        return (
            self._n_points < _FIRST_POINTS
            or self._since_point >= _MANY
            or not 0.0 <= at - self._last_point < _PAUSE
        )

    def _look(self) -> None:
        """Take in what waits; of a long queue only the end is still in the window."""
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        begin, n_rows = len(waiting), 0
        while begin and n_rows < WINDOW:
            begin -= 1
            n_rows += len(waiting[begin][0])
        for labels, answers in waiting[begin:]:
            self.confusion.update(labels, answers.labels)
            if len(answers.classes) == 2:
                self._count_scores(labels, answers)
        for labels, _ in waiting:
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
                self.totals[str(label)] = self.totals.get(str(label), 0) + int(n)

    def _count_scores(self, labels: NDArray[Any], answers: Predictions) -> None:
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
        with self._turn:
            self._look()
            if self._measures is None or self._measures[0] != self.n_counted:
                course, (labels, counts) = self._course()
                rarest = self._rarest()
                whole = {
                    **course,
                    "confusion": {
                        "labels": [str(label) for label in labels],
                        "counts": np.asarray(counts).astype(int).tolist(),
                    },
                    "scores": None if self.auc is None else _score_picture(self.auc, rarest),
                    "rarest": rarest,
                }
                self._measures = (self.n_counted, whole)
            return self._measures[1]

    def _course(self) -> tuple[dict[str, Any], tuple[Any, Any]]:
        """The measures that have a course over time, and the confusion that they come from."""
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
        course = {
            "g_mean": _or_none(g_mean),
            "auc": _or_none(auc),
            "recall": recall,
            "share": {str(label): float(share) for label, share in zip(labels, shares, strict=True)},
        }
        return course, (labels, counts)

    def _rarest(self) -> str | None:
        """The class with the fewest rows of all that were counted."""
        return min(self.totals, key=self.totals.__getitem__) if len(self.totals) > 1 else None

    def take_points(self) -> list[dict[str, Any]]:
        """What has been noted since this was asked last."""
        points, self._points = self._points, []
        return points

    def state(self) -> dict[str, Any]:
        """Everything but the points that were taken."""
        with self._turn:
            self._look()
        return {
            "points": [self._n_points, self._since_point, self._last_point],
            "confusion": self.confusion.to_state(),
            "auc": None if self.auc is None else self.auc.to_state(),
            "n_counted": self.n_counted,
            "totals": dict(self.totals),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QualityMonitor:
        """The gauge that :meth:`state` described."""
        monitor = cls()
        monitor.confusion = WindowConfusion.from_state(dict(state["confusion"]))
        monitor.auc = None if state["auc"] is None else WindowAUC.from_state(dict(state["auc"]))
        monitor.n_counted = int(state["n_counted"])
        monitor.totals = {str(label): int(n) for label, n in state["totals"].items()}
        n_points, since, last = state.get("points", (_FIRST_POINTS, 0, 0.0))
        monitor._n_points, monitor._since_point, monitor._last_point = int(n_points), int(since), float(last)
        return monitor


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
