"""Figures for Prometheus: requests, rows, and what waits."""

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

_VERBS = ("learn", "predict")  # of which the page shows how long they take
_LATELY = 500  # requests
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """The figures of one service."""

    def __init__(self, writer: Writer) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "steelyard_request_seconds",
            "Time to answer a request.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._predicted = Counter(
            "steelyard_rows_predicted", "Rows that were answered.", ["model"], registry=self._registry
        )
        self._registry.register(_Models(writer))
        # Looking a child up by its labels takes longer than counting it.
        self._children: dict[tuple[Any, ...], Any] = {}
        self._lately: dict[tuple[str, str], deque[float]] = {}

    def took(self, method: str, route: str, status: int, seconds: float, model: str | None) -> None:
        """A request was answered."""
        self._child(self._seconds, method, route, str(status)).observe(seconds)
        verb = route.rpartition("/")[2]
        if model is not None and status == 200 and verb in _VERBS:
            self._lately.setdefault((model, verb), deque(maxlen=_LATELY)).append(seconds)

    def latency(self, model: str) -> dict[str, dict[str, float]]:
        """Median and 99th percentile of the last requests in milliseconds, by verb."""
        found = {}
        for verb in _VERBS:
            lately = list(self._lately.get((model, verb), ()))
            if lately:
                median, most = np.quantile(lately, [0.5, 0.99])
                found[verb] = {"median": round(1000 * median, 3), "p99": round(1000 * most, 3)}
        return found

    def predicted(self, model: str, n_rows: int) -> None:
        """Rows were answered."""
        self._child(self._predicted, model).inc(n_rows)

    def _child(self, family: Any, *labels: str) -> Any:
        key = (family, *labels)
        if key not in self._children:
            self._children[key] = family.labels(*labels)
        return self._children[key]

    def text(self) -> bytes:
        """All figures in Prometheus's form."""
        return generate_latest(self._registry)


class _Models(Collector):
    """What the models say of themselves when they are asked."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def collect(self) -> Iterable[Any]:
        waiting = GaugeMetricFamily("steelyard_requests_waiting", "Requests that wait to be written.")
        waiting.add_metric([], self._writer.n_waiting)
        yield waiting
        learned = CounterMetricFamily("steelyard_rows_learned", "Rows that were learned.", labels=["model"])
        rows = GaugeMetricFamily("steelyard_model_rows", "Rows that count now.", labels=["model"])
        version = GaugeMetricFamily("steelyard_model_version", "Version of a model.", labels=["model"])
        g_mean = GaugeMetricFamily("steelyard_model_g_mean", "G-mean of the last rows.", labels=["model"])
        auc = GaugeMetricFamily("steelyard_model_auc", "AUC of the last rows.", labels=["model"])
        for name, published in list(self._writer.published.items()):
            measures = published.measures
            learned.add_metric([name], published.n_learned)  # a request that was repeated counts once
            rows.add_metric([name], published.n_rows)
            version.add_metric([name], published.version)
            for family, value in ((g_mean, measures["g_mean"]), (auc, measures["auc"])):
                if value is not None:
                    family.add_metric([name], value)
        yield from (learned, rows, version, g_mean, auc)
