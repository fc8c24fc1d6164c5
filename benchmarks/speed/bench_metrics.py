"""Time per row of the prequential AUC of a window, compared with recomputing it and with river.

    python benchmarks/speed/bench_metrics.py [--rows 20000] [--repeats 3]

Columns, in microseconds per row:

- ``chunks``: ``WindowAUC`` updated with half a window, at most 1,000 rows, and read after each update;
- ``rows``: ``WindowAUC`` updated and read row by row;
- ``sklearn``: ``roc_auc_score`` of the window after each row;
- ``river``: ``metrics.RollingROCAUC`` updated and read row by row.

Repeats of all columns alternate, so that load on the machine affects all of them, and the best repeat counts.
"""

from __future__ import annotations

import argparse
import math
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from steelyard.metrics import WindowAUC

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from river.metrics import RollingROCAUC
except ImportError:
    RollingROCAUC = None

WINDOWS = (100, 1_000, 10_000, 100_000)
MAX_CHUNK = 1_000
SLOW_ROWS = 30  # number of rows for the references, whose time per row grows with the window

Labels = NDArray[np.int64]
Scores = NDArray[np.float64]


def make_stream(n_rows: int, seed: int = 0) -> tuple[Labels, Scores]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n_rows) < 0.2).astype(np.int64)
    return labels, rng.normal(size=n_rows) + labels


def seconds_in_chunks(y: Labels, s: Scores, window: int, n_rows: int) -> float:
    metric = WindowAUC(window).update(y[:window], y_score=s[:window])
    chunk = min(MAX_CHUNK, window // 2)  # a chunk as long as the window would replace its content
    start = perf_counter()
    for begin in range(window, window + n_rows, chunk):
        metric.update(y[begin : begin + chunk], y_score=s[begin : begin + chunk]).get()
    return (perf_counter() - start) / n_rows


def seconds_by_rows(y: Labels, s: Scores, window: int, n_rows: int) -> float:
    metric = WindowAUC(window).update(y[:window], y_score=s[:window])
    n_rows = min(n_rows, 2_000)
    rows = list(zip(y[window : window + n_rows].tolist(), s[window : window + n_rows].tolist(), strict=True))
    start = perf_counter()
    for label, score in rows:
        metric.update(label, y_score=score).get()
    return (perf_counter() - start) / n_rows


def seconds_of_sklearn(y: Labels, s: Scores, window: int, _: int) -> float:
    start = perf_counter()
    for begin in range(1, SLOW_ROWS + 1):
        roc_auc_score(y[begin : begin + window], s[begin : begin + window])
    return (perf_counter() - start) / SLOW_ROWS


def seconds_of_river(y: Labels, s: Scores, window: int, _: int) -> float:
    metric = RollingROCAUC(window_size=window)
    for label, score in zip(y[:window].tolist(), s[:window].tolist(), strict=True):
        metric.update(label, score)
    metric.get()
    last = slice(window, window + SLOW_ROWS)
    rows = list(zip(y[last].tolist(), s[last].tolist(), strict=True))
    start = perf_counter()
    for label, score in rows:
        metric.update(label, score)
        metric.get()
    return (perf_counter() - start) / SLOW_ROWS


def check_agreement(y: Labels, s: Scores, window: int) -> None:
    """Check that all implementations agree before they are timed."""
    ours = WindowAUC(window).update(y, y_score=s).get()
    assert math.isclose(ours, roc_auc_score(y[-window:], s[-window:]), abs_tol=1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows timed in chunks")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    columns: dict[str, Callable[[Labels, Scores, int, int], float]] = {
        "chunks": seconds_in_chunks,
        "rows": seconds_by_rows,
        "sklearn": seconds_of_sklearn,
    }
    if RollingROCAUC is None:
        print("river is not installed; its column is omitted")
    else:
        columns["river"] = seconds_of_river

    n_rows = max(1, options.rows // MAX_CHUNK) * MAX_CHUNK
    print("microseconds per row")
    print(f"{'window':>8}" + "".join(f"{name:>11}" for name in columns) + "   rows against the others")
    for window in WINDOWS:
        y, s = make_stream(window + n_rows)
        check_agreement(y, s, window)
        best = dict.fromkeys(columns, math.inf)
        for _ in range(options.repeats):
            for name, seconds in columns.items():
                best[name] = min(best[name], seconds(y, s, window, n_rows))
        peers = [name for name in columns if name not in {"chunks", "rows"}]
        ratios = "  ".join(f"{name} / rows = {best[name] / best['rows']:.1f}" for name in peers)
        print(f"{window:>8}" + "".join(f"{1e6 * value:>11.2f}" for value in best.values()) + f"   {ratios}")


if __name__ == "__main__":
    main()
