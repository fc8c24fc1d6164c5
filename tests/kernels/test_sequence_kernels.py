"""Compare sequence kernels with simple recursions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.kernels import EditKernel, GlobalAlignmentKernel, Kernel
from steelyard.persistence import from_bytes, to_bytes


def log_alignment(x, z, gamma, band=None):
    M = np.full((len(x) + 1, len(z) + 1), -np.inf)
    M[0, 0] = 0.0
    for i, j in np.ndindex(len(x), len(z)):
        w = np.exp(-gamma * np.sum((x[i] - z[j]) ** 2)) * (
            1.0 if band is None else max(0.0, 1.0 - abs(i - j) / band)
        )
        with np.errstate(divide="ignore"):
            local = np.log(w) - np.log(2.0 - w)
        M[i + 1, j + 1] = local + np.logaddexp.reduce([M[i, j + 1], M[i + 1, j], M[i, j]])
    return M[-1, -1]


def edit_sum(a, b, substitution, gap):
    """Return the edit kernel, a sum over pairs of subsequences of equal length. Other symbols are gaps."""
    total = 0.0
    for k in range(min(len(a), len(b)) + 1):
        for left in combinations(a, k):
            for right in combinations(b, k):
                weights = [1.0 if p == q else substitution for p, q in zip(left, right, strict=True)]
                total += float(np.prod(weights)) * gap ** (len(a) + len(b) - 2 * k)
    return total


def trajectories(n, rng, longest=25, dimensions=2):
    return [rng.normal(size=(rng.integers(1, longest), dimensions)) for _ in range(n)]


def strings(n, rng, longest=6):
    return ["".join(rng.choice(list("abc"), rng.integers(0, longest))) for _ in range(n)]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("band", [None, 1, 4, 30])
@pytest.mark.parametrize("dimensions", [1, 3])
def test_alignment_kernel_matches_recursion(level, rng, band, dimensions):
    X = trajectories(18, rng, longest=9, dimensions=dimensions)
    kernel = GlobalAlignmentKernel(0.3, band=band)
    log = np.array([[log_alignment(x, z, 0.3, band) for z in X] for x in X])
    own = log.diagonal()
    expected = np.exp(log - 0.5 * (own[:, None] + own))
    np.testing.assert_allclose(kernel(X, X), expected, rtol=1e-12, atol=1e-300)


def test_edit_kernel_matches_sum_over_subsequences(level, rng):
    X = strings(20, rng)
    kernel = EditKernel(0.7, substitution=1.5, gap=0.8, normalize=False)
    expected = [[edit_sum(a, b, np.exp(-1.05), np.exp(-0.56)) for b in X] for a in X]
    np.testing.assert_allclose(kernel(X, X), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "make"), [(GlobalAlignmentKernel(2.0), trajectories), (EditKernel(0.5), strings)]
)
def test_kernel_matrices_are_positive_semidefinite(kernel, make, rng):
    X = make(60, rng)
    assert np.linalg.eigvalsh(kernel(X, X)).min() > -1e-10


def test_banded_matrix_is_positive_semidefinite(rng):
    X = trajectories(60, rng)
    assert np.linalg.eigvalsh(GlobalAlignmentKernel(0.1, band=5)(X, X)).min() > -1e-10


@pytest.mark.parametrize(
    ("kernel", "make"), [(GlobalAlignmentKernel(0.5), trajectories), (EditKernel(0.5), strings)]
)
def test_kernel_values_are_independent_of_threads_and_other_sequences(kernel, make, rng, monkeypatch):
    X = make(40, rng)
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("STEELYARD_NUM_THREADS", threads)
        results.append(kernel(X, X))
    np.testing.assert_array_equal(*results)
    alone = np.array([kernel([x], X)[0] for x in X[:5]])
    np.testing.assert_allclose(alone, results[0][:5], rtol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "make"), [(GlobalAlignmentKernel(0.5), trajectories), (EditKernel(0.5), strings)]
)
def test_normalized_matrix_is_symmetric_with_unit_diagonal(kernel, make, rng):
    X = make(30, rng)
    values = kernel(X, X)
    np.testing.assert_array_equal(values.diagonal(), 1.0)
    np.testing.assert_array_equal(values, values.T)
    np.testing.assert_array_equal(kernel.diagonal(X), 1.0)


def test_unnormalized_diagonal_matches_matrix(rng):
    X = trajectories(20, rng)
    kernel = GlobalAlignmentKernel(0.5, normalize=False)
    np.testing.assert_allclose(kernel.diagonal(X), kernel(X, X).diagonal(), rtol=1e-14)


def test_long_sequences_neither_overflow_nor_underflow(rng):
    x = rng.normal(size=(3000, 1)).cumsum(axis=0)
    values = GlobalAlignmentKernel(1e-4)([x], [x, x[::-1].copy(), x + 1e-3])
    assert values[0, 0] == 1.0
    assert 0.99 < values[0, 2] <= 1.0
    assert np.isfinite(values).all()


def test_distant_trajectories_have_similarity_zero():
    near, far = np.zeros((5, 2)), np.full((7, 2), 1e150)
    np.testing.assert_array_equal(GlobalAlignmentKernel(1.0)([near], [far]), [[0.0]])


def test_sequences_whose_lengths_differ_by_the_band_have_similarity_zero():
    short, long = np.zeros((5, 1)), np.zeros((9, 1))
    assert GlobalAlignmentKernel(1.0, band=4)([short], [long])[0, 0] == 0.0
    assert GlobalAlignmentKernel(1.0, band=5)([short], [long])[0, 0] > 0.0


def test_edit_kernel_with_large_gamma_approaches_edit_distance():
    values = -np.log(EditKernel(20.0)(["kitten"], ["sitting", "kitten", ""]))[0] / 20.0
    np.testing.assert_allclose(values, [3.0, 0.0, 6.0], atol=0.1)


@given(st.text(max_size=8), st.text(max_size=8))
@settings(max_examples=40, deadline=None)
def test_edit_kernel_is_symmetric_and_at_most_one(a, b):
    kernel = EditKernel(0.5)
    there, back = kernel([a], [b])[0, 0], kernel([b], [a])[0, 0]
    assert 0.0 < there <= 1.0
    np.testing.assert_allclose(there, back, rtol=1e-12)


def test_strings_bytes_and_integers_are_equivalent():
    kernel = EditKernel(1.0)
    expected = kernel(["abca"], ["bca"])
    np.testing.assert_array_equal(kernel([b"abca"], [b"bca"]), expected)
    np.testing.assert_array_equal(kernel([np.array([1, 2, 3, 1])], [np.array([2, 3, 1])]), expected)


def test_median_gamma_is_scale_invariant(rng):
    X = trajectories(30, rng)
    kernel = GlobalAlignmentKernel()
    scaled = [1000.0 * x for x in X]
    np.testing.assert_allclose(kernel.resolve(X)(X, X), kernel.resolve(scaled)(scaled, scaled), rtol=1e-9)


def test_unresolved_sequence_gamma_raises():
    with pytest.raises(ParameterError, match="resolve"):
        GlobalAlignmentKernel()([np.zeros((2, 1))], [np.ones((2, 1))])


def test_kernel_object_can_wrap_a_sequence_kernel(rng):
    X = trajectories(12, rng)
    kernel = Kernel(GlobalAlignmentKernel()).resolve(X)
    np.testing.assert_array_equal(kernel.block(X).diagonal(), kernel.diagonal(X))
    assert kernel.block(X[:3], X).shape == (3, 12)


def test_sequence_kernels_are_cloned_and_saved():
    kernel = EditKernel(2.0, gap=0.5)
    assert clone(kernel).get_params() == from_bytes(to_bytes(kernel)).get_params() == kernel.get_params()


@pytest.mark.parametrize(
    ("kernel", "X", "message"),
    [
        (GlobalAlignmentKernel(1.0), [np.zeros((3, 2)), np.zeros((3, 1))], "same number of dimensions"),
        (GlobalAlignmentKernel(1.0), [np.zeros((0, 2))], "at least one row"),
        (
            GlobalAlignmentKernel(1.0),
            [np.array([[np.nan]])],
            "trajectory 0 contains values that",
        ),
        (GlobalAlignmentKernel(1.0), [["a", "b"]], "not an array of numbers"),
        (EditKernel(), "one string", r"hint: pass a single sequence as \[sequence\]"),
        (EditKernel(), [np.array([0.5])], "one-dimensional array of integers"),
        (EditKernel(), [np.array([2**40])], "32 bits"),
        (EditKernel(-1.0), ["a"], "gamma must be a positive, finite number"),
        (GlobalAlignmentKernel(1.0, band=0), [np.zeros((3, 2))], "band must be None or a whole number"),
        (GlobalAlignmentKernel(1e-9, normalize=False), [np.zeros((900, 1))], "normalize=True"),
    ],
)
def test_invalid_input_raises(kernel, X, message):
    with pytest.raises((DataError, DataTypeError, ParameterError), match=message):
        kernel(X, X)


def test_empty_collection_gives_empty_block():
    assert EditKernel()([], ["a", "b"]).shape == (0, 2)
