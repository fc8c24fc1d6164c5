"""10,000,000 x 30 rows through ``steelyard stream``: time, rows per second and memory.

    python benchmarks/speed/growth_stream.py [--rows 10000000] [--model proximal] [--seconds 480]
        [--chunk 100]

The file is generated in a temporary folder and deleted afterwards. A run that takes longer than
``--seconds`` is interrupted by SIGINT, after which the command reports the rows so far. Memory is the
resident set, sampled twice per second. Its largest values in the second and in the last tenth of the run are
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
import pyarrow as pa
import pyarrow.csv

N_COLUMNS, BLOCK_ROWS, POSITIVE_SHARE = 30, 200_000, 0.02


def write_file(path: Path, n_rows: int) -> None:
    """Write rows of two classes that differ in three columns. The difference changes slowly."""
    rng = np.random.default_rng(0)
    names = [*(f"x{k}" for k in range(N_COLUMNS)), "label"]
    schema = pa.schema([*((name, pa.float32()) for name in names[:-1]), ("label", pa.int8())])
    with pa.csv.CSVWriter(path, schema) as writer:
        for begin in range(0, n_rows, BLOCK_ROWS):
            n = min(BLOCK_ROWS, n_rows - begin)
            y = (rng.random(n) < POSITIVE_SHARE).astype(np.int8)
            X = rng.normal(size=(n, N_COLUMNS)).astype(np.float32)
            first = 3 * (10 * begin // n_rows)
            X[:, first : first + 3] += 1.2 * y[:, None]
            columns = [*np.round(X, 2).T, y]
            writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=schema))


def resident_mb(pid: int) -> float:
    """Return the resident set of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run(path: Path, model: str, seconds: float, chunk_rows: int) -> None:
    command = [sys.executable, "-m", "steelyard", "stream", str(path), "--target", "label", "--json"]
    command += ["--model", model] if model != "default" else []
    command += ["--chunk", str(chunk_rows)]
    before, started, memory = getrusage(RUSAGE_CHILDREN), time.perf_counter(), []
    report, interrupted = path.with_suffix(".json"), False
    with report.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        memory.append(resident_mb(process.pid))
        if not interrupted and time.perf_counter() - started > seconds:
            process.send_signal(signal.SIGINT)
            interrupted = True
        time.sleep(0.5)
    elapsed, after = time.perf_counter() - started, getrusage(RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = report.read_text(encoding="utf-8")
    n_rows = int(json.loads(text[text.index("{") :])["rows"])
    tenth = max(len(memory) // 10, 1)
    early, late = max(memory[tenth : 2 * tenth] or memory), max(memory[-tenth:])
    print(
        f"{model}: {n_rows:,} rows{' (interrupted)' if interrupted else ''}, {elapsed:.0f} s elapsed, "
        f"{spent:.0f} s of processor time, {n_rows / spent:,.0f} rows per second of processor time, "
        f"{1e6 * spent / n_rows:.2f} us per row; memory {early:.0f} MB early, {late:.0f} MB late, "
        f"{max(memory):.0f} MB at most"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=100, help="rows per chunk")
    parser.add_argument("--model", action="append", help="proximal, default, ...; may be given several times")
    parser.add_argument("--seconds", type=float, default=480.0, help="longest run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_file(path, options.rows)
        print(f"{options.rows:,} x {N_COLUMNS} rows, {path.stat().st_size / 1e9:.2f} GB")
        for model in options.model or ["proximal", "default"]:
            run(path, model, options.seconds, options.chunk)
    return 0


if __name__ == "__main__":
    sys.exit(main())
