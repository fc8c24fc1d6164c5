"""Files of version 0.1, whose floating-point sums become integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from steelyard import ProximalSVC, load
from steelyard.persistence.tree import encode
from steelyard.proximal import ClassStatistics
from tests.proximal.data import imbalanced


def earlier_message(X, y, n_pending):
    """Return a message of version 1: triangles relative to an origin, and pending rows."""
    d, origin = X.shape[1], X[:256].mean(axis=0)
    entries = []
    for label in np.unique(y).tolist():
        mine = X[y == label]
        E = np.column_stack([mine[n_pending:] - origin, np.full(len(mine) - n_pending, -1.0)])
        triangle = (E.T @ E)[np.tril_indices(d + 1)] if len(E) else None
        pending = mine[:n_pending].copy()
        entries.append(
            {"label": label, "triangle": triangle, "rows": pending, "weights": np.ones(len(pending))}
        )
    return encode(
        {
            "format": "steelyard class statistics", "version": 1, "n_features": d, "row_tolerance": 0.0,
            "origin": origin, "touched": [0.0, 256.0], "classes": entries,
        }
    )  # fmt: skip


@pytest.mark.parametrize("n_pending", [0, 7])
def test_statistics_of_version_0_1_load_with_the_same_planes(rng, n_pending):
    X, y = imbalanced(rng, 600, 4, (0.7, 0.3))
    statistics = ClassStatistics.from_bytes(earlier_message(X, y, n_pending))
    assert statistics.from_floats
    assert [statistics.count(label) for label in (0, 1)] == [(y == 0).sum(), (y == 1).sum()]
    model, fresh = ProximalSVC().merge(statistics), ProximalSVC().fit(X, y)
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-7)
    more, labels = imbalanced(rng, 50, 4, (0.7, 0.3))
    before = model.digest()
    assert model.partial_fit(more, labels).forget(more, labels).digest() == before
    assert ClassStatistics.from_bytes(statistics.to_bytes()).digest() == statistics.digest()


def test_file_of_version_0_1_loads_and_continues():
    """The file was written by version 0.1, which also computed the expected planes below."""
    model = load(Path(__file__).parent / "files" / "sums_of_doubles.steelyard")
    assert model.statistics_.from_floats
    np.testing.assert_allclose(model.coef_, [[0.3707534398049871, -0.008727347026921479]], rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, [-0.18323579969583237], rtol=1e-9)
    X, y, before = np.array([[0.125, 3.0], [2.5, 1.0]]), np.array([0, 1]), model.digest()
    assert model.partial_fit(X, y).digest() != before
    assert model.forget(X, y).digest() == before
