"""StreamClassifier on one core and on two: chunks are predicted and then learned.

    python benchmarks/speed/bench_cores.py [--rows 12000] [--chunk 100] [--elapsed]

The ratio by the critical path holds on a busy machine too: processor times of all tasks of an update are
measured on one thread, and the time on two cores is computed by the order in which `run_tasks` hands them
out. Everything else counts as serial. ``--elapsed`` measures elapsed times with STEELYARD_NUM_THREADS=1 and 2
as well, which needs two idle cores. The scores are the same bits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from time import thread_time

os.environ.setdefault("STEELYARD_NUM_THREADS", "1")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from steelyard import StreamClassifier
from steelyard.ensemble import expert_ensemble

N_COLUMNS, POSITIVE_SHARE, TARGET_RATIO = 20, 0.05, 1.6


def stream(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ in the means of five columns and the variance of one."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < POSITIVE_SHARE).astype(int)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, :5] += 0.8 * y[:, None]
    X[:, 5] *= np.where(y, 2.0, 1.0)
    return X, y


def learn(n_rows: int, chunk_rows: int) -> None:
    X, y = stream(n_rows)
    model = StreamClassifier()
    for begin in range(0, n_rows, chunk_rows):
        if begin:
            model.decision_function(X[begin : begin + chunk_rows])
        model.partial_fit(X[begin : begin + chunk_rows], y[begin : begin + chunk_rows])


def critical_path(n_rows: int, chunk_rows: int) -> tuple[float, float, float]:
    """Return the processor time of one thread, of all tasks, and the time of the tasks on two cores."""
    of_tasks, on_two_cores = 0.0, 0.0

    def run_tasks(tasks, *, parallel):
        nonlocal of_tasks, on_two_cores
        times = []
        for task in tasks:
            begin = thread_time()
            task()
            times.append(thread_time() - begin)
        cores = [0.0, 0.0] if parallel else [0.0]
        for seconds in times:  # the core that is free first takes the next task
            cores[int(np.argmin(cores))] += seconds
        of_tasks += sum(times)
        on_two_cores += max(cores)

    original, expert_ensemble.run_tasks = expert_ensemble.run_tasks, run_tasks
    try:
        begin = thread_time()
        learn(n_rows, chunk_rows)
        return thread_time() - begin, of_tasks, on_two_cores
    finally:
        expert_ensemble.run_tasks = original


def elapsed(n_threads: int, options: argparse.Namespace) -> float:
    """Return the elapsed time of a new process with this number of threads, without its start."""
    command = [
        sys.executable,
        __file__,
        "--rows",
        str(options.rows),
        "--chunk",
        str(options.chunk),
        "--child",
    ]
    environment = {**os.environ, "STEELYARD_NUM_THREADS": str(n_threads)}
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(run.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--elapsed", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        begin = time.perf_counter()
        learn(options.rows, options.chunk)
        print(time.perf_counter() - begin)
        return 0
    total, of_tasks, on_two_cores = critical_path(options.rows, options.chunk)
    ratio, per_row = total / (total - of_tasks + on_two_cores), 1e6 / options.rows
    print(
        f"{options.rows:,} rows in chunks of {options.chunk}: {per_row * total:.0f} us a row on one core, of "
        f"which {per_row * (total - of_tasks):.0f} serial and {per_row * of_tasks:.0f} tasks; tasks on two "
        f"cores {per_row * on_two_cores:.0f}; ratio {ratio:.2f} (at least {TARGET_RATIO:g}) "
        f"{'met' if ratio >= TARGET_RATIO else 'MISSED'}"
    )
    if options.elapsed:
        one, two = (min(elapsed(n, options) for _ in range(2)) for n in (1, 2))
        print(f"elapsed: one thread {one:.2f} s, two threads {two:.2f} s, ratio {one / two:.2f}")
    return 0 if ratio >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
