"""Push-down compared with streaming of database rows, and with reading the complete table first.

    python benchmarks/speed/bench_sql.py [--quick] [--rows N] [--engine duckdb]
    python benchmarks/speed/bench_sql.py --whole [--rows 5000000] [--columns 30] [--engine E] [--ways W,W]

The first form learns tables of 2 to 16 numeric columns and of two lengths by push-down and by streaming, in
DuckDB, SQLite and PostgreSQL. The best of several alternating runs counts, and the output says up to how many
columns push-down is faster. The second form compares both with reading the whole table into pandas (from
DuckDB by its own driver, from PostgreSQL by ADBC) and fitting it. Each method runs in a separate process, of
which time and peak memory are printed. PostgreSQL is a temporary server. If it is not installed, it is
skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import duckdb

sys.path.insert(0, str(Path(__file__).parents[2]))
from steelyard import ProximalSVC, sql
from tests import postgres

WIDTHS = (2, 4, 6, 8, 12, 16)
KINDS = {"doubles": "{random} * 10", "whole numbers": "FLOOR({random} * 1000)"}


def made(connection: Any, engine: str, n_rows: int, width: int, kind: str) -> None:
    """Create a table t with numeric columns and a label whose rare class has a tenth of the rows."""
    random = {"sqlite": "(RANDOM() & 1048575) / 1048576.0"}.get(engine, "RANDOM()")
    series = {
        "duckdb": f"FROM RANGE({n_rows})",
        "postgres": f"FROM GENERATE_SERIES(1, {n_rows})",
        "sqlite": f"FROM (WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < {n_rows}) "
        "SELECT k FROM n)",
    }[engine]
    value = KINDS[kind].format(random=random)
    value = f"CAST({value} AS INTEGER)" if kind == "whole numbers" else value
    columns = ", ".join(f"{value} AS x{k}" for k in range(width))
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS t")
    cursor.execute(
        f"CREATE TABLE t AS SELECT {columns}, CASE WHEN {random} < 0.1 THEN 1 ELSE 0 END AS y {series}"
    )


@contextlib.contextmanager
def databases(folder: Path) -> Iterator[dict[str, tuple[str, Any]]]:
    """Yield the address and an open connection of each available engine."""
    with contextlib.ExitStack() as stack:
        files = {name: folder / f"{name}.db" for name in ("duckdb", "sqlite")}
        found = {
            "duckdb": (f"duckdb:///{files['duckdb']}", duckdb.connect(str(files["duckdb"]))),
            "sqlite": (
                f"sqlite:///{files['sqlite']}",
                sqlite3.connect(files["sqlite"], isolation_level=None),
            ),
        }
        if (reason := postgres.missing()) is None:
            import psycopg

            address = stack.enter_context(postgres.running()).url
            found["postgres"] = address, stack.enter_context(psycopg.connect(address, autocommit=True))
        else:
            print(f"PostgreSQL is skipped: {reason}")
        yield found
        for _, connection in found.values():
            connection.close()


def bench_cross(lengths: Sequence[int], turns: int, only: str | None) -> None:
    """Compare push-down and streaming by number of rows, columns, type of numbers and engine."""
    print(f"seconds of push-down and of streaming, best of {turns}, and their ratio, by number of columns")
    print(f"{'':<40}" + "".join(f"{width:>22}" for width in WIDTHS))
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as found:
        for engine, (_, connection) in found.items():
            if only not in (None, engine):
                continue
            for kind, n_rows in product(KINDS, lengths):
                ratios = []
                print(f"{f'{engine}, {n_rows:,} rows of {kind}':<40}", end="", flush=True)
                for width in WIDTHS:
                    made(connection, engine, n_rows, width, kind)
                    pushed, streamed = both_ways(connection, turns)
                    ratios.append(pushed / streamed)
                    print(f"{pushed:8.2f}{streamed:7.2f}{ratios[-1]:7.2f}", end="", flush=True)
                faster = WIDTHS[: next((k for k, ratio in enumerate(ratios) if ratio >= 1.0), len(WIDTHS))]
                print(
                    f"   pushed is faster up to {max(faster)} columns" if faster else "   streamed is faster"
                )


def both_ways(connection: Any, turns: int) -> tuple[float, float]:
    """Return the best times of push-down and streaming in seconds; check that the digests are equal."""
    best = dict.fromkeys(("pushed", "streamed"), float("inf"))
    digests = set()
    for _ in range(turns):
        for how in best:
            started = time.perf_counter()
            model = sql.fit(ProximalSVC(), connection, "t", target="y", how=how)
            best[how] = min(best[how], time.perf_counter() - started)
            digests.add(model.estimator.digest())
    assert len(digests) == 1, "push-down and streaming give different models"
    return best["pushed"], best["streamed"]


# -- one large table ----------------------------------------------------------------------------------


def whole(address: str, way: str) -> None:
    """Measure one method in a separate process: seconds and peak memory after imports."""
    import pandas as pd  # noqa: F401  import time is not part of the measurement

    idle = _most_memory()
    started = time.perf_counter()
    if way == "pandas":
        frame = _read(address)
        y = frame.pop("y").to_numpy()
        digest = ProximalSVC().fit(frame.to_numpy(), y).digest()
    else:
        digest = sql.fit(ProximalSVC(), address, "t", target="y", how=way).estimator.digest()
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "idle": idle, "most": _most_memory(), "digest": digest}))


def _most_memory() -> float:
    """Return the peak memory of this process in MB. getrusage would include the memory of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _read(address: str) -> Any:
    """Return the complete table as a data frame, by the fastest method of the engine."""
    if address.startswith("duckdb"):
        with duckdb.connect(address.removeprefix("duckdb:///"), read_only=True) as connection:
            return connection.execute("SELECT * FROM t").df()
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM t")  # as pandas.read_sql does with a connection of ADBC
        return cursor.fetch_arrow_table().to_pandas()


def bench_whole(n_rows: int, width: int, engine: str | None, ways: Sequence[str]) -> None:
    """Measure all methods on a large table."""
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as found:
        for name, (address, connection) in found.items():
            if name == "sqlite" or engine not in (None, name):
                continue
            made(connection, name, n_rows, width, "doubles")
            if name == "duckdb":
                connection.close()
            digests = set()
            for way in ways:
                command = [sys.executable, __file__, "--way", way, "--address", address]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                what = f"{name}, {n_rows:,} x {width}, {way}"
                if done.returncode:
                    reason = done.stderr.strip().splitlines()[-1:] or [f"killed by signal {-done.returncode}"]
                    print(f"{what:<44} did not end: {reason[0][:120]}", flush=True)
                    continue
                told = json.loads(done.stdout)
                digests.add(told["digest"])
                print(
                    f"{what:<44}{told['seconds']:8.1f} s, largest memory {told['most']:8,.0f} MB "
                    f"({told['idle']:,.0f} MB before)",
                    flush=True,
                )
            print(f"{name}: {'equal' if len(digests) == 1 else 'DIFFERENT'} digests", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--engine", choices=["duckdb", "sqlite", "postgres"])
    parser.add_argument("--ways", default="streamed,pandas,pushed")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        whole(given.address, given.way)
    elif given.whole:
        n_rows = given.rows or (100_000 if given.quick else 5_000_000)
        bench_whole(n_rows, given.columns, given.engine, given.ways.split(","))
    else:
        lengths = [given.rows] if given.rows else [5_000, 20_000] if given.quick else [20_000, 200_000]
        bench_cross(lengths, 1 if given.quick else 3, given.engine)


if __name__ == "__main__":
    main()
