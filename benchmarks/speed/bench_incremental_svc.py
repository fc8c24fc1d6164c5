"""Following an exact kernel SVM row by row, beside refitting SVC.

    python benchmarks/speed/bench_incremental_svc.py [--slides 18000] [--repeats 5] [--C 10]

The stream is imbalanced 1:9 and has 20 features with 5 dimensions behind them; about 10 % of the rows are
support vectors (rbf kernel, gamma="scale"). Two questions:

- ``update``: 5,000 rows, then 10 rows come and 10 go in one call, against one fit of SVC (tol=1e-3, its
  default) on the 5,000 rows;
- ``window``: a window of 2,000 rows slides over the stream, each row in and each row out by a call of its own,
  the model exact after each, against one fit of SVC for every 50 rows.

Both sides alternate and the best of the repeats counts (the window: stretches of 50 rows, medians), so that other load
on the machine hits both. At the end the models are compared with SVC at tol=1e-10.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from steelyard import IncrementalSVC

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

WINDOW = 2_000
STRETCH = 50  # slides for one refit


def make_stream(n_rows: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.1).astype(np.int64)
    latent = rng.normal(size=(n_rows, 5))
    latent[:, 0] += np.where(y == 1, 1.5, -1.5)
    mixing = np.random.default_rng(7).normal(size=(5, 20))
    return latent @ mixing + 0.3 * rng.normal(size=(n_rows, 20)), y


def seconds(call) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def bench_update(C: float, repeats: int) -> None:
    X, y = make_stream(5_000 + 10 * repeats)
    model = IncrementalSVC(C).fit(X[:5_000], y[:5_000])
    gamma = model._state.kernel.gamma
    update, refit = [], []
    for k in range(repeats):
        old, new = slice(10 * k, 10 * k + 10), slice(5_000 + 10 * k, 5_010 + 10 * k)
        update.append(seconds(lambda: model.update(add=(X[new], y[new]), retire=(X[old], y[old]))))
        refit.append(seconds(lambda: SVC(C=C, gamma=gamma).fit(X[old.stop : new.stop], y[old.stop : new.stop])))
    rows = slice(10 * repeats, 5_000 + 10 * repeats)
    print(
        f"update: 5,000 rows, {len(model.support_vectors_)} support vectors, {model.margin_size_} in the margin set; "
        f"10 in, 10 out {1e3 * np.median(update):.2f} ms (best {1e3 * min(update):.2f}), "
        f"refit {1e3 * np.median(refit):.1f} ms (best {1e3 * min(refit):.1f}): "
        f"{np.median(refit) / np.median(update):.1f} times faster (best of each: {min(refit) / min(update):.1f})"
    )
    report_exactness(model, X[rows], y[rows], C, gamma)


def bench_window(C: float, slides: int) -> None:
    X, y = make_stream(WINDOW + slides, seed=1)
    model = IncrementalSVC(C).fit(X[:WINDOW], y[:WINDOW])
    gamma = model._state.kernel.gamma
    sliding, refit = [], []

    def slide(begin: int) -> None:
        for i in range(begin, begin + STRETCH):
            j = i + WINDOW
            model.update(add=(X[j : j + 1], y[j : j + 1]), retire=(X[i : i + 1], y[i : i + 1]))

    for begin in range(0, slides, STRETCH):
        sliding.append(seconds(lambda: slide(begin)))
        rows = slice(begin + STRETCH, begin + STRETCH + WINDOW)
        refit.append(seconds(lambda: SVC(C=C, gamma=gamma).fit(X[rows], y[rows])))
    print(
        f"window: {WINDOW:,} rows over {WINDOW + slides:,}, {len(model.support_vectors_)} support vectors, "
        f"{model.margin_size_} in the margin set; {1e6 * sum(sliding) / slides:.0f} us a row (median "
        f"{1e6 * np.median(sliding) / STRETCH:.0f}), refits {1e6 * sum(refit) / slides:.0f} us a row (median "
        f"{1e6 * np.median(refit) / STRETCH:.0f}): {sum(refit) / sum(sliding):.1f} times faster in all "
        f"(medians: {np.median(refit) / np.median(sliding):.1f})"
    )
    report_exactness(model, X[slides:], y[slides:], C, gamma)


def report_exactness(model: IncrementalSVC, X, y, C: float, gamma: float) -> None:
    reference = SVC(C=C, gamma=gamma, tol=1e-10).fit(X, y)
    difference = np.abs(model.decision_function(X) - reference.decision_function(X)).max()
    print(
        f"        largest violation {model.kkt_violation():.1e}; decision function within {difference:.1e} of "
        "SVC(tol=1e-10), whose kernel values are float32"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slides", type=int, default=18_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--C", type=float, default=10.0)
    options = parser.parse_args()
    bench_update(options.C, options.repeats)
    bench_window(options.C, options.slides // STRETCH * STRETCH)


if __name__ == "__main__":
    main()
