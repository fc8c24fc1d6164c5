"""Metrics for Prometheus: requests, rows and models."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from steelyard.service.consumption import TopicConsumer
from steelyard.service.http.activity import LABEL_DELAY_BOUNDS, Activity
from steelyard.service.statistics import HistogramCounts
from steelyard.service.writer import Writer

__all__ = ["Metrics"]

_VERBS = ("learn", "predict")  # requests whose latency the web page shows
_LATENCY_REQUESTS = 500
_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Prometheus metrics of one service."""

    def __init__(self, writer: Writer, consumers: Sequence[TopicConsumer] = ()) -> None:
        self._registry = CollectorRegistry()
        # Durations by method, route and status. A Histogram of the client library takes three times as long.
        self._seconds: dict[tuple[str, str, int], HistogramCounts] = {}
        self._predicted = Counter(
            "steelyard_rows_predicted", "Rows that were predicted.", ["model"], registry=self._registry
        )
        self._label_delay = Histogram(
            "steelyard_label_delay_seconds",
            "Time from a prediction to its label.",
            ["model"],
            buckets=LABEL_DELAY_BOUNDS,
            registry=self._registry,
        )
        self.activity, self._models = Activity(), writer
        writer.statistics.on_labels = self.labels_arrived
        self._registry.register(_Requests(self._seconds))
        self._registry.register(_Models(writer))
        self._registry.register(_Process(writer))
        self._registry.register(_Topics(consumers))
        ProcessCollector(registry=self._registry)
        # Cache of labelled metrics, because looking up a metric by labels takes longer than incrementing it.
        self._children: dict[tuple[Any, ...], Any] = {}
        self._recent: dict[tuple[str, str], deque[float]] = {}

    def request_finished(
        self, method: str, route: str, status: int, seconds: float, model: str | None
    ) -> None:
        """Record the duration of a request."""
        counts = self._seconds.get((method, route, status))
        if counts is None:
            counts = self._seconds[method, route, status] = HistogramCounts(_BUCKETS_SECONDS)
        counts.add(seconds)
        verb = route.rpartition("/")[2]
        if model in self._models.published:  # clients could send any number of names of unknown models
            self.activity.request(model, verb, status, seconds)
        if model is not None and status == 200 and verb in _VERBS:
            self._recent.setdefault((model, verb), deque(maxlen=_LATENCY_REQUESTS)).append(seconds)

    def labels_arrived(self, model: str, delays: list[float]) -> None:
        """Count labels in a histogram of their delay; called in the writer thread."""
        self.activity.labels(model, delays)
        child = self._child(self._label_delay, model)
        for delay in delays:
            child.observe(delay)

    def latency(self, model: str) -> dict[str, dict[str, float]]:
        """Return median and 99th percentile of the latency of recent requests in milliseconds, by verb."""
        found = {}
        for verb in _VERBS:
            recent = list(self._recent.get((model, verb), ()))
            if recent:
                median, p99 = np.quantile(recent, [0.5, 0.99])
                found[verb] = {"median": round(1000 * median, 3), "p99": round(1000 * p99, 3)}
        return found

    def rows_predicted(self, model: str, n_rows: int) -> None:
        """Count predicted rows."""
        self._child(self._predicted, model).inc(n_rows)

    def _child(self, family: Any, *labels: str) -> Any:
        key = (family, *labels)
        if key not in self._children:
            self._children[key] = family.labels(*labels)
        return self._children[key]

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Requests(Collector):
    """Collector of the durations of requests."""

    def __init__(self, seconds: Mapping[tuple[str, str, int], HistogramCounts]) -> None:
        self._seconds = seconds

    def collect(self) -> Iterable[Any]:
        family = HistogramMetricFamily(
            "steelyard_request_seconds",
            "Time to respond to a request.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), counts in list(self._seconds.items()):
            family.add_metric([method, route, str(status)], counts.cumulative(), counts.sum)
        yield family


class _Process(Collector):
    """Collector of metrics of the process, the writer and the store, computed at each scrape."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._build = InfoMetricFamily(
            "steelyard_build",
            "Versions of library and Python, and the kind of store.",
            value={
                "version": version("steelyard"),
                "python": platform.python_version(),
                "store": type(writer.store).__name__.removesuffix("Store").lower(),
            },
        )

    def collect(self) -> Iterable[Any]:
        writer, statistics = self._writer, self._writer.statistics
        yield self._build
        commits = statistics.commit_seconds
        yield HistogramMetricFamily(
            "steelyard_commit_seconds",
            "Time to make a group of requests durable.",
            buckets=commits.cumulative(),
            sum_value=commits.sum,
        )
        failures = CounterMetricFamily(
            "steelyard_write_failures", "Groups of requests that could not be written.", labels=["reason"]
        )
        for reason, n in {"none": 0, **statistics.write_failures}.items():
            failures.add_metric([reason], n)
        yield failures
        yield CounterMetricFamily(
            "steelyard_erase_failures",
            "Failed attempts to erase forgotten rows from the disk.",
            value=statistics.erase_failures,
        )
        yield GaugeMetricFamily(
            "steelyard_leader", "Whether this process learns (1) or follows (0).", value=float(writer.leads)
        )
        yield GaugeMetricFamily(
            "steelyard_writer_alive", "Whether the writer thread runs.", value=float(writer.is_alive)
        )
        yield GaugeMetricFamily(
            "steelyard_follower_lag_seconds",
            "Time since a follower last read the store.",
            value=writer.behind,
        )
        yield from self._store()

    def _store(self) -> Iterable[Any]:
        store, is_up = self._writer.store, True
        try:
            size, free = store.n_bytes(), store.free_bytes()
        except store.errors:
            is_up, size, free = False, None, None
        yield GaugeMetricFamily("steelyard_store_up", "Whether the store can be read.", value=float(is_up))
        if size is not None:
            yield GaugeMetricFamily("steelyard_store_bytes", "Size of the store.", value=size)
        if free is not None:
            yield GaugeMetricFamily(
                "steelyard_disk_free_bytes", "Free space of the disk with the store.", value=free
            )


class _Topics(Collector):
    """Collector of the metrics of consumed topics."""

    def __init__(self, consumers: Sequence[TopicConsumer]) -> None:
        self._consumers = consumers

    def collect(self) -> Iterable[Any]:
        names = ["model", "role"]
        up = GaugeMetricFamily("steelyard_topic_up", "Whether a topic is being read.", labels=names)
        lag = GaugeMetricFamily("steelyard_topic_lag", "Messages that were not read yet.", labels=names)
        rate = GaugeMetricFamily(
            "steelyard_topic_rows_per_second", "Rows consumed per second, recently.", labels=names
        )
        counters = {
            name: CounterMetricFamily(f"steelyard_topic_{name}", text, labels=names)
            for name, text in (
                ("messages", "Messages consumed since the start of the process."),
                ("rows", "Rows consumed since the start of the process."),
                ("dead_letters", "Messages sent to the dead-letter topic."),
            )
        }
        for consumer in self._consumers:
            found = consumer.describe()
            labels = [consumer.model, found["role"]]
            up.add_metric(labels, float(found["state"] == "reads"))
            if found["lag"] is not None:
                lag.add_metric(labels, found["lag"])
            rate.add_metric(labels, found["rows_per_second"])
            for name, family in counters.items():
                family.add_metric(labels, found[name])
        yield from (up, lag, rate, *counters.values())


class _Models(Collector):
    """Collector of metrics of all models, computed at each scrape."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def collect(self) -> Iterable[Any]:
        waiting = GaugeMetricFamily("steelyard_requests_waiting", "Requests in the queue of the writer.")
        waiting.add_metric([], self._writer.n_waiting)
        yield waiting
        learned = CounterMetricFamily("steelyard_rows_learned", "Rows learned.", labels=["model"])
        rows = GaugeMetricFamily("steelyard_model_rows", "Rows in the model.", labels=["model"])
        versions = GaugeMetricFamily("steelyard_model_version", "Version of a model.", labels=["model"])
        g_mean = GaugeMetricFamily(
            "steelyard_model_g_mean", "G-mean of recent predictions.", labels=["model"]
        )
        auc = GaugeMetricFamily("steelyard_model_auc", "AUC of recent predictions.", labels=["model"])
        drifts = GaugeMetricFamily("steelyard_model_drifts", "Drifts found so far.", labels=["model"])
        evidence = GaugeMetricFamily(
            "steelyard_model_drift_evidence",
            "Evidence for a drift since the last drift. A drift is reported at 1.",
            labels=["model"],
        )
        rates = _Rates()
        for name, published in list(self._writer.published.items()):
            measures = published.measures
            learned.add_metric(
                [name], published.n_learned
            )  # requests repeated with the same idempotency key are counted once
            rows.add_metric([name], published.n_rows)
            versions.add_metric([name], published.version)
            for family, value in ((g_mean, measures["g_mean"]), (auc, measures["auc"])):
                if value is not None:
                    family.add_metric([name], value)
            if (gauges := published.drift_gauges) is not None:
                drifts.add_metric([name], gauges[0])
                evidence.add_metric([name], gauges[1])
            rates.add(name, published.realised_rates())
        yield from (learned, rows, versions, g_mean, auc, drifts, evidence, *rates.families)
        yield _by_model(
            "steelyard_labels_waiting", "Rows that wait for labels.", self._writer.waiting_labels()
        )
        now = self._writer.clock()
        ages = {name: now - at for name, at in self._writer.snapshot_times().items()}
        yield _by_model("steelyard_snapshot_age_seconds", "Time since the last snapshot.", ages)
        challengers = {n: float(p.challenger is not None) for n, p in list(self._writer.published.items())}
        yield _by_model("steelyard_challenger", "Whether a challenger learns in shadow.", challengers)
        with suppress(*self._writer.store.errors):
            yield _by_model(
                "steelyard_rows_quarantined", "Rows in quarantine.", self._writer.store.quarantine_sizes()
            )


class _Rates:
    """Observed rates of models with a target rate, with the limits of a 95 % interval."""

    def __init__(self) -> None:
        names = ["model", "rate"]
        of_rate = "alarms, recall or precision since the model was created"
        self.families = (
            GaugeMetricFamily("steelyard_model_realised_rate", f"Observed rate of {of_rate}.", labels=names),
            GaugeMetricFamily("steelyard_model_realised_rate_low", "Lower limit of the rate.", labels=names),
            GaugeMetricFamily("steelyard_model_realised_rate_high", "Upper limit of the rate.", labels=names),
            GaugeMetricFamily("steelyard_model_promised_rate", "Target rate.", labels=names),
        )

    def add(self, model: str, rates: Iterable[Mapping[str, Any]]) -> None:
        for one in rates:
            values = (one["rate"], *one["interval"], one["promised"])
            for family, value in zip(self.families, values, strict=True):
                if value is not None:
                    family.add_metric([model, one["name"]], value)


def _by_model(name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["model"])
    for model, value in values.items():
        family.add_metric([model], value)
    return family
