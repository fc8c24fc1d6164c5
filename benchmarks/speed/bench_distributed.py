"""Training on Dask and Spark: speed-up, overhead, size-up and memory, compared with Spark's LinearSVC.

    python benchmarks/speed/bench_distributed.py [--rows 5000000] [--repeats 3] [--spark-rows 500000]
                                                 [--plot sizeup.png]

Rows of 54 features, one in twenty of the rare class, are generated on the workers. A partition has 156,250
rows (64 MiB).

- ``bare``: the work of all partitions in one process and one thread, without an engine: generate the rows,
  compute the statistics, add them up;
- ``dask 1``, ``dask 2``: the same rows by ``steelyard.distributed.dask.fit`` on a running ``local_cluster``
  with one or two workers of one thread;
- *overhead* is ``dask 1`` divided by ``bare``, in elapsed time, and in the processor time of worker,
  scheduler and client together, which other load on the machine disturbs less;
- *speed-up* is ``dask 1`` divided by ``dask 2``, in elapsed time;
- *peak memory* is that of the process with client and scheduler. Each size runs in a separate process;
- *size-up* measures a quarter, half and all of the rows.

Repeats alternate and the best of each counts, so that other load on the machine affects all of them. Spark
runs on a DataFrame whose size is given by ``--spark-rows``. It is generated on the executors and cached
before either trainer is timed. Without Java, the Spark part is skipped with a message. The last line compares
581,012 x 54 rows in memory on one thread with table II of the paper (18.33 s, Matlab, one core of a laptop
with 2.4 GHz).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from steelyard import ProximalSVC
from steelyard.distributed.partitions import Pass, learn_partition, merge_parts

N_FEATURES = 54
PARTITION = 156_250
RARE = 0.05
PAPER_ROWS, PAPER_SECONDS = 581_012, 18.33
WORKERS = (1, 2)


def generate(number: int, n_rows: int) -> tuple[Any, Any]:
    """Return the rows of a partition, determined by its number."""
    rng = np.random.default_rng([7, number])
    y = (rng.random(n_rows) < RARE).astype(np.int64)
    X = rng.standard_normal((n_rows, N_FEATURES))
    X[y == 1] += np.linspace(0.0, 0.5, N_FEATURES)
    return X, y


def sizes(n_rows: int) -> list[int]:
    full, rest = divmod(n_rows, PARTITION)
    return [PARTITION] * full + ([rest] if rest else [])


# -- one measurement in a separate process --------------------------------------------------------------


def fit_bare(n_rows: int) -> None:
    work = Pass(ProximalSVC(), "fit")
    parts = [
        learn_partition(work.configs, *generate(number, size), None, "")
        for number, size in enumerate(sizes(n_rows))
    ]
    work.finish(merge_parts(parts))


def run_bare(n_rows: int) -> tuple[float, float]:
    fit_bare(2 * PARTITION)  # warm-up: first-touch memory is slower
    start, processor = perf_counter(), process_time()
    fit_bare(n_rows)
    return perf_counter() - start, process_time() - processor


def run_dask(n_rows: int, n_workers: int) -> tuple[float, float]:
    import dask

    from distributed import Client
    from steelyard.distributed import dask as engine

    def rows(n_rows: int) -> list[Any]:
        return [dask.delayed(generate)(number, size) for number, size in enumerate(sizes(n_rows))]

    with engine.local_cluster(n_workers) as cluster, Client(cluster) as client:
        engine.fit(ProximalSVC(), rows(4 * n_workers * PARTITION))  # warm-up: workers import all modules

        def processor_time() -> float:
            return process_time() + sum(client.run(process_time).values())

        start, processor = perf_counter(), processor_time()
        engine.fit(ProximalSVC(), rows(n_rows))
        seconds = perf_counter() - start
        return seconds, processor_time() - processor


def measure(what: str, n_rows: int) -> dict[str, float]:
    """Run this script in a subprocess for one measurement."""
    command = [sys.executable, __file__, "--child", what, "--rows", str(n_rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def child(what: str, n_rows: int) -> None:
    seconds, processor = run_bare(n_rows) if what == "bare" else run_dask(n_rows, int(what.split()[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "processor": processor, "peak_mib": peak}))


# -- the report -----------------------------------------------------------------------------------------


def dask_report(n_rows: int, repeats: int) -> dict[tuple[str, int], dict[str, float]]:
    """Return the best time of each kind of run at each size."""
    kinds = ["bare", *(f"dask {workers}" for workers in WORKERS)]
    best: dict[tuple[str, int], dict[str, float]] = {}
    for _ in range(repeats):
        for size in (n_rows // 4, n_rows // 2, n_rows):
            for kind in kinds:
                result = measure(kind, size)
                known = best.setdefault((kind, size), result)
                best[kind, size] = {name: min(known[name], value) for name, value in result.items()}
    columns = "  overhead  of processor  speed-up  client MiB"
    print(f"{'rows':>12} " + " ".join(f"{kind:>10}" for kind in kinds) + columns)
    for size in (n_rows // 4, n_rows // 2, n_rows):
        seconds = [best[kind, size]["seconds"] for kind in kinds]
        processor = [best[kind, size]["processor"] for kind in kinds]
        print(
            f"{size:>12,} "
            + " ".join(f"{value:>9.2f}s" for value in seconds)
            + f"  {seconds[1] / seconds[0] - 1:>8.1%}  {processor[1] / processor[0] - 1:>12.1%}"
            + f"  {seconds[1] / seconds[2]:>8.2f}"
            + f"  {best['dask 2', size]['peak_mib']:>10.0f}"
        )
    return best


def message_report() -> None:
    X, y = generate(0, PARTITION)
    (part,) = learn_partition(Pass(ProximalSVC(), "fit").configs, X, y, None, "")
    formula = 2 * 8 * (N_FEATURES + 1) * (N_FEATURES + 2) // 2
    print(
        f"\na partition of {X.nbytes / 2**20:.1f} MiB sends {len(part.to_bytes()):,} bytes; "
        f"the formula 8 (d+1)(d+2)/2 bytes per class gives {formula:,}"
    )


def paper_report(repeats: int) -> None:
    X, y = generate(0, PAPER_ROWS)
    best = np.inf
    for _ in range(repeats):
        start = perf_counter()
        model = ProximalSVC()
        work = Pass(model, "fit")
        work.finish(learn_partition(work.configs, X, y, None, ""))
        assert model.coef_.shape == (1, N_FEATURES)
        best = min(best, perf_counter() - start)
    print(
        f"\n{PAPER_ROWS:,} x {N_FEATURES} on one core: {best:.2f} s; table II of the paper: {PAPER_SECONDS} s"
    )


def plot(best: dict[tuple[str, int], dict[str, float]], n_rows: int, path: Path) -> None:
    """Draw the size-up as in figure 3 of the paper: time against data size, both relative to the smallest."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
    multiples = np.array([1, 2, 4])
    axes.plot(multiples, multiples, color="0.75", linestyle="--", label="in proportion")
    for workers, marker in zip(WORKERS, "os", strict=True):
        seconds = [best[f"dask {workers}", n_rows * m // 4]["seconds"] for m in multiples]
        label = f"{workers} worker{'s' if workers > 1 else ''} ({seconds[-1]:.1f} s at 4x)"
        axes.plot(multiples, np.array(seconds) / seconds[0], marker=marker, label=label)
    axes.set(
        xlabel=f"rows, in units of {n_rows // 4:,}",
        ylabel="time, in units of the smallest size",
        xticks=multiples,
        yticks=multiples,
        title="Size-up on Dask, 54 features",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"\nplotted to {path}")


# -- Spark ----------------------------------------------------------------------------------------------


def spark_report(n_rows: int, iterations: int) -> None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        print("\nSpark is not installed: the Spark part is skipped")
        return
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print("\nJava is not installed: the Spark part is skipped")
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench_distributed")
    for name, value in {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "4",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        _time_spark(spark, n_rows, iterations)
    finally:
        spark.stop()


def _time_spark(spark: Any, n_rows: int, iterations: int) -> None:
    from pyspark.ml.classification import LinearSVC
    from pyspark.ml.feature import VectorAssembler

    from steelyard.distributed import spark as engine

    names = [f"x{i}" for i in range(N_FEATURES)]
    df = _spark_rows(spark, names, n_rows).cache()
    rows = df.count()
    vectors = VectorAssembler(inputCols=names, outputCol="v").transform(df).select("v", "y", "weight").cache()
    vectors.count()
    peer = LinearSVC(featuresCol="v", labelCol="y", weightCol="weight", maxIter=iterations)
    trainers = {
        "steelyard, columns": lambda: engine.fit(ProximalSVC(), df, features=names).coef_[0],
        "steelyard, vectors": lambda: engine.fit(ProximalSVC(), vectors, features="v").coef_[0],
        f"LinearSVC, {iterations} iterations at most": lambda: np.array(peer.fit(vectors).coefficients),
    }
    print(f"\nSpark local[2], {rows:,} x {N_FEATURES} cached, balanced weights:")
    X, y = generate(10**6, 200_000)
    best = {}
    for name, train in trainers.items():
        train()  # warm-up: the first call also starts workers and compiles
        start = perf_counter()
        coef = train()
        best[name] = perf_counter() - start
        print(f"{name:>36}: {best[name]:8.2f} s   AUC on new rows {_auc(X @ coef, y):.4f}")
    columns, vectors_time, theirs = best.values()
    # LinearSVC accepts only vectors, so only the second line compares both on the same DataFrame.
    print(f"{'LinearSVC : steelyard, columns':>36}: {theirs / columns:8.2f}")
    print(f"{'LinearSVC : steelyard, same vectors':>36}: {theirs / vectors_time:8.2f}")


def _spark_rows(spark: Any, names: list[str], n_rows: int) -> Any:
    """Return the rows of all partitions, generated on the executors."""
    import pyarrow as pa

    script = Path(__file__).read_text(encoding="utf-8")

    def rows(batches: Any) -> Any:
        made: dict[str, Any] = {"__name__": "rows"}
        exec(compile(script, "bench_distributed.py", "exec"), made)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                X, y = made["generate"](number, made["sizes"](n_rows)[number])
                share = np.where(y == 1, 1.0 - RARE, RARE)
                columns = [pa.array(X[:, i].copy()) for i in range(N_FEATURES)]
                whole = pa.RecordBatch.from_arrays(
                    [*columns, pa.array(y), pa.array(share)], [*names, "y", "weight"]
                )
                for begin in range(0, len(y), 10_000):
                    yield whole.slice(begin, 10_000)

    schema = ", ".join(f"{name} double" for name in names) + ", y long, weight double"
    n_parts = len(sizes(n_rows))
    return spark.range(0, n_parts, 1, n_parts).mapInArrow(rows, schema)


def _auc(scores: Any, y: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--spark-rows", type=int, default=500_000, help="number of rows on Spark; 0 skips Spark"
    )
    parser.add_argument(
        "--iterations", type=int, default=100, help="maximum number of iterations of LinearSVC"
    )
    parser.add_argument("--plot", type=Path, help="draw the size-up to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.rows)
        return
    best = dask_report(options.rows, options.repeats)
    message_report()
    paper_report(options.repeats)
    if options.plot:
        plot(best, options.rows, options.plot)
    if options.spark_rows:
        spark_report(options.spark_rows, options.iterations)


if __name__ == "__main__":
    main()
