"""Enclosing spheres and ellipsoids ("bodies"), computed with explicit features and with kernels."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.enclosing import bodies
from steelyard.enclosing.bodies import (
    BodySettings,
    ClassRows,
    Ellipsoid,
    KernelEllipsoid,
    KernelSphere,
    Sphere,
    build_body,
    distance_ratios,
    nearest_bodies,
)
from tests.enclosing.reference import (
    dual_value,
    kernel_matrix,
    solve_dual,
    squared_distances,
    whitened_matrix,
)

KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.3},
    "polynomial": {"gamma": 0.5, "degree": 2, "coef0": 1.0},
}


def settings_of(**parameters):
    defaults = {
        "shape": "ellipsoid",
        "kernel": "linear",
        "gamma": 1.0,
        "degree": 3,
        "coef0": 0.0,
        "C": None,
        "outliers": 0.0,
        "ridge": 0.01,
    }
    return BodySettings(**(defaults | parameters))


def rows_of(X):
    return ClassRows.gather(X, np.ones(len(X)))


@pytest.fixture(autouse=True)
def tight_solver(monkeypatch):
    monkeypatch.setattr(bodies, "TOLERANCE", 1e-10)


@pytest.mark.parametrize("outliers", [0.0, 0.2])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
def test_enclosing_body_matches_dual_optimum(shape, kernel, outliers):
    rows = rows_of(np.random.default_rng(0).normal(size=(25, 3)))
    body = build_body(rows, settings_of(shape=shape, kernel=kernel, outliers=outliers, **KERNELS[kernel]))
    G = kernel_matrix(rows.X, rows.X, kernel, **KERNELS[kernel])
    if shape == "ellipsoid":
        G = whitened_matrix(G, 0.01)
    bounds = np.full(25, 1.0 if outliers == 0.0 else 1.0 / (outliers * 25))
    expected = solve_dual(G, bounds)
    assert dual_value(G, body.ball.alpha) == pytest.approx(dual_value(G, expected), rel=1e-6)
    np.testing.assert_allclose(
        body.squared_distances(rows.X), squared_distances(G, body.ball.alpha), rtol=1e-8, atol=1e-9
    )


@pytest.mark.parametrize("ridge", [0.01, 1.0, "auto"])
@pytest.mark.parametrize("shape", [(40, 6), (12, 30)], ids=["n > d", "n < d"])
def test_linear_ellipsoid_in_kernel_form_matches_explicit_form(shape, ridge):
    rng = np.random.default_rng(1)
    rows = rows_of(rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 3.0)
    fresh = rng.normal(size=(50, shape[1])) * 3
    parameters = settings_of(ridge=ridge, outliers=0.1)
    explicit, kernelised = (kind.build(rows, parameters) for kind in (Ellipsoid, KernelEllipsoid))
    assert kernelised.ball.radius == pytest.approx(explicit.ball.radius, rel=1e-6)
    np.testing.assert_allclose(
        kernelised.squared_distances(fresh), explicit.squared_distances(fresh), rtol=1e-6, atol=1e-6
    )


def test_linear_sphere_in_kernel_form_matches_explicit_form():
    rows = rows_of(np.random.default_rng(2).normal(size=(60, 3)))
    fresh = np.random.default_rng(3).normal(size=(20, 3))
    explicit, kernelised = (kind.build(rows, settings_of(shape="sphere")) for kind in (Sphere, KernelSphere))
    assert kernelised.ball.radius == pytest.approx(explicit.ball.radius, rel=1e-8)
    np.testing.assert_allclose(
        kernelised.squared_distances(fresh), explicit.squared_distances(fresh), rtol=1e-7, atol=1e-9
    )


def test_body_of_fewer_rows_than_features_uses_kernel_form():
    rows = rows_of(np.random.default_rng(4).normal(size=(5, 600)))
    assert isinstance(build_body(rows, settings_of()), KernelEllipsoid)
    assert isinstance(build_body(rows_of(rows.X[:, :100]), settings_of()), Ellipsoid)


def test_ellipsoid_is_rotation_invariant():
    rng = np.random.default_rng(5)
    X, fresh = rng.normal(size=(80, 4)), rng.normal(size=(10, 4))
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    straight = build_body(rows_of(X), settings_of())
    turned = build_body(rows_of(X @ turn), settings_of())
    np.testing.assert_allclose(
        turned.squared_distances(fresh @ turn), straight.squared_distances(fresh), rtol=1e-6
    )


def test_ridge_interpolates_between_ellipsoid_and_sphere():
    rng = np.random.default_rng(6)
    rows, fresh = rows_of(rng.normal(size=(50, 3)) * [1, 5, 0.2]), rng.normal(size=(20, 3))
    sphere = build_body(rows, settings_of(shape="sphere"))
    round_one = build_body(rows, settings_of(ridge=1e9))
    ratios = [np.sqrt(body.squared_distances(fresh)) / body.ball.radius for body in (sphere, round_one)]
    np.testing.assert_allclose(ratios[1], ratios[0], rtol=1e-6)
    bare = build_body(rows, settings_of(ridge=1e-12))
    scaled = build_body(rows_of(rows.X * [7, 0.1, 30]), settings_of(ridge=1e-12))
    np.testing.assert_allclose(
        scaled.squared_distances(fresh * [7, 0.1, 30]), bare.squared_distances(fresh), rtol=1e-6
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
@pytest.mark.parametrize("ridge", [0.01, "auto"])
def test_body_of_single_row_has_radius_zero(shape, kernel, ridge):
    row = np.random.default_rng(7).normal(size=(1, 3))
    body = build_body(rows_of(row), settings_of(shape=shape, kernel=kernel, ridge=ridge, **KERNELS[kernel]))
    assert body.ball.radius == 0.0
    assert body.squared_distances(row)[0] == 0.0
    assert body.squared_distances(row + 1.0)[0] > 0.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_training_rows_are_inside_degenerate_ellipsoid(kernel):
    X = np.random.default_rng(8).normal(size=(90, 4))
    X[:, 2] = 1.5  # constant
    X[:, 3] = X[:, 0]  # dependent
    rows = rows_of(X)
    body = build_body(rows, settings_of(kernel=kernel, ridge=1e-6, **KERNELS[kernel]))
    assert np.sqrt(body.squared_distances(rows.X)).max() <= body.ball.radius * (1 + 1e-4)


def test_variance_of_constant_feature_equals_ridge():
    X = np.random.default_rng(9).normal(size=(50, 2))
    body = build_body(rows_of(np.column_stack([X, np.full(50, 4.0)])), settings_of(ridge=0.25))
    moved = body.ball.alpha @ rows_of(np.column_stack([X, np.full(50, 4.0)])).X
    moved[2] += 3.0
    assert body.squared_distances(moved[None, :])[0] == pytest.approx(3.0**2 / 0.25)


@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
@pytest.mark.parametrize("n_classes", [1, 3, 9])
def test_nearest_body_is_the_first_with_smallest_distance_ratio(shape, n_classes):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, 4)) + 2 * rng.normal(size=4) for _ in range(n_classes)]
    rows += [rows[0], rows[-1], rows[0][:1]]  # equal bodies, and a single point
    all_bodies = [build_body(rows_of(X), settings_of(shape=shape)) for X in rows]
    X = np.concatenate([rng.normal(size=(300, 4)) * 3, *rows, [[1e90, 0.0, 0.0, 0.0]]])
    ratios = distance_ratios(all_bodies, X)
    nearest, smallest = nearest_bodies(all_bodies, X)
    np.testing.assert_array_equal(nearest, ratios.argmin(axis=1))
    np.testing.assert_array_equal(smallest, ratios.min(axis=1))


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12])
@pytest.mark.parametrize("scale", [1e-70, 1.0, 1e70])
def test_nearest_sphere_is_invariant_to_offset_and_scale(offset, scale):
    rng = np.random.default_rng(1)
    middles = rng.normal(size=(12, 5))
    spreads = [1e-9, 1e-3, 1.0] * 4
    classes = [scale * (rng.normal(size=(9, 5)) * spreads[i] + middles[i]) for i in range(12)]
    classes = [X + scale * offset for X in classes]
    spheres = [build_body(rows_of(X), settings_of(shape="sphere")) for X in classes]
    X = scale * (2 * rng.normal(size=(400, 5)) + offset)
    halfway = (classes[2][:200] + classes[5][:200]) / 2  # rows at similar distances to two spheres
    X = np.concatenate([X, halfway, *classes])
    ratios = distance_ratios(spheres, X)
    nearest, smallest = nearest_bodies(spheres, X)
    np.testing.assert_array_equal(nearest, ratios.argmin(axis=1))
    np.testing.assert_array_equal(smallest, ratios.min(axis=1))
