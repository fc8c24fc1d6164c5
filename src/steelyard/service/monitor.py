"""Quality monitor: confusion matrix and AUC of recent predictions, and their history."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics import WindowAUC, WindowConfusion, formulas
from steelyard.streams.predictions import Predictions

__all__ = ["QualityMonitor"]

WINDOW = 4000  # number of recent rows over which quality is computed
_MIN_ROWS_PER_POINT = 100  # minimum number of rows between two points of the history
_N_EARLY_POINTS = 50  # number of first points of the history that may be less than a second apart
_MIN_SECONDS_PER_POINT = 1.0
_MAX_BUFFERED_ROWS = 50 * WINDOW
_N_BINS = 40
_N_THRESHOLDS = 7


class QualityMonitor:
    """Confusion matrix and AUC of a window of recent rows, with a history. Thread-safe.

    The writer thread calls :meth:`count`; request threads call :meth:`measures` at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.confusion = WindowConfusion(WINDOW)
        self.auc: WindowAUC | None = None  # created with the first prediction for two classes
        self.totals: dict[str, int] = {}  # number of rows of each class since the beginning
        self.n_counted = 0
        # Labels and predictions that are not evaluated yet.
        self._buffer: list[tuple[NDArray[Any], Predictions]] = []
        self._n_buffered = 0  # number of rows in the buffer
        self._n_points = self._rows_since_point = 0
        self._last_point = -math.inf
        self._points: list[dict[str, Any]] = []
        # Cache that is valid while n_counted is the same.
        self._measures: tuple[int, dict[str, Any]] | None = None

    def count(self, labels: NDArray[Any], answers: Predictions, *, row: int, at: float) -> None:
        """Add predictions and labels. They are evaluated when a history point is due or a value is read."""
        with self._lock:
            self._buffer.append((labels, answers))
            self._n_buffered += len(labels)
            self.n_counted += len(labels)
            self._rows_since_point += len(labels)
            if self._is_point_due(at):
                self._rows_since_point, self._last_point = 0, at
                self._n_points += 1
                self._flush()
                point, _ = self._current()
                self._points.append({"row": row + len(labels), "at": at, **point})
            elif self._n_buffered >= _MAX_BUFFERED_ROWS:
                self._flush()

    def _is_point_due(self, at: float) -> bool:
        """Return whether a history point is due: at first every 100 rows, later at most once per second."""
        if self._rows_since_point < _MIN_ROWS_PER_POINT:
            return False
        return (
            self._n_points < _N_EARLY_POINTS
            or self._rows_since_point >= _MAX_BUFFERED_ROWS
            or not 0.0 <= at - self._last_point < _MIN_SECONDS_PER_POINT
        )

    def _flush(self) -> None:
        """Evaluate the buffer. Rows that are too old for the window count only in the totals."""
        buffer, self._buffer, self._n_buffered = self._buffer, [], 0
        begin, n_rows = len(buffer), 0
        while begin and n_rows < WINDOW:
            begin -= 1
            n_rows += len(buffer[begin][0])
        for labels, answers in buffer[begin:]:
            self.confusion.update(labels, answers.labels)
            if len(answers.classes) == 2:
                self._count_scores(labels, answers)
        for labels, _ in buffer:
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
        """Return the quality over the window, with None for undefined values."""
        with self._lock:
            self._flush()
            if self._measures is None or self._measures[0] != self.n_counted:
                current, (labels, counts) = self._current()
                rarest = self._rarest()
                measures = {
                    **current,
                    "confusion": {
                        "labels": [str(label) for label in labels],
                        "counts": np.asarray(counts).astype(int).tolist(),
                    },
                    "scores": None if self.auc is None else _score_histogram(self.auc, rarest),
                    "rarest": rarest,
                }
                self._measures = (self.n_counted, measures)
            return self._measures[1]

    def _current(self) -> tuple[dict[str, Any], tuple[Any, Any]]:
        """Return the current metrics in the form of a history point, and the confusion matrix."""
        labels, counts = self.confusion.confusion()
        by_class = formulas.ConfusionTable(labels, counts).by_class
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            auc = math.nan if self.auc is None else self.auc.get()
        recalls = zip(labels, formulas.recalls(by_class).tolist(), strict=True)
        shares = by_class.true / max(by_class.true.sum(), 1)
        current = {
            "g_mean": _or_none(float(formulas.multiclass_g_mean(by_class))),
            "auc": _or_none(auc),
            "recall": {str(label): recall for label, recall in recalls if not math.isnan(recall)},
            "share": {str(label): float(share) for label, share in zip(labels, shares, strict=True)},
        }
        return current, (labels, counts)

    def _rarest(self) -> str | None:
        """Return the class with the fewest rows since the beginning."""
        return min(self.totals, key=self.totals.__getitem__) if len(self.totals) > 1 else None

    def take_points(self) -> list[dict[str, Any]]:
        """Return and remove the new points of the history."""
        points, self._points = self._points, []
        return points

    def copy(self) -> QualityMonitor:
        """Return an independent copy, without the points of the history."""
        return self.from_state(self.state())

    def state(self) -> dict[str, Any]:
        """Return the state, without the points of the history."""
        with self._lock:
            self._flush()
        return {
            "points": [self._n_points, self._rows_since_point, self._last_point],
            "confusion": self.confusion.to_state(),
            "auc": None if self.auc is None else self.auc.to_state(),
            "n_counted": self.n_counted,
            "totals": dict(self.totals),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QualityMonitor:
        """Restore a monitor from :meth:`state`."""
        monitor = cls()
        monitor.confusion = WindowConfusion.from_state(dict(state["confusion"]))
        monitor.auc = None if state["auc"] is None else WindowAUC.from_state(dict(state["auc"]))
        monitor.n_counted = int(state["n_counted"])
        monitor.totals = {str(label): int(n) for label, n in state["totals"].items()}
        n_points, since, last = state.get("points", (_N_EARLY_POINTS, 0, 0.0))
        monitor._n_points, monitor._rows_since_point, monitor._last_point = (
            int(n_points),
            int(since),
            float(last),
        )
        return monitor


def _score_histogram(auc: WindowAUC, rarest: str | None) -> dict[str, Any] | None:
    """Return score histograms of the rarest class and of all others, and the rates at several thresholds."""
    state = auc.to_state()
    positive = np.asarray(state["codes"]) == 1
    scores = np.asarray(state["scores"], dtype=np.float64).ravel()
    if rarest != str(auc.pos_label):  # the scores are those of the other class, so their sign is flipped
        positive, scores = ~positive, -scores
    if not positive.any() or positive.all():
        return None
    low, high = (float(v) for v in np.quantile(scores, [0.005, 0.995]))
    if not low < high:
        return None
    edges = np.linspace(low, high, _N_BINS + 1)
    shown = np.clip(scores, low, high)
    heights = [np.histogram(shown[side], edges)[0] / side.sum() for side in (positive, ~positive)]
    thresholds = np.unique(np.append(np.quantile(scores, np.linspace(0.05, 0.95, _N_THRESHOLDS)), 0.0))
    return {
        "label": rarest,
        "low": low,
        "high": high,
        "positive": heights[0].round(5).tolist(),
        "negative": heights[1].round(5).tolist(),
        "cuts": [_rates(scores, positive, float(t)) for t in thresholds if low <= t <= high],
    }


def _rates(scores: NDArray[Any], positive: NDArray[Any], threshold: float) -> dict[str, float]:
    called = scores > threshold
    found, false_alarms = float(called[positive].mean()), float(called[~positive].mean())
    return {
        "cut": threshold,
        "found": found,
        "false_alarms": false_alarms,
        "g_mean": math.sqrt(found * (1.0 - false_alarms)),
    }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)
