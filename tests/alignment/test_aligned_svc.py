"""AlignedSVC: rounds, shift, all types of kernels, sequences, errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from steelyard import AlignedSVC
from steelyard.alignment.boundary import Variant
from steelyard.exceptions import DataError, DataTypeError, MemoryLimitError, NotFittedError, ParameterError
from steelyard.kernels import EditKernel, GlobalAlignmentKernel, Kernel
from steelyard.metrics import g_mean_score
from steelyard.persistence import from_bytes, to_bytes
from tests.alignment.reference import aligned_scores, imbalanced


@pytest.fixture
def data(rng):
    return imbalanced(rng)


@pytest.fixture
def fresh(rng):
    return rng.normal(size=(30, 3)) + rng.integers(0, 2, (30, 1))


def several_rounds(X, y, **parameters):
    """Return a model that accepted several rounds. Rounds are useful with a narrow kernel and a large C."""
    model = AlignedSVC(100.0, gamma=1.0, tol=0.0, **parameters).fit(X, y)
    assert sum(one.kept for one in model.rounds_) > 1
    return model


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
def test_prediction_after_every_round_matches_explicit_kernel_matrix(data, fresh, kernel):
    X, y = data
    model = AlignedSVC(10.0, kernel=kernel, gamma=1.0, shift=False, tol=0.0).fit(X, y)
    betas = [one.beta for one in model.rounds_ if one.kept][:-1]
    K = Kernel(kernel, gamma=1.0).block(np.concatenate([X, fresh]))
    scores, product, _ = aligned_scores(K, np.where(y == 1, 1, -1), 10.0, betas, floor=Variant().floor)
    np.testing.assert_allclose(model.alignment_factor(fresh), product[len(X) :], rtol=1e-5)
    # LIBSVM is accurate to its tolerance. Values of the polynomial kernel are in the hundreds.
    np.testing.assert_allclose(
        model.decision_function(fresh), scores, atol=2e-2 if kernel == "polynomial" else 2e-3
    )


def test_prediction_after_accepted_round_matches_explicit_kernel_matrix(data, fresh):
    X, y = data
    model = several_rounds(X, y, shift=False, max_iter=1)
    betas = [one.beta for one in model.rounds_ if one.kept][:-1]
    K = Kernel("rbf", gamma=1.0).block(np.concatenate([X, fresh]))
    scores, product, _ = aligned_scores(K, np.where(y == 1, 1, -1), 100.0, betas, floor=Variant().floor)
    np.testing.assert_allclose(model.alignment_factor(fresh), product[len(X) :], rtol=1e-5)
    np.testing.assert_allclose(model.decision_function(fresh), scores, atol=2e-3)


def test_transformed_kernel_is_positive_semidefinite_with_same_trace(data):
    X, y = data
    model = several_rounds(X, y)
    D = model.alignment_factor(X)
    K = D[:, None] * D * Kernel("rbf", gamma=1.0).block(X)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    np.testing.assert_allclose(np.trace(K), len(X), rtol=1e-9)


def test_decision_function_of_svc_attribute_equals_that_of_aligned_svc(data):
    X, y = data
    model = several_rounds(X, y)
    D = model.alignment_factor(X)
    K = D[:, None] * D * Kernel("rbf", gamma=1.0).block(X)
    np.testing.assert_allclose(
        model.svc_.decision_function(K) + model.shift_, model.decision_function(X), atol=1e-9
    )


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 4.0}])
def test_aligned_svc_without_alignment_equals_svc(data, fresh, class_weight):
    X, y = data
    model = AlignedSVC(2.0, alignment=None, class_weight=class_weight).fit(X, y)
    plain = SVC(C=2.0, class_weight=class_weight).fit(X, y)
    np.testing.assert_allclose(model.decision_function(fresh), plain.decision_function(fresh), atol=2e-3)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_shift_adds_a_constant_to_scores_of_rarer_class(data, fresh):
    X, y = data
    shifted, not_shifted = AlignedSVC().fit(X, y), AlignedSVC(shift=False).fit(X, y)
    difference = shifted.decision_function(fresh) - not_shifted.decision_function(fresh)
    np.testing.assert_allclose(difference, shifted.shift_, atol=1e-12)
    assert shifted.shift_ > 0
    assert not_shifted.shift_ == 0.0


def test_swapped_labels_flip_the_sign_of_scores(data, fresh):
    X, y = data
    model, mirrored = several_rounds(X, y), several_rounds(X, 1 - y)
    np.testing.assert_array_equal(mirrored.decision_function(fresh), -model.decision_function(fresh))


def test_aligned_svc_has_higher_g_mean_on_new_rows_than_svc():
    gains = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        (X, y), (Z, z) = imbalanced(rng, 300, 20), imbalanced(rng, 600, 40)
        plain, model = SVC().fit(X, y), AlignedSVC().fit(X, y)
        gains.append(g_mean_score(z, model.predict(Z)) - g_mean_score(z, plain.predict(Z)))
    assert np.mean(gains) > 0.1


def test_rounds_attribute_lists_accepted_rounds_with_decreasing_losses(data):
    X, y = data
    model = several_rounds(X, y)
    kept = [one for one in model.rounds_ if one.kept]
    losses = [one.validation_loss for one in kept]
    assert losses == sorted(losses, reverse=True)
    assert len(model.rounds_) == model.n_iter_ <= 6
    assert all(0 <= one.eta <= 1 and one.beta == (1 + one.eta) / 2 for one in model.rounds_)
    assert kept[-1].n_support == ((model.svc_.dual_coef_ > 0).sum(), (model.svc_.dual_coef_ < 0).sum())


def test_max_iter_zero_shifts_the_boundary_without_transforming_the_kernel(data):
    X, y = data
    model = AlignedSVC(100.0, gamma=2.0, max_iter=0).fit(X, y)
    assert len(model.rounds_) == 1
    np.testing.assert_array_equal(model.alignment_factor(X), 1.0)


@pytest.mark.parametrize("alignment", ["kba", "act"])
@pytest.mark.parametrize("pairing", ["nearest", "all"])
def test_fit_accepts_class_with_one_to_three_rows(rng, alignment, pairing):
    for n_rare in (1, 2, 3):
        y = np.repeat([0, 1], [40, n_rare])
        X = rng.normal(size=(len(y), 2)) + 4.0 * y[:, None]
        model = AlignedSVC(10.0, alignment=alignment, pairing=pairing).fit(X, y)
        assert (model.predict(X[y == 1]) == 1).all()


def test_three_classes_train_one_binary_svm_per_class(rng):
    y = rng.choice(["a", "b", "c"], 150, p=[0.7, 0.2, 0.1])
    X = (
        rng.normal(size=(150, 2))
        + 2.5 * np.array([[0, 0], [1, 0], [0, 1]])[np.searchsorted(["a", "b", "c"], y)]
    )
    model = AlignedSVC().fit(X, y)
    one = AlignedSVC().fit(X, y == "b")
    np.testing.assert_allclose(model.decision_function(X)[:, 1], one.decision_function(X), atol=1e-12)
    assert model.alignment_factor(X).shape == (150, 3)
    assert len(model.rounds_) == len(model.svc_) == len(model.shift_) == 3
    assert np.mean(model.predict(X) == y) > 0.7


def test_precomputed_named_and_callable_kernels_give_same_scores(data, fresh):
    X, y = data
    named = several_rounds(X, y)
    kernel = Kernel("rbf", gamma=1.0)
    called = several_rounds(X, y, kernel=kernel.block)
    computed = several_rounds(kernel.block(X), y, kernel="precomputed")
    expected = named.decision_function(fresh)
    np.testing.assert_allclose(called.decision_function(fresh), expected, atol=1e-12)
    values = kernel.block(fresh, X)
    np.testing.assert_allclose(computed.decision_function(values), expected, atol=1e-12)
    with_self = np.column_stack([values, np.ones(len(fresh))])
    np.testing.assert_array_equal(computed.decision_function(with_self), computed.decision_function(values))


def test_precomputed_kernel_with_varying_diagonal_requires_self_similarities(data, fresh):
    X, y = data
    kernel = Kernel("polynomial", gamma=0.5, coef0=1.0)
    named = AlignedSVC(kernel=kernel.block).fit(X, y)
    model = AlignedSVC(kernel="precomputed").fit(kernel.block(X), y)
    values = kernel.block(fresh, X)
    with pytest.raises(DataError, match=r"append the column k\(x, x\)"):
        model.predict(values)
    with_self = np.column_stack([values, kernel.diagonal(fresh)])
    np.testing.assert_allclose(model.decision_function(with_self), named.decision_function(fresh), atol=1e-9)


def test_sparse_and_dense_rows_give_equal_scores(data, fresh):
    X, y = data
    dense = AlignedSVC(10.0, gamma=1.0).fit(X, y)
    sparse = AlignedSVC(10.0, gamma=1.0).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_matrix(fresh)) - sparse.shift_,
        dense.decision_function(fresh) - dense.shift_,
        atol=1e-3,
    )
    assert abs(sparse.shift_ - dense.shift_) < 0.05  # held-out scores have an accuracy of 0.01
    again = from_bytes(to_bytes(sparse))
    np.testing.assert_array_equal(again.decision_function(fresh), sparse.decision_function(fresh))


def test_rows_with_sample_weight_zero_are_ignored(data, fresh):
    X, y = data
    extra = np.concatenate([X, fresh])
    labels = np.concatenate([y, np.arange(30) % 2])
    weights = np.concatenate([np.ones(len(X)), np.zeros(30)])
    model = AlignedSVC(gamma=0.5).fit(extra, labels, sample_weight=weights)
    np.testing.assert_allclose(
        model.decision_function(fresh), AlignedSVC(gamma=0.5).fit(X, y).decision_function(fresh), atol=1e-12
    )


def test_random_state_shuffles_held_out_rows_reproducibly(data):
    X, y = data
    losses = [AlignedSVC(random_state=seed).fit(X, y).rounds_[0].validation_loss for seed in (1, 1, 2, None)]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


def bent(rng, n, kind):
    """Return n trajectories of different lengths: straight lines if ``kind`` is 0, with a bend if it is 1."""
    lengths = rng.integers(8, 20, n)
    return [
        np.column_stack([t, 2.0 * kind * np.abs(t - 0.5)]) + 0.15 * rng.normal(size=(len(t), 2))
        for t in (np.linspace(0, 1, length) for length in lengths)
    ]


def test_model_of_trajectories_can_be_fitted_saved_and_loaded(rng):
    X, y = bent(rng, 60, 0) + bent(rng, 12, 1), np.repeat([0, 1], [60, 12])
    Z, z = bent(rng, 30, 0) + bent(rng, 30, 1), np.repeat([0, 1], [30, 30])
    model = AlignedSVC(10.0, kernel=GlobalAlignmentKernel()).fit(X, y)
    assert g_mean_score(z, model.predict(Z)) > 0.8
    again = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(again.decision_function(Z), model.decision_function(Z))


def test_grid_search_tunes_edit_kernel_on_strings(rng):
    def words(n, letters):
        return ["".join(rng.choice(list(letters), rng.integers(4, 9))) for _ in range(n)]

    X, y = np.array(words(40, "aab") + words(10, "abb"), dtype=object), np.repeat([0, 1], [40, 10])
    search = GridSearchCV(AlignedSVC(kernel=EditKernel()), {"kernel__gamma": [0.5, 1.0]}, cv=2)
    search.fit(X, y)
    assert search.best_estimator_.predict(["aaaaab", "bbbbab"]).tolist() == [0, 1]


def test_fit_allocates_only_one_copy_of_kernel_matrix(rng):
    X, y = imbalanced(rng, 1500, 300)
    K = Kernel("rbf", gamma=0.5).block(X)
    tracemalloc.start()
    try:
        AlignedSVC(kernel="precomputed", max_iter=2, tol=0.0).fit(K, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.8 * K.nbytes  # one copy of the matrix, and blocks of bounded size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda K: K[:, :-1], r"square matrix.* got shape \(40, 39\)"),
        (lambda K: K + np.triu(np.ones_like(K)), r"must be symmetric; entry \(\d+, \d+\)"),
        (lambda K: np.where(np.eye(40) > 0, np.nan, K), "X has NaN in row 0, column 0"),
        (lambda K: -K, "must not be negative"),
    ],
)
def test_fit_with_invalid_precomputed_matrix_raises(rng, change, message):
    X, y = imbalanced(rng, 40, 10)
    with pytest.raises(DataError, match=message):
        AlignedSVC(kernel="precomputed").fit(change(Kernel("rbf").block(X)), y)


def test_fit_on_one_class_raises(data):
    X, y = data
    with pytest.raises(DataError, match="at least two classes with rows of positive weight"):
        AlignedSVC().fit(X, np.zeros(len(X)))
    with pytest.raises(DataError, match="got 1 class"):
        AlignedSVC().fit(X, y, sample_weight=(y == 0).astype(float))


def test_act_alignment_with_precomputed_kernel_raises(data):
    X, y = data
    with pytest.raises(ParameterError, match="alignment='kba' works with precomputed kernels"):
        AlignedSVC(alignment="act", kernel="precomputed").fit(Kernel("rbf").block(X), y)


def test_fit_with_single_string_as_X_raises():
    with pytest.raises(DataTypeError, match="X must be a non-empty list"):
        AlignedSVC(kernel=EditKernel()).fit("abcd", [0, 1, 0, 1])


def test_fit_with_too_many_rows_for_memory_raises_before_allocation(data, monkeypatch):
    monkeypatch.setattr("steelyard._memory.available_bytes", lambda: 10)
    monkeypatch.setattr("steelyard._memory._MIN_CHECKED_BYTES", 0)
    with pytest.raises(MemoryLimitError, match="kernel matrix of 220 rows and a copy"):
        AlignedSVC().fit(*data)


def test_predict_before_fit_raises(fresh):
    with pytest.raises(NotFittedError, match=r"call fit\(\) first"):
        AlignedSVC().alignment_factor(fresh)


def test_load_file_with_inconsistent_arrays_raises(data):
    model = several_rounds(*data)
    state = model._get_state()
    state["machines"][0]["dual"] = state["machines"][0]["dual"][:-1]
    with pytest.raises(ValueError, match="do not match in shape"):
        AlignedSVC()._set_state(state)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_sparse_float32_rows_match_dense_rows(kernel):
    rng = np.random.default_rng(0)
    y = (np.arange(80) % 4 == 0).astype(int)
    X = (rng.normal(size=(80, 3)) + y[:, None]).astype(np.float32)
    X[np.abs(X) < 0.5] = 0.0
    dense = AlignedSVC(kernel=kernel).fit(X, y).decision_function(X)
    rows = sp.csr_matrix(X)
    np.testing.assert_allclose(
        AlignedSVC(kernel=kernel).fit(rows, y).decision_function(rows), dense, atol=1e-6
    )
