"""Activity of each model over time, for the web page: requests, errors, latency and label delay."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from steelyard.service.statistics import HistogramCounts

_SECONDS = (60, 900)  # interval lengths of the fine and the coarse time series
_LENGTHS = (180, 672)  # number of intervals that are kept (three hours and seven days)
_LATENCY_BOUNDS = tuple(0.0005 * 2.0**k for k in range(14))  # upper bounds in seconds, from 0.5 ms to 4 s
LABEL_DELAY_BOUNDS = (1.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0)


class _Interval:
    """Counters of the requests and labels of one model in one interval."""

    __slots__ = ("errors", "label_delays", "latencies", "refused")

    def __init__(self) -> None:
        self.errors = self.refused = 0
        self.latencies = {verb: HistogramCounts(_LATENCY_BOUNDS) for verb in ("learn", "predict")}
        self.label_delays = HistogramCounts(LABEL_DELAY_BOUNDS)

    def point(self, at: float) -> dict[str, Any]:
        learn, predict = self.latencies["learn"], self.latencies["predict"]
        return {
            "at": at,
            "learn": learn.n_values,
            "predict": predict.n_values,
            "errors": self.errors,
            "refused": self.refused,
            "learn_ms": learn.quantile(0.99, unit=1000.0),
            "predict_ms": predict.quantile(0.99, unit=1000.0),
            "label_delay": self.label_delays.quantile(0.5),
            "labels": self.label_delays.n_values,
        }


class Activity:
    """Counters of requests and labels in intervals of a minute and of a quarter of an hour.

    The counters are kept in memory and start with the process; intervals without requests take no space.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Protects the creation of intervals. Counters need no lock: each is incremented by one thread only.
        self._lock = threading.Lock()
        self._series: dict[str, tuple[OrderedDict[int, _Interval], ...]] = {}
        # Current minute, and the current intervals of both series.
        self._current: dict[str, tuple[int, list[_Interval]]] = {}

    def request(self, model: str, verb: str, status: int, seconds: float) -> None:
        """Count a request."""
        if status < 400 and verb not in {"learn", "predict"}:
            return
        for interval in self._intervals(model):
            if status < 400:
                interval.latencies[verb].add(seconds)
            elif status < 500:
                interval.refused += 1
            else:
                interval.errors += 1

    def labels(self, model: str, delays: Sequence[float]) -> None:
        """Count labels in a histogram of their delay since the prediction."""
        for interval in self._intervals(model):
            for delay in delays:
                interval.label_delays.add(delay)

    def _intervals(self, model: str) -> list[_Interval]:
        """Return the current intervals of a model."""
        now = int(self._clock())
        current = self._current.get(model)
        if current is not None and current[0] == now // _SECONDS[0]:
            return current[1]
        with self._lock:
            opened = []
            series = self._series.setdefault(model, (OrderedDict(), OrderedDict()))
            for intervals, seconds, length in zip(series, _SECONDS, _LENGTHS, strict=True):
                opened.append(intervals.setdefault(now // seconds, _Interval()))
                while len(intervals) > length:
                    intervals.popitem(last=False)
            self._current[model] = (now // _SECONDS[0], opened)
        return opened

    def forget(self, model: str) -> None:
        """Drop the counters of a deleted model."""
        with self._lock:
            self._series.pop(model, None)
            self._current.pop(model, None)

    def points(self, model: str, since: float) -> dict[str, Any]:
        """Return the intervals since a time: minutes if they go back that far, otherwise quarter-hours."""
        now = self._clock()
        with self._lock:
            series = self._series.get(model, (OrderedDict(), OrderedDict()))
            oldest = next(iter(series[1]), now // _SECONDS[1]) * _SECONDS[1]  # no requests before this time
            which = 0 if now - max(since, oldest) <= _SECONDS[0] * _LENGTHS[0] else 1
            seconds, length = _SECONDS[which], _LENGTHS[which]
            points = {n: interval.point(n * seconds) for n, interval in series[which].items()}
        first, last = int(max(since, now - seconds * length) // seconds), int(now // seconds)
        numbers = range(max(first, min(points, default=last) - 1), last + 1)
        empty = _Interval()
        return {"seconds": seconds, "points": [points.get(n) or empty.point(n * seconds) for n in numbers]}
