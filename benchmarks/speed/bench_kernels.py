"""Speed of kernel blocks compared with scikit-learn's pairwise_kernels, and of one row with packed rows.

Run as ``python benchmarks/speed/bench_kernels.py``. Both alternate and the best of several rounds counts, so
that a busy machine slows both. A ratio is the time of scikit-learn divided by ours.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels
from timing import side_by_side

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.kernels import Kernel

if TYPE_CHECKING:
    pass

ROWS, FEATURES, ROUNDS = 2_000, 20, 15
BUDGET, SAMPLES = 200, 20_000
REQUIRED = {"rbf": 1.0, "laplacian": 5.0}  # minimum speed-up


def bench_blocks() -> bool:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(ROWS, FEATURES))
    kernels = [
        Kernel("linear"),
        Kernel("polynomial", gamma=0.05, coef0=1.0),
        Kernel("rbf", gamma=0.05),
        Kernel("laplacian", gamma=0.05),
        Kernel("sigmoid", gamma=0.05),
    ]
    reached = True
    print(f"blocks of {ROWS} x {ROWS} rows, d = {FEATURES}, {num_threads()} thread(s); milliseconds")
    print(f"{'':22}{'steelyard':>10}{'symmetric':>10}{'sklearn':>10}{'ratio':>8}{'required':>10}")
    for dtype in (np.float64, np.float32):
        X = table.astype(dtype)
        Z = X.copy()
        for kernel in kernels:
            numbers = kernel.to_dict()
            name = numbers.pop("kernel")
            ours, half, theirs = side_by_side(
                lambda kernel=kernel, X=X, Z=Z: kernel.block(X, Z),
                lambda kernel=kernel, X=X: kernel.block(X),
                lambda name=name, numbers=numbers, X=X, Z=Z: pairwise_kernels(X, Z, metric=name, **numbers),
                rounds=ROUNDS,
            )
            required = REQUIRED.get(name)
            reached &= required is None or theirs / ours >= required
            print(
                f"{name:12}{np.dtype(dtype).name:10}{ours * 1e3:10.2f}{half * 1e3:10.2f}{theirs * 1e3:10.2f}"
                f"{theirs / ours:8.1f}{'' if required is None else f'{required:.1f}':>10}"
            )
    return reached


def bench_rows() -> None:
    rng = np.random.default_rng(0)
    spec = Kernel("rbf", gamma=0.05).spec()
    weights, sums = rng.normal(size=BUDGET), np.empty(SAMPLES)
    print(f"\none row with {BUDGET} packed rows and the weighted sum, rbf, 1 thread; microseconds per row")
    print(f"{'level':10}{'type':10}" + "".join(f"{f'd = {d}':>10}" for d in (8, 20, 60)))
    best = _native.simd_level()
    for level in _native.simd_levels():
        _native.use_simd_level(level)
        for packed, dtype in ((_native.PackedRows64, np.float64), (_native.PackedRows32, np.float32)):
            times = []
            for d in (8, 20, 60):
                stored = packed(d)
                stored.append(rng.normal(size=(BUDGET, d)).astype(dtype))
                X = rng.normal(size=(SAMPLES, d)).astype(dtype)
                [best_time] = side_by_side(
                    lambda stored=stored, X=X: stored.kernel_sums(spec, X, weights, sums, 1), rounds=ROUNDS
                )
                times.append(best_time / SAMPLES * 1e6)
            print(f"{level:10}{np.dtype(dtype).name:10}" + "".join(f"{time:10.2f}" for time in times))
    _native.use_simd_level(best)


if __name__ == "__main__":
    reached = bench_blocks()
    bench_rows()
    sys.exit(0 if reached else "a required ratio was not reached")
