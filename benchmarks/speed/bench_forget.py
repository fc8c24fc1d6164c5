"""Time to forget one of many rows in StreamClassifier, compared with a fit of LightGBM without that row.

    python benchmarks/speed/bench_forget.py [--rows 100000] [--calls 30]

The model keeps the given number of rows, and rows from all parts of its window are forgotten. LightGBM cannot
forget rows, so it is fitted again. Times are elapsed times on one thread.
"""

from __future__ import annotations

import argparse
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "STEELYARD_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  after the number of threads is set

from steelyard import StreamClassifier  # noqa: E402  after the number of threads is set

N_COLUMNS, POSITIVE_SHARE, TARGET_MS = 20, 0.02, 50.0


def stream(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ in the means of all columns."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < POSITIVE_SHARE).astype(int)
    return rng.normal(size=(n_rows, N_COLUMNS)) + 0.8 * y[:, None], y


def milliseconds_of_forget(X: np.ndarray, y: np.ndarray, n_calls: int) -> np.ndarray:
    model, times = StreamClassifier(window=len(y)), []
    for begin in range(0, len(y), 1000):
        model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000])
    for row in np.linspace(0, len(y) - 1, n_calls).astype(int):
        started = time.perf_counter()
        model.forget(X[row : row + 1], y[row : row + 1])
        times.append(1e3 * (time.perf_counter() - started))
    return np.array(times)


def milliseconds_of_lightgbm(X: np.ndarray, y: np.ndarray) -> float | None:
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return None
    model = LGBMClassifier(n_estimators=100, num_leaves=16, n_jobs=1, verbosity=-1)
    started = time.perf_counter()
    model.fit(X[1:], y[1:])
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=30)
    options = parser.parse_args()
    X, y = stream(options.rows)
    times, peer = milliseconds_of_forget(X, y, options.calls), milliseconds_of_lightgbm(X, y)
    print(
        f"forget one of {options.rows:,} rows: median {np.median(times):.0f} ms, "
        f"longest of {len(times)} calls {times.max():.0f} ms (target {TARGET_MS:.0f} ms)"
    )
    if peer is None:
        print("LightGBM is not installed: no comparison")
    else:
        print(f"LightGBM, fitted again: {peer:.0f} ms; ratio {np.median(times) / peer:.3f}")


if __name__ == "__main__":
    main()
