"""What it costs that threads and signals find every learner whole: calls with and without the guard.

    python benchmarks/speed/bench_turns.py [--quick]

The guard of a call that learns takes the learner's lock, works on a twin and publishes it; that of a call
that asks holds on to one published state. The same methods are called without it on a learner of their own.
"""

from __future__ import annotations

import argparse
import gc
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from turns import median_time

from steelyard import KOIL, EnclosingClassifier, IncrementalSVC, ProximalSVC
from steelyard.online import OnlinePerceptron

N_FEATURES = 20
TARGET = 1.05


def compare(name: str, method: str, make: Callable[[], Any], X: Any, y: Any) -> None:
    """Print both times of one method; the best of several turns of each."""
    guarded, plain = make(), make()
    bare = inspect.unwrap(getattr(type(plain), method))
    if bare is getattr(type(plain), method):
        print(f"{name:22s} {method:12s} has no guard of its own")
        return
    learns = method == "partial_fit"

    def with_guard(i: int) -> object:
        rows = X[i : i + 1]
        return guarded.partial_fit(rows, y[i : i + 1]) if learns else guarded.predict(rows)

    def without(i: int) -> object:
        rows = X[i : i + 1]
        return bare(plain, rows, y[i : i + 1]) if learns else bare(plain, rows)

    best = np.full(2, np.inf)
    parts = np.array_split(np.arange(len(X)), 8)
    for part in parts:
        rows = range(int(part[0]), int(part[-1]) + 1)
        best = np.minimum(best, [median_time(with_guard, rows), median_time(without, rows)])
    ratio = best[0] / best[1]
    met = "met" if ratio <= TARGET else "MISSED"
    print(
        f"{name:22s} {method:12s} {1e6 * best[0]:8.2f} us, without {1e6 * best[1]:8.2f}, "
        f"ratio {ratio:5.3f} (target {TARGET}: {met})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    n_rows = 800 if parser.parse_args().quick else 8000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows + 300, N_FEATURES))
    y = (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0.7).astype(int)
    learners: dict[str, Callable[[], Any]] = {
        "ProximalSVC": ProximalSVC,
        "IncrementalSVC": lambda: IncrementalSVC(gamma=0.05),
        "KOIL": lambda: KOIL(random_state=0),
        "OnlinePerceptron": OnlinePerceptron,
        "EnclosingClassifier": EnclosingClassifier,
    }
    gc.disable()
    for name, make in learners.items():
        few = 0.1 if name in {"IncrementalSVC", "EnclosingClassifier"} else 1.0  # their rows cost more
        rows = slice(300, 300 + int(few * n_rows))
        for method in ("predict", "partial_fit"):
            compare(name, method, lambda make=make: make().fit(X[:300], y[:300]), X[rows], y[rows])


if __name__ == "__main__":
    main()
