"""Capacity of the service as a Markdown table: bytes, memory, keyed throughput and the cost of forgetting.

    python benchmarks/speed/capacity.py [--quick]

Everything is measured with ProximalSVC (the default) and `rows = "window"` in this process, without HTTP, so
that only the writer and the store are measured. Throughput is the median of five rounds. They alternate
between requests with and without an idempotency key, committed in groups of 64 as under load.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.commands import Forget, Learn, Put
from steelyard.tables.columns import ColumnBatch

GROUP = 64
N_COLUMNS = 30


def rows(rng: np.random.Generator, n_rows: int, n_columns: int, first: int = 0) -> ColumnBatch:
    """Return random rows with an id and a label."""
    columns = {f"x{j}": rng.normal(size=n_rows) for j in range(n_columns)}
    ids = np.array([f"r{first + k}" for k in range(n_rows)], dtype=object)
    labels = (rng.random(n_rows) < 0.1).astype(float)
    labels[0], labels[-1] = 0.0, 1.0
    return ColumnBatch({**columns, "id": ids, "y": labels}, n_rows)


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def done(writer: Writer, requests: list) -> None:
    writer.process(requests)
    for request in requests:
        request.future.result(0)


def bytes_per_request(folder: Path, n_requests: int) -> list[tuple[str, str]]:
    """Measure the growth of the store by requests of one row and of 1,000 rows."""
    rng, found = np.random.default_rng(0), []
    for keyed in (False, True):
        for size in (1, 1_000):
            store = SQLiteStore(folder / f"bytes-{keyed}-{size}.db")
            writer = Writer(store)
            done(writer, [Put("m", Spec.from_mapping({"target": "y", "id": "id"}))])
            done(writer, [Learn("m", rows(rng, 10, N_COLUMNS, 10**9))])
            store.erase()
            before, n = store.n_bytes(), n_requests if size == 1 else max(n_requests // 100, 5)
            for k in range(n):
                key = uuid.uuid4().hex if keyed else None
                done(writer, [Learn("m", rows(rng, size, N_COLUMNS, k * size), key=key)])
            store.erase()
            grown = (store.n_bytes() - before) / (n * size)
            kind = "with" if keyed else "without"
            many = f"{size:,} rows" if size > 1 else "one row"
            found.append((f"store, per row, requests of {many}, {kind} key", f"{grown:,.0f} bytes"))
            store.close()
    return found


def memory_of_models(n_models: int, n_columns: int) -> float:
    """Return the resident bytes of a model that has learned 100 rows. Call this in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "memory.db")
        writer = Writer(store)
        rng = np.random.default_rng(1)
        spec = Spec.from_mapping({"target": "y", "id": "id"})
        done(writer, [Put("first", spec)])
        done(writer, [Learn("first", rows(rng, 100, n_columns))])
        before = resident_bytes()
        for k in range(n_models):
            done(writer, [Put(f"m{k}", spec)])
            done(writer, [Learn(f"m{k}", rows(rng, 100, n_columns))])
        grown = resident_bytes() - before
        store.close()
    return grown / n_models


def memory_per_model(n_models: int) -> list[tuple[str, str]]:
    """Measure resident memory in new processes, because models would reuse memory freed by earlier work."""
    found = []
    for n_columns in (10, 100, 300):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            size = pool.submit(memory_of_models, n_models, n_columns).result()
        found.append((f"memory, per model of {n_columns} columns", f"{size / 1e6:,.2f} MB"))
    return found


def throughput(folder: Path, n_groups: int) -> list[tuple[str, str]]:
    """Measure single rows per second, with and without keys, alternating."""
    rng = np.random.default_rng(2)
    store = SQLiteStore(folder / "speed.db")
    writer = Writer(store)
    done(writer, [Put("m", Spec.from_mapping({"target": "y"}))])
    one = {name: v for name, v in rows(rng, 10, N_COLUMNS).columns.items() if name != "id"}
    done(writer, [Learn("m", ColumnBatch(one, 10))])
    single = ColumnBatch({name: values[:1] for name, values in one.items()}, 1)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(5):
        for keyed in (False, True):
            begin = time.perf_counter()
            for _ in range(n_groups):
                keys = [uuid.uuid4().hex if keyed else None for _ in range(GROUP)]
                done(writer, [Learn("m", single, key=key) for key in keys])
            rates[keyed].append(n_groups * GROUP / (time.perf_counter() - begin))
    store.close()
    plain, keyed_rate = float(np.median(rates[False])), float(np.median(rates[True]))
    return [
        ("writer, single rows without key", f"{plain:,.0f} per second"),
        (
            "writer, single rows with key",
            f"{keyed_rate:,.0f} per second ({keyed_rate / plain:.2f} of that without key)",
        ),
    ]


def cost_of_forget(folder: Path, sizes: tuple[int, ...]) -> list[tuple[str, str]]:
    """Measure forgetting one row by id in stores of several sizes."""
    rng, found = np.random.default_rng(3), []
    for n_rows in sizes:
        store = SQLiteStore(folder / f"forget-{n_rows}.db")
        writer = Writer(store)
        done(writer, [Put("m", Spec.from_mapping({"target": "y", "id": "id"}))])
        for begin in range(0, n_rows, 1_000):
            done(writer, [Learn("m", rows(rng, 1_000, N_COLUMNS, begin))])
        seconds = []
        for k in range(5):
            begin_time = time.perf_counter()
            done(writer, [Forget("m", ids=[f"r{(k + 1) * n_rows // 7}"])])
            seconds.append(time.perf_counter() - begin_time)
        found.append((f"forget one of {n_rows:,} rows by id", f"{1e3 * float(np.median(seconds)):,.1f} ms"))
        store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller samples")
    quick = parser.parse_args().quick
    print(f"| {N_COLUMNS} columns, SQLite, ProximalSVC | measured |\n|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = bytes_per_request(folder, 300 if quick else 2_000)
        lines += memory_per_model(20 if quick else 100)
        lines += throughput(folder, 10 if quick else 50)
        lines += cost_of_forget(folder, (1_000, 10_000) if quick else (1_000, 10_000, 100_000))
        for what, value in lines:
            print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
