"""Cost of thread safety: calls with and without the guards of steelyard._concurrency.

    python benchmarks/speed/bench_concurrency.py [--quick] [--only NAME]

The guard of a mutating call acquires the lock, runs the call on a shallow copy and publishes the copy. The
guard of a reading call makes it read one published state. The library is imported twice, with and without
guards (also for the estimators inside wrappers), and both versions alternate on the same rows.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import median_time

N_FEATURES, N_START, BLOCK = 20, 300, 50
TARGET = 1.10
SLOW = {
    "IncrementalSVC",
    "EnclosingClassifier",
    "AlignedSVC",
    "StreamClassifier",
}  # number of rows for slow learners


def remove_guards() -> None:
    """Let later imports of the library define methods without guards."""
    for name in [name for name in sys.modules if name.split(".")[0] == "steelyard"]:
        if name != "steelyard._native":
            del sys.modules[name]
    import steelyard._concurrency as guards

    for name in ("transactional", "synchronized", "snapshot_read"):
        setattr(guards, name, lambda method: method)


def learners() -> dict[str, Callable[[], Any]]:
    from steelyard import (
        KOIL,
        AdaptiveThresholdClassifier,
        AlignedSVC,
        EnclosingClassifier,
        IncrementalSVC,
        MultiKernelKOIL,
        ProximalSVC,
        StreamClassifier,
    )
    from steelyard.online import NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
    from steelyard.windowing import AdaptiveWindows, ExponentialDecay, SlidingWindow

    kernels = [{"kernel": "rbf", "gamma": 0.05}, {"kernel": "linear"}]
    return {
        "ProximalSVC": ProximalSVC,
        "ProximalSVC with ledger": lambda: ProximalSVC(track_rows=True),
        "IncrementalSVC": lambda: IncrementalSVC(gamma=0.05),
        "EnclosingClassifier": EnclosingClassifier,
        "AlignedSVC": lambda: AlignedSVC(random_state=0),
        "KOIL": lambda: KOIL(random_state=0),
        "MultiKernelKOIL": lambda: MultiKernelKOIL(kernels, random_state=0),
        "OnlinePerceptron": OnlinePerceptron,
        "OAM": lambda: OAM(random_state=0),
        "OPAUC": OPAUC,
        "NORMA": NORMA,
        "RBP": lambda: RBP(random_state=0),
        "Forgetron": Forgetron,
        "Projectron": Projectron,
        "SlidingWindow": lambda: SlidingWindow(ProximalSVC(), size=200),
        "ExponentialDecay": lambda: ExponentialDecay(ProximalSVC(), half_life=100),
        "AdaptiveWindows": lambda: AdaptiveWindows(ProximalSVC()),
        "AdaptiveThresholdClassifier": lambda: AdaptiveThresholdClassifier(ProximalSVC()),
        "StreamClassifier": StreamClassifier,
    }


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_START + 8000, N_FEATURES))
    return X, (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0.7).astype(int)


def compare(name: str, method: str, models: tuple[Any, Any], X: Any, y: Any) -> None:
    """Print both times of one method: the minimum over alternating blocks of the median time per row."""
    calls = [_call(model, method, X, y) for model in models]
    best = [np.inf, np.inf]
    for block, begin in enumerate(range(0, len(X) - BLOCK + 1, BLOCK)):
        for number in (0, 1) if block % 2 else (1, 0):
            best[number] = min(best[number], median_time(calls[number], range(begin, begin + BLOCK)))
    ratio = best[0] / best[1]
    print(
        f"{name:23s} {method:12s} {1e6 * best[0]:8.2f} us, without {1e6 * best[1]:8.2f}, "
        f"ratio {ratio:5.3f} (target {TARGET}: {'met' if ratio <= TARGET else 'MISSED'})",
        flush=True,
    )


def _call(model: Any, method: str, X: Any, y: Any) -> Callable[[int], object]:
    if method == "predict":
        return lambda i: model.predict(X[i : i + 1])
    return lambda i: model.partial_fit(X[i : i + 1], y[i : i + 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="only learners whose name contains this text")
    options = parser.parse_args()
    n_rows = 1600 if options.quick else 8000
    guarded = learners()
    remove_guards()
    bare = learners()
    X, y = rows()
    gc.disable()
    for name, make in guarded.items():
        if options.only is not None and options.only not in name:
            continue
        used = slice(N_START, N_START + n_rows // (4 if name in SLOW else 1))
        for method in ("predict", "partial_fit"):
            models = (make().fit(X[:N_START], y[:N_START]), bare[name]().fit(X[:N_START], y[:N_START]))
            if hasattr(models[0], method):
                compare(name, method, models, X[used], y[used])


if __name__ == "__main__":
    main()
