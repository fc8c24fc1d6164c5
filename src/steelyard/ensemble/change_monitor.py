"""Detection of drift: falling hit rates, and changes of columns and class frequencies.

:class:`DriftDetector` compares hit rates; the ensemble reacts to the drifts that it reports.
:class:`ChangeMonitor` finds changes for reports by e-detectors, which the page docs/drift.md explains: it
reports a change when a weighted mean of Shiryaev-Roberts sums reaches ``ROWS_PER_FALSE_ALARM``. While rows
are exchangeable, this takes at least that number of rows on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.proximal.drift_report import (
    ColumnChange,
    DriftReport,
    compare_moments,
    event_of,
    renamed_event,
)
from steelyard.proximal.statistics import ClassMoments

_HALF_LIVES_ROWS = np.array([75.0, 1000.0])  # half-lives of the short-term and of the long-term average
_MIN_DECAYED_ROWS = 5.0  # minimum decayed number of rows of a class for a comparison
_MIN_DEVIATIONS = 4.0  # number of standard deviations by which the hit rate must fall
_MIN_FALL = 0.05  # minimum fall of the mean hit rate that counts as a drift
_QUIET_ROWS = 500  # number of rows without drift reports at the start of a stream and after a drift
_MAX_DRIFTS = 100  # maximum number of drifts that are remembered

ROWS_PER_FALSE_ALARM = 100_000.0
_BLOCK_ROWS = 250  # number of rows that are tested together; alarms are raised at the ends of blocks
_DAY_SECONDS = 86_400.0
_MAX_PENDING_ROWS = 20_000  # maximum number of rows that wait for the end of a day
_N_RECENT_BLOCKS = 12  # number of recent blocks in which the start of a change is searched after an alarm
_N_BINS = 8  # number of quantile bins per column; ranks are computed from bin counts
_MAX_COLUMNS = 100  # columns beyond this number are not monitored
_MAX_CLASSES = 4  # maximum number of classes within which columns are monitored
_SLOPE = 1.6  # slope of the bets 1 + slope * (p - 1/2) and 1 - slope * (p - 1/2)
_SHARE_FACTORS = np.array([0.4, 2.5])  # factors by which a bet assumes that a class share has changed
_PRIOR_WEIGHT = 0.25  # weight of the class frequencies among all bets
_MAX_SUM = 1e60
_MAX_COLUMN_ALARMS = 3  # a column with more alarms changes constantly and is ignored
_MAX_EVENTS = 50


@dataclass(frozen=True)
class DriftDetector:
    """Comparison of short-term and long-term hit rates, exponentially decayed averages per class; immutable.

    A drift is reported when the short-term rate, averaged over the classes, is significantly lower.
    """

    rows: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    hits: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    drifts: tuple[int, ...] = ()
    quiet_until: int = _QUIET_ROWS

    def after(self, codes: IntArray, hit: NDArray[np.bool_], n_classes: int, n_seen: int) -> DriftDetector:
        """Return the detector updated with these rows; ``n_seen`` is the total number of rows so far."""
        keep, rows, hits = 0.5 ** (len(codes) / _HALF_LIVES_ROWS), self.rows, self.hits
        if rows.shape[1] < n_classes:
            widths = ((0, 0), (0, n_classes - rows.shape[1]))
            rows, hits = np.pad(rows, widths), np.pad(hits, widths)
        rows, hits, has_fallen = _native.add_hits(
            rows, hits, codes, hit, keep, _MIN_DECAYED_ROWS, _MIN_DEVIATIONS, _MIN_FALL
        )
        if n_seen < self.quiet_until or not has_fallen:
            return DriftDetector(rows, hits, self.drifts, self.quiet_until)
        rows[1], hits[1] = rows[0], hits[0]  # the long-term average restarts
        return DriftDetector(rows, hits, (*self.drifts, n_seen)[-_MAX_DRIFTS:], n_seen + _QUIET_ROWS)

    def is_within(self, n_rows: int, n_seen: int) -> bool:
        """Return whether a drift was reported within the last ``n_rows`` rows."""
        return bool(self.drifts) and n_seen - self.drifts[-1] < n_rows

    def get_state(self) -> dict[str, Any]:
        """Return the counts as arrays and plain values."""
        numbers = {"drifts": list(self.drifts), "quiet_until": self.quiet_until}
        return {"rows": self.rows, "hits": self.hits, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> DriftDetector:
        """Restore the detector from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        if not state:
            return cls()
        rows, hits = (np.asarray(state[name], dtype=np.float64) for name in ("rows", "hits"))
        if rows.ndim != 2 or len(rows) != 2 or rows.shape != hits.shape:
            raise ValueError("hits and rows must be counted for the same classes")
        return cls(rows, hits, tuple(int(row) for row in state["drifts"]), int(state["quiet_until"]))


@dataclass(frozen=True)
class ChangeMonitor:
    """Monitor of the distribution of columns within each class, and of class frequencies; immutable."""

    n_rows: int = 0
    events: tuple[dict[str, Any], ...] = ()  # row, cause, columns and text of each change
    # Class moments of the last blocks (`recent`), and of the earlier rows since the last change.
    reference: ClassMoments | None = None
    recent: tuple[ClassMoments, ...] = ()
    pending: tuple[tuple[FloatArray, IntArray, FloatArray], ...] = ()  # rows, class codes, times
    n_pending: int = 0
    edges: FloatArray | None = None  # bin edges, of shape (n_columns, n_bins - 1)
    counts: FloatArray = field(default_factory=lambda: np.zeros((0, 0, _N_BINS)))  # axes: class, column, bin
    column_sums: FloatArray = field(default_factory=lambda: np.zeros((0, 4, 0)))  # axes: class, bet, column
    class_counts: FloatArray = field(default_factory=lambda: np.zeros(0))
    prior_sums: FloatArray = field(default_factory=lambda: np.zeros((0, len(_SHARE_FACTORS))))
    column_alarms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    mean_sum: float = 0.0  # weighted mean of all Shiryaev-Roberts sums

    def after(
        self,
        X: FloatArray,
        codes: IntArray,
        labels: Sequence[Label],
        names: Sequence[str] | None = None,
        times: FloatArray | None = None,
    ) -> ChangeMonitor:
        """Return the monitor updated with labelled rows, where ``labels[code]`` is the label of a class code.

        With times in seconds, the rows of a day are tested together in random order, because the hour of the
        day and columns that depend on it are not exchangeable within a day.
        """
        times = np.zeros(len(codes)) if times is None else times
        monitor = replace(
            self,
            pending=(*self.pending, (X[:, :_MAX_COLUMNS], codes, times)),
            n_pending=self.n_pending + len(codes),
        )
        seconds = times[-1] - monitor.pending[0][2][0]  # 0 if the rows have no times
        covers_day = seconds == 0.0 or seconds >= _DAY_SECONDS or monitor.n_pending >= _MAX_PENDING_ROWS
        if monitor.n_pending < _BLOCK_ROWS or not covers_day:
            return monitor
        rows, all_codes, all_times = (np.concatenate(parts) for parts in zip(*monitor.pending, strict=True))
        n_due = len(rows) // _BLOCK_ROWS * _BLOCK_ROWS
        order = np.arange(n_due)
        if all_times[-1] > all_times[0]:
            order = np.random.default_rng(self.n_rows).permutation(n_due)
        rest = ((rows[n_due:], all_codes[n_due:], all_times[n_due:]),) if n_due < len(rows) else ()
        monitor = replace(monitor, pending=rest, n_pending=len(rows) - n_due)
        for part in np.split(order, n_due // _BLOCK_ROWS):
            monitor = monitor._tested(rows[part], all_codes[part], labels, names)
        return monitor

    def evidence(self) -> float:
        """Return the mean Shiryaev-Roberts sum as a fraction of the limit at which an alarm is raised."""
        return float(min(self.mean_sum / ROWS_PER_FALSE_ALARM, 1.0))

    def report(self, names: Sequence[str] | None = None) -> DriftReport | None:
        """Compare recent blocks with earlier rows since the last change. Returns None with too few rows."""
        if self.reference is None or not self.recent:
            return None
        report = compare_moments(self.reference, reduce(add, self.recent), names)
        return replace(report, events=self.event_list())

    def event_list(self) -> list[dict[str, Any]]:
        """Return row, cause, columns and text of each change."""
        return [renamed_event(event, ()) for event in self.events]

    def forgotten(self) -> ChangeMonitor:
        """Return a monitor with only the events, because all sums contain the forgotten rows."""
        return ChangeMonitor(n_rows=self.n_rows, events=self.events, column_alarms=self.column_alarms)

    def _tested(
        self, X: FloatArray, codes: IntArray, labels: Sequence[Label], names: Sequence[str] | None
    ) -> ChangeMonitor:
        """Return the monitor after the tests of one block; an alarm keeps only the rows after the change."""
        n_rows, moments = self.n_rows + len(X), ClassMoments.of_rows(X, codes, labels)
        if self.edges is None:  # the first block determines the bins
            levels = np.arange(1, _N_BINS) / _N_BINS
            edges = np.quantile(X, levels, axis=0).T.copy()
            return replace(self, n_rows=n_rows, edges=edges, reference=moments)
        n_classes, n_columns = len(labels), X.shape[1]
        n_monitored = min(n_classes, _MAX_CLASSES)
        shapes = {
            "counts": (n_monitored, n_columns, _N_BINS),
            "column_sums": (n_monitored, 4, n_columns),
            "class_counts": (n_classes,),
            "prior_sums": (n_classes, len(_SHARE_FACTORS)),
            "column_alarms": (n_columns,),
        }
        arrays: dict[str, Any] = {}  # copies, extended by zeros for new classes and columns
        for name, shape in shapes.items():
            known = getattr(self, name)
            arrays[name] = np.pad(
                known, [(0, max(0, n - m)) for n, m in zip(shape, known.shape, strict=True)]
            )
        rng, counts, column_sums = np.random.default_rng(n_rows), arrays["counts"], arrays["column_sums"]
        for code in range(n_monitored):
            rows = X[codes == code]
            if len(rows):
                uniform = rng.random((2, *rows.shape))
                p, counts[code] = _native.conformal_p_values(rows, self.edges, counts[code], uniform)
                column_sums[code] = _native.bet_on_columns(column_sums[code], p, _SLOPE, _MAX_SUM)
        column_sums[:, :, arrays["column_alarms"] > _MAX_COLUMN_ALARMS] = 0.0
        uniform = rng.random((len(codes), n_classes))
        arrays["prior_sums"], arrays["class_counts"] = _native.bet_on_shares(
            arrays["prior_sums"], arrays["class_counts"], codes, uniform, _SHARE_FACTORS, _MAX_SUM
        )
        mean_sum = (1.0 - _PRIOR_WEIGHT) * (float(column_sums.sum()) / max(column_sums.size, 1))
        if n_classes > 1:
            mean_sum += _PRIOR_WEIGHT * float(arrays["prior_sums"].mean())
        reference, recent = self.reference, (*self.recent, moments)
        if len(recent) > _N_RECENT_BLOCKS:
            assert reference is not None
            reference, recent = reference + recent[0], recent[1:]
        monitor = replace(
            self, n_rows=n_rows, reference=reference, recent=recent, mean_sum=mean_sum, **arrays
        )
        return monitor._alarmed(names) if mean_sum >= ROWS_PER_FALSE_ALARM else monitor

    def _alarmed(self, names: Sequence[str] | None) -> ChangeMonitor:
        """Return a monitor with one more event and only the moments of the rows after the change."""
        after, report = self._most_significant_split(names)
        by_column, by_share = self.column_sums.sum(axis=(0, 1)), self.prior_sums.max(initial=0.0)
        names = [f"x{column}" for column in range(len(by_column))] if names is None else names
        alarms = self.column_alarms.copy()
        if by_column.size and by_column.max() > by_share / 10.0:
            # The tests of means and spreads assume light tails, so they give false alarms for columns such as
            # amounts. Only columns whose ranks have also changed are reported.
            moved = np.flatnonzero(by_column >= by_column.max() / 100.0)
            alarms[moved] += 1
            moved_names = {str(names[column]) for column in moved.tolist()}
            columns = [change for change in report.columns if change.column in moved_names]
            causes = {"prior"} | {change.cause for change in columns}
            causes_left = [cause for cause in report.causes if cause in causes]
            report = replace(report, columns=columns, causes=causes_left)
        if not report.causes:  # with too few rows to find a cause in the moments, the bets decide
            if by_share > by_column.max(initial=0.0):
                report = replace(report, causes=["prior"])
            else:
                column = int(by_column.argmax())
                code = int(self.column_sums[:, :, column].sum(axis=1).argmax())
                frequent = self.class_counts[: len(self.column_sums)].argmax()
                cause = "features" if code == frequent else "concept"
                change = ColumnChange(str(names[column]), cause, 1.0, {}, {})
                report = replace(report, causes=[cause], columns=[change])
        events = (*self.events, event_of(self.n_rows, report))[-_MAX_EVENTS:]
        return ChangeMonitor(n_rows=self.n_rows, events=events, reference=after, column_alarms=alarms)

    def _most_significant_split(self, names: Sequence[str] | None) -> tuple[ClassMoments, DriftReport]:
        """Return the moments after the most significant split of the recent blocks, and its report."""
        assert self.reference is not None
        found = []
        for begin in range(len(self.recent)):
            before = self.reference + reduce(add, self.recent[:begin]) if begin else self.reference
            after = reduce(add, self.recent[begin:])
            report = compare_moments(before, after, names)
            found.append((min(report.p_values.values()), -begin, after, report))
        _, _, after, report = min(found, key=lambda split: split[:2])
        return after, report

    def get_state(self) -> dict[str, Any]:
        """Return the events as plain values. The sums restart when a model is loaded."""
        return {"rows": self.n_rows, "events": self.event_list()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChangeMonitor:
        """Return the monitor with the events that :meth:`get_state` returned."""
        events = []
        for event in state.get("events", ()):
            if "causes" in event:  # files of version 0.3.0
                columns = [ColumnChange(str(name), cause, 1.0, {}, {}) for name, cause in event["columns"]]
                report = DriftReport(list(event["causes"]), {}, columns, {}, (0.0, 0.0))
                event = event_of(int(event["row"]), report)
            events.append(renamed_event(event, ()))
        return cls(n_rows=int(state.get("rows", 0)), events=tuple(events))
