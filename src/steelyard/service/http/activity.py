"""Activity of each model over time, for the web page: requests, errors, latency and label delay."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

_SECONDS = (60, 900)  # interval lengths of the fine and the coarse time series
_LENGTHS = (180, 672)  # number of intervals that are kept (three hours and seven days)
_LATENCY_BOUNDS = tuple(0.0005 * 2.0**k for k in range(14))  # upper bounds in seconds, from 0.5 ms to 4 s
LABEL_DELAY_BOUNDS = (1.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0, 2_592_000.0)
_LEARN, _PREDICT = 0, 1
_VERBS = {"learn": _LEARN, "predict": _PREDICT}
_N_LATENCIES, _N_DELAYS = len(_LATENCY_BOUNDS) + 1, len(LABEL_DELAY_BOUNDS) + 1
# Indices in the list of counters of an interval.
_ERRORS, _REFUSED = 2, 3
_LATENCIES = (4, 4 + _N_LATENCIES)
_DELAYS = 4 + 2 * _N_LATENCIES
_N_COUNTERS = _DELAYS + _N_DELAYS


class Activity:
    """Counters of requests and labels in intervals of a minute and of a quarter of an hour.

    The counters are kept in memory and start with the process; intervals without requests take no space.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Protects the creation of intervals. Counters need no lock: each is incremented by one thread only.
        self._lock = threading.Lock()
        self._series: dict[str, tuple[OrderedDict[int, list[int]], ...]] = {}
        # Current minute, and the counters of the current interval of both series.
        self._current: dict[str, tuple[int, list[int], list[int]]] = {}

    def request(self, model: str, verb: str, status: int, seconds: float) -> None:
        """Count a request."""
        which = _VERBS.get(verb)
        if status < 400 and which is None:
            return
        _, fine, coarse = self._counters(model)
        if status < 400:
            assert which is not None
            position = _LATENCIES[which] + bisect_left(_LATENCY_BOUNDS, seconds)
            fine[position] += 1
            coarse[position] += 1
        else:
            which = _ERRORS if status >= 500 else _REFUSED
        fine[which] += 1
        coarse[which] += 1

    def labels(self, model: str, delays: Sequence[float]) -> None:
        """Count labels in a histogram of their delay since the prediction."""
        _, *series = self._counters(model)
        for delay in delays:
            for counters in series:
                counters[_DELAYS + bisect_left(LABEL_DELAY_BOUNDS, delay)] += 1

    def _counters(self, model: str) -> tuple[int, list[int], list[int]]:
        """Return the current minute and the counters of the current intervals of a model."""
        now = int(self._clock())
        current = self._current.get(model)
        if current is not None and current[0] == now // _SECONDS[0]:
            return current
        with self._lock:
            series = self._series.setdefault(model, (OrderedDict(), OrderedDict()))
            opened = []
            for intervals, seconds, length in zip(series, _SECONDS, _LENGTHS, strict=True):
                opened.append(intervals.setdefault(now // seconds, [0] * _N_COUNTERS))
                while len(intervals) > length:
                    intervals.popitem(last=False)
            current = self._current[model] = (now // _SECONDS[0], opened[0], opened[1])
        return current

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
            intervals = {n: list(c) for n, c in series[which].items()}
        seconds = _SECONDS[which]
        first, last = int(max(since, now - seconds * _LENGTHS[which]) // seconds), int(now // seconds)
        empty = [0] * _N_COUNTERS
        numbers = range(max(first, min(intervals, default=last) - 1), last + 1)
        return {
            "seconds": seconds,
            "points": [_point(n * seconds, intervals.get(n, empty)) for n in numbers],
        }


def _point(at: float, counters: Sequence[int]) -> dict[str, Any]:
    learn, predict = (counters[begin : begin + _N_LATENCIES] for begin in _LATENCIES)
    return {
        "at": at,
        "learn": counters[_LEARN],
        "predict": counters[_PREDICT],
        "errors": counters[_ERRORS],
        "refused": counters[_REFUSED],
        "learn_ms": _milliseconds(learn),
        "predict_ms": _milliseconds(predict),
        "label_delay": _quantile(counters[_DELAYS:], LABEL_DELAY_BOUNDS, 0.5),
        "labels": sum(counters[_DELAYS:]),
    }


def _milliseconds(counts: Sequence[int]) -> float | None:
    p99 = _quantile(counts, _LATENCY_BOUNDS, 0.99)
    return None if p99 is None else 1000.0 * p99


def _quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return the upper bound of the interval that contains a quantile, or None if all counts are zero."""
    total = sum(counts)
    if not total:
        return None
    reached = 0
    for bound, count in zip(bounds, counts, strict=False):
        reached += count
        if reached >= share * total:
            return bound
    return 2.0 * bounds[-1]
