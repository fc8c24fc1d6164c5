"""Streams for the tests of online learners."""

from __future__ import annotations

import numpy as np


def make_stream(n=1500, d=4, seed=0, rare=0.2):
    """Return a stream of overlapping classes that starts with one class and has duplicate rows in both."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < rare, 1, -1)
    y[: n // 10] = -1
    X = rng.normal(size=(n, d)) / np.sqrt(d) + 0.4 * y[:, None]
    X[n // 2 : n // 2 + n // 20] = X[n // 2]
    return X, y
