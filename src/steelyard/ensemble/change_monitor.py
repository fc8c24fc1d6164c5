"""Detection of drift: falling hit rates, and changes of columns and class frequencies.

:class:`DriftDetector` compares hit rates; the ensemble reacts to the drifts that it reports.
:class:`ChangeMonitor` finds changes for reports by anytime-valid tests (e-detectors), as follows.

Under exchangeable rows the smoothed rank of a value among the earlier values of its class, a conformal
p-value, is uniform and independent of the past. A bet is a function of the p-value with mean 1 under uniform
p; the product of bets is a test martingale. The Shiryaev-Roberts sum ``S = (S + 1) * bet`` of any such bets
satisfies E[S] <= t after t rows, so without a change an alarm at ``S >= A`` takes A rows or more on average
(Shin, Ramdas and Rinaldo, "E-detectors", 2022). A weighted mean of sums has the same property, so no
correction for the number of columns is needed.
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
    ClassMoments,
    ColumnChange,
    DriftReport,
    compare_moments,
    event_of,
)

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
    """Comparison of short-term and long-term hit rates; immutable.

    Both are exponentially decayed averages per class, so a change of the class frequencies is not reported. A
    drift is reported when the short-term rate, averaged over classes, is significantly lower than the
    long-term rate.
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
    events: tuple[tuple[int, DriftReport], ...] = ()  # row and causes of each change
    # Class moments of the last blocks (`recent`), and of the earlier rows since the last change.
    reference: ClassMoments | None = None
    recent: tuple[ClassMoments, ...] = ()
    pending: tuple[tuple[FloatArray, IntArray, FloatArray], ...] = ()  # rows, class codes, times
    n_pending: int = 0
    edges: FloatArray | None = None  # bin edges, of shape (n_columns, n_bins - 1)
    counts: FloatArray = field(default_factory=lambda: np.zeros((0, 0, _N_BINS)))  # axes: class, column, bin
    column_sums: FloatArray = field(default_factory=lambda: np.zeros((0, 4, 0)))  # axes: class, bet, column
    class_counts: FloatArray = field(default_factory=lambda: np.zeros(0))
    prior_sums: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    column_alarms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

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
        seconds = times[-1] - monitor.pending[0][2][0]
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
        return float(min(self._mean_sum() / ROWS_PER_FALSE_ALARM, 1.0))

    def report(self, names: Sequence[str] | None = None) -> DriftReport | None:
        """Compare recent blocks with earlier rows since the last change. Returns None with too few rows."""
        if self.reference is None or not self.recent:
            return None
        report = compare_moments(self.reference, reduce(add, self.recent), names)
        return replace(report, events=self.event_list())

    def event_list(self) -> list[dict[str, Any]]:
        """Return row, cause, columns and text of each change."""
        return [event_of(row, report) for row, report in self.events]

    # -- processing of one block --------------------------------------------------------------------

    def forgotten(self) -> ChangeMonitor:
        """Return a monitor with only the events, because all sums contain the forgotten rows."""
        return ChangeMonitor(n_rows=self.n_rows, events=self.events, column_alarms=self.column_alarms)

    def _tested(
        self, X: FloatArray, codes: IntArray, labels: Sequence[Label], names: Sequence[str] | None
    ) -> ChangeMonitor:
        monitor = self._widened(X.shape[1], len(labels))
        n_rows = self.n_rows + len(X)
        moments = ClassMoments.of_rows(X, codes, labels)
        if monitor.edges is None:  # the first block determines the bins
            levels = np.arange(1, _N_BINS) / _N_BINS
            return replace(
                monitor, n_rows=n_rows, edges=np.quantile(X, levels, axis=0).T.copy(), reference=moments
            )
        rng = np.random.default_rng(n_rows)
        counts, column_sums = monitor.counts.copy(), monitor.column_sums.copy()
        for code in range(min(len(labels), _MAX_CLASSES)):
            rows = X[codes == code]
            if len(rows):
                uniform = rng.random((2, *rows.shape))
                p, counts[code] = _native.conformal_p_values(rows, monitor.edges, counts[code], uniform)
                column_sums[code] = _native.bet_on_columns(column_sums[code], p, _SLOPE, _MAX_SUM)
        column_sums[:, :, monitor.column_alarms > _MAX_COLUMN_ALARMS] = 0.0
        prior_sums, class_counts = _native.bet_on_shares(
            monitor.prior_sums,
            monitor.class_counts,
            codes,
            rng.random((len(codes), len(labels))),
            _SHARE_FACTORS,
            _MAX_SUM,
        )
        recent = (*monitor.recent, moments)
        reference = monitor.reference
        if len(recent) > _N_RECENT_BLOCKS:
            assert reference is not None
            reference, recent = reference + recent[0], recent[1:]
        monitor = replace(
            monitor, n_rows=n_rows, counts=counts, column_sums=column_sums, prior_sums=prior_sums,
            class_counts=class_counts, recent=recent, reference=reference,
        )  # fmt: skip
        return monitor._alarmed(names) if monitor._mean_sum() >= ROWS_PER_FALSE_ALARM else monitor

    def _mean_sum(self) -> float:
        """Return the weighted mean of all Shiryaev-Roberts sums."""
        if not self.column_sums.size:
            return 0.0
        n_classes = len(self.class_counts)
        columns = float(self.column_sums.sum()) / max(self.column_sums.size, 1)
        prior = float(self.prior_sums.mean()) if n_classes > 1 else 0.0
        return (1.0 - _PRIOR_WEIGHT) * columns + _PRIOR_WEIGHT * prior

    def _alarmed(self, names: Sequence[str] | None) -> ChangeMonitor:
        """Return a monitor with one more event and only the moments of the rows after the change."""
        assert self.reference is not None
        after, report = _most_significant_split(self.reference, self.recent, names)
        by_column = self.column_sums.sum(axis=(0, 1))
        alarms = self.column_alarms.copy()
        if by_column.size and by_column.max() > self.prior_sums.max(initial=0.0) / 10.0:
            moved = np.flatnonzero(by_column >= by_column.max() / 100.0)
            alarms[moved] += 1
            report = _confirmed(report, {_name(column, names) for column in moved.tolist()})
        if not report.causes:  # with too few rows to find a cause in the moments, the bets decide
            report = self._report_of_bets(report, by_column, names)
        return ChangeMonitor(
            n_rows=self.n_rows, events=(*self.events, (self.n_rows, report))[-_MAX_EVENTS:], reference=after,
            column_alarms=alarms,
        )  # fmt: skip

    def _report_of_bets(
        self, report: DriftReport, by_column: FloatArray, names: Sequence[str] | None
    ) -> DriftReport:
        if self.prior_sums.max(initial=0.0) > by_column.max(initial=0.0):
            return replace(report, causes=["prior"])
        column = int(by_column.argmax())
        by_class = self.column_sums[:, :, column].sum(axis=1)
        cause = "features" if by_class.argmax() == self.class_counts[: len(by_class)].argmax() else "concept"
        change = ColumnChange(_name(column, names), cause, 1.0, {}, {})
        return replace(report, causes=[cause], columns=[change])

    def _widened(self, n_columns: int, n_classes: int) -> ChangeMonitor:
        """Return the monitor with arrays that are large enough for ``n_columns`` and ``n_classes``."""
        n_monitored = min(n_classes, _MAX_CLASSES)
        if self.counts.shape[:2] == (n_monitored, n_columns) and len(self.class_counts) == n_classes:
            return self
        return replace(
            self,
            counts=_padded(self.counts, (n_monitored, n_columns, _N_BINS)),
            column_sums=_padded(self.column_sums, (n_monitored, 4, n_columns)),
            class_counts=_padded(self.class_counts, (n_classes,)),
            prior_sums=_padded(self.prior_sums, (n_classes, len(_SHARE_FACTORS))),
            column_alarms=_padded(self.column_alarms, (n_columns,)),
        )

    # -- saving and loading -------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the events as plain values. The sums restart when a model is loaded."""
        return {
            "rows": self.n_rows,
            "events": [
                {
                    "row": row,
                    "causes": list(report.causes),
                    "columns": [
                        [column, cause] for cause in report.causes for column in report.columns_of(cause)[:3]
                    ],
                    "before": report.n_rows[0],
                    "after": report.n_rows[1],
                }
                for row, report in self.events
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChangeMonitor:
        """Return the monitor with the events that :meth:`get_state` returned."""
        events = []
        for event in state.get("events", ()):
            columns = [
                ColumnChange(str(column), str(cause), 1.0, {}, {}) for column, cause in event["columns"]
            ]
            periods = float(event["before"]), float(event["after"])
            causes = [str(cause) for cause in event["causes"]]
            events.append((int(event["row"]), DriftReport(causes, {}, columns, {}, periods)))
        return cls(n_rows=int(state.get("rows", 0)), events=tuple(events))


def _name(column: int, names: Sequence[str] | None) -> str:
    return f"x{column}" if names is None else str(names[column])


def _confirmed(report: DriftReport, moved: set[str]) -> DriftReport:
    """Return the report with only those columns whose ranks have also changed (``moved``).

    The tests of means and spreads assume light tails, so they give false alarms for columns such as amounts.
    """
    columns = [change for change in report.columns if change.column in moved]
    causes = {"prior"} | {change.cause for change in columns}
    return replace(report, columns=columns, causes=[cause for cause in report.causes if cause in causes])


def _most_significant_split(
    reference: ClassMoments, recent: Sequence[ClassMoments], names: Sequence[str] | None
) -> tuple[ClassMoments, DriftReport]:
    """Split the recent blocks at the most significant change; return the moments after it and the report."""
    found = []
    for begin in range(len(recent)):
        before = reference + reduce(add, recent[:begin]) if begin else reference
        after = reduce(add, recent[begin:])
        report = compare_moments(before, after, names)
        found.append((min(report.p_values.values()), -begin, after, report))
    _, _, after, report = min(found, key=lambda split: split[:2])
    return after, report


def _padded(values: Any, shape: tuple[int, ...]) -> Any:
    width = [(0, max(0, wanted - have)) for wanted, have in zip(shape, values.shape, strict=True)]
    return np.pad(values, width)
