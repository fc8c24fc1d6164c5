"""Speed of KOIL and MultiKernelKOIL compared with the kernel block that they need, and with river.

Run as ``python benchmarks/speed/bench_koil.py [--only PART ...]``. One core is used. The compared calls
alternate, and the best of several rounds counts. Times are processor times of the thread, so that other load
has little effect.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

os.environ["STEELYARD_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import timing
from table import kernel_values

from steelyard import KOIL, MultiKernelKOIL
from steelyard.kernels import Kernel
from steelyard.online.koil import default_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BUDGET, ROUNDS = 100_000, 100, 5
SEEDS = range(3)
BLOCK_RATIO, SAMPLE_TIME, MANY_RATIO, SCORE_RATIO, SINGLE_RATE = 2.0, 1.6e-6, 6.0, 1.3, 1.5


side_by_side = partial(timing.side_by_side, rounds=ROUNDS, clock=thread_time)


def stream(n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return overlapping classes, so that most rows have violators and are stored. One row in ten is rare."""
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
        learn, block, values = side_by_side(
            lambda policy=policy: KOIL(policy=policy, budget=BUDGET, random_state=0).partial_fit(X, y),
            lambda: kernel.block(X, vectors, n_threads=1),
            kernel_values(X, 2 * BUDGET),
        )
        met &= verdict(f"{policy}: learning / kernel block", learn / block, BLOCK_RATIO)
        print(f"  {policy + ': learning / kernel values':58}{learn / values:8.2f}")
        print(
            f"  {'learning, kernel block, kernel values':58}{learn / ROWS * 1e6:8.2f}, "
            f"{block / ROWS * 1e6:.2f}, {values / ROWS * 1e6:.2f} us per sample"
        )
        if n_features == 20:
            met &= verdict(f"{policy}: learning a sample", learn / ROWS * 1e6, SAMPLE_TIME * 1e6, "us")
    model = KOIL(policy="fifo++", budget=BUDGET).fit(X, y)
    weights = np.ones(2 * BUDGET)
    score, product = side_by_side(
        lambda: model.decision_function(X), lambda: kernel.block(X, vectors, n_threads=1) @ weights
    )
    return met & verdict("decision_function / (kernel block @ weights)", score / product, SCORE_RATIO)


def bench_single_precision() -> bool:
    """Compare float32 with float64; the target is 1.5 times as many samples per second."""
    met = True
    for n_features, budget, n_rows in ((20, 100, ROWS), (60, 400, ROWS // 5), (100, 1000, ROWS // 20)):
        X, y = stream(n_rows, n_features)
        times = side_by_side(
            *[
                lambda rows=rows, y=y, budget=budget: KOIL(budget=budget, random_state=0).partial_fit(rows, y)
                for rows in (X, X.astype(np.float32))
            ]
        )
        what = f"d = {n_features}, budget {budget} + {budget}: float32 / float64"
        met &= verdict(what, times[1] / times[0], 1.0 / SINGLE_RATE)
    return met


def bench_many_kernels(n_rows: int, rounds: int) -> bool:
    """Measure MultiKernelKOIL with several seeds, because the number of kernels that learn is random."""
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
            f"  {'':58}{many / n_rows * 1e6:8.2f} and {one / n_rows * 1e6:.2f} us per sample; by seed "
            f"{ratios.min():.1f} to {ratios.max():.1f}"
        )
    return met


def bench_counts(n_rows: int = 4_000, n_features: int = 20) -> None:
    """Print a lower bound of the operations of sixteen kernels at C = .01, relative to one KOIL.

    An operation is the work of a vector instruction for one number, and all operations are counted as equally
    fast. A squared distance takes two operations per feature, and an inner product one. The exponential of a
    distance takes 20 more, and the power of an inner product 3. A kernel that learns a sample multiplies its
    kernel values by its weights, compares the losses and the similarities of the other class, and adds the
    kernel row of each vector whose weight has changed to the scores of one class. Everything else is not
    counted: the choice of the kernels that learn, the removal of vectors, the kernel matrix, outdated scores,
    and distances to vectors that no kernel stores.
    """
    X, y = stream(n_rows, n_features)
    model = MultiKernelKOIL(C=0.01, budget=BUDGET, random_state=0)
    learning, vectors, is_gaussian = [], [], np.array([k.kernel == "rbf" for k in default_kernels()])
    for begin in range(0, n_rows, 250):
        model.partial_fit(X[begin : begin + 250], y[begin : begin + 250])
        chances = model.kernel_weights_ / model.kernel_weights_.max()
        learning.append([chances[is_gaussian].sum(), chances[~is_gaussian].sum()])
        vectors.append(len(model.support_vectors_))
    gaussians, powers = np.mean(learning, axis=0)
    held = 2 * BUDGET
    update = held + 2 * BUDGET + (model.n_neighbors + 1) * BUDGET
    one = held * (2 * n_features + 20) + update
    sums = np.mean(vectors) * 3 * n_features
    many = sums + gaussians * (held * 20 + update) + powers * (held * 3 + update)
    print(f"sixteen kernels at C = .01, {n_rows:,} rows of {n_features} features, operations per sample:")
    print(f"  mean number of kernels that learn a sample: {gaussians:.1f} Gaussian, {powers:.1f} polynomial")
    print(f"  {np.mean(vectors):.0f} vectors in all buffers; distances and inner products: {sums:,.0f}")
    print(
        f"  one update: {update:,}; one KOIL: {one:,}; sixteen kernels: {many:,.0f}, {many / one:.2f} times"
    )


def bench_threads(n_rows: int = 20_000) -> None:
    """Measure elapsed time with one and two threads, which is meaningful only on two idle cores."""
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
        print("river is not installed: no comparison")
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
    print(f"fastest linear learner of river, {name}, d = 20: {fastest / n_rows * 1e6:.1f} us per sample")
    print(f"  {name} / KOIL (in one chunk, {times[-1] / n_rows * 1e6:.2f} us): {fastest / times[-1]:.1f}")


def bench_learning() -> bool:
    met = [bench_koil(n_features) for n_features in (8, 20, 60)]
    return all(met)


def bench_kernels() -> bool:
    met = bench_many_kernels(ROWS, 2)
    bench_many_kernels(ROWS // 5, 3)  # for comparison: with fewer rows, bad kernels still have weight
    return met


PARTS: dict[str, Callable[[], bool | None]] = {
    "learning": bench_learning,
    "kernels": bench_kernels,
    "counts": bench_counts,
    "threads": bench_threads,
    "single": bench_single_precision,
    "river": bench_river,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    met = [PARTS[name]() for name in parser.parse_args().only]
    return 0 if all(part is not False for part in met) else 1


if __name__ == "__main__":
    sys.exit(main())
