"""The table of docs/benchmarks.md, measured in one run: each job, its best peer and its lower bound.

    python benchmarks/speed/table.py [--only PART ...] [--level avx2]
    python benchmarks/speed/table.py --levels [--only PART ...]

The second call measures every job at each SIMD level of the processor, in one process per level, and prints
the levels side by side. A level limits both our loops and the BLAS, so it shows the speed on an older
processor.

The floor is the time of the arithmetic alone, computed by a BLAS or by our own loops in one large call. Times
are processor times of one thread, the best of several rounds in which the jobs of one line alternate. Peers
that are not installed are left out.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "STEELYARD_NUM_THREADS"), "1"))

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import dsyrk

from steelyard import (
    KOIL,
    IncrementalSVC,
    MultiKernelKOIL,
    ProximalSVC,
    RandomFeatures,
    StreamClassifier,
    _native,
)
from steelyard.kernels import Kernel

ROUNDS = 5
# The kernels of OpenBLAS for a processor whose highest SIMD level is the given one.
CORES = {"baseline": "Prescott", "avx2": "Haswell"}


@dataclass(frozen=True)
class Line:
    """A line of the table: seconds of our job, of the peer and of the lower bound, per ``unit``."""

    path: str
    ours: float
    floor: float | None
    floor_is: str
    command: str
    peer: tuple[str, float] | None = None
    unit: str = "row"

    def __str__(self) -> str:
        peer, ratio = "-", "-"
        if self.peer is not None:
            peer, ratio = f"{self.peer[0]} {as_text(self.peer[1])}", f"{self.ours / self.peer[1]:.2f}"
        floor, share = "-", "-"
        if self.floor is not None:
            floor = f"{as_text(self.floor)}, {self.floor_is}"
            share = f"{100.0 * self.floor / self.ours:.0f} %"
        cells = (
            self.path,
            f"{as_text(self.ours)} a {self.unit}",
            peer,
            ratio,
            floor,
            share,
            f"`{self.command}`",
        )
        return f"| {' | '.join(cells)} |"


def as_text(seconds: float) -> str:
    """Return a time as text with three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def best(*calls: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Return the best processor time of each call. The calls alternate."""
    times = np.full(len(calls), np.inf)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            started = process_time()
            call()
            times[number] = min(times[number], process_time() - started)
    return times.tolist()


def rows_of(n_rows: int, d: int, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of overlapping classes; with two classes, one row in ten belongs to the rare class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n_rows) if n_classes > 2 else (rng.random(n_rows) < 0.1).astype(int)
    return rng.normal(size=(n_rows, d)) + 0.5 * y[:, None], y


def definite(d: int, count: int) -> np.ndarray:
    """Return ``count`` positive definite matrices of size ``d``."""
    rows = np.random.default_rng(1).normal(size=(2 * d, d))
    return np.repeat((rows.T @ rows)[None], count, axis=0)


# -- the jobs ---------------------------------------------------------------------------------------


def single_rows() -> Iterator[Line]:
    """Measure predicting and then learning row by row."""
    cases = [
        (7, 2, "zero"),
        (30, 2, "zero"),
        (100, 2, "zero"),
        (30, 10, "zero"),
        (7, 2, "gmean"),
        (30, 2, "gmean"),
    ]
    for d, n_classes, threshold in cases:
        n = 1000 if d < 100 else 300
        X, y = rows_of(300 + n * ROUNDS, d, n_classes)
        model = ProximalSVC(threshold=threshold).fit(X[:300], y[:300])
        place = iter(range(300, len(X)))

        def ours(
            model: ProximalSVC = model, X: np.ndarray = X, y: np.ndarray = y, n: int = n, place=place
        ) -> None:
            for _ in range(n):
                i = next(place)
                model.predict(X[i : i + 1])
                model.partial_fit(X[i : i + 1], y[i : i + 1])

        stack = definite(d + 1, 100)
        calls = [ours, lambda stack=stack: np.linalg.cholesky(stack)]
        if n_classes == 2:
            calls += river_rows(X[:n], y[:n])
        times = best(*calls)
        n_planes = n_classes if n_classes > 2 else 1
        cut = "" if threshold == "zero" else f' with `threshold="{threshold}"`'
        yield Line(
            f"`ProximalSVC`{cut}, d = {d}, {n_classes} classes: predict, then learn",
            times[0] / n,
            n_planes * times[1] / 100,
            "the Cholesky factors",
            "bench_rows.py",
            ("river", times[2] / n) if len(times) > 2 else None,
        )


def river_rows(X: np.ndarray, y: np.ndarray) -> list[Callable[[], None]]:
    try:
        from river import linear_model, preprocessing
    except ImportError:
        return []
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    rows, labels = [dict(enumerate(row)) for row in X.tolist()], y.astype(bool).tolist()

    def run() -> None:
        for row, label in zip(rows, labels, strict=True):
            model.predict_one(row)
            model.learn_one(row, label)

    return [run]


def dictionaries() -> Iterator[Line]:
    """Measure single rows given as dictionaries, as in river."""
    X, y = rows_of(1300, 7)
    rows, labels = [dict(enumerate(row)) for row in X.tolist()], y.tolist()
    model, arrays = ProximalSVC(), ProximalSVC().fit(X[:300], y[:300])
    for row, label in zip(rows[:300], labels[:300], strict=True):
        model.learn_one(row, label)

    def ours() -> None:
        for row, label in zip(rows[300:], labels[300:], strict=True):
            model.predict_one(row)
            model.learn_one(row, label)

    def by_arrays() -> None:
        for i in range(300, 1300):
            arrays.predict(X[i : i + 1])
            arrays.partial_fit(X[i : i + 1], y[i : i + 1])

    times = best(ours, by_arrays, *river_rows(X[:1000], y[:1000]))
    yield Line(
        "`learn_one` and `predict_one`, d = 7",
        times[0] / 1000,
        times[1] / 1000,
        "the same rows as arrays",
        "table.py --only dictionaries",
        ("river", times[2] / 1000) if len(times) > 2 else None,
    )


def mapped_streams() -> Iterator[Line]:
    """Measure ProximalSVC with RandomFeatures and selected C on chunks of 100."""
    for m, n in ((300, 20_000), (1000, 20_000)):
        X, y = rows_of(n, 20)
        model = ProximalSVC(C="auto", feature_map=RandomFeatures(m)).partial_fit(X[:100], y[:100])
        started = process_time()
        for begin in range(100, n, 100):
            model.predict(X[begin : begin + 100])
            model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        spent = (process_time() - started) / (n - 100)
        chunk, matrix = np.asfortranarray(model.feature_map_.transform(X[:100]).T), definite(m + 1, 1)[0]
        floor = sum(best(lambda c=chunk: dsyrk(1.0, c), lambda a=matrix: lapack.dpotrf(a, lower=1))) / 100
        yield Line(
            f'`RandomFeatures({m})`, `C="auto"`, chunks of 100 with answers',
            spent,
            floor,
            "products of the rows and one factor a chunk",
            "bench_rows.py",
            balanced_forest(X, y) if m == 300 else None,
        )


def balanced_forest(X: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    try:
        from imblearn.ensemble import BalancedRandomForestClassifier
    except ImportError:
        return None
    forest = BalancedRandomForestClassifier(
        n_estimators=100, sampling_strategy="all", replacement=True, bootstrap=False, random_state=0
    )
    (spent,) = best(lambda: forest.fit(X[:5000], y[:5000]).predict(X[5000:6000]), rounds=2)
    return "balanced forest, refitted every 1,000 rows on 5,000", spent / 1000


def many_classes() -> Iterator[Line]:
    for n_classes in (2000, 10_000):
        y = np.repeat(np.arange(n_classes), 10)
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n_classes, 50))[y] + 0.5 * rng.normal(size=(len(y), 50))
        ours, floor = best(
            lambda X=X, y=y: ProximalSVC().fit(X, y).coef_,
            lambda k=n_classes: np.linalg.cholesky(definite(51, k)),
            rounds=2,
        )
        yield Line(
            f"{n_classes:,} classes of 10 rows, d = 50: learn and solve", ours, floor,
            "the Cholesky factors", "bench_rows.py", unit="fit",
        )  # fmt: skip
    X, y = rows_of(21_000, 20, 100)
    model = ProximalSVC().fit(X[:1000], y[:1000])

    def stream() -> None:
        for begin in range(1000, 21_000, 100):
            model.predict(X[begin : begin + 100])
            model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])

    spent, fit, factors = best(
        stream, lambda: ProximalSVC().fit(X, y).coef_, lambda: np.linalg.cholesky(definite(21, 100)), rounds=2
    )
    yield Line(
        "100 classes, d = 20, chunks of 100 with answers", spent / 20_000, factors / 100,
        "100 Cholesky factors a chunk", "table.py --only many", ("one `fit`", fit / 21_000),
    )  # fmt: skip


def chunks() -> Iterator[Line]:
    """Measure learning a chunk of 10,000 rows, compared with the BLAS product of the same rows."""
    rng = np.random.default_rng(0)
    for d in (54, 300, 1000):
        for digits in (1, 2) if d < 1000 else (1,):
            X = rng.normal(size=(10_000, d))
            X = np.round(X * 100.0) if digits == 1 else X
            y = rng.integers(0, 2, 10_000)
            model = ProximalSVC().fit(X[:2000], y[:2000])
            columns = X.T
            ours, floor = best(
                lambda m=model, X=X, y=y: m.partial_fit(X, y), lambda c=columns: dsyrk(1.0, c, lower=1)
            )
            what = {54: "", 300: "", 1000: " (as mapped rows have)"}[d]
            yield Line(
                f"a chunk of 10,000 rows, d = {d}, values of {digits} digit(s){what}",
                ours / 10_000, floor / 10_000, "dsyrk", "table.py --only chunks",
            )  # fmt: skip


def ensemble() -> Iterator[Line]:
    """Measure StreamClassifier in chunks of 100 and row by row."""
    X, y = rows_of(6000, 20)
    for size, begin, n in ((100, 1000, 5000), (1, 1000, 500)):
        model = StreamClassifier(random_state=0)
        model.partial_fit(X[:begin], y[:begin], classes=[0, 1]).predict(X[:1])
        started = process_time()
        for first in range(begin, begin + n, size):
            part = slice(first, first + size)
            model.predict(X[part])
            model.partial_fit(X[part], y[part])
        spent = (process_time() - started) / n
        forest = balanced_forest(X, y) if size == 100 else None
        how = f"chunks of {size}" if size > 1 else "row by row"
        yield Line(f"`StreamClassifier`, d = 20, {how}: predict, then learn", spent, None, "",
                   "table.py --only ensemble", forest)  # fmt: skip


def kernel_learners() -> Iterator[Line]:
    n = 50_000  # large enough that the preparation in the first call is negligible
    for d in (8, 20):
        X, y = rows_of(n, d)
        X /= np.sqrt(d)
        ours, floor = best(
            lambda X=X, y=y: KOIL(policy="fifo++", budget=100, random_state=0).partial_fit(X, y),
            kernel_values(X, 200),
        )
        yield Line(f"`KOIL` fifo++, d = {d}, budget 100 + 100", ours / n, floor / n,
                   "the kernel values", "bench_koil.py")  # fmt: skip
    for d, budget in ((20, 100), (60, 400)):
        X, y = rows_of(n, d)
        X /= np.sqrt(d)
        wide, single = best(*[
            lambda rows=rows, y=y, budget=budget: KOIL(budget=budget, random_state=0).partial_fit(rows, y)
            for rows in (X, X.astype(np.float32))
        ])  # fmt: skip
        yield Line(f"`KOIL` on float32 rows, d = {d}, budget {budget} + {budget}", single / n, None, "",
                   "bench_koil.py", ("the same rows in float64", wide / n))  # fmt: skip
    X, y = rows_of(2_000, 20)
    kernel, narrow = Kernel("rbf", gamma=0.05), X.astype(np.float32)
    wide, single = best(*[lambda rows=rows: kernel.block(rows, rows, n_threads=1) for rows in (X, narrow)])
    yield Line("kernel block of 2,000 float32 rows, d = 20", single, None, "", "table.py --only kernels",
               ("the same rows in float64", wide), "block")  # fmt: skip
    X, y = rows_of(4000, 20)
    X /= np.sqrt(20)
    many, one = best(*[
        lambda make=make: make(C=0.01, budget=100, random_state=0).partial_fit(X, y)
        for make in (MultiKernelKOIL, KOIL)
    ], rounds=2)  # fmt: skip
    yield Line("sixteen kernels, C = .01, d = 20", many / 4000, None, "", "bench_koil.py --only kernels",
               ("one `KOIL`", one / 4000))  # fmt: skip


def kernel_values(X: np.ndarray, n_vectors: int) -> Callable[[], None]:
    """Return a function that computes the kernel values of rows with vectors, in memory that is reused.

    A single call for all rows would spend half of its time on allocating new pages for the result.
    """
    kernel, vectors = Kernel("rbf", gamma=1.0).spec(), X[:n_vectors].copy()
    out = np.empty((1000, n_vectors))

    def evaluate() -> None:
        for begin in range(0, len(X), len(out)):
            _native.kernel_block(kernel, X[begin : begin + len(out)], vectors, out, 1)

    return evaluate


def window() -> Iterator[Line]:
    size, steps, d = 2000, 400, 20
    X, y = rows_of(size + steps, d)
    X = X + 0.9 * y[:, None]
    gamma = 1.0 / (d * X.var())
    model = IncrementalSVC(gamma=gamma).fit(X[:size], y[:size])
    started = process_time()
    for i in range(steps):
        last = slice(size + i, size + i + 1)
        model.predict(X[last])
        model.update(add=(X[last], y[last]), forget=(X[i : i + 1], y[i : i + 1]))
    spent = (process_time() - started) / steps
    kernel, vectors = Kernel("rbf", gamma=gamma), model.support_vectors_
    (block,) = best(lambda: kernel.block(X, vectors, n_threads=1))
    yield Line(
        "`IncrementalSVC`, window of 2,000, d = 20: answer, one row in, one out",
        spent,
        2.0 * block / len(X),
        "the row's kernel values",
        "bench_incremental_svc.py --only predict",
    )


PARTS: dict[str, Callable[[], Iterator[Line]]] = {
    "rows": single_rows,
    "dictionaries": dictionaries,
    "mapped": mapped_streams,
    "ensemble": ensemble,
    "many": many_classes,
    "chunks": chunks,
    "window": window,
    "kernels": kernel_learners,
}


# -- SIMD levels ------------------------------------------------------------------------------------


def measured_at(level: str, parts: list[str]) -> dict[str, tuple[float, str]]:
    """Return the lines of some parts of the table, measured in a new process at one SIMD level."""
    environment = os.environ | {"STEELYARD_SIMD": level}
    if level in CORES:
        environment["OPENBLAS_CORETYPE"] = CORES[level]
    command = [sys.executable, __file__, "--json", "--only", *parts]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {path: (ours, unit) for path, ours, unit in map(json.loads, done.stdout.splitlines())}


def print_levels(parts: list[str]) -> None:
    levels = _native.simd_levels()[::-1]
    print(f"| path | {' | '.join(levels)} | {' | '.join(f'{level} / {levels[0]}' for level in levels[1:])} |")
    print(f"|---|{'---|' * (2 * len(levels) - 1)}", flush=True)
    for part in parts:
        times = [measured_at(level, [part]) for level in levels]
        for path, (best_level, unit) in times[0].items():
            own = [of_level[path][0] for of_level in times]
            cells = [
                f"{as_text(own[0])} a {unit}",
                *map(as_text, own[1:]),
                *(f"{t / best_level:.2f}" for t in own[1:]),
            ]
            print(f"| {path} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument(
        "--levels", action="store_true", help="measure all SIMD levels and print them side by side"
    )
    parser.add_argument("--level", choices=_native.simd_levels(), help="SIMD level of our loops")
    parser.add_argument(
        "--json", action="store_true", help="print path, seconds and unit as JSON, one line per path"
    )
    options = parser.parse_args()
    if options.levels:
        print_levels(options.only)
        return
    if options.level:
        _native.use_simd_level(options.level)
    if not options.json:
        print("| path | ours | best peer | ratio | floor | share of the floor | command |")
        print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        for line in PARTS[name]():
            print(json.dumps([line.path, line.ours, line.unit]) if options.json else line, flush=True)


if __name__ == "__main__":
    main()
