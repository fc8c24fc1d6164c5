"""Time of calls of every learner while other processes are busy, relative to the fair time.

    python benchmarks/speed/bench_busy.py [--quick] [--only NAME]

With c cores and b busy processes, a process that uses all c cores gets the share c / (b + c) of the time that
it gets alone, and a process that uses one core gets min(1, c / (b + 1)). The fair time is the time alone
divided by the smaller of both shares. Ratios above 2.5 mean that threads wait for each other. A short call is
repeated for a quarter of a second, longer than a time slice of the scheduler. Calls with and without busy
processes alternate, so that other load affects all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from steelyard import (
    KOIL,
    AlignedSVC,
    EnclosingClassifier,
    IncrementalSVC,
    MultiKernelKOIL,
    ProximalSVC,
    RandomFeatures,
    StreamClassifier,
)
from steelyard._threads import num_threads

NEIGHBORS = (0, 1, 3)
LIMIT = 2.5
MIN_SECONDS = 0.25
N_ROWS, N_FEATURES = 1000, 24


@contextmanager
def busy(n_processes: int) -> Iterator[None]:
    """Run processes that compute until the block ends."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        time.sleep(0.1)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def rows(n_rows: int = N_ROWS) -> tuple[Any, Any]:
    """Return rows of two classes, of which one in ten rows belongs to the rare class."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < 0.1).astype(int)
    return rng.normal(size=(n_rows, N_FEATURES)) + 0.5 * y[:, None], y


def jobs(n_rows: int) -> dict[str, Callable[[], object]]:
    """Return calls by name: learning, predicting, solving and selecting C."""
    X, y = rows(n_rows)
    mapped = RandomFeatures(n_rows).fit(X)

    def fitted(model: Any) -> Any:
        model.fit(X, y)
        model.decision_function(X[:1])
        return model

    found: dict[str, Callable[[], object]] = {
        "ProximalSVC, select C, mapped": lambda: fitted(ProximalSVC(C="auto", feature_map=mapped)),
        "ProximalSVC, solve, mapped": lambda: fitted(ProximalSVC(C=1.0, feature_map=mapped)),
        "ProximalSVC, partial_fit and solve": lambda: fitted(ProximalSVC()),
        "IncrementalSVC, partial_fit": lambda: fitted(IncrementalSVC(gamma=0.05)),
        "KOIL, partial_fit": lambda: fitted(KOIL(gamma=0.05, random_state=0)),
        "MultiKernelKOIL, partial_fit": lambda: fitted(MultiKernelKOIL(random_state=0, n_threads=None)),
        "AlignedSVC, fit": lambda: fitted(AlignedSVC(gamma=0.05)),
        "EnclosingClassifier, partial_fit": lambda: fitted(EnclosingClassifier(gamma=0.05)),
        "StreamClassifier, partial_fit in chunks of 100": lambda: in_chunks(X, y),
    }
    stream = in_chunks(X, y)
    for name, model in {
        "ProximalSVC": fitted(ProximalSVC()),
        "ProximalSVC, mapped": fitted(ProximalSVC(feature_map=mapped)),
        "IncrementalSVC": fitted(IncrementalSVC(gamma=0.05)),
        "KOIL": fitted(KOIL(gamma=0.05, random_state=0)),
        "AlignedSVC": fitted(AlignedSVC(gamma=0.05)),
        "EnclosingClassifier": fitted(EnclosingClassifier(gamma=0.05)),
        "StreamClassifier": stream,
    }.items():
        found[f"{name}, predict"] = lambda model=model: model.predict(X)
    return found


def in_chunks(X: Any, y: Any) -> StreamClassifier:
    """Return a StreamClassifier that learned the rows in chunks of 100."""
    model = StreamClassifier()
    for begin in range(0, len(y), 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    return model


def seconds(job: Callable[[], object]) -> float:
    """Return the mean time of a call, over at least a quarter of a second."""
    begin, n_calls, passed = time.perf_counter(), 0, 0.0
    while passed < MIN_SECONDS:
        job()
        n_calls += 1
        passed = time.perf_counter() - begin
    return passed / n_calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and repetitions")
    parser.add_argument("--only", default="", help="measure calls whose names contain this text")
    options = parser.parse_args()
    cores, n_repeats = num_threads(), 2 if options.quick else 5
    print(f"{cores} cores; time while other processes are busy / fair time, limit {LIMIT}")
    print("| call | alone, ms | " + " | ".join(f"{n} busy" for n in NEIGHBORS[1:]) + " |")
    print("|---|---|" + "---|" * len(NEIGHBORS[1:]))
    worst = 0.0
    for name, job in jobs(300 if options.quick else N_ROWS).items():
        if options.only not in name:
            continue
        job()
        times: dict[int, list[float]] = {n: [] for n in NEIGHBORS}
        for _ in range(n_repeats):
            for n in NEIGHBORS:
                with busy(n):
                    times[n].append(seconds(job))
        alone = float(np.median(times[0]))
        ratios = []
        for n in NEIGHBORS[1:]:
            share = min(cores / (n + cores), 1.0, cores / (n + 1))
            ratios.append(float(np.median(times[n])) / (alone / share))
        worst = max(worst, *ratios)
        print(
            f"| {name} | {1e3 * alone:.1f} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |",
            flush=True,
        )
    print(f"largest ratio {worst:.2f}")


if __name__ == "__main__":
    main()
