"""Riemannian magnification and kernel-target alignment of a transformed kernel."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from steelyard import AlignedSVC
from steelyard.exceptions import DataError


@pytest.fixture
def fitted(rng):
    """Return a model fitted with one round as published, and its rows and labels."""
    y = (rng.random(150) < 0.2).astype(int)
    X = rng.normal(size=(150, 2)) + 1.5 * y[:, None]
    options = {"early_stopping": False, "max_iter": 1, "shift": False, "gamma": 0.4}
    return AlignedSVC(10.0, variant="printed", **options).fit(X, y), X, y


def metric(model, x, step=3e-3):
    """Return g_ij of equation 2 by mixed second differences of the transformed kernel."""
    d = len(x)
    g = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            total = 0.0
            for a in (1, -1):
                for b in (1, -1):
                    left, right = x + a * step * np.eye(d)[i], x + b * step * np.eye(d)[j]
                    D = model.alignment_factor(np.array([left, right]))
                    total += a * b * D[0] * D[1] * rbf_kernel([left], [right], gamma=0.4)[0, 0]
            g[i, j] = total / (4.0 * step**2)
    return g


def test_magnification_equals_volume_element_of_equation_2(fitted):
    model, X, _ = fitted
    for x in X[:10]:
        expected = np.sqrt(np.linalg.det(metric(model, x))) / (2.0 * 0.4)  # 2 * gamma is the plain metric
        assert model.magnification(x[None])[0] == pytest.approx(expected, rel=1e-3)


def test_magnification_without_rounds_is_one(rng):
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 3)) + y[:, None]
    np.testing.assert_allclose(AlignedSVC(max_iter=0).fit(X, y).magnification(X), 1.0)


def test_magnification_of_linear_kernel_raises_and_names_alternative(fitted, rng):
    X, y = rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    with pytest.raises(DataError, match="alignment_factor"):
        AlignedSVC(kernel="linear").fit(X, y).magnification(X)


def test_kernel_target_alignment_is_cosine_between_kernel_and_label_matrix(fitted):
    model, X, y = fitted
    signs = np.where(y == 1, 1.0, -1.0)
    target = np.outer(signs, signs)
    D = model.alignment_factor(X)
    K = rbf_kernel(X, gamma=0.4)
    expected = [
        (M * target).sum() / np.sqrt((M * M).sum() * (target * target).sum()) for M in (K, K * np.outer(D, D))
    ]
    assert model.kernel_target_alignment(X, y) == pytest.approx(tuple(expected))


def test_kernel_target_alignment_with_too_few_labels_raises(fitted):
    model, X, y = fitted
    with pytest.raises(DataError, match="150 rows; got 3"):
        model.kernel_target_alignment(X, y[:3])
