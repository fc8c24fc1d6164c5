"""StreamClassifier on one core and on two cores: chunks are predicted and then learned.

    python benchmarks/speed/bench_cores.py [--rows 12000] [--chunk 100]

The times are elapsed times of new processes with STEELYARD_NUM_THREADS=1 and 2, without their start. Both
alternate, and the best of three rounds counts. The cores must be idle; otherwise the ratio is too low. The
scores must be bit-identical.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from steelyard import StreamClassifier

N_COLUMNS, POSITIVE_SHARE, TARGET_RATIO, ROUNDS = 20, 0.05, 1.6, 3


def stream(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ in the means of five columns and the variance of one."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < POSITIVE_SHARE).astype(int)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, :5] += 0.8 * y[:, None]
    X[:, 5] *= np.where(y, 2.0, 1.0)
    return X, y


def learn(n_rows: int, chunk_rows: int) -> str:
    """Predict and learn the stream; return a hash of all scores."""
    X, y = stream(n_rows)
    model, scores = StreamClassifier(), hashlib.blake2b(digest_size=8)
    for begin in range(0, n_rows, chunk_rows):
        if begin:
            scores.update(model.decision_function(X[begin : begin + chunk_rows]).tobytes())
        model.partial_fit(X[begin : begin + chunk_rows], y[begin : begin + chunk_rows])
    return scores.hexdigest()


def measure(n_threads: int, options: argparse.Namespace) -> tuple[float, float, str]:
    """Return elapsed and processor time of a new process with this number of threads, and its hash."""
    command = [sys.executable, __file__, "--rows", str(options.rows), "--chunk", str(options.chunk)]
    environment = {**os.environ, "STEELYARD_NUM_THREADS": str(n_threads)}
    run = subprocess.run([*command, "--child"], check=True, capture_output=True, text=True, env=environment)
    elapsed, spent, scores = run.stdout.split()
    return float(elapsed), float(spent), scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        learn(300, options.chunk)  # imports and first calls do not count
        begin, spent = time.perf_counter(), time.process_time()
        scores = learn(options.rows, options.chunk)
        print(time.perf_counter() - begin, time.process_time() - spent, scores)
        return 0
    runs = [[measure(n, options) for n in (1, 2)] for _ in range(ROUNDS)]
    assert len({scores for both in runs for *_, scores in both}) == 1, "scores depend on the threads"
    (one, spent, _), (two, spent_by_two, _) = (min(of_threads) for of_threads in zip(*runs, strict=True))
    ratio, per_row = one / two, 1e6 / options.rows
    print(
        f"{options.rows:,} rows in chunks of {options.chunk}: {per_row * one:.0f} us per row on one thread "
        f"({per_row * spent:.0f} of processor time), {per_row * two:.0f} on two "
        f"({per_row * spent_by_two:.0f}); ratio {ratio:.2f} (at least {TARGET_RATIO:g}) "
        f"{'met' if ratio >= TARGET_RATIO else 'MISSED'}"
    )
    return 0 if ratio >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
