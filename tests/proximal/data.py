"""Rows for the tests of the proximal learners."""

from __future__ import annotations

import numpy as np


def imbalanced(rng, n_rows=300, n_features=5, shares=(0.9, 0.1)):
    """Return Gaussian classes of different size, scale and center. Every class has at least two rows."""
    n_classes = len(shares)
    y = rng.choice(n_classes, size=n_rows, p=np.asarray(shares) / np.sum(shares))
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
    scale, place = rng.uniform(0.2, 5.0, n_features), rng.normal(size=n_features) * 3.0
    centers = rng.normal(size=(n_classes, n_features))
    return (rng.normal(size=(n_rows, n_features)) + centers[y]) * scale + place, y


def as_learned(model, X):
    """Return the rows rounded to the steps of a model."""
    steps = model.quantizer_.steps
    return np.floor(X / steps + 0.5) * steps


def relative_difference(a, b):
    """Return the largest difference divided by the largest entry of b."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    return np.abs(a - b).max(initial=0.0) / np.abs(b).max(initial=1e-300)


def assert_same_planes(model, coef, intercept, tolerance=1e-10):
    assert relative_difference(model.coef_, coef) < tolerance
    assert relative_difference(model.intercept_, intercept) < tolerance
