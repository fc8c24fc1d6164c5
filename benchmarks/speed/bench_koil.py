"""KOIL and MultiKernelKOIL beside the kernel block that they cannot do without, and beside river.

Run as ``python benchmarks/speed/bench_koil.py``. One core; peers take turns and the best of several rounds
counts. Times are processor times of the thread, so that a busy machine slows no one.
"""

from __future__ import annotations

import os
import sys
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

os.environ["STEELYARD_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from steelyard import KOIL, MultiKernelKOIL
from steelyard.kernels import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BUDGET, ROUNDS = 100_000, 100, 5
SEEDS = range(3)
BLOCK_RATIO, SAMPLE_TIME, MANY_RATIO, SCORE_RATIO = 2.0, 1.6e-6, 6.0, 1.3


def seconds(call: Callable[[], object]) -> float:
    start = thread_time()
    call()
    return thread_time() - start


def side_by_side(*calls: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Best time of each call, measured in turns."""
    return [
        min(times) for times in zip(*([seconds(call) for call in calls] for _ in range(rounds)), strict=True)
    ]


def stream(n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes, one row in ten of the rare one: most rows have offenders and are stored."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < 0.1).astype(int)
    return (rng.normal(size=(n_rows, n_features)) + 0.5 * y[:, None]) / np.sqrt(n_features), y


def verdict(name: str, value: float, limit: float, unit: str = "") -> bool:
    met = value <= limit
    print(f"  {name:58}{value:8.2f}{unit:3} (at most {limit:g}{unit}) {'met' if met else 'MISSED'}")
    return met


def bench_koil(n_features: int) -> bool:
    X, y = stream(ROWS, n_features)
    vectors = X[: 2 * BUDGET].copy()
    kernel = Kernel("rbf", gamma=1.0)
    print(f"d = {n_features}, float64, budget {BUDGET} + {BUDGET}, {ROWS:,} rows")
    met = True
    for policy in ("reservoir++", "fifo++"):
        learn, block = side_by_side(
            lambda policy=policy: KOIL(policy=policy, budget=BUDGET, random_state=0).partial_fit(X, y),
            lambda: kernel.block(X, vectors, n_threads=1),
        )
        met &= verdict(f"{policy}: learning / kernel block", learn / block, BLOCK_RATIO)
        print(f"  {'':58}{learn / ROWS * 1e6:8.2f} and {block / ROWS * 1e6:.2f} us a sample")
        if n_features == 20:
            met &= verdict(f"{policy}: learning a sample", learn / ROWS * 1e6, SAMPLE_TIME * 1e6, "us")
    model = KOIL(policy="fifo++", budget=BUDGET).fit(X, y)
    weights = np.ones(2 * BUDGET)
    score, product = side_by_side(
        lambda: model.decision_function(X), lambda: kernel.block(X, vectors, n_threads=1) @ weights
    )
    return met & verdict("decision_function / (kernel block @ weights)", score / product, SCORE_RATIO)


def bench_single_precision(n_features: int = 20) -> None:
    """Rows are kept in float32 and summed in double, so the block to compare with is one of doubles."""
    X, y = stream(ROWS, n_features)
    narrow = X.astype(np.float32)
    times = side_by_side(
        *[lambda rows=rows: KOIL(random_state=0).partial_fit(rows, y) for rows in (X, narrow)]
    )
    print(f"float32 rows / float64 rows, d = {n_features}: {times[1] / times[0]:.2f}")


def bench_many_kernels(n_rows: int, rounds: int) -> bool:
    """Which kernels learn a sample is drawn, and how many do differs by the seed: several are averaged."""
    X, y = stream(n_rows, 20)
    print(f"sixteen kernels, d = 20, {n_rows:,} rows, mean of {len(SEEDS)} seeds")
    met = True
    for C in (10.0, 1.0, 0.01):
        times = np.array(
            [
                side_by_side(
                    *[
                        lambda make=make, C=C, seed=seed: make(
                            C=C, budget=BUDGET, random_state=seed
                        ).partial_fit(X, y)
                        for make in (KOIL, MultiKernelKOIL)
                    ],
                    rounds=rounds,
                )
                for seed in SEEDS
            ]
        )
        one, many = times.mean(axis=0)
        met &= verdict(f"C = {C}: MultiKernelKOIL / KOIL", many / one, MANY_RATIO)
        ratios = times[:, 1] / times[:, 0]
        print(
            f"  {'':58}{many / n_rows * 1e6:8.2f} and {one / n_rows * 1e6:.2f} us a sample; by seed "
            f"{ratios.min():.1f} to {ratios.max():.1f}"
        )
    return met


def bench_threads(n_rows: int = 20_000) -> None:
    """By the clock, since there is more than one thread: only a quiet machine of two cores tells."""
    X, y = stream(n_rows, 20)
    os.environ["STEELYARD_NUM_THREADS"] = "2"
    for C in (1.0, 0.01):
        rounds = []
        for _ in range(3):
            times = []
            for n_threads in (1, 2):
                model = MultiKernelKOIL(C=C, budget=BUDGET, random_state=0, n_threads=n_threads)
                start = perf_counter()
                model.partial_fit(X, y)
                times.append(perf_counter() - start)
            rounds.append(times)
        one, two = np.min(rounds, axis=0)
        print(f"sixteen kernels, C = {C}: one thread / two threads {one / two:.2f}")
    os.environ["STEELYARD_NUM_THREADS"] = "1"


def bench_river(n_rows: int = 20_000) -> None:
    try:
        from river import linear_model
    except ImportError:
        print("river is not installed: nothing to compare with")
        return
    X, y = stream(n_rows, 20)
    rows = [dict(enumerate(row)) for row in X.tolist()]
    labels = y.astype(bool).tolist()

    def learn_all(model: object) -> None:
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(row, label)

    peers = {
        "Perceptron": linear_model.Perceptron,
        "PAClassifier": linear_model.PAClassifier,
        "LogisticRegression": linear_model.LogisticRegression,
    }
    times = side_by_side(
        *[lambda make=make: learn_all(make()) for make in peers.values()],
        lambda: KOIL(budget=BUDGET, random_state=0).partial_fit(X, y),
        rounds=3,
    )
    fastest = min(times[:-1])
    name = list(peers)[times.index(fastest)]
    print(f"river's fastest linear learner here, {name}, d = 20: {fastest / n_rows * 1e6:.1f} us a sample")
    print(
        f"  {name} / KOIL (a chunk at a time, {times[-1] / n_rows * 1e6:.2f} us): {fastest / times[-1]:.1f}"
    )


def main() -> int:
    met = [bench_koil(n_features) for n_features in (8, 20, 60)] + [bench_many_kernels(ROWS, 2)]
    bench_many_kernels(ROWS // 5, 3)  # for comparison: the kernels that err have not yet dropped out
    bench_threads()
    bench_single_precision()
    bench_river()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
