"""Monitors of models: quality of recent predictions with its history, statistics of recent rows, alarms."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.metrics import WindowAUC, WindowConfusion, formulas
from steelyard.service import rows as wire
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch, as_texts

if TYPE_CHECKING:
    from steelyard.service.published import PublishedModel

WINDOW = 4000  # number of recent rows over which quality is computed
_MIN_ROWS_PER_POINT = 100  # minimum number of rows between two points of the history
_N_EARLY_POINTS = 50  # number of first points of the history that may be less than a second apart
_MIN_SECONDS_PER_POINT = 1.0
_MAX_BUFFERED_ROWS = 50 * WINDOW
_N_BINS = 40
_N_THRESHOLDS = 7
_MAX_ROWS = 1_000  # maximum number of recent rows
_MAX_VALUES = 2_000_000  # maximum number of stored values, so wide models keep fewer rows
_IMPORTANCE_ROWS, _MAX_COLUMNS = 200, 60  # computing importance needs one prediction of 200 rows per column
_MAX_ALARMS = 10  # maximum number of alarms per model, kept in memory
_IMPORTANCE_SECONDS = 10.0  # minimum time between two computations of the importance of columns
_MAX_IMPORTANT_COLUMNS = 30  # maximum length of the list of important columns


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
        self._n_points = self._rows_since_point = 0
        self._last_point = -math.inf
        self.new_points: list[dict[str, Any]] = []  # points of the history that are not stored yet
        # Cache that is valid while n_counted is the same.
        self._measures: tuple[int, dict[str, Any]] | None = None

    def count(self, labels: NDArray[Any], answers: Predictions, *, row: int, at: float) -> None:
        """Add predictions and labels. They are evaluated when a history point is due or a value is read."""
        with self._lock:
            self._buffer.append((labels, answers))
            self.n_counted += len(labels)
            self._rows_since_point += len(labels)
            # At first a point is due every 100 rows, later at most once per second.
            is_due = (
                self._n_points < _N_EARLY_POINTS
                or self._rows_since_point >= _MAX_BUFFERED_ROWS
                or not 0.0 <= at - self._last_point < _MIN_SECONDS_PER_POINT
            )
            if self._rows_since_point >= _MIN_ROWS_PER_POINT and is_due:
                self._rows_since_point, self._last_point = 0, at
                self._n_points += 1
                self._flush()
                point, _ = self._current()
                self.new_points.append({"row": row + len(labels), "at": at, **point})

    def _flush(self) -> None:
        """Evaluate the buffer. Rows that are too old for the window count only in the totals."""
        buffer, self._buffer = self._buffer, []
        begin, n_rows = len(buffer), 0
        while begin and n_rows < WINDOW:
            begin -= 1
            n_rows += len(buffer[begin][0])
        for labels, answers in buffer[begin:]:
            self.confusion.update(labels, answers.labels)
            if len(answers.classes) == 2:
                self.auc = self.auc or WindowAUC(WINDOW, pos_label=answers.classes[1])
                scores = answers.scores[:, 1]
                usable = np.isin(labels, np.array(answers.classes)) & np.isfinite(scores)
                if usable.any():
                    self.auc.update(labels[usable], y_score=scores[usable])
        for labels, _ in buffer:
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
                self.totals[str(label)] = self.totals.get(str(label), 0) + int(n)

    def measures(self) -> dict[str, Any]:
        """Return the quality over the window, with None for undefined values."""
        with self._lock:
            self._flush()
            if self._measures is None or self._measures[0] != self.n_counted:
                current, (labels, counts) = self._current()
                # The class with the fewest rows since the beginning.
                rarest = min(self.totals, key=self.totals.__getitem__) if len(self.totals) > 1 else None
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
        recalls = zip(labels, by_class.recalls().tolist(), strict=True)
        shares = by_class.true / max(by_class.true.sum(), 1)
        current = {
            "g_mean": _or_none(float(by_class.g_mean())),
            "auc": _or_none(auc),
            "recall": {str(label): recall for label, recall in recalls if not math.isnan(recall)},
            "share": {str(label): float(share) for label, share in zip(labels, shares, strict=True)},
        }
        return current, (labels, counts)

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
        monitor._n_points, monitor._rows_since_point = int(n_points), int(since)
        monitor._last_point = float(last)
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


# -- statistics of recent rows ----------------------------------------------------------------------


class RecentRows:
    """The last 1,000 learned rows and, as a reference, the first 1,000 rows since the process started.

    Adding rows only stores a reference to them. Statistics are computed when the web page requests them. When
    rows are forgotten, :meth:`clear` removes all rows. The writer thread adds rows; request threads read.
    """

    def __init__(self) -> None:
        self.n_seen = 0
        self._n_kept = self._n_reference = self._limit = 0
        self._batches: deque[ColumnBatch] = deque()
        self._reference: list[ColumnBatch] = []

    def add(self, batch: ColumnBatch) -> None:
        self.n_seen += batch.n_rows
        limit = self._limit
        if not limit:  # the limit is set once, because the columns of a model do not change
            limit = self._limit = max(1, min(_MAX_ROWS, _MAX_VALUES // max(len(batch.columns), 1)))
        if self._n_reference < limit:
            self._reference.append(batch)
            self._n_reference += batch.n_rows
        self._batches.append(batch)
        self._n_kept += batch.n_rows
        while self._n_kept - self._batches[0].n_rows >= limit:
            self._n_kept -= self._batches.popleft().n_rows

    def clear(self) -> None:
        """Remove all rows, which is necessary after some of them were forgotten."""
        self.__init__()  # type: ignore[misc]

    def recent(self) -> ColumnBatch | None:
        """Return the most recent rows, or None if there are none."""
        return _last(list(self._batches))

    def reference(self) -> ColumnBatch | None:
        """Return the reference rows, or None if they overlap with the most recent rows."""
        return _last(list(self._reference)) if self.n_seen >= 2 * self._n_reference else None


def _last(batches: Sequence[ColumnBatch]) -> ColumnBatch | None:
    if not batches:
        return None
    rows = wire.joined(batches)
    return rows.take(max(0, rows.n_rows - _MAX_ROWS), rows.n_rows)


def column_statistics(
    rows: RecentRows, kinds: dict[str, str], scores: Callable[[ColumnBatch], FloatArray]
) -> dict[str, Any]:
    """Return share of missing values, drift and importance of each column, most important column first.

    For numbers, drift is the Kolmogorov-Smirnov distance between the reference rows and the recent rows; for
    categories it is the total variation distance. Importance is the mean change of the scores when the values
    of the column are permuted, relative to the spread of the scores.
    """
    recent, reference = rows.recent(), rows.reference()
    if recent is None:
        return {"rows": 0, "columns": []}
    names = [name for name in kinds if name in recent.columns][:_MAX_COLUMNS]
    importance = _importances(recent, names, scores)
    found: list[dict[str, Any]] = []
    for name in names:
        drift = None
        if reference is not None and name in reference.columns:
            drift = _drift(reference, recent, name, kinds[name])
        missing = np.mean([value is None for value in wire.texts(recent, name)])
        found.append(
            {
                "name": name,
                "kind": kinds[name],
                "missing": float(missing),
                "drift": drift,
                "importance": importance.get(name),
            }
        )
    found.sort(key=lambda column: -(column["importance"] or 0.0))
    return {"rows": recent.n_rows, "columns": found, "more": len(kinds) - len(found)}


def _importances(
    recent: ColumnBatch, names: Sequence[str], scores: Callable[[ColumnBatch], FloatArray]
) -> dict[str, float]:
    rows = recent.take(max(0, recent.n_rows - _IMPORTANCE_ROWS), recent.n_rows)
    before = scores(rows)
    spread = float(np.std(before))
    if not np.isfinite(spread) or spread <= 0.0:
        return {}
    order = np.random.default_rng(0).permutation(rows.n_rows)
    found = {}
    for name in names:
        permuted = ColumnBatch({**rows.columns, name: rows.columns[name][order]}, rows.n_rows)
        found[name] = float(np.mean(np.abs(scores(permuted) - before)) / spread)
    return found


def _drift(reference: ColumnBatch, recent: ColumnBatch, name: str, kind: str) -> float | None:
    old, new = reference.columns[name], recent.columns[name]
    if kind == "number":
        old, new = _finite(old), _finite(new)
        if not len(old) or not len(new):
            return None
        points = np.concatenate([old, new])
        cumulative = [np.searchsorted(values, points, side="right") / len(values) for values in (old, new)]
        return float(np.max(np.abs(cumulative[0] - cumulative[1])))
    if kind == "time":
        return None  # times always increase
    counts = [Counter(as_texts(values)) for values in (old, new)]
    shares = [{key: n / max(sum(c.values()), 1) for key, n in c.items()} for c in counts]
    return 0.5 * sum(abs(shares[0].get(k, 0.0) - shares[1].get(k, 0.0)) for k in {*shares[0], *shares[1]})


def _finite(values: NDArray[Any]) -> FloatArray:
    numbers = values.astype(np.float64) if values.dtype != object else np.empty(0)
    return np.sort(numbers[np.isfinite(numbers)])


# -- recent alarms --------------------------------------------------------------------------------


@dataclass
class _Alarm:
    at: float
    label: str  # the prediction; with a target rate of alarms it can differ from the sign of the score
    row: ColumnBatch
    explanation: dict[str, Any] | None = None  # computed at the first request


class RecentAlarms:
    """Recent alarms of each model: rows whose predicted class is not the most frequent class.

    Rows are kept in memory only. A forget request removes all alarms of its model in all processes: every
    process drops the alarms that are older than the latest certificate.
    """

    def __init__(self) -> None:
        self._alarms: dict[str, deque[_Alarm]] = {}
        self._importance: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    def add(self, published: PublishedModel, batch: ColumnBatch, answers: Predictions, at: float) -> None:
        """Add the alarms among the predictions ``answers`` of the rows ``batch``."""
        usual = published.most_frequent_class
        is_alarm = np.array([str(label) != usual for label in answers.predicted], dtype=bool)
        if usual is None or not is_alarm.any():
            return
        rows = np.flatnonzero(is_alarm[answers.indices] & (answers.indices >= 0))[-_MAX_ALARMS:]
        alarms = self._alarms.setdefault(published.name, deque(maxlen=_MAX_ALARMS))
        labels = answers.predicted
        alarms.extend(
            _Alarm(at, str(labels[answers.indices[row]]), batch.take(row, row + 1)) for row in rows.tolist()
        )

    def drop(self, name: str, until: float = np.inf) -> None:
        """Remove the alarms of a model that were raised up to a time."""
        kept = [alarm for alarm in self._alarms.get(name, ()) if alarm.at > until]
        self._alarms[name] = deque(kept, maxlen=_MAX_ALARMS)

    def explain(self, published: PublishedModel, forgotten_at: float) -> dict[str, Any]:
        """Return the alarms of a model with explanations, newest first, and the importance of its columns."""
        self.drop(published.name, forgotten_at)
        alarms = list(self._alarms[published.name])[::-1]
        for alarm in (one for one in alarms if one.explanation is None):
            found = published.explain(alarm.row)[0]
            # With a target rate, a change that makes the score positive does not lead away from the alarm.
            changes = [one for one in found.get("changes", ()) if str(one["label"]) != alarm.label]
            alarm.explanation = found | {"changes": changes}
        known = self._importance.get(published.name)
        if known is None or time.monotonic() - known[0] > _IMPORTANCE_SECONDS:
            known = self._importance[published.name] = time.monotonic(), published.importance()
        return {
            "version": published.version,
            "alarms": [
                {"at": alarm.at, **(alarm.explanation or {}), "label": alarm.label} for alarm in alarms
            ],
            "importance": known[1][:_MAX_IMPORTANT_COLUMNS],
        }
