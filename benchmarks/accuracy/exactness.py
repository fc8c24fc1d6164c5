"""Compare sliding windows over whole files, bit by bit, with new fits that use the same quantizer.

    python benchmarks/accuracy/exactness.py --data FOLDER [--files NAME ...] [--windows 500 1000 2000]

For every file and window size, rows are learned in chunks and the oldest rows are forgotten. Values are not
scaled beforehand. At a hundred moments a new learner with the same quantizer is fitted to the rows of the
window. The digests of both learners, their planes, and their scores at random near and far points are
compared.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from steelyard import ProximalSVC

FILES = ("nsl_kdd_train20", "nsl_kdd_test", "kdd99_10pct", "covtype", "creditcard_part", "elec2")
MOMENTS = 100


def read(path: Path, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows as numbers, with one column per category, and labels."""
    table = pd.read_csv(path, nrows=limit)
    y = table.pop("target").astype(str).to_numpy()
    table = table.drop(columns=[name for name in ("difficulty",) if name in table])
    return np.ascontiguousarray(pd.get_dummies(table).to_numpy(dtype=np.float64)), y


def compare(model: ProximalSVC, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether the digests are equal, and whether all bits of planes and scores are equal."""
    fresh = ProximalSVC(quantizer=model.quantizer_).fit(X, y)
    far = rng.normal(size=(50, X.shape[1])) * 10.0 ** rng.integers(-3, 10, size=(50, 1))
    near = X[rng.integers(0, len(X), 50)] * rng.normal(size=(50, 1))
    bits = all(
        np.array_equal(mine, theirs)
        for mine, theirs in (
            (model.coef_, fresh.coef_),
            (model.intercept_, fresh.intercept_),
            (model.decision_function(far), fresh.decision_function(far)),
            (model.decision_function(near), fresh.decision_function(near)),
        )
    )
    return model.digest() == fresh.digest(), bits


def slide(X: np.ndarray, y: np.ndarray, window: int, chunk: int) -> tuple[int, int, int, int]:
    """Return the numbers of comparisons, of equal digests, of equal bits, and of all updates."""
    rng = np.random.default_rng(window)
    model = ProximalSVC().fit(X[:window], y[:window])
    ends = list(range(window, len(y) - chunk + 1, chunk))
    looks = set(np.linspace(0, len(ends) - 1, min(MOMENTS, len(ends))).astype(int).tolist())
    digests = bits = 0
    for number, end in enumerate(ends):
        old = slice(end - window, end - window + chunk)
        model.update(add=(X[end : end + chunk], y[end : end + chunk]), forget=(X[old], y[old]))
        if number in looks:
            held = slice(end + chunk - window, end + chunk)
            same = compare(model, X[held], y[held], rng)
            digests, bits = digests + same[0], bits + same[1]
    return len(looks), digests, bits, len(ends)


def main() -> None:
    """Print one line for each file and window."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", nargs="+", default=FILES)
    parser.add_argument("--windows", nargs="+", type=int, default=[500, 1000, 2000])
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    print("| file | rows x features | window | changes | moments | equal digests | equal bits | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.files:
        X, y = read(arguments.data / f"{name}.csv.gz", arguments.limit)
        for window in arguments.windows:
            begin = time.process_time()
            looks, digests, bits, changes = slide(X, y, window, arguments.chunk)
            seconds = time.process_time() - begin
            print(
                f"| {name} | {len(y):,} x {X.shape[1]} | {window:,} | {changes:,} | {looks} | {digests} "
                f"| {bits} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
