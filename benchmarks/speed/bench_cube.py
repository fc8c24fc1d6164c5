"""Time of a cube compared with plain statistics of the same rows, and of models of a thousand slices.

    python benchmarks/speed/bench_cube.py [--quick]

Rows with 20 features and two classes are added from tables in memory. Plain statistics get the same tables,
or the same rows as arrays. Targets: half the rate of plain statistics, 1 second for the models of 1,000
slices, and 100 MB for 10,000 cells.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from steelyard.proximal import ClassStatistics
from steelyard.sql import StatisticsCube
from steelyard.tables import open_stream

D = 20
BATCH = 1 << 14


def table(n_rows: int, n_shops: int, seed: int = 0) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.1).astype(np.int64)
    X = rng.normal(size=(n_rows, D)) + y[:, None]
    columns = {f"x{k}": X[:, k] for k in range(D)}
    shops = np.array([f"shop {k}" for k in range(n_shops)])[np.arange(n_rows) % n_shops]
    return pa.table({"shop": shops, **columns, "y": y}), X, y


def bench_adding(n_rows: int, n_shops: int) -> None:
    """Measure adding rows to a cube and to one ClassStatistics."""
    rows, X, y = table(n_rows, n_shops)
    best = {"cube": np.inf, "statistics": np.inf, "table": np.inf}
    for _ in range(3):
        started = time.process_time()
        StatisticsCube(["shop"], "y").add(rows)
        best["cube"] = min(best["cube"], time.process_time() - started)
        started = time.process_time()
        statistics = ClassStatistics(D)
        for chunk in open_stream(rows.drop(["shop"]), "y", chunk=BATCH):
            statistics.add(chunk.X, chunk.y)
        best["table"] = min(best["table"], time.process_time() - started)
        started = time.process_time()
        statistics = ClassStatistics(D)
        for begin in range(0, n_rows, BATCH):
            statistics.add(X[begin : begin + BATCH], y[begin : begin + BATCH])
        best["statistics"] = min(best["statistics"], time.process_time() - started)
    ratio, arrays = best["table"] / best["cube"], best["statistics"] / best["cube"]
    rate = n_rows / best["cube"]
    met = "met" if ratio >= 0.5 else "MISSED"
    what = f"{n_rows:,} rows into {n_shops:,} cells, d = {D}"
    print(f"{what:<44}{rate:12,.0f} rows/s, {ratio:.2f} of one ClassStatistics (target .5: {met})")
    print(f"{'':<56} rows/s, {arrays:.2f} of one ClassStatistics that gets arrays")


def bench_models(n_rows: int, n_shops: int) -> None:
    """Measure solving one model for each of many slices."""
    cube = StatisticsCube(["shop"], "y").add(table(n_rows, n_shops)[0])
    best = np.inf
    for _ in range(3):
        started = time.perf_counter()
        for model in cube.models("shop").values():
            _ = model.estimator.coef_
        best = min(best, time.perf_counter() - started)
    met = "met" if best <= 1.0 else "MISSED"
    print(f"{f'models of {n_shops:,} slices, with planes':<44}{best:12.2f} s (target 1: {met})")


def bench_memory(n_cells: int) -> None:
    """Measure the memory of cells in bytes."""
    cube = StatisticsCube(["shop"], "y").add(table(n_cells * 20, n_cells)[0])
    size = cube.nbytes
    met = "met" if size <= 100e6 else "MISSED"
    print(
        f"{f'{len(cube.cells):,} cells, d = {D}, two classes':<44}{size / 1e6:12.1f} MB (target 100: {met})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    n_rows = 50_000 if quick else 300_000
    for n_shops in (1, 30, 1_000):
        bench_adding(n_rows, n_shops)
    bench_models(60_000, 1_000)
    bench_memory(1_000 if quick else 10_000)


if __name__ == "__main__":
    main()
