"""Times of several jobs, taken in turns, and of single calls."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

REST_SECONDS, TURN_SECONDS = 0.15, 0.2


def best_times(*jobs: Callable[[], object], repeats: int = 7) -> list[float]:
    """Best time of each job, taken in turns so that a busy moment hits them alike.

    The threads of a BLAS go on spinning for a tenth of a second after a product, in the way of who comes
    next: before each turn the cores come to rest, and in a turn a quick job is run until it is warm.
    """
    best = [np.inf] * len(jobs)
    for _ in range(repeats):
        for number, job in enumerate(jobs):
            time.sleep(REST_SECONDS)
            turn = started = time.perf_counter()
            while started < turn + TURN_SECONDS:
                job()
                ended = time.perf_counter()
                best[number] = min(best[number], ended - started)
                started = ended
    return best


def median_time(call: Callable[[int], object], rows: range) -> float:
    """Median seconds of a call for one row."""
    times = np.empty(len(rows))
    for place, row in enumerate(rows):
        started = time.perf_counter()
        call(row)
        times[place] = time.perf_counter() - started
    return float(np.median(times))
