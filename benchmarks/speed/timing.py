"""Timing of alternating jobs and of single calls."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

REST_SECONDS, JOB_SECONDS = 0.15, 0.2


def best_times(*jobs: Callable[[], object], repeats: int = 7) -> list[float]:
    """Return the best time of each job. The jobs alternate, so that background load affects them equally.

    BLAS threads spin for about 0.1 s after a product. A pause before each job lets them stop, and a fast job
    is repeated until its caches are warm.
    """
    best = [np.inf] * len(jobs)
    for _ in range(repeats):
        for number, job in enumerate(jobs):
            time.sleep(REST_SECONDS)
            begin = started = time.perf_counter()
            while started < begin + JOB_SECONDS:
                job()
                ended = time.perf_counter()
                best[number] = min(best[number], ended - started)
                started = ended
    return best


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a call."""
    started = clock()
    call()
    return clock() - started


def side_by_side(
    *calls: Callable[[], object], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the best time of each call over several rounds, without pauses. The calls alternate."""
    times = [[seconds(call, clock) for call in calls] for _ in range(rounds)]
    return np.min(times, axis=0).tolist()


def median_time(call: Callable[[int], object], rows: range) -> float:
    """Return the median seconds of a call for one row."""
    times = np.empty(len(rows))
    for index, row in enumerate(rows):
        started = time.perf_counter()
        call(row)
        times[index] = time.perf_counter() - started
    return float(np.median(times))
