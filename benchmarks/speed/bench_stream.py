"""Rows a second from a CSV file to the report's numbers, beside river's logistic regression.

Both sides read the same file of 30 numeric columns, predict every row before learning it, and keep G-mean
and AUC. steelyard runs its command line's own path (parsing, test-then-train in chunks of 1,000, all
measures with bands); river reads with its CSV iterator and runs a pipeline of scaler and logistic
regression through ``progressive_val_score``. One core, best of several repeats.

    python benchmarks/speed/bench_stream.py            # 1,000,000 rows, river on 20,000 of them
    python benchmarks/speed/bench_stream.py --rows 200000
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "STEELYARD_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  after the number of threads is set

from steelyard import ProximalSVC  # noqa: E402  after the number of threads is set
from steelyard.evaluation.race import resident_megabytes  # noqa: E402  after the number of threads is set
from steelyard.streams import prequential  # noqa: E402  after the number of threads is set
from steelyard.tables import open_stream  # noqa: E402  after the number of threads is set

N_FEATURES = 30


def write_csv(path: Path, n_rows: int) -> None:
    """A file of ``n_rows`` with 5 % positives, four decimals a value."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join([*(f"x{k}" for k in range(N_FEATURES)), "y"]) + "\n")
        for begin in range(0, n_rows, 20_000):
            n = min(20_000, n_rows - begin)
            y = (rng.random(n) < 0.05).astype(int)
            X = rng.normal(size=(n, N_FEATURES)) + 0.6 * y[:, None]
            np.savetxt(file, np.column_stack([X, y]), fmt=["%.4f"] * N_FEATURES + ["%d"], delimiter=",")


def run_steelyard(path: Path) -> tuple[float, float, list[float]]:
    """Rows a second by the clock and by processor time, and the memory along the way."""
    memory: list[float] = []
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = prequential(
        ProximalSVC(),
        open_stream(path, "y", chunk=1000),
        progress=lambda race: memory.append(resident_megabytes()) if race.n_rows % 50_000 == 0 else None,
    )
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    assert result.summary()[0]["g_mean"] > 0.9
    return result.n_rows / seconds, result.n_rows / cpu, memory


def run_river(path: Path, n_rows: int) -> tuple[float, float]:
    """The same through river, on the first rows."""
    from river import evaluate, linear_model, metrics, preprocessing, stream

    converters = {**{f"x{k}": float for k in range(N_FEATURES)}, "y": lambda text: text == "1"}
    rows = stream.iter_csv(str(path), target="y", converters=converters)
    rows = (row for _, row in zip(range(n_rows), rows, strict=False))
    pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    evaluate.progressive_val_score(rows, pipeline, metrics.GeometricMean() + metrics.ROCAUC())
    return n_rows / (time.perf_counter() - begin), n_rows / (time.process_time() - begin_cpu)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--river-rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core
    try:
        import river  # noqa: F401

        has_river = True
    except ImportError:
        has_river = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_csv(path, arguments.rows)
        print(f"{arguments.rows:,} x {N_FEATURES} CSV, {path.stat().st_size / 2**20:,.0f} MB, one core")
        ours, theirs, memory = (0.0, 0.0), (0.0, 0.0), []
        for _ in range(arguments.repeats):  # interleaved, so that a busy machine hits both
            *rates, memory = run_steelyard(path)
            ours = max(ours, (rates[0], rates[1]), key=lambda pair: pair[1])
            if has_river:
                theirs = max(theirs, run_river(path, arguments.river_rows), key=lambda pair: pair[1])
    print(f"steelyard  {ours[0]:>10,.0f} rows/s   {ours[1]:>10,.0f} rows per second of processor time")
    print(f"memory     {memory[0]:.0f} MB after 50,000 rows, {memory[-1]:.0f} MB at the end")
    if has_river:
        print(
            f"river      {theirs[0]:>10,.0f} rows/s   {theirs[1]:>10,.0f} rows per second of processor time"
        )
        print(f"ratio      {ours[0] / theirs[0]:>10.0f} by the clock, {ours[1] / theirs[1]:.0f} by processor")
    else:
        print("river is not installed: pip install river", file=sys.stderr)


if __name__ == "__main__":
    main()
