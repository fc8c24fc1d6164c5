"""Rows per second of ``steelyard stream``, compared with parsing by pyarrow and with river.

The command reads a CSV file of 30 numeric columns, predicts every row before it learns it in chunks of
1,000, and computes all measures. The first reference is pyarrow, which parses the same file in the same
blocks on one core. The result is the rate of the complete command as a share of the rate of pyarrow, on one
core and on two cores, where parsing and learning run in parallel. The second reference is river: its CSV
iterator, scaler and logistic regression with ``progressive_val_score``, G-mean and AUC. Runs alternate, and
the best counts.

    python benchmarks/speed/bench_stream.py            # 1,000,000 rows, river on 20,000 of them
    python benchmarks/speed/bench_stream.py --rows 200000
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "STEELYARD_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  after the number of threads is set

from steelyard import ProximalSVC  # noqa: E402  after the number of threads is set
from steelyard.cli import main as main_command  # noqa: E402  after the number of threads is set
from steelyard.streams import prequential  # noqa: E402  after the number of threads is set
from steelyard.tables import open_stream  # noqa: E402  after the number of threads is set

N_FEATURES = 30
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def write_csv(path: Path, n_rows: int) -> None:
    """Write a file with 5 % positive rows and four decimals per value."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join([*(f"x{k}" for k in range(N_FEATURES)), "y"]) + "\n")
        for begin in range(0, n_rows, 20_000):
            n = min(20_000, n_rows - begin)
            y = (rng.random(n) < 0.05).astype(int)
            X = rng.normal(size=(n, N_FEATURES)) + 0.6 * y[:, None]
            np.savetxt(file, np.column_stack([X, y]), fmt=["%.4f"] * N_FEATURES + ["%d"], delimiter=",")


def on_cores(n: int) -> int:
    """Restrict this process to ``n`` cores; return the number of cores it has."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    os.sched_setaffinity(0, CORES[-n:])
    return len(os.sched_getaffinity(0))


def run_pyarrow(path: Path, _: int) -> tuple[float, float]:
    """Return the rows per second of parsing, by wall-clock time and by processor time."""
    import pyarrow as pa
    from pyarrow import csv

    from steelyard.tables.text_sources import BLOCK_BYTES

    names = [*(f"x{k}" for k in range(N_FEATURES)), "y"]
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64()))
    begin, begin_cpu, n_rows, rest = time.perf_counter(), time.process_time(), 0, b""
    with path.open("rb") as file:
        file.readline()
        while data := file.read(BLOCK_BYTES):
            end = data.rfind(b"\n") + 1
            block, rest = b"".join((rest, memoryview(data)[:end])), data[end:]
            read = csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
            n_rows += csv.read_csv(
                pa.BufferReader(block), read_options=read, convert_options=convert
            ).num_rows
    return n_rows / (time.perf_counter() - begin), n_rows / (time.process_time() - begin_cpu)


def run_steelyard(path: Path, n_rows: int) -> tuple[float, float]:
    """Return the rows per second of the complete command."""
    begin, begin_cpu, out = time.perf_counter(), time.process_time(), io.StringIO()
    with redirect_stdout(out):
        main_command(
            ["stream", str(path), "--target", "y", "--model", "proximal", "--chunk", "1000"],
            standalone_mode=False,
        )
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    names, values = (line.split("\t") for line in out.getvalue().splitlines())
    assert float(dict(zip(names, values, strict=True))["g_mean"]) > 0.9
    return n_rows / seconds, n_rows / cpu


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def memory_along(path: Path) -> list[float]:
    """Return the memory in MB after every 50,000 rows."""
    memory: list[float] = []
    prequential(
        ProximalSVC(),
        open_stream(path, "y", chunk=1000),
        progress=lambda race: memory.append(resident_megabytes()) if race.n_rows % 50_000 == 0 else None,
    )
    return memory


def run_river(path: Path, n_rows: int) -> tuple[float, float]:
    """Return the rows per second of river on the first rows."""
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
    try:
        import river  # noqa: F401

        has_river = True
    except ImportError:
        has_river = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_csv(path, arguments.rows)
        print(f"{arguments.rows:,} x {N_FEATURES} CSV, {path.stat().st_size / 2**20:,.0f} MB")
        best: dict[str, tuple[float, float]] = {}
        for _ in range(arguments.repeats):  # interleaved, so that load on the machine affects all runs
            for name, n_cores, run in (
                ("pyarrow, parsing alone", 1, run_pyarrow),
                ("steelyard, one core", 1, run_steelyard),
                ("steelyard, two cores", 2, run_steelyard),
            ):
                if on_cores(n_cores) == n_cores:
                    best[name] = _better(best.get(name), run(path, arguments.rows))
            if has_river and on_cores(1):
                best["river, one core"] = _better(
                    best.get("river, one core"), run_river(path, arguments.river_rows)
                )
        memory = memory_along(path)
    parsing = best["pyarrow, parsing alone"]
    print(f"{'':<24}{'rows/s':>10}{'share':>8}{'rows per second of processor time':>36}{'share':>8}")
    for name, (clock, cpu) in best.items():
        print(f"{name:<24}{clock:>10,.0f}{clock / parsing[0]:>8.2f}{cpu:>36,.0f}{cpu / parsing[1]:>8.2f}")
    print(f"memory: {memory[0]:.0f} MB after 50,000 rows, {memory[-1]:.0f} MB at the end")
    if has_river:
        ours, theirs = best["steelyard, one core"], best["river, one core"]
        print(f"steelyard / river: {ours[0] / theirs[0]:.0f} elapsed, {ours[1] / theirs[1]:.0f} in CPU time")
    else:
        print("river is not installed: pip install river", file=sys.stderr)


def _better(old: tuple[float, float] | None, new: tuple[float, float]) -> tuple[float, float]:
    return new if old is None else (max(old[0], new[0]), max(old[1], new[1]))


if __name__ == "__main__":
    main()
