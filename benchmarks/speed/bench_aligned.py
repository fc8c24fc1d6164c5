"""Time and memory of AlignedSVC compared with SVC, and of sequence kernels compared with NumPy.

python benchmarks/speed/bench_aligned.py [--rows 4000] [--quick]
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from sklearn.svm import SVC
from timing import seconds

from steelyard import AlignedSVC
from steelyard.kernels import GlobalAlignmentKernel, Kernel


def rested(call: Callable[[], object]) -> float:
    """Return the seconds of a call, after a pause in which the threads of the previous call stop."""
    time.sleep(0.15)
    return seconds(call)


def best_of(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """Return the best time of each call. The calls alternate, so that other load affects all of them."""
    times = [[rested(call) for call in calls] for _ in range(repeats)]
    return np.min(times, axis=0).tolist()


def generated(n_rows: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a kernel matrix and labels with a given share of ones."""
    rng = np.random.default_rng(0)
    y = (np.arange(n_rows) % round(1 / share) == 0).astype(int)
    X = rng.normal(size=(n_rows, 10)) + 0.6 * y[:, None]
    return Kernel("rbf", gamma=0.1).block(X), y


def bench_fit(n_rows: int, repeats: int, share: float) -> None:
    K, y = generated(n_rows, share)
    print(f"fit on a precomputed matrix of {n_rows} rows, {y.sum()} of them of the rare class")
    for C in (1.0, 10.0, 100.0):
        model = AlignedSVC(C, kernel="precomputed")
        forced = AlignedSVC(C, kernel="precomputed", tol=0.0)
        plain, own, more = best_of(
            repeats,
            lambda C=C: SVC(C=C, kernel="precomputed").fit(K, y),
            lambda model=model: model.fit(K, y),
            lambda forced=forced: forced.fit(K, y),
        )
        for label, fitted, time_taken in (("default", model, own), ("tol=0", forced, more)):
            rounds = fitted.n_iter_ - 1
            ratio = time_taken / plain
            print(
                f"  C = {C:5.0f}, {label:8s} SVC {plain:6.2f} s   AlignedSVC {time_taken:6.2f} s   "
                f"{rounds} rounds   ratio {ratio:5.2f}   target at most {1.5 * (rounds + 1):5.2f}"
            )


def bench_memory(n_rows: int) -> None:
    """Print the peak memory of a fit in units of the kernel matrix, without the cache of LIBSVM."""
    K, y = generated(n_rows, 0.1)
    for C in (1.0, 100.0):
        tracemalloc.start()
        AlignedSVC(C, kernel="precomputed", tol=0.0).fit(K, y)
        peak = tracemalloc.get_traced_memory()[1] / K.nbytes
        tracemalloc.stop()
        print(
            f"memory, {n_rows} rows, C = {C:3.0f}: {peak:.2f} kernel matrices besides the input (target: 1)"
        )


def numpy_alignment(x: np.ndarray, z: np.ndarray, gamma: float) -> float:
    """Return the logarithm of the kernel of two sequences in NumPy, vectorized over anti-diagonals."""
    w = np.exp(-gamma * ((x[:, None] - z) ** 2).sum(axis=2))
    local = np.log(w / (2.0 - w))
    n, m = local.shape
    M = np.full((n + 1, m + 1), -np.inf)
    M[0, 0] = 0.0
    for s in range(2, n + m + 1):
        i = np.arange(max(1, s - m), min(n, s - 1) + 1)
        j = s - i
        M[i, j] = local[i - 1, j - 1] + np.logaddexp(np.logaddexp(M[i - 1, j], M[i, j - 1]), M[i - 1, j - 1])
    return float(M[n, m])


def bench_sequences(n_sequences: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(60, 2)).cumsum(axis=0) for _ in range(n_sequences)]
    kernel = GlobalAlignmentKernel(0.01)
    n_pairs = n_sequences * (n_sequences + 1) // 2
    some = [(int(i), int(j)) for i, j in rng.integers(0, n_sequences, (200, 2))]

    def loop() -> None:
        for i, j in some:
            numpy_alignment(X[i], X[j], 0.01)

    native, loop_time = best_of(repeats, lambda: kernel(X, X), loop)
    loop_time *= n_pairs / len(some)  # scaled to one triangle of the matrix, as the native code computes it
    print(
        f"alignment matrix {n_sequences} x {n_sequences}, length 60, 2-D: native {native:.2f} s, NumPy loop "
        f"{loop_time:.0f} s (from {len(some)} pairs): {loop_time / native:.0f} times as fast (target: 20)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    bench_sequences(200 if args.quick else 500, args.repeats)
    n_rows = 1000 if args.quick else args.rows
    for share in (0.01, 0.02, 0.1, 0.2):
        bench_fit(n_rows, args.repeats, share)
    bench_memory(n_rows)


if __name__ == "__main__":
    main()
