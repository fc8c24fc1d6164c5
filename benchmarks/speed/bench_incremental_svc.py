"""Following an exact kernel SVM row by row, beside refitting SVC.

    python benchmarks/speed/bench_incremental_svc.py [--slides 18000] [--repeats 20] [--C 10] [--features 20]

The stream is imbalanced 1:9 and its features are mixtures of 5 hidden dimensions, with some noise; about
10 % of the rows are support vectors (rbf kernel, gamma="scale"). Two questions:

- ``update``: 5,000 rows, then 10 rows come and 10 go in one call, against one fit of SVC (tol=1e-3, its
  default) on the 5,000 rows;
- ``window``: a window of 2,000 rows slides over the stream, each row in and each row out by a call of its
  own, the model exact after each, against one fit of SVC for every 50 rows.

Both sides alternate, so that other load on the machine hits both. At the end the models are compared with
SVC at tol=1e-10.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from steelyard import IncrementalSVC

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

SIZE = 5_000
WINDOW = 2_000
STRETCH = 50  # slides for one refit


def make_stream(n_rows: int, n_features: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.1).astype(np.int64)
    hidden = rng.normal(size=(n_rows, 5))
    hidden[:, 0] += np.where(y == 1, 1.5, -1.5)
    mixing = np.random.default_rng(7).normal(size=(5, n_features))
    return hidden @ mixing + 0.3 * rng.normal(size=(n_rows, n_features)), y


def part(rows: Rows, begin: int, n_rows: int) -> Rows:
    return rows[0][begin : begin + n_rows], rows[1][begin : begin + n_rows]


def seconds_of_refit(rows: Rows, C: float, gamma: float) -> float:
    start = perf_counter()
    SVC(C=C, gamma=gamma).fit(*rows)
    return perf_counter() - start


def seconds_of_update(model: IncrementalSVC, add: Rows, retire: Rows) -> float:
    start = perf_counter()
    model.update(add=add, retire=retire)
    return perf_counter() - start


def seconds_of_slides(model: IncrementalSVC, stream: Rows, begin: int) -> float:
    start = perf_counter()
    for i in range(begin, begin + STRETCH):
        model.update(add=part(stream, i + WINDOW, 1), retire=part(stream, i, 1))
    return perf_counter() - start


def report(model: IncrementalSVC, ours: list[float], refits: list[float], what: str, n_rows: int) -> None:
    """Times of one call, or of one row where the calls are for `n_rows` rows."""
    print(f"{what}: {len(model.support_vectors_)} support vectors, {model.margin_size_} in the margin set")
    for name, times in (("IncrementalSVC", ours), ("SVC refit", refits)):
        us = 1e6 * np.array(times) / n_rows
        print(f"  {name:15s} median {np.median(us):9.1f} us   mean {us.mean():9.1f}   best {us.min():9.1f}")
    medians = np.median(refits) / np.median(ours)
    print(f"  times faster: {medians:.1f} by medians, {sum(refits) / sum(ours):.1f} in all")


def report_exactness(model: IncrementalSVC, rows: Rows, C: float, gamma: float) -> None:
    svc = SVC(C=C, gamma=gamma, tol=1e-10).fit(*rows)
    difference = np.abs(model.decision_function(rows[0]) - svc.decision_function(rows[0])).max()
    print(
        f"  largest violation {model.kkt_violation():.1e}; decision function within {difference:.1e} of "
        "SVC(tol=1e-10), whose kernel values are float32"
    )


def bench_update(C: float, n_features: int, repeats: int) -> None:
    stream = make_stream(SIZE + 10 * repeats, n_features)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, SIZE))
    ours, refits = [], []
    for begin in range(0, 10 * repeats, 10):
        ours.append(seconds_of_update(model, part(stream, begin + SIZE, 10), part(stream, begin, 10)))
        refits.append(seconds_of_refit(part(stream, begin + 10, SIZE), C, model.gamma))
    report(model, ours, refits, f"update, {SIZE:,} rows, 10 in and 10 out", 1)
    report_exactness(model, part(stream, 10 * repeats, SIZE), C, model.gamma)


def bench_window(C: float, n_features: int, slides: int) -> None:
    stream = make_stream(WINDOW + slides, n_features, seed=1)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, WINDOW))
    ours, refits = [], []
    for begin in range(0, slides, STRETCH):
        ours.append(seconds_of_slides(model, stream, begin))
        refits.append(seconds_of_refit(part(stream, begin + STRETCH, WINDOW), C, model.gamma))
    report(model, ours, refits, f"window, {WINDOW:,} of {WINDOW + slides:,} rows, each row", STRETCH)
    report_exactness(model, part(stream, slides, WINDOW), C, model.gamma)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slides", type=int, default=18_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--features", type=int, default=20)
    options = parser.parse_args()
    bench_update(options.C, options.features, options.repeats)
    bench_window(options.C, options.features, options.slides // STRETCH * STRETCH)


if __name__ == "__main__":
    main()
