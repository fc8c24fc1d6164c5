"""Metrics for Prometheus, and the activity of each model over time for the web page."""

from __future__ import annotations

import math
import platform
import threading
import time
from bisect import bisect_left
from collections import Counter as Counts
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from steelyard.service.writer import Writer

if TYPE_CHECKING:
    from steelyard.brokers.consumer import Consumer

_VERBS = ("learn", "predict")  # requests whose latency the web page shows
_LATENCY_REQUESTS = 500
_INTERVAL_SECONDS = (60, 900)  # interval lengths of the fine and the coarse time series
_N_INTERVALS = (180, 672)  # number of intervals that are kept (three hours and seven days)
_LATENCY_BOUNDS = tuple(0.0005 * 2.0**k for k in range(14))  # upper bounds in seconds, from 0.5 ms to 4 s
_LABEL_DELAY_BOUNDS = (1.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0)
_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# Metrics that are computed at each scrape: name without the prefix "steelyard_", labels and help text.
_COUNTERS = (
    ("write_failures", "reason", "Groups of requests that could not be written."),
    ("erase_failures", "", "Failed attempts to erase forgotten rows from the disk."),
    ("rows_learned", "model", "Rows learned."),
    ("topic_messages", "model role", "Messages consumed since the start of the process."),
    ("topic_rows", "model role", "Rows consumed since the start of the process."),
    ("topic_dead_letters", "model role", "Messages sent to the dead-letter topic."),
)
_GAUGES = (
    ("leader", "", "Whether this process learns (1) or follows (0)."),
    ("writer_alive", "", "Whether the writer thread runs."),
    ("follower_lag_seconds", "", "Time since a follower last read the store."),
    ("requests_waiting", "", "Requests in the queue of the writer."),
    ("store_up", "", "Whether the store can be read."),
    ("store_bytes", "", "Size of the store."),
    ("disk_free_bytes", "", "Free space of the disk with the store."),
    ("topic_up", "model role", "Whether a topic is being read."),
    ("topic_lag", "model role", "Messages that were not read yet."),
    ("topic_rows_per_second", "model role", "Rows consumed per second, recently."),
    ("model_rows", "model", "Rows in the model."),
    ("model_version", "model", "Version of a model."),
    ("model_g_mean", "model", "G-mean of recent predictions."),
    ("model_auc", "model", "AUC of recent predictions."),
    ("model_drifts", "model", "Drifts found so far."),
    ("model_drift_evidence", "model", "Evidence for a drift since the last drift. A drift is reported at 1."),
    ("labels_waiting", "model", "Rows that wait for labels."),
    ("snapshot_age_seconds", "model", "Time since the last snapshot."),
    ("challenger", "model", "Whether a challenger learns in shadow."),
    ("rows_quarantined", "model", "Rows in quarantine."),
    (
        "model_realised_rate",
        "model rate",
        "Observed rate of alarms, recall or precision since the model was created.",
    ),
    ("model_realised_rate_low", "model rate", "Lower limit of the rate."),
    ("model_realised_rate_high", "model rate", "Upper limit of the rate."),
    ("model_promised_rate", "model rate", "Target rate."),
)
# Values by name and labels. A value None is left out.
Values = defaultdict[str, dict[tuple[str, ...], float | None]]


class Metrics(Collector):
    """Prometheus metrics of one service, most of which are computed at each scrape."""

    def __init__(self, writer: Writer, consumers: Sequence[Consumer] = ()) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "steelyard_request_seconds",
            "Time to respond to a request.",
            ["method", "route", "status"],
            buckets=_BUCKETS_SECONDS,
            registry=self._registry,
        )
        # Histograms by method, route and status, because a lookup by labels takes longer than counting.
        self._seconds_of: dict[tuple[str, str, int], Histogram] = {}
        self._predicted = Counter(
            "steelyard_rows_predicted", "Rows that were predicted.", ["model"], registry=self._registry
        )
        self._label_delay = Histogram(
            "steelyard_label_delay_seconds",
            "Time from a prediction to its label.",
            ["model"],
            buckets=_LABEL_DELAY_BOUNDS,
            registry=self._registry,
        )
        self.activity, self._writer, self._consumers = Activity(), writer, consumers
        writer.statistics.on_labels = self.labels_arrived
        self._registry.register(writer.statistics.commit_seconds)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        store = type(writer.store).__name__.removesuffix("Store").lower()
        text = "Versions of library and Python, and the kind of store."
        Info("steelyard_build", text, registry=self._registry).info(
            {"version": version("steelyard"), "python": platform.python_version(), "store": store}
        )

    def request_finished(
        self, method: str, route: str, status: int, seconds: float, model: str | None
    ) -> None:
        histogram = self._seconds_of.get((method, route, status))
        if histogram is None:
            histogram = self._seconds_of[method, route, status] = self._seconds.labels(method, route, status)
        histogram.observe(seconds)
        verb = route.rpartition("/")[2]
        if model in self._writer.published:  # clients could send any number of names of unknown models
            self.activity.request(model, verb, status, seconds)

    def labels_arrived(self, model: str, delays: list[float]) -> None:
        """Count labels in a histogram of their delay; called in the writer thread."""
        self.activity.labels(model, delays)
        histogram = self._label_delay.labels(model)
        for delay in delays:
            histogram.observe(delay)

    def rows_predicted(self, model: str, n_rows: int) -> None:
        self._predicted.labels(model).inc(n_rows)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    # -- values at the time of a scrape -------------------------------------------------------------

    def collect(self) -> Iterable[Any]:
        """Yield the metrics that are computed at each scrape."""
        values: Values = defaultdict(dict)
        values["write_failures"] = _by_label({"none": 0, **self._writer.statistics.write_failures})
        values["erase_failures"][()] = self._writer.statistics.erase_failures
        for name, value in self.process().items():
            values[name][()] = value
        self._add_topics(values)
        self._add_models(values)
        for kind, table in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, labels, text in table:
                family = kind(f"steelyard_{name}", text, labels=labels.split())
                for key, value in values[name].items():
                    if value is not None:
                        family.add_metric(list(key), value)
                yield family

    def process(self) -> dict[str, Any]:
        """Return the values of the process, with None for the sizes of a store that cannot be read."""
        writer, store = self._writer, self._writer.store
        size: int | None = None
        free: int | None = None
        with suppress(*store.errors):
            size, free = store.n_bytes(), store.free_bytes()
        return {
            "leader": writer.leads,
            "writer_alive": writer.is_alive,
            "follower_lag_seconds": writer.behind,
            "requests_waiting": writer.n_waiting,
            "store_up": size is not None,
            "store_bytes": size,
            "disk_free_bytes": free,
        }

    def _add_topics(self, values: Values) -> None:
        for consumer in self._consumers:
            found = consumer.describe()
            found["up"] = float(found["state"] == "reads")
            for name in ("up", "lag", "rows_per_second", "messages", "rows", "dead_letters"):
                values[f"topic_{name}"][consumer.model, found["role"]] = found[name]

    def _add_models(self, values: Values) -> None:
        writer = self._writer
        for name, published in list(writer.published.items()):
            measures, (n_drifts, evidence) = published.measures, published.drift_gauges or (None, None)
            found = {
                "rows_learned": published.n_learned,  # repeated requests with the same key are counted once
                "model_rows": published.n_rows,
                "model_version": published.version,
                "model_g_mean": measures["g_mean"],
                "model_auc": measures["auc"],
                "model_drifts": n_drifts,
                "model_drift_evidence": evidence,
                "challenger": float(published.challenger is not None),
            }
            for metric, value in found.items():
                values[metric][(name,)] = value
            for one in published.realised_rates():
                low, high = one["interval"]
                rates = {"realised_rate": one["rate"], "promised_rate": one["promised"]}
                rates |= {"realised_rate_low": low, "realised_rate_high": high}
                for metric, rate in rates.items():
                    values[f"model_{metric}"][name, one["name"]] = rate
        now = writer.clock()
        values["labels_waiting"] = _by_label(writer.waiting_labels())
        times = {name: session.snapshot_at for name, session in writer.all_sessions().items()}
        ages = {name: now - at for name, at in times.items() if at > -math.inf}
        values["snapshot_age_seconds"] = _by_label(ages)
        with suppress(*writer.store.errors):
            values["rows_quarantined"] = _by_label(writer.store.quarantine_sizes())


def _by_label(values: Mapping[str, float]) -> dict[tuple[str, ...], float | None]:
    return {(label,): value for label, value in values.items()}


def _upper_bound(value: float, bounds: Sequence[float]) -> float:
    """Return the smallest bound that is not below the value, or twice the last bound if there is none."""
    place = bisect_left(bounds, value)
    return bounds[place] if place < len(bounds) else 2.0 * bounds[-1]


def _quantile(counts: Counts[float], share: float, unit: float = 1.0) -> float | None:
    """Return a quantile of values that are counted by upper bound, or None without values."""
    reached, total = 0, counts.total()
    for bound in sorted(counts):
        reached += counts[bound]
        if reached >= share * total:
            return unit * bound
    return None


class _Interval:
    """Counters of the requests and labels of one model in one interval."""

    __slots__ = ("errors", "label_delays", "latencies", "refused")

    def __init__(self) -> None:
        self.errors = self.refused = 0
        # Numbers of values by upper bound.
        self.latencies: dict[str, Counts[float]] = {verb: Counts() for verb in _VERBS}
        self.label_delays: Counts[float] = Counts()

    def point(self, at: float) -> dict[str, Any]:
        return {
            "at": at,
            **{verb: counts.total() for verb, counts in self.latencies.items()},
            "errors": self.errors,
            "refused": self.refused,
            **{f"{verb}_ms": _quantile(counts, 0.99, unit=1000.0) for verb, counts in self.latencies.items()},
            "label_delay": _quantile(self.label_delays, 0.5),
            "labels": self.label_delays.total(),
        }


class Activity:
    """Counters of requests and labels of this process in intervals of a minute and of a quarter-hour."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Protects the creation of intervals. Counters need no lock: each is incremented by one thread only.
        self._lock = threading.Lock()
        self._series: dict[str, tuple[OrderedDict[int, _Interval], ...]] = {}
        # Current minute, and the current intervals of both series.
        self._current: dict[str, tuple[int, list[_Interval]]] = {}
        # Latencies of recent requests by model and verb.
        self._latencies: dict[tuple[str, str], deque[float]] = {}

    def request(self, model: str, verb: str, status: int, seconds: float) -> None:
        if status < 400 and verb not in _VERBS:
            return
        if status < 400:
            self._latencies.setdefault((model, verb), deque(maxlen=_LATENCY_REQUESTS)).append(seconds)
        bound = _upper_bound(seconds, _LATENCY_BOUNDS)
        for interval in self._intervals(model):
            if status < 400:
                interval.latencies[verb][bound] += 1
            elif status < 500:
                interval.refused += 1
            else:
                interval.errors += 1

    def labels(self, model: str, delays: Sequence[float]) -> None:
        """Count labels in a histogram of their delay since the prediction."""
        for interval in self._intervals(model):
            for delay in delays:
                interval.label_delays[_upper_bound(delay, _LABEL_DELAY_BOUNDS)] += 1

    def _intervals(self, model: str) -> list[_Interval]:
        now = int(self._clock())
        current = self._current.get(model)
        if current is not None and current[0] == now // _INTERVAL_SECONDS[0]:
            return current[1]
        with self._lock:
            opened = []
            series = self._series.setdefault(model, (OrderedDict(), OrderedDict()))
            for intervals, seconds, length in zip(series, _INTERVAL_SECONDS, _N_INTERVALS, strict=True):
                opened.append(intervals.setdefault(now // seconds, _Interval()))
                while len(intervals) > length:
                    intervals.popitem(last=False)
            self._current[model] = (now // _INTERVAL_SECONDS[0], opened)
        return opened

    def forget(self, model: str) -> None:
        with self._lock:
            self._series.pop(model, None)
            self._current.pop(model, None)
            for verb in _VERBS:
                self._latencies.pop((model, verb), None)

    def latency(self, model: str) -> dict[str, dict[str, float]]:
        """Return median and 99th percentile of the latency of recent requests in milliseconds, by verb."""
        found = {}
        for verb in _VERBS:
            recent = list(self._latencies.get((model, verb), ()))
            if recent:
                median, p99 = np.quantile(recent, [0.5, 0.99])
                found[verb] = {"median": round(1000 * median, 3), "p99": round(1000 * p99, 3)}
        return found

    def points(self, model: str, since: float) -> dict[str, Any]:
        """Return the intervals since a time: minutes if they go back that far, otherwise quarter-hours."""
        now = self._clock()
        with self._lock:
            series = self._series.get(model, (OrderedDict(), OrderedDict()))
            coarse = _INTERVAL_SECONDS[1]
            oldest = next(iter(series[1]), now // coarse) * coarse  # there are no requests before this time
            which = 0 if now - max(since, oldest) <= _INTERVAL_SECONDS[0] * _N_INTERVALS[0] else 1
            seconds, length = _INTERVAL_SECONDS[which], _N_INTERVALS[which]
            points = {n: interval.point(n * seconds) for n, interval in series[which].items()}
        first, last = int(max(since, now - seconds * length) // seconds), int(now // seconds)
        numbers = range(max(first, min(points, default=last) - 1), last + 1)
        empty = _Interval()
        return {"seconds": seconds, "points": [points.get(n) or empty.point(n * seconds) for n in numbers]}
