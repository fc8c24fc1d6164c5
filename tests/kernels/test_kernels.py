"""Compare kernels with their formulas, at every SIMD level."""

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.kernels import Kernel

KERNELS = [
    Kernel("linear"),
    Kernel("polynomial", gamma=0.3, degree=3, coef0=0.5),
    Kernel("rbf", gamma=0.2),
    Kernel("laplacian", gamma=0.2),
    Kernel("sigmoid", gamma=0.1, coef0=0.3),
]
BY_NAME = [pytest.param(kernel, id=kernel.kernel) for kernel in KERNELS]
DTYPES = [np.float64, np.float32]


def naive_block(kernel, X, Z):
    """Return kernel values computed from the formulas in float64."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    products = np.array([[sum(x * z) for z in Z] for x in X]).reshape(len(X), len(Z))
    differences = X[:, None, :] - Z[None, :, :]
    match kernel.kernel:
        case "linear":
            return products
        case "polynomial":
            return (kernel.gamma * products + kernel.coef0) ** kernel.degree
        case "rbf":
            return np.exp(-kernel.gamma * (differences**2).sum(axis=2))
        case "laplacian":
            return np.exp(-kernel.gamma * np.abs(differences).sum(axis=2))
        case "sigmoid":
            return np.tanh(kernel.gamma * products + kernel.coef0)


def tolerance(dtype):
    """Return the tolerance: a few dozen rounding errors of unit size, amplified by the third power."""
    return {"rtol": 400 * np.finfo(dtype).eps, "atol": 400 * np.finfo(dtype).eps}


def table(n, d, dtype=np.float64, seed=0):
    return np.random.default_rng([seed, n, d]).normal(size=(n, d)).astype(dtype)


# -- values ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_kernel_blocks_with_few_rows_match_formula(kernel, dtype, level):
    for size in range(1, 41):
        X, Z = table(size, 1 + size * 7 % 11, dtype), table(41 - size, 1 + size * 7 % 11, dtype, seed=1)
        values = kernel.block(X, Z)
        assert values.dtype == dtype
        np.testing.assert_allclose(values, naive_block(kernel, X, Z), **tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_kernel_blocks_with_few_features_match_formula(kernel, dtype, level):
    for d in range(1, 41):
        X, Z = table(9, d, dtype), table(5, d, dtype, seed=1)
        np.testing.assert_allclose(kernel.block(X, Z), naive_block(kernel, X, Z), **tolerance(dtype))


@pytest.mark.parametrize("shape", [(63, 65, 3), (130, 31, 100), (2, 300, 17), (300, 1, 65)])
@pytest.mark.parametrize("kernel", BY_NAME)
def test_kernel_blocks_match_scikit_learn(kernel, shape):
    n_x, n_z, d = shape
    X, Z = table(n_x, d) / 3, table(n_z, d, seed=1) / 3
    numbers = kernel.to_dict()
    expected = pairwise_kernels(X, Z, metric=numbers.pop("kernel"), **numbers)
    np.testing.assert_allclose(kernel.block(X, Z), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_kernel_blocks_are_bitwise_independent_of_threads(kernel, dtype, level):
    X, Z = table(500, 6, dtype), table(333, 6, dtype, seed=1)
    np.testing.assert_array_equal(kernel.block(X, Z, n_threads=2), kernel.block(X, Z, n_threads=1))
    wide = table(200, 45, dtype)
    np.testing.assert_array_equal(kernel.block(wide, n_threads=2), kernel.block(wide, n_threads=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_kernel_matrix_is_exactly_symmetric_and_equals_block(kernel, dtype, level):
    for n, d in itertools.product((1, 2, 63, 64, 65, 200), (5, 45)):  # computed fully or by symmetry
        X = table(n, d, dtype)
        values = kernel.block(X)
        np.testing.assert_array_equal(values, values.T)
        np.testing.assert_array_equal(values, kernel.block(X, X.copy()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_diagonal_is_bitwise_equal_to_matrix_diagonal(kernel, dtype, level):
    for d in (1, 7, 40):
        X = table(37, d, dtype)
        diagonal = kernel.diagonal(X)
        assert diagonal.dtype == dtype
        np.testing.assert_array_equal(diagonal, kernel.block(X).diagonal())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_self_similarity_is_exactly_one(name, dtype, level):
    X = table(50, 13, dtype) * 1e3 + dtype(1e6)
    assert (Kernel(name, gamma=7.0).block(X, X.copy()).diagonal() == 1.0).all()


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_common_offset_of_rows_does_not_reduce_accuracy(name, level):
    moved = table(40, 8) + 1e6
    X = moved - 1e6  # exact, so the differences are the same
    kernel = Kernel(name, gamma=0.5)
    np.testing.assert_array_equal(kernel.block(moved), kernel.block(X))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_x=st.integers(0, 70),
    n_z=st.integers(0, 70),
    d=st.integers(1, 30),
    which=st.sampled_from(KERNELS),
    dtype=st.sampled_from(DTYPES),
)
def test_kernel_blocks_of_random_rows_match_formula(*, seed, n_x, n_z, d, which, dtype):
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(n_x, d)).astype(dtype), rng.normal(size=(n_z, d)).astype(dtype)
    np.testing.assert_allclose(which.block(X, Z), naive_block(which, X, Z), **tolerance(dtype))


# -- limits ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_huge_gamma_gives_identity_matrix(name, dtype, level):
    X = table(20, 3, dtype)
    np.testing.assert_array_equal(Kernel(name, gamma=1e300).block(X), np.eye(20))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_tiny_gamma_gives_matrix_of_ones(name, dtype, level):
    np.testing.assert_array_equal(Kernel(name, gamma=1e-300).block(table(20, 3, dtype)), np.ones((20, 20)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_values_underflow_gradually_through_denormals_to_zero(dtype, level):
    t = np.linspace(0, 800, 20_001).astype(dtype)[:, None]
    values = Kernel("laplacian").block(np.zeros((1, 1), dtype), t)[0]
    exact = np.exp(-t[:, 0].astype(np.longdouble))
    smallest = np.finfo(dtype).smallest_subnormal
    assert (np.abs(values - exact) <= 1.1 * np.finfo(dtype).eps * exact + 0.51 * smallest).all()
    assert values[-1] == 0
    assert ((values > 0) & (values < np.finfo(dtype).tiny)).any()


@pytest.mark.parametrize("kernel", BY_NAME)
def test_rows_with_denormal_values_give_finite_kernel_values(kernel, level):
    X = np.full((3, 2), 5e-324)
    np.testing.assert_allclose(kernel.block(X), naive_block(kernel, X, X), rtol=1e-15, atol=0)


@pytest.mark.parametrize("kernel", BY_NAME)
def test_empty_input_gives_empty_block(kernel, level):
    X, none = table(3, 4), np.empty((0, 4))
    assert kernel.block(X, none).shape == (3, 0)
    assert kernel.block(none, X).shape == (0, 3)
    assert kernel.block(none).shape == (0, 0)
    assert kernel.diagonal(none).shape == (0,)


# -- input types ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_sparse_rows_match_dense_rows(kernel, dtype):
    X = table(30, 12, dtype) * (table(30, 12, seed=5) > 0.5)
    Z = table(17, 12, dtype, seed=1) * (table(17, 12, seed=6) > 0.5)
    X, Z = X.astype(dtype), Z.astype(dtype)
    csr = sparse.csr_array
    for left, right in [
        (csr(X), csr(Z)),
        (X, csr(Z)),
        (csr(X), Z),
        (sparse.coo_matrix(X), sparse.csc_matrix(Z)),
    ]:
        values = kernel.block(left, right)
        assert values.dtype == dtype
        np.testing.assert_allclose(values, kernel.block(X, Z), **tolerance(dtype))
    np.testing.assert_allclose(kernel.diagonal(csr(X)), kernel.diagonal(X), **tolerance(dtype))
    symmetric = kernel.block(csr(X))
    np.testing.assert_array_equal(symmetric, symmetric.T)
    if kernel.kernel in {"rbf", "laplacian"}:
        assert (symmetric.diagonal() == 1).all()
        assert (kernel.block(csr(X), csr(X)).diagonal() == 1).all()


def test_sparse_laplacian_in_blocks_matches_dense(monkeypatch):
    X = table(30, 12)
    kernel = Kernel("laplacian", gamma=0.2)
    monkeypatch.setattr("steelyard.kernels.kernel.DENSE_BLOCK", 50)
    np.testing.assert_array_equal(kernel.block(sparse.csr_array(X)), kernel.block(X))


def test_integers_strided_views_and_mixed_types_are_converted_to_float64():
    kernel = Kernel("rbf", gamma=0.1)
    X = np.arange(24).reshape(6, 4)
    expected = kernel.block(X.astype(np.float64))
    np.testing.assert_array_equal(kernel.block(X.tolist()), expected)
    np.testing.assert_array_equal(kernel.block(np.asfortranarray(X)), expected)
    np.testing.assert_array_equal(kernel.block(np.repeat(X, 2, axis=0)[::2]), expected)
    mixed = kernel.block(X.astype(np.float32), X.astype(np.float64))
    assert mixed.dtype == np.float64
    np.testing.assert_array_equal(mixed, expected)


def test_block_does_not_modify_rows():
    X = table(10, 3)
    X.flags.writeable = False
    before = X.copy()
    Kernel().block(X)
    np.testing.assert_array_equal(X, before)


def test_callable_kernel_receives_samples_unchanged():
    words = ["ash", "oak", "elder"]
    seen = []

    def same_length(X, Z):
        seen.append((X, Z))
        return [[float(len(x) == len(z)) for z in Z] for x in X]

    kernel = Kernel(same_length)
    np.testing.assert_array_equal(kernel.block(words, ["yew"]), [[1], [1], [0]])
    assert seen[0][0] is words
    np.testing.assert_array_equal(kernel.diagonal(words), [1, 1, 1])
    assert kernel.block(words).dtype == np.float64


def test_precomputed_kernel_returns_given_values():
    K = Kernel("rbf").block(table(5, 2))
    kernel = Kernel("precomputed")
    np.testing.assert_array_equal(kernel.block(K), K)
    np.testing.assert_array_equal(kernel.block(K[:2], K), K[:2])
    np.testing.assert_array_equal(kernel.diagonal(K), np.ones(5))


# -- errors ---


def refused(error, call, *parts):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


def test_invalid_rows_raise():
    kernel, X = Kernel(), table(4, 3)
    bad = X.copy()
    bad[2, 1] = np.nan
    infinite = X.copy()
    infinite[3, 0] = np.inf
    refused(DataError, lambda: kernel.block(X, X[:, :2]), "same number of features", "3 and 2")
    refused(DataError, lambda: kernel.block(bad), "nan in row 2, column 1")
    refused(DataError, lambda: kernel.block(X, infinite), "inf in row 3, column 0")
    refused(DataError, lambda: kernel.diagonal(sparse.csr_array(bad)), "nan in row 2, column 1")
    refused(DataError, lambda: kernel.block(X[0]), "1 dimension", "reshape(1, -1)")
    refused(DataTypeError, lambda: kernel.block([["a"]]), "real numbers")
    refused(DataTypeError, lambda: kernel.block(X.astype(complex)), "complex128")
    refused(DataTypeError, lambda: kernel.block([[1, 2], [3]]), "list")


def test_invalid_results_of_callable_kernels_raise():
    X = table(4, 3)
    refused(DataError, lambda: Kernel("precomputed").block(X), "square", "(4, 3)")
    refused(DataError, lambda: Kernel("precomputed").block(X, np.eye(4)), "4 stored rows", "(4, 3)")
    refused(DataError, lambda: Kernel(lambda x, z: 1.0).block(X), "shape (4, 4)", "hint")
    refused(DataError, lambda: Kernel(lambda x, z: np.full((4, 4), np.nan)).block(X), "row 0, column 0")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"kernel": "rbq"}, "'rbq'"),
        ({"kernel": 3}, "got 3"),
        ({"gamma": 0.0}, "gamma must be a positive"),
        ({"gamma": -1}, "got -1"),
        ({"gamma": float("inf")}, "got inf"),
        ({"gamma": "wide"}, "'wide'"),
        ({"gamma": True}, "got True"),
        ({"degree": 1.5}, "got 1.5"),
        ({"degree": -1}, "got -1"),
        ({"coef0": float("nan")}, "got nan"),
    ],
)
def test_invalid_kernel_parameters_raise(arguments, part):
    refused(ParameterError, lambda: Kernel(**arguments), "Kernel: ", part)


def test_unresolved_gamma_raises():
    refused(ParameterError, lambda: Kernel(gamma="scale").block(table(3, 2)), "gamma='scale'", "resolve")


# -- gamma from data ---


@pytest.mark.parametrize("rule", ["scale", "auto"])
def test_gamma_scale_and_auto_match_svc(rule):
    X = table(40, 3) * 2 + 1
    expected = SVC(gamma=rule).fit(X, np.arange(40) % 2)._gamma
    for rows in (X, sparse.csr_array(X)):
        assert Kernel("rbf", gamma=rule).resolve(rows).gamma == pytest.approx(expected, rel=1e-12)


def test_gamma_median_uses_distance_of_kernel():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0]])  # coordinates of the pairs differ by 1, 2 and 3
    assert Kernel("rbf", gamma="median").resolve(X).gamma == pytest.approx(1 / 8)
    assert Kernel("laplacian", gamma="median").resolve(X).gamma == pytest.approx(1 / 4)
    many = table(3000, 2)
    assert Kernel(gamma="median").resolve(many) == Kernel(gamma="median").resolve(many)


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_gamma_of_equal_rows_is_one(rule):
    assert Kernel(gamma=rule).resolve(np.ones((5, 2))).gamma == 1.0


def test_resolving_kernel_with_numeric_gamma_returns_it_unchanged():
    for kernel in (Kernel(gamma=2.0), Kernel("linear", gamma="scale"), Kernel(np.dot, gamma="scale")):
        assert kernel.resolve(None) is kernel


# -- value semantics ---


@pytest.mark.parametrize("kernel", [*BY_NAME, Kernel("precomputed"), Kernel("rbf", gamma="median")])
def test_kernel_survives_json_roundtrip(kernel):
    again = Kernel.from_dict(json.loads(json.dumps(kernel.to_dict())))
    assert again == kernel
    assert hash(again) == hash(kernel)


def test_kernel_is_copyable_picklable_and_immutable():
    kernel = Kernel("sigmoid", gamma=0.5, coef0=-1)
    assert copy.deepcopy(kernel) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    with pytest.raises(AttributeError):
        kernel.gamma = 2.0


def test_kernels_with_equal_used_parameters_are_equal():
    assert Kernel("poly") == Kernel("polynomial")
    assert Kernel("linear", gamma=2.0) == Kernel("linear", gamma=3.0)
    assert Kernel("rbf", gamma=2.0) != Kernel("rbf", gamma=3.0)
    assert Kernel(np.dot) == Kernel(np.dot) != Kernel(np.matmul)
    assert Kernel() != "rbf"


def test_repr_shows_used_parameters():
    assert repr(Kernel("sigmoid", gamma=2)) == "Kernel('sigmoid', gamma=2.0, coef0=0.0)"
    assert repr(Kernel(refused)) == "Kernel(refused)"


def test_to_dict_of_callable_and_from_dict_with_unknown_key_raise():
    refused(ParameterError, Kernel(refused).to_dict, "cannot be saved", "refused")
    refused(ParameterError, lambda: Kernel.from_dict({"kernel": "rbf", "width": 1}), "width")
    refused(ParameterError, lambda: Kernel.from_dict({"gamma": 1.0}), "'kernel'")


# -- packed rows ---


@pytest.mark.parametrize(
    ("dtype", "packed"), [(np.float64, _native.PackedRows64), (np.float32, _native.PackedRows32)]
)
@pytest.mark.parametrize("kernel", BY_NAME)
def test_packed_rows_give_same_kernel_values_as_float64_rows(kernel, dtype, packed, level):
    X, Z = table(21, 6, dtype), table(37, 6, dtype, seed=1)
    weights = table(37, 1, seed=2)[:, 0]
    stored = packed(6)
    stored.append(Z[:36])
    stored.append(Z[:1])
    stored.replace(36, Z[36])
    np.testing.assert_array_equal(stored.to_rows(), Z)
    values, sums = np.empty((21, 37)), np.empty(21)
    stored.kernel_rows(kernel.spec(), X, values, 2)
    stored.kernel_sums(kernel.spec(), X, weights, sums, 2)
    np.testing.assert_allclose(values, naive_block(kernel, X, Z), **tolerance(np.float64))
    np.testing.assert_allclose(sums, values @ weights, rtol=1e-12, atol=1e-12)


def test_removing_a_packed_row_moves_last_row_to_its_index():
    Z = table(5, 3)
    stored = _native.PackedRows64(3)
    stored.append(Z)
    stored.swap_remove(1)
    np.testing.assert_array_equal(stored.to_rows(), Z[[0, 4, 2, 3]])
    with pytest.raises(IndexError):
        stored.swap_remove(4)


# -- threads ---


def test_num_threads_is_number_of_cores_capped_by_environment(monkeypatch):
    monkeypatch.delenv("STEELYARD_NUM_THREADS", raising=False)
    cores = num_threads()
    assert cores >= 1
    monkeypatch.setenv("STEELYARD_NUM_THREADS", "1")
    assert num_threads() == 1
    monkeypatch.setenv("STEELYARD_NUM_THREADS", "100000")
    assert num_threads() == cores


@pytest.mark.parametrize("wrong", ["0", "-2", "many"])
def test_invalid_number_of_threads_raises(monkeypatch, wrong):
    monkeypatch.setenv("STEELYARD_NUM_THREADS", wrong)
    refused(ParameterError, num_threads, "STEELYARD_NUM_THREADS", wrong)
    refused(ParameterError, lambda: Kernel().block(table(2, 2), n_threads=0), "n_threads", "got 0")
