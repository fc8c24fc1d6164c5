"""Compare MultiKernelKOIL with a reference implementation of its algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import MultiKernelKOIL
from steelyard.exceptions import ParameterError
from steelyard.kernels import Kernel
from steelyard.online.koil import default_kernels
from tests.online import reference
from tests.online.streams import make_stream

ETA, C = 0.013, 0.8
FEW = [
    {"kernel": "polynomial", "gamma": 1.0, "degree": 2, "coef0": 0.0},
    {"kernel": "rbf", "gamma": 0.2},
    {"kernel": "rbf", "gamma": 3.0},
    {"kernel": "linear"},
]


def few_matrices(X):
    return [reference.polynomial(X, 2), reference.rbf(X, 0.2), reference.rbf(X, 3.0), reference.products(X)]


def reference_model(matrices, y, seed, **parameters):
    model = reference.MultiKernelKoil(matrices, seed=seed, C=C, eta=ETA, **parameters)
    for t, sign in enumerate(y.tolist()):
        model.learn(t, sign)
    return model


def assert_follows_the_algorithm(n_rows, **settings):
    """Assert that scores and kernel weights match the reference implementation."""
    X, y = make_stream(n_rows)
    shared = {"budget": 9, "n_neighbors": 4, **settings}
    model = MultiKernelKOIL(
        FEW, C=C, learning_rate=ETA, combine="score", threshold="zero", random_state=5, **shared
    ).fit(X, y)
    expected = reference_model(few_matrices(X), y, model._seed, **shared)
    weights = expected.weights / expected.weights.sum()
    np.testing.assert_allclose(model.kernel_weights_, weights, rtol=1e-9, atol=1e-300)
    scores = expected.F(range(len(y)), "score")
    np.testing.assert_allclose(
        model.decision_function(X), scores, rtol=1e-9, atol=1e-9 * np.abs(scores).max()
    )


@pytest.mark.parametrize("loss", ["hinge", "smooth"])
@pytest.mark.parametrize("policy", ["fifo++", "reservoir++", "fifo", "reservoir"])
def test_scores_and_kernel_weights_match_reference_implementation(loss, policy):
    assert_follows_the_algorithm(500, loss=loss, policy=policy)


@pytest.mark.parametrize("settings", [{"decay": True}, {"weight_rate": 0.002}, {"weight_rate": 0.0}])
@pytest.mark.parametrize("loss", ["hinge", "smooth"])
def test_decay_and_weight_rate_match_reference_implementation(settings, loss):
    assert_follows_the_algorithm(300, loss=loss, policy="reservoir++", **settings)


def wide_stream(n_rows):
    """Return rows with so many columns that kernels share distances."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(n_rows) < 0.3, 1, -1)
    return (rng.normal(size=(n_rows, 70)) + 0.3 * (y > 0)[:, None]) / np.sqrt(70.0), y


@pytest.mark.parametrize("policy", ["fifo++", "reservoir++"])
def test_kernels_with_shared_distances_match_reference_implementation(policy):
    X, y = wide_stream(400)
    widths = [0.1, 0.5, 1.0, 2.0]
    shared = {"budget": 30, "n_neighbors": 5, "policy": policy}
    model = MultiKernelKOIL(
        [{"kernel": "rbf", "gamma": gamma} for gamma in widths],
        C=0.01, learning_rate=ETA, combine="score", threshold="zero", random_state=5, **shared,
    ).fit(X, y)  # fmt: skip
    matrices = [reference.rbf(X, gamma) for gamma in widths]
    expected = reference.MultiKernelKoil(matrices, seed=model._seed, C=0.01, eta=ETA, loss="hinge", **shared)
    for t, sign in enumerate(y.tolist()):
        expected.learn(t, sign)
    scores = expected.F(range(len(y)), "score")
    np.testing.assert_allclose(
        model.decision_function(X), scores, rtol=1e-9, atol=1e-9 * np.abs(scores).max()
    )


@pytest.mark.parametrize(("C", "policy"), [(0.01, "reservoir++"), (1.0, "fifo++")])
def test_model_is_independent_of_n_threads(monkeypatch, C, policy):
    X, y = wide_stream(500)
    monkeypatch.setattr("steelyard.online.koil.num_threads", lambda: 3)
    models = [
        MultiKernelKOIL(C=C, budget=20, policy=policy, random_state=1, n_threads=n_threads).fit(X, y)
        for n_threads in (1, 2, None)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.dual_coef_, models[0].dual_coef_)
        np.testing.assert_array_equal(model.kernel_weights_, models[0].kernel_weights_)
        np.testing.assert_array_equal(model.support_vectors_, models[0].support_vectors_)


@pytest.mark.parametrize("C", [0.01, 1.0, 10.0])
def test_model_is_independent_of_batch_boundaries(C):
    # Within a call, binary models learn independently of each other. A call with one row synchronizes them.
    X, y = make_stream(900)
    whole, rows, chunks = (MultiKernelKOIL(C=C, budget=20, random_state=1) for _ in range(3))
    whole.partial_fit(X, y)
    for begin in range(0, 900, 1):
        rows.partial_fit(X[begin : begin + 1], y[begin : begin + 1])
    for begin in range(0, 900, 310):
        chunks.partial_fit(X[begin : begin + 310], y[begin : begin + 310])
    for model in (rows, chunks):
        np.testing.assert_array_equal(model.dual_coef_, whole.dual_coef_)
        np.testing.assert_array_equal(model.kernel_weights_, whole.kernel_weights_)


def test_default_kernels_match_reference_implementation_over_several_windows():
    X, y = make_stream(700)
    shared = {"budget": 11, "n_neighbors": 4, "policy": "reservoir++"}
    model = MultiKernelKOIL(C=C, learning_rate=ETA, random_state=5, **shared).fit(X, y)
    powers = [reference.polynomial(X, degree) for degree in (1, 2, 3)]
    widths = [reference.rbf(X, 0.5 / 4.0**width) for width in range(-6, 7)]
    expected = reference_model(powers + widths, y, model._seed, loss="hinge", **shared)
    weights = expected.weights / expected.weights.sum()
    np.testing.assert_allclose(model.kernel_weights_, weights, rtol=1e-9, atol=1e-300)


def test_sign_combination_is_weighted_vote_of_kernels():
    X, y = make_stream(300)
    model = MultiKernelKOIL(FEW, C=C, budget=9, threshold="zero", random_state=0).fit(X, y)
    kernels = [Kernel.from_dict(kernel) for kernel in FEW]
    scores = [
        kernel.block(X, model.support_vectors_) @ weights
        for kernel, weights in zip(kernels, model.dual_coef_, strict=True)
    ]
    # The sign of a score that is zero up to rounding errors is not determined.
    sure = np.abs(scores).min(axis=0) > 1e-9
    votes = model.kernel_weights_ @ np.sign(scores)
    np.testing.assert_allclose(model.decision_function(X)[sure], votes[sure], rtol=1e-12, atol=1e-12)


def test_single_kernel_matches_koil_without_decay():
    X, y = make_stream(400)
    shared = {"budget": 9, "n_neighbors": 4, "policy": "reservoir++"}
    model = MultiKernelKOIL(
        [{"kernel": "rbf", "gamma": 0.5}], C=C, learning_rate=ETA, combine="score", threshold="zero",
        random_state=0, **shared,
    ).fit(X, y)  # fmt: skip
    expected = reference.Koil(reference.rbf(X, 0.5), C=C, eta=ETA, decay=False, seed=model._seed, **shared)
    for t, sign in enumerate(y.tolist()):
        expected.learn(t, sign)
    scores = expected.f(range(len(y)))
    np.testing.assert_allclose(
        model.decision_function(X), scores, rtol=1e-9, atol=1e-9 * np.abs(scores).max()
    )
    assert model.kernel_weights_.tolist() == [1.0]


def test_default_kernels_match_paper():
    kernels = default_kernels()
    x, z = np.array([[1.0, 2.0]]), np.array([[0.5, -0.25]])
    values = [kernel.block(x, z)[0, 0] for kernel in kernels]
    product, squared = 0.0, 0.25 + 2.25**2
    expected = [product**p for p in (1, 2, 3)] + [np.exp(-squared / (2 * 4.0**e)) for e in range(-6, 7)]
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-300)


def test_kernel_weights_that_underflow_give_finite_scores():
    X, y = make_stream(3000)
    model = MultiKernelKOIL(C=500.0, random_state=0).fit(X, y)
    assert model.kernel_weights_.sum() == pytest.approx(1.0)
    assert model.kernel_weights_.min() == 0.0
    assert np.isfinite(model.decision_function(X)).all()


def test_multiclass_kernel_weights_are_per_class():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=300)
    X = rng.normal(size=(300, 2)) + y[:, None]
    model = MultiKernelKOIL(FEW, random_state=0).fit(X, y)
    assert model.kernel_weights_.shape == (3, 4)
    np.testing.assert_allclose(model.kernel_weights_.sum(axis=1), 1.0)
    assert model.dual_coef_.shape == (3, 4, len(model.support_vectors_))


def test_callable_kernel_raises():
    X, y = make_stream(50)
    with pytest.raises(ParameterError, match="must be given by name"):
        MultiKernelKOIL([Kernel(lambda a, b: a @ b.T)]).fit(X, y)
