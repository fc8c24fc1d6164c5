"""Memory and speed of KeyedClassifier with many keys, compared with one ProximalSVC for the same rows.

    python benchmarks/speed/bench_keyed.py [--quick]

Rows of 10 columns arrive in batches of 10,000. Every key has rows of both classes in both folds of
``borrow="auto"``, which takes the most memory. Targets: 1,000,000 keys in at most 4 GB of memory of the
process, and at least 50,000 rows per second learned and scored.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from steelyard import KeyedClassifier, ProximalSVC

D = 10
BATCH = 10_000
ROWS_PER_KEY = 8
MAX_BYTES, MIN_ROWS_PER_SECOND = 4e9, 50_000


def batches(n_keys: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches in which each key has ``ROWS_PER_KEY`` rows, half of them of each class."""
    rng = np.random.default_rng(seed)
    for turn in range(ROWS_PER_KEY):
        keys = rng.permutation(n_keys)
        for begin in range(0, n_keys, BATCH):
            chosen = keys[begin : begin + BATCH]
            y = np.full(len(chosen), turn % 2)
            y[0] = 1 - y[0]  # the first batch must contain both classes
            yield np.column_stack([chosen, rng.normal(size=(len(chosen), D)) + y[:, None]]), y


def peak_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def report(what: str, rate: float) -> None:
    met = "met" if rate >= MIN_ROWS_PER_SECOND else "MISSED"
    print(f"{what:<44}{rate:12,.0f} rows/s (target {MIN_ROWS_PER_SECOND:,}: {met})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 keys")
    n_keys = 100_000 if parser.parse_args().quick else 1_000_000
    model, one = KeyedClassifier(), ProximalSVC()
    seconds = {"keyed": 0.0, "one": 0.0, "scored": 0.0}
    n_rows = n_scored = 0
    for number, (X, y) in enumerate(batches(n_keys)):
        started = time.perf_counter()
        model.partial_fit(X, y)
        seconds["keyed"] += time.perf_counter() - started
        started = time.perf_counter()
        one.partial_fit(X[:, 1:], y)
        seconds["one"] += time.perf_counter() - started
        n_rows += len(y)
        if number % 50 == 49:  # score rows with 10,000 different keys
            model.borrow_  # noqa: B018 - the selection is measured below
            started = time.perf_counter()
            model.decision_function(X)
            seconds["scored"] += time.perf_counter() - started
            n_scored += len(X)
    report(f"{n_rows:,} rows of {n_keys:,} keys learned", n_rows / seconds["keyed"])
    print(f"{'':<44}{seconds['one'] / seconds['keyed']:12.3f} of the rate of one ProximalSVC")
    report(f"{n_scored:,} rows of as many keys scored", n_scored / seconds["scored"])
    met = "met" if peak_bytes() <= MAX_BYTES else "MISSED"
    print(f"{'sums of all keys':<44}{model.nbytes_ / 1e9:12.2f} GB")
    print(f"{'largest memory of the process':<44}{peak_bytes() / 1e9:12.2f} GB (target 4: {met})")
    started = time.perf_counter()
    model._state.selected = None
    model.borrow_  # noqa: B018
    print(f"{'selection of borrow':<44}{time.perf_counter() - started:12.2f} s")
    started = time.perf_counter()
    model.forget_key(n_keys // 2)
    print(f"{'forget_key':<44}{1e3 * (time.perf_counter() - started):12.2f} ms")
    started = time.perf_counter()
    model.digest()
    print(f"{'digest':<44}{time.perf_counter() - started:12.2f} s")


if __name__ == "__main__":
    main()
