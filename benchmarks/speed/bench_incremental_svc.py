"""IncrementalSVC row by row, compared with refitting SVC.

    python benchmarks/speed/bench_incremental_svc.py [--slides 18000] [--repeats 20] [--C 1 10]
                                                     [--features 20] [--rows 20000]
                                                     [--only update window predict fit]

There are two streams, both with about 10 % support vectors (rbf kernel, gamma = 1 / (features * variance)).
Each runs with every C:

- ``mixed``: imbalanced 1:9; features are mixtures of 5 hidden dimensions with noise;
- ``isotropic``: balanced, independent features, 4 of them informative. The margin set is larger, so this is
  the harder case.

There are four measurements:

- ``update``: add 10 and forget 10 of 5,000 rows in one call, compared with one fit of SVC on the 5,000 rows.
  SVC is fitted after every five calls;
- ``window``: slide a window of 2,000 rows over the stream, one row per call, compared with one fit of SVC per
  50 rows. The time of a fit is measured after every 500 rows;
- ``predict``: the same window, with a prediction of every row before it is learned. Predicting and learning a
  row each need the kernel values of the row with the support vectors, and the time is compared with the time
  to compute these values twice;
- ``fit``: fit 20,000 rows at once, compared with one fit of SVC, and then learn row by row.

SVC has its default tolerance (1e-3) and cache (200 MB). Some fits use tol=1e-8, which is closer to the
accuracy of IncrementalSVC.

Times are processor times of one thread, measured alternately. At the end the models are compared with SVC at
tol=1e-10.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from time import process_time

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from steelyard import IncrementalSVC
from steelyard.kernels import Kernel

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

SIZE = 5_000
WINDOW = 2_000
SLIDES_PER_REFIT = 50  # number of slides whose time is compared with one fit of SVC
SLIDES_PER_RUN = 500  # number of slides after which the time of a fit is measured
UPDATES_PER_REFIT = 5


def mixed_stream(n_rows: int, n_features: int, separation: float, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.1).astype(np.int64)
    hidden = rng.normal(size=(n_rows, 5))
    hidden[:, 0] += np.where(y == 1, separation, -separation)
    mixing = np.random.default_rng(7).normal(size=(5, n_features))
    return hidden @ mixing + 0.3 * rng.normal(size=(n_rows, n_features)), y


def isotropic_stream(n_rows: int, n_features: int, separation: float, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.5).astype(np.int64)
    X = rng.normal(size=(n_rows, n_features))
    X[:, :4] += np.where(y == 1, separation, -separation)[:, None]
    return X, y


STREAMS = {"mixed": mixed_stream, "isotropic": isotropic_stream}
# Distance of the classes at which a tenth of the rows are support vectors, by stream and number of rows.
SEPARATIONS = {"mixed": {SIZE: 1.5, WINDOW: 1.6}, "isotropic": {SIZE: 1.02, WINDOW: 1.2}}


def part(rows: Rows, begin: int, n_rows: int) -> Rows:
    return rows[0][begin : begin + n_rows], rows[1][begin : begin + n_rows]


def seconds_of_refit(rows: Rows, C: float, gamma: float, tol: float = 1e-3) -> float:
    start = process_time()
    SVC(C=C, gamma=gamma, tol=tol).fit(*rows)
    return process_time() - start


def seconds_of_update(model: IncrementalSVC, add: Rows, forget: Rows) -> float:
    start = process_time()
    model.update(add=add, forget=forget)
    return process_time() - start


def seconds_of_slides(model: IncrementalSVC, stream: Rows, begin: int) -> float:
    start = process_time()
    for i in range(begin, begin + SLIDES_PER_RUN):
        model.update(add=part(stream, i + WINDOW, 1), forget=part(stream, i, 1))
    return process_time() - start


class Shares:
    """Mean numbers of support vectors and of rows in the margin set."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.vectors: list[int] = []
        self.margins: list[int] = []

    def note(self, model: IncrementalSVC) -> None:
        self.vectors.append(len(model.support_vectors_))
        self.margins.append(model.margin_size_)

    def __str__(self) -> str:
        vectors, margin = np.mean(self.vectors), np.mean(self.margins)
        return f"{100 * vectors / self.n_rows:.1f} % support vectors, {margin:.0f} rows in the margin set"


def report(what: str, shares: Shares, n_rows: int, times: dict[str, list[float]]) -> None:
    """Print the times per row, for calls with `n_rows` rows each."""
    print(f"{what}: {shares}")
    ours = np.array(times["IncrementalSVC"])
    for name, values in times.items():
        us = 1e6 * np.array(values) / n_rows
        medians, means = np.median(values) / np.median(ours), np.mean(values) / ours.mean()
        print(
            f"  {name:15s} median {np.median(us):9.1f} us, {medians:5.1f} times ours;   "
            f"mean {us.mean():9.1f} us, {means:5.1f} times"
        )


def report_exactness(model: IncrementalSVC, rows: Rows, C: float, gamma: float) -> None:
    svc = SVC(C=C, gamma=gamma, tol=1e-10).fit(*rows)
    difference = np.abs(model.decision_function(rows[0]) - svc.decision_function(rows[0])).max()
    print(
        f"  largest violation {model.kkt_violation():.1e}; decision function within {difference:.1e} of "
        "SVC(tol=1e-10), whose kernel values are float32"
    )


def bench_update(name: str, C: float, n_features: int, repeats: int) -> None:
    n_updates = repeats * UPDATES_PER_REFIT
    stream = STREAMS[name](SIZE + 10 * n_updates, n_features, SEPARATIONS[name][SIZE])
    shares = Shares(SIZE)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, SIZE))
    times: dict[str, list[float]] = {"IncrementalSVC": [], "SVC": [], "SVC(tol=1e-8)": []}
    for update in range(n_updates):
        add, forget = part(stream, 10 * update + SIZE, 10), part(stream, 10 * update, 10)
        times["IncrementalSVC"].append(seconds_of_update(model, add, forget))
        if (update + 1) % UPDATES_PER_REFIT:
            continue
        shares.note(model)
        rows = part(stream, 10 * (update + 1), SIZE)
        times["SVC"].append(seconds_of_refit(rows, C, model.gamma))
        if len(times["SVC"]) % 5 == 1:
            times["SVC(tol=1e-8)"].append(seconds_of_refit(rows, C, model.gamma, tol=1e-8))
    report(f"{name}, C={C:g}: update, {SIZE:,} rows, 10 in and 10 out", shares, 1, times)
    report_exactness(model, part(stream, 10 * n_updates, SIZE), C, model.gamma)


def bench_window(name: str, C: float, n_features: int, slides: int) -> None:
    stream = STREAMS[name](WINDOW + slides, n_features, SEPARATIONS[name][WINDOW], seed=1)
    shares = Shares(WINDOW)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, WINDOW))
    times: dict[str, list[float]] = {"IncrementalSVC": [], "SVC": [], "SVC(tol=1e-8)": []}
    for begin in range(0, slides, SLIDES_PER_RUN):
        times["IncrementalSVC"].append(
            seconds_of_slides(model, stream, begin) / (SLIDES_PER_RUN / SLIDES_PER_REFIT)
        )
        shares.note(model)
        rows = part(stream, begin + SLIDES_PER_RUN, WINDOW)
        times["SVC"].append(seconds_of_refit(rows, C, model.gamma))
        times["SVC(tol=1e-8)"].append(seconds_of_refit(rows, C, model.gamma, tol=1e-8))
    what = f"{name}, C={C:g}: window, {WINDOW:,} of {WINDOW + slides:,} rows, each row"
    report(what, shares, SLIDES_PER_REFIT, times)
    report_exactness(model, part(stream, slides, WINDOW), C, model.gamma)


def bench_predict(name: str, C: float, n_features: int, slides: int) -> None:
    stream = STREAMS[name](WINDOW + slides, n_features, SEPARATIONS[name][WINDOW], seed=1)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, WINDOW))
    predict_times, update_times = [], []
    for i in range(slides):
        row = part(stream, i + WINDOW, 1)
        start = process_time()
        model.predict(row[0])
        predict_times.append(process_time() - start)
        update_times.append(seconds_of_update(model, row, part(stream, i, 1)))
    kernel, vectors = Kernel("rbf", gamma=model.gamma), model.support_vectors_
    block = min(seconds_of(lambda: kernel.block(stream[0], vectors, n_threads=1)) for _ in range(5))
    predict, update, floor = (
        1e6 * np.mean(predict_times),
        1e6 * np.mean(update_times),
        2e6 * block / len(stream[0]),
    )
    print(
        f"{name}, C={C:g}: window of {WINDOW:,}, {predict + update:.1f} us per row ({predict:.1f} predict, "
        f"{update:.1f} learn and forget); kernel values alone {floor:.1f} us"
    )


def bench_fit(name: str, C: float, n_features: int, n_rows: int, n_more: int = 50) -> None:
    stream = STREAMS[name](n_rows + n_more, n_features, SEPARATIONS[name][SIZE])
    rows, gamma = part(stream, 0, n_rows), 1.0 / (n_features * stream[0].var())
    model = IncrementalSVC(C, gamma=gamma)
    ours, svc = seconds_of(lambda: model.fit(*rows)), seconds_of_refit(rows, C, gamma)
    more = 1e3 * np.array(
        [seconds_of(lambda i=i: model.partial_fit(*part(stream, n_rows + i, 1))) for i in range(n_more)]
    )
    print(
        f"{name}, C={C:g}: {n_rows:,} rows at once: {ours:.2f} s, SVC {svc:.2f} s, ratio {ours / svc:.2f}; "
        f"one more row: mean {more.mean():.2f} ms, median {np.median(more):.2f}, largest {more.max():.1f}; "
        f"{len(model.support_vectors_):,} support vectors, {model.margin_size_:,} in the margin set"
    )


def seconds_of(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slides", type=int, default=18_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--C", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000)
    measurements = ["update", "window", "predict", "fit"]
    parser.add_argument("--only", nargs="+", choices=measurements, default=measurements)
    options = parser.parse_args()
    for name, C in product(STREAMS, options.C):
        if "update" in options.only:
            bench_update(name, C, options.features, options.repeats)
        if "window" in options.only:
            bench_window(name, C, options.features, options.slides // SLIDES_PER_RUN * SLIDES_PER_RUN)
        if "predict" in options.only:
            bench_predict(name, C, options.features, min(options.slides, 3_000))
        if "fit" in options.only:
            bench_fit(name, C, options.features, options.rows)


if __name__ == "__main__":
    main()
