"""Rows divided into partitions of unusual sizes, and the result of a local fit for comparison."""

from __future__ import annotations

import numpy as np

from steelyard import ProximalSVC
from tests.proximal.data import assert_same_planes, imbalanced

# Row numbers at which the rows are split into partitions. For "one class each" the rows are sorted by class.
CUTS = {
    "one": [],
    "halves": [300],
    "skewed, with single rows": [1, 2, 598, 599],
    "empty in front, between and behind": [0, 200, 200, 450, 600],
    "one class each": [330, 480],
}


def rows_and_cuts(rng, cut):
    """Return 600 rows of three classes, one of them rare, and the row numbers where partitions begin."""
    X, y = imbalanced(rng, 600, 6, (0.55, 0.4, 0.05))
    if cut == "one class each":
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
        return X, y, list(np.cumsum(np.bincount(y))[:-1])
    return X, y, CUTS[cut]


def assert_same_model(model, fresh, tolerance=1e-10):
    np.testing.assert_array_equal(model.classes_, fresh.classes_)
    np.testing.assert_array_equal(model.class_count_, fresh.class_count_)
    assert_same_planes(model, fresh.coef_, fresh.intercept_, tolerance)


def one_machine(X, y, **parameters):
    return ProximalSVC(**parameters).fit(X, y)


class SynchronousClient:
    """Replacement for a Dask client that runs every task immediately in this process."""

    def compute(self, task):
        import dask

        # With the name "sync" instead of the function, some versions warn if a cluster is running.
        return SynchronousResult(task.compute(scheduler=dask.get))


class SynchronousResult:
    def __init__(self, value):
        self.value = value

    def result(self):
        return self.value
