"""Jobs for ``compare.py``: typical calls of users, each much shorter than a second.

A job is created once with its data and then called repeatedly. Only public names are used, so that a job also
runs on older builds. A job that a build does not support is reported as missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["JOBS", "job"]

Job = Callable[[], object]
JOBS: dict[str, Callable[[], Job]] = {}


def job(make: Callable[[], Job]) -> Callable[[], Job]:
    """Register a function that creates a job under its name."""
    JOBS[make.__name__] = make
    return make


def rows(n_rows: int, n_features: int, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two overlapping classes; one row in ten belongs to the rare class."""
    rng = np.random.default_rng(0)
    y = (rng.random(n_rows) < 0.1).astype(np.int64)
    return ((rng.normal(size=(n_rows, n_features)) + 0.7 * y[:, None]).astype(dtype), y)


@job
def proximal_learn_chunks() -> Job:
    from steelyard import ProximalSVC

    X, y = rows(100_000, 30)

    def learn() -> None:
        model = ProximalSVC()
        for begin in range(0, len(X), 1000):
            model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000])

    return learn


@job
def proximal_row_by_row() -> Job:
    from steelyard import ProximalSVC

    X, y = rows(500, 30)

    def stream() -> None:
        model = ProximalSVC().fit(X[:50], y[:50])
        for i in range(50, len(X)):
            model.predict(X[i : i + 1])
            model.partial_fit(X[i : i + 1], y[i : i + 1])

    return stream


@job
def proximal_predict() -> Job:
    from steelyard import ProximalSVC

    X, y = rows(100_000, 30)
    model = ProximalSVC().fit(X, y)
    return lambda: model.predict(X)


def _koil(**parameters: Any) -> Job:
    from steelyard import KOIL

    n_features, dtype = parameters.pop("n_features"), parameters.pop("dtype", np.float64)
    X, y = rows(20_000, n_features, dtype)
    return lambda: KOIL(gamma=1.0 / n_features, budget=100, random_state=0, **parameters).fit(X, y)


@job
def koil_8_features() -> Job:
    return _koil(n_features=8)


@job
def koil_20_features() -> Job:
    return _koil(n_features=20)


@job
def koil_20_features_float32() -> Job:
    return _koil(n_features=20, dtype=np.float32)


@job
def koil_sixteen_kernels() -> Job:
    from steelyard import MultiKernelKOIL

    X, y = rows(4_000, 20)
    return lambda: MultiKernelKOIL(C=0.01, budget=100, random_state=0).fit(X, y)


@job
def svc_fit() -> Job:
    from steelyard import IncrementalSVC

    X, y = rows(3_000, 20)
    return lambda: IncrementalSVC(gamma=0.05).fit(X, y)


@job
def svc_window_with_answers() -> Job:
    from steelyard import IncrementalSVC

    size, steps = 1_000, 300
    X, y = rows(size + steps, 20)

    def slide() -> None:
        model = IncrementalSVC(gamma=0.05).fit(X[:size], y[:size])
        for i in range(steps):
            last = slice(size + i, size + i + 1)
            model.predict(X[last])
            # The arguments are positional, because the second parameter has another name in older builds.
            model.update((X[last], y[last]), (X[i : i + 1], y[i : i + 1]))

    return slide


def _kernel_block(dtype: Any) -> Job:
    from steelyard.kernels import Kernel

    X, _ = rows(2_000, 20, dtype)
    kernel = Kernel("rbf", gamma=0.05)
    return lambda: kernel.block(X, X)


@job
def kernel_block_float64() -> Job:
    return _kernel_block(np.float64)


@job
def kernel_block_float32() -> Job:
    return _kernel_block(np.float32)


@job
def enclosing_fit() -> Job:
    from steelyard import EnclosingClassifier

    X, y = rows(2_000, 10)
    return lambda: EnclosingClassifier().fit(X, y)


@job
def auc_of_a_window() -> Job:
    from steelyard.metrics import WindowAUC

    rng = np.random.default_rng(0)
    y, scores = (rng.random(50_000) < 0.1).astype(np.int64), rng.normal(size=50_000)

    def push() -> None:
        auc = WindowAUC(window=1_000)
        for begin in range(0, len(y), 500):
            auc.update(y[begin : begin + 500], y_score=scores[begin : begin + 500])

    return push
