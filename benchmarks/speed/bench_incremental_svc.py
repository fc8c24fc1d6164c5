"""VersionedValue an exact kernel SVM row by row, beside refitting SVC.

    python benchmarks/speed/bench_incremental_svc.py [--slides 18000] [--repeats 20] [--C 1 10]
                                                     [--features 20] [--rows 20000]
                                                     [--only update window answers nothing]

Two streams, both with about 10 % support vectors (rbf kernel, gamma = 1 / (features * variance)), each with
every C:

- ``mixed``: imbalanced 1:9, features are mixtures of 5 hidden dimensions with some noise;
- ``isotropic``: balanced, independent features of which 4 tell the classes apart. The boundary has more
  freedom, so the margin set is larger: this is the harder case.

Four questions for each:

- ``update``: 5,000 rows, then 10 rows come and 10 go in one call, against one fit of SVC on the 5,000 rows;
  five calls follow each other before SVC is fitted again, as calls of a stream would;
- ``window``: a window of 2,000 rows slides over the stream, each row in and each row out by a call of its
  own, the model exact after each, against one fit of SVC for every 50 rows. How long a fit takes is looked
  at after every 500 rows: between two slides of a stream nobody fits an SVC;
- ``answers``: the same window, where every row is predicted before it comes in, beside what the kernel values
  alone cost that both need: those of the row with the support vectors, twice;
- ``nothing``: so many rows (20,000) learned at once, against one fit of SVC, and then row by row.

SVC has its default tolerance (1e-3) and cache (200 MB). Now and then it is also fitted with tol=1e-8, which
is nearer to the accuracy of the model beside it.

Times are processor times (both sides run on one thread) and both sides alternate, so that other load on the
machine counts little and hits both. At the end the models are compared with SVC at tol=1e-10.
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
STRETCH = 50  # slides for one refit
RUN = 500  # slides before the time of a refit is taken again
IN_A_ROW = 5  # updates between refits


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
# How far the classes are apart, so that a tenth of so many rows are support vectors.
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
    for i in range(begin, begin + RUN):
        model.update(add=part(stream, i + WINDOW, 1), forget=part(stream, i, 1))
    return process_time() - start


class Shares:
    """Support vectors and margin set over the run, as shares of the rows."""

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
    """Times of one call, or of one row where the calls are for `n_rows` rows; ours come first."""
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
    n_updates = repeats * IN_A_ROW
    stream = STREAMS[name](SIZE + 10 * n_updates, n_features, SEPARATIONS[name][SIZE])
    shares = Shares(SIZE)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, SIZE))
    times: dict[str, list[float]] = {"IncrementalSVC": [], "SVC": [], "SVC(tol=1e-8)": []}
    for update in range(n_updates):
        add, forget = part(stream, 10 * update + SIZE, 10), part(stream, 10 * update, 10)
        times["IncrementalSVC"].append(seconds_of_update(model, add, forget))
        if (update + 1) % IN_A_ROW:
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
    for begin in range(0, slides, RUN):
        times["IncrementalSVC"].append(seconds_of_slides(model, stream, begin) / (RUN / STRETCH))
        shares.note(model)
        rows = part(stream, begin + RUN, WINDOW)
        times["SVC"].append(seconds_of_refit(rows, C, model.gamma))
        times["SVC(tol=1e-8)"].append(seconds_of_refit(rows, C, model.gamma, tol=1e-8))
    what = f"{name}, C={C:g}: window, {WINDOW:,} of {WINDOW + slides:,} rows, each row"
    report(what, shares, STRETCH, times)
    report_exactness(model, part(stream, slides, WINDOW), C, model.gamma)


def bench_answers(name: str, C: float, n_features: int, slides: int) -> None:
    stream = STREAMS[name](WINDOW + slides, n_features, SEPARATIONS[name][WINDOW], seed=1)
    model = IncrementalSVC(C, gamma=1.0 / (n_features * stream[0].var())).fit(*part(stream, 0, WINDOW))
    asked, learned = [], []
    for i in range(slides):
        row = part(stream, i + WINDOW, 1)
        start = process_time()
        model.predict(row[0])
        asked.append(process_time() - start)
        learned.append(seconds_of_update(model, row, part(stream, i, 1)))
    kernel, vectors = Kernel("rbf", gamma=model.gamma), model.support_vectors_
    block = min(seconds_of(lambda: kernel.block(stream[0], vectors, n_threads=1)) for _ in range(5))
    ask, learn, floor = 1e6 * np.mean(asked), 1e6 * np.mean(learned), 2e6 * block / len(stream[0])
    print(
        f"{name}, C={C:g}: window of {WINDOW:,}, answers: {ask + learn:.1f} us a row ({ask:.1f} to ask, "
        f"{learn:.1f} to learn and forget); kernel values alone {floor:.1f} us"
    )


def bench_nothing(name: str, C: float, n_features: int, n_rows: int, n_more: int = 50) -> None:
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
    questions = ["update", "window", "answers", "nothing"]
    parser.add_argument("--only", nargs="+", choices=questions, default=questions)
    options = parser.parse_args()
    for name, C in product(STREAMS, options.C):
        if "update" in options.only:
            bench_update(name, C, options.features, options.repeats)
        if "window" in options.only:
            bench_window(name, C, options.features, options.slides // RUN * RUN)
        if "answers" in options.only:
            bench_answers(name, C, options.features, min(options.slides, 3_000))
        if "nothing" in options.only:
            bench_nothing(name, C, options.features, options.rows)


if __name__ == "__main__":
    main()
