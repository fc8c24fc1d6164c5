"""Metrics for Prometheus: requests, rows and models."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from steelyard.service.writer import Writer

__all__ = ["Metrics"]

_VERBS = ("learn", "predict")  # requests whose latency the web page shows
_LATENCY_REQUESTS = 500
_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Metrics of one service."""

    def __init__(self, writer: Writer) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "steelyard_request_seconds",
            "Time to respond to a request.",
            ["method", "route", "status"],
            buckets=_BUCKETS_SECONDS,
            registry=self._registry,
        )
        self._predicted = Counter(
            "steelyard_rows_predicted", "Rows that were predicted.", ["model"], registry=self._registry
        )
        self._registry.register(_Models(writer))
        # Cached: looking up a metric by its labels takes longer than incrementing it.
        self._children: dict[tuple[Any, ...], Any] = {}
        self._recent: dict[tuple[str, str], deque[float]] = {}

    def request_finished(
        self, method: str, route: str, status: int, seconds: float, model: str | None
    ) -> None:
        """Record the duration of a request."""
        self._child(self._seconds, method, route, str(status)).observe(seconds)
        verb = route.rpartition("/")[2]
        if model is not None and status == 200 and verb in _VERBS:
            self._recent.setdefault((model, verb), deque(maxlen=_LATENCY_REQUESTS)).append(seconds)

    def latency(self, model: str) -> dict[str, dict[str, float]]:
        """Return median and 99th percentile of recent requests in milliseconds, by verb."""
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


class _Models(Collector):
    """Collector of the metrics of all models, computed at each scrape."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def collect(self) -> Iterable[Any]:
        waiting = GaugeMetricFamily("steelyard_requests_waiting", "Requests in the queue of the writer.")
        waiting.add_metric([], self._writer.n_waiting)
        yield waiting
        learned = CounterMetricFamily("steelyard_rows_learned", "Rows learned.", labels=["model"])
        rows = GaugeMetricFamily("steelyard_model_rows", "Rows in the model.", labels=["model"])
        version = GaugeMetricFamily("steelyard_model_version", "Version of a model.", labels=["model"])
        g_mean = GaugeMetricFamily(
            "steelyard_model_g_mean", "G-mean of recent predictions.", labels=["model"]
        )
        auc = GaugeMetricFamily("steelyard_model_auc", "AUC of recent predictions.", labels=["model"])
        drifts = GaugeMetricFamily("steelyard_model_drifts", "Drifts found so far.", labels=["model"])
        evidence = GaugeMetricFamily(
            "steelyard_model_drift_evidence",
            "Evidence for a drift since the last one; a drift is reported at 1.",
            labels=["model"],
        )
        for name, published in list(self._writer.published.items()):
            measures = published.measures
            learned.add_metric(
                [name], published.n_learned
            )  # requests repeated with the same idempotency key are counted once
            rows.add_metric([name], published.n_rows)
            version.add_metric([name], published.version)
            for family, value in ((g_mean, measures["g_mean"]), (auc, measures["auc"])):
                if value is not None:
                    family.add_metric([name], value)
            if (gauges := published.drift_gauges) is not None:
                drifts.add_metric([name], gauges[0])
                evidence.add_metric([name], gauges[1])
        yield from (learned, rows, version, g_mean, auc, drifts, evidence)
