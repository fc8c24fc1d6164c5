"""Table I of the paper: incremental, distributed and both at once give the batch classifier.

The sets of the paper are Heart, Breast Wisconsin, Anonymous Web and CoverType. The second one ships with
scikit-learn; the others are drawn here in the same shape (mixed scales, sparse 0/1 visits, soil indicators),
with fewer rows where more would only take time. The real ones: ``benchmarks/papers/distributed_table1.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

from steelyard import ProximalSVC
from steelyard.distributed.partitions import Part, Pass, learn_partition, merge_parts


def heart(rng):
    X = rng.normal(size=(303, 75)) * 10.0 ** rng.uniform(-2, 3, 75)
    X[:, 60:] = np.round(X[:, 60:])
    return X, (rng.random(303) < 0.46).astype(int)


def breast_wisconsin(_rng):
    return load_breast_cancer(return_X_y=True)


def anonymous_web(rng):
    visits = rng.random((6000, 294)) < 0.4 / np.arange(1, 295)
    y = (rng.random(6000) < 0.1 + 0.5 * visits[:, 3]).astype(int)
    return sp.csr_matrix(visits.astype(float)), y


def cover_type(rng):
    n_rows = 20_000
    terrain = rng.normal(size=(n_rows, 10)) * [280, 112, 7, 213, 58, 1559, 27, 20, 38, 1324]
    terrain += [2959, 156, 14, 269, 46, 2350, 212, 223, 143, 1980]
    areas, soils = np.eye(4)[rng.integers(0, 4, n_rows)], np.eye(40)[rng.integers(0, 40, n_rows)]
    y = (terrain[:, 0] + 300 * rng.normal(size=n_rows) < 2200).astype(int)
    return np.hstack([terrain, areas, soils]), y


def distributed(model, method, nodes):
    work = Pass(model, method)
    parts = [
        learn_partition(work.kinds, X, y, None, f"partition {node}") for node, (X, y) in enumerate(nodes)
    ]
    work.finish(merge_parts([[Part.from_bytes(part.to_bytes()) for part in node] for node in parts]))
    return model


def incremental(X, y):
    half = len(y) // 2
    return ProximalSVC().partial_fit(X[:half], y[:half]).partial_fit(X[half:], y[half:])


def on_two_nodes(X, y):
    return distributed(ProximalSVC(), "fit", [(X[::2], y[::2]), (X[1::2], y[1::2])])


def incremental_on_two_nodes(X, y):
    model, half = ProximalSVC(), len(y) // 2
    for rows in (slice(None, half), slice(half, None)):
        nodes = [(X[rows][node::2], y[rows][node::2]) for node in range(2)]
        distributed(model, "partial_fit", nodes)
    return model


@pytest.mark.parametrize("data", [heart, breast_wisconsin, anonymous_web, cover_type])
@pytest.mark.parametrize("learn", [incremental, on_two_nodes, incremental_on_two_nodes])
def test_the_classifier_is_that_of_the_batch(rng, data, learn):
    X, y = data(rng)
    batch, model = ProximalSVC().fit(X, y), learn(X, y)
    plane, batch_plane = (np.append(m.coef_[0], m.intercept_) for m in (model, batch))
    assert np.linalg.norm(plane - batch_plane) <= 1e-10 * np.linalg.norm(batch_plane)
