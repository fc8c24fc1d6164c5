"""IncrementalSVC: forgetting by value, classes, memory, failures and files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from steelyard import IncrementalSVC, _native
from steelyard.exceptions import DataError, ParameterError, SolverError
from steelyard.kernels import Kernel
from steelyard.persistence import from_bytes, to_bytes


@pytest.fixture
def stream(rng):
    y = (rng.random(200) < 0.3).astype(int)
    return rng.normal(size=(200, 3)) + 1.2 * y[:, None], y


def snapshot(model):
    return to_bytes(model)


# -- forgetting rows by value -----------------------------------------------------------------------


def test_forget_finds_rows_by_value_in_any_order(stream, rng):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X, y)
    forgotten = rng.permutation(200)[:120]
    model.forget(X[forgotten].copy(), y[forgotten])
    remaining = np.setdiff1d(np.arange(200), forgotten)
    fresh = IncrementalSVC(gamma=0.5).fit(X[remaining], y[remaining])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-8)


def test_row_learned_twice_is_forgotten_once_per_call(stream):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X, y).partial_fit(X[:1], y[:1])
    model.forget(X[:1], y[:1])
    once = IncrementalSVC(gamma=0.5).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), once.decision_function(X), atol=1e-8)
    model.forget(X[:1], y[:1])
    with pytest.raises(DataError, match="row 0 of the rows to forget"):
        model.forget(X[:1], y[:1])


@pytest.mark.parametrize(
    "change", [lambda x: np.nextafter(x, np.inf), lambda x: x + 1.0, lambda x: x[:, ::-1]]
)
def test_forget_row_with_other_values_raises_and_keeps_state(stream, change):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X, y)
    before = snapshot(model)
    rows = np.concatenate([X[:3], change(X[3:4])])
    with pytest.raises(DataError, match="never learned"):
        model.update(add=(X[:5], y[:5]), forget=(rows, y[:4]))
    assert snapshot(model) == before


def test_forget_row_with_another_label_raises(stream):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X, y)
    with pytest.raises(DataError, match="never learned"):
        model.forget(X[:1], 1 - y[:1])


def test_forget_finds_row_with_zero_by_negative_zero(stream):
    X, y = stream
    X = np.concatenate([X, np.zeros((1, 3))])
    model = IncrementalSVC(gamma=0.5).fit(X, np.append(y, 1))
    model.forget(-np.zeros((1, 3)), np.array([1]))
    assert model.class_count_.sum() == 200


def test_update_can_add_and_forget_the_same_rows(stream):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X[:50], y[:50])
    before = model.decision_function(X)
    model.update(add=(X[50:], y[50:]), forget=(X[50:], y[50:]))
    np.testing.assert_allclose(model.decision_function(X), before, atol=1e-8)


def test_thousands_of_equal_rows_are_forgotten_fast_and_exactly():
    X = np.repeat([[0.0], [1.0]], 2000, axis=0)
    y = np.repeat([0, 1], 2000)
    model = IncrementalSVC(0.01, kernel="linear").fit(X, y)
    model.forget(X[1:-1], y[1:-1])
    fresh = IncrementalSVC(0.01, kernel="linear").fit(X[[0, -1]], y[[0, -1]])
    np.testing.assert_allclose(model.decision_function(X[:1]), fresh.decision_function(X[:1]), atol=1e-9)


# -- sliding windows --------------------------------------------------------------------------------


def slide(model, X, y, i, width, *, short):
    """Add row i + width and forget row i. Without ``short``, weights of None avoid the single-row path."""
    rows = [(X[k : k + 1], y[k : k + 1]) for k in (i + width, i)]
    add, forget = rows if short else [(*pair, None) for pair in rows]
    return model.update(add=add, forget=forget)


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["no", "yes"])])
def test_slide_by_one_row_is_bit_identical_to_the_general_update(stream, labels):
    X, y = stream[0], labels[stream[1]]
    short, general = (IncrementalSVC(3.0, gamma=0.5).fit(X[:100], y[:100]) for _ in range(2))
    for i in range(100):
        slide(short, X, y, i, 100, short=True)
        slide(general, X, y, i, 100, short=False)
    assert snapshot(short) == snapshot(general)


def test_slide_uses_changed_parameters(stream):
    X, y = stream
    model = IncrementalSVC(3.0, gamma=0.5).fit(X[:100], y[:100])
    changes = [{"C": 0.5}, {"class_weight": "balanced"}, {"class_weight": None}, {"C": 2.0}]
    for i, change in enumerate(changes):
        slide(model.set_params(**change), X, y, i, 100, short=True)
        fresh = IncrementalSVC(model.C, gamma=0.5, class_weight=model.class_weight)
        fresh.fit(X[i + 1 : i + 101], y[i + 1 : i + 101])
        np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


def test_coefficients_sum_to_zero_after_changed_bounds(stream):
    # Nearly all support vectors of both classes are at changed bounds, so the margin set is almost empty.
    X, y = stream
    model = IncrementalSVC(0.5, gamma=0.5, class_weight="balanced").fit(X, y)
    model.set_params(class_weight=None).update(forget=(X[:1], y[:1]))
    assert abs(model.dual_coef_.sum()) < 1e-12
    fresh = IncrementalSVC(0.5, gamma=0.5).fit(X[1:], y[1:])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


def test_slide_can_add_one_class_and_remove_another(stream):
    X = stream[0][:40]
    y = np.array([2] + [0, 1] * 15 + [3] * 9)
    model = IncrementalSVC(gamma=0.5).fit(X[:31], y[:31])
    for i in range(3):
        slide(model, X, y, i, 31, short=True)
        fresh = IncrementalSVC(gamma=0.5).fit(X[i + 1 : i + 32], y[i + 1 : i + 32])
        assert model.classes_.tolist() == fresh.classes_.tolist()
        np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["no", "yes"])])
@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_single_row_prediction_equals_batch_prediction_after_every_update(stream, labels, kernel):
    X, y = stream[0], labels[stream[1]]
    model = IncrementalSVC(3.0, kernel=kernel, gamma=0.5, degree=2).fit(X[:100], y[:100])
    for i in range(60):
        slide(model, X, y, i, 100, short=True)
        one, many = model.predict(X[i : i + 1]), model.predict(X[i : i + 2])
        assert (one.dtype, one.tolist()) == (many.dtype, many[:1].tolist())
    assert [model.predict(row[None])[0] for row in X] == model.predict(X).tolist()


def test_single_row_prediction_uses_the_current_classes(stream):
    X = stream[0][:40]
    y = np.array([2] + [0, 1] * 15 + [3] * 9)
    model = IncrementalSVC(gamma=0.5).fit(X[1:31], y[1:31])
    zeros = np.flatnonzero(y == 0)
    for change, rows in ((model.partial_fit, [0]), (model.partial_fit, [35]), (model.forget, zeros),
                         (model.forget, [0]), (model.forget, [35])):  # fmt: skip
        assert model.predict(X[:1]).tolist() == model.predict(X[:2])[:1].tolist()
        change(X[rows], y[rows])
    assert model.predict(X[:1]).tolist() == [1]  # the only remaining class


def test_single_row_errors_equal_batch_errors(stream):
    model = IncrementalSVC(gamma=0.5).fit(*stream)
    for row in (np.full((1, 3), np.nan), np.zeros((1, 2)), np.zeros(3)):
        with pytest.raises(ValueError):
            model.predict(row)
    assert model.set_params(threshold="gmean").predict(stream[0][:1]) == model.predict(stream[0])[:1]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_failed_slide_changes_nothing(stream, bad):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X[:100], y[:100])
    slide(model, X, y, 0, 100, short=True)
    before = snapshot(model)
    with pytest.raises(DataError, match="only finite numbers"):
        model.update(add=(np.full((1, 3), bad), y[:1]), forget=(X[1:2], y[1:2]))
    with pytest.raises(DataError, match="never learned"):
        model.update(add=(X[101:102], y[101:102]), forget=(X[:1], y[:1]))
    assert snapshot(model) == before


def test_solution_of_large_window_is_optimal_after_every_slide(rng):
    y = (rng.random(700) < 0.3).astype(int)
    X = rng.normal(size=(700, 4)) + 1.2 * y[:, None]
    model = IncrementalSVC(10.0, gamma=0.2).fit(X[:500], y[:500])
    for i in range(200):
        slide(model, X, y, i, 500, short=True)
        assert model.kkt_violation() <= 1e-8
    fresh = IncrementalSVC(10.0, gamma=0.2).fit(X[200:], y[200:])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


# -- classes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_multiclass_svc_trains_one_class_against_the_rest(rng, class_weight):
    y = rng.choice(4, size=240, p=[0.5, 0.3, 0.15, 0.05])
    X = rng.normal(size=(240, 2)) + np.array([[0, 0], [2, 0], [0, 2], [3, 3]])[y]
    model = IncrementalSVC(0.5, gamma=0.5, class_weight=class_weight)
    for begin in range(0, 240, 40):
        model.partial_fit(X[begin : begin + 40], y[begin : begin + 40])
    model.forget(X[:60], y[:60])
    reference = OneVsRestClassifier(SVC(C=0.5, gamma=0.5, class_weight=class_weight, tol=1e-10))
    reference.fit(X[60:], y[60:])
    np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), atol=1e-6)


def test_number_of_classes_can_grow_and_shrink(rng):
    X = rng.normal(size=(90, 2))
    y = np.repeat(["a", "b", "c"], 30)
    X[30:60] += 2.0
    model = IncrementalSVC(gamma=0.5)
    rows = {label: (X[y == label], y[y == label]) for label in "abc"}
    for step, label in [("+", "b"), ("+", "c"), ("+", "a"), ("-", "c"), ("-", "b"), ("+", "c"), ("-", "a")]:
        if step == "+":
            model.partial_fit(*rows[label])
        else:
            model.forget(*rows[label])
        present = list(model.classes_)
        assert model.kkt_violation() <= 1e-8
        mine = np.isin(y, present)
        if len(present) > 1:
            fresh = IncrementalSVC(gamma=0.5).fit(X[mine], y[mine])
            np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)
        else:
            assert (model.predict(X) == present[0]).all()
            assert (model.decision_function(X) == 0.0).all()


def test_predict_after_forgetting_all_rows_raises(stream):
    model = IncrementalSVC(gamma=0.5).fit(*stream).forget(*stream)
    with pytest.raises(DataError, match="all rows have been forgotten"):
        model.predict(stream[0])
    model.partial_fit(*stream)
    fresh = IncrementalSVC(gamma=0.5).fit(*stream)
    np.testing.assert_allclose(
        model.decision_function(stream[0]), fresh.decision_function(stream[0]), atol=1e-8
    )


def test_class_weight_dict_equals_that_of_svc(stream):
    X, y = stream
    weights = {0: 0.2, 1: 3.0}
    ours = IncrementalSVC(0.5, class_weight=weights).fit(X, y)
    svc = SVC(C=0.5, class_weight=weights, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), svc.decision_function(X), atol=1e-6)


def test_sample_weight_of_three_equals_three_rows(stream):
    X, y = stream
    weights = 1.0 + 2.0 * (np.arange(200) % 3 == 0)
    heavy = IncrementalSVC(class_weight="balanced").fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(200), weights.astype(int))
    often = IncrementalSVC(class_weight="balanced").fit(X[repeated], y[repeated])
    np.testing.assert_allclose(heavy.decision_function(X), often.decision_function(X), atol=1e-7)
    heavy.forget(X[:3], y[:3], sample_weight=weights[:3])
    with pytest.raises(DataError, match="this weight"):
        heavy.forget(X[3:4], y[3:4], sample_weight=[2.0])


# -- kernels and memory -----------------------------------------------------------------------------


def test_callable_kernel_gives_same_model_as_the_native_kernel(stream):
    X, y = stream
    native = (
        IncrementalSVC(gamma=0.5).fit(X[:100], y[:100]).partial_fit(X[100:], y[100:]).forget(X[:50], y[:50])
    )
    called = IncrementalSVC(kernel=Kernel("rbf", gamma=0.5).block).fit(X[:100], y[:100])
    called.partial_fit(X[100:], y[100:]).forget(X[:50], y[:50])
    np.testing.assert_allclose(called.decision_function(X), native.decision_function(X), atol=1e-8)


def test_callable_kernel_that_raises_changes_nothing(stream):
    X, y = stream
    calls = {"left": 10**9}

    def kernel(A, B):
        calls["left"] -= 1
        if calls["left"] < 0:
            raise ZeroDivisionError
        return A @ B.T

    model = IncrementalSVC(kernel=kernel).fit(X[:100], y[:100])
    scores, size = model.decision_function(X), model.margin_size_
    for allowed in range(0, 120, 7):
        calls["left"] = allowed
        with pytest.raises(ZeroDivisionError):
            model.update(add=(X[100:], y[100:]), forget=(X[:40], y[:40]))
        calls["left"] = 10**9
        assert np.array_equal(model.decision_function(X), scores)
        assert model.margin_size_ == size
    model.update(add=(X[100:], y[100:]), forget=(X[:40], y[:40]))
    fresh = IncrementalSVC(kernel="linear").fit(X[40:], y[40:])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


def test_cache_size_does_not_change_predictions(stream):
    X, y = stream
    models = [IncrementalSVC(5.0, gamma=0.5, cache_size=size) for size in (200, 1e-3)]
    for model in models:
        model.fit(X[:120], y[:120])
        for i in range(80):
            model.update(
                add=(X[120 + i : 121 + i], y[120 + i : 121 + i]), forget=(X[i : i + 1], y[i : i + 1])
            )
    assert len(models[1]._state._solver.kept_rows()) <= 16 < len(models[1].support_vectors_)
    np.testing.assert_allclose(models[1].decision_function(X), models[0].decision_function(X), atol=1e-8)


def test_cached_kernel_rows_stay_within_the_cache_size(rng):
    y = (rng.random(600) < 0.5).astype(int)
    X = rng.normal(size=(600, 10))
    model = IncrementalSVC(cache_size=0.5).fit(X, y)
    solver = model._state._solver
    assert len(solver.kept_rows()) * 600 * solver.value_bytes <= 0.5 * 2**20
    assert len(model.support_vectors_) > len(solver.kept_rows())


@pytest.mark.parametrize("kernel", ["sigmoid", "precomputed", "cosine", 3])
def test_unsupported_kernel_raises(stream, kernel):
    with pytest.raises(ParameterError, match="kernel must be 'linear'"):
        IncrementalSVC(kernel=kernel).fit(*stream)


def test_kernel_values_that_overflow_raise(stream):
    X, y = stream
    model = IncrementalSVC(kernel="poly", gamma=1.0).fit(X, y)
    before = snapshot(model)
    with pytest.raises(DataError, match="the kernel values of row 0 of X are beyond"):
        model.partial_fit(np.full((1, 3), 1e60), np.array([1]))
    assert snapshot(model) == before


INDEFINITE = [
    lambda A, B: -(A @ B.T),
    lambda A, B: np.tanh(2.0 * A @ B.T - 1.0) + 0.99,
    lambda A, B: 30.0 - ((A[:, None] - B[None]) ** 2).sum(axis=2) ** 2,
]


@pytest.mark.parametrize("kernel", INDEFINITE)
@pytest.mark.parametrize("C", [0.1, 100.0])
def test_indefinite_kernel_raises_or_reaches_an_optimum(stream, kernel, C):
    X, y = stream
    model = IncrementalSVC(C, kernel=kernel)
    try:
        for begin in range(0, 200, 20):
            model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    except SolverError as error:
        assert "nothing was changed" in str(error)
    if hasattr(model, "classes_"):
        assert model.kkt_violation() <= 1e-7


# -- inputs, files, copies --------------------------------------------------------------------------


def test_sparse_and_float32_rows_equal_dense_rows(stream):
    X, y = stream
    X = np.round(X * 4.0) / 4.0  # exact in float32
    model = IncrementalSVC(gamma=0.5).fit(X, y)
    same = IncrementalSVC(gamma=0.5).fit(sparse.csr_matrix(X), y)
    assert np.array_equal(model.decision_function(X), same.decision_function(sparse.csr_matrix(X)))
    model.forget(X[:20].astype(np.float32), y[:20])
    same.forget(sparse.csr_matrix(X[:20]), y[:20])
    assert np.array_equal(model.decision_function(X), same.decision_function(X))


@pytest.mark.parametrize("copy", [lambda m: from_bytes(to_bytes(m)), lambda m: pickle.loads(pickle.dumps(m))])
def test_copy_of_incremental_svc_continues_bit_identically(stream, copy):
    X, y = stream
    model = IncrementalSVC(3.0, gamma=0.5, class_weight="balanced").fit(X[:100], y[:100])
    for begin in range(0, 60, 10):
        model.update(add=(X[100 + begin : 110 + begin], y[100 + begin : 110 + begin]))
        model.forget(X[begin : begin + 10], y[begin : begin + 10])
    copied = copy(model)
    for one in (model, copied):
        one.partial_fit(X[160:], y[160:]).forget(X[60:90], y[60:90])
    assert snapshot(model) == snapshot(copied)


def test_save_with_a_callable_kernel_raises(stream):
    model = IncrementalSVC(kernel=lambda A, B: A @ B.T).fit(*stream)
    with pytest.raises(ParameterError, match="cannot be saved"):
        to_bytes(model)


def test_loading_inconsistent_state_raises(stream):
    model = IncrementalSVC(gamma=0.5).fit(*stream)
    for damage in (
        lambda tree: tree.update(codes=tree["codes"][:-1]),
        lambda tree: tree["problems"][0].update(margin=np.zeros(3, dtype=np.uint32)),
        lambda tree: tree["problems"][0].update(z=np.zeros(3)),
        lambda tree: tree["problems"][0].update(factor=np.ones(2)),
    ):
        tree = model._get_state()
        damage(tree["solution"])
        with pytest.raises(ValueError):
            IncrementalSVC(gamma=0.5)._set_state(tree)


def test_every_simd_level_reaches_the_same_optimum(stream):
    X, y = stream
    level, scores = _native.simd_level(), []
    try:
        for name in _native.simd_levels():
            _native.use_simd_level(name)
            model = IncrementalSVC(5.0, gamma=0.5).fit(X[:150], y[:150])
            model.update(add=(X[150:], y[150:]), forget=(X[:30], y[:30]))
            scores.append(model.decision_function(X))
    finally:
        _native.use_simd_level(level)
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=1e-9)


def test_fitted_attributes_reproduce_the_decision_function(stream):
    X, y = stream
    model = IncrementalSVC(gamma=0.5).fit(X, y)
    K = Kernel("rbf", gamma=0.5).block(X, model.support_vectors_)
    np.testing.assert_allclose(K @ model.dual_coef_[0] + model.intercept_[0], model.decision_function(X))
    assert 0 < model.margin_size_ <= len(model.support_vectors_)
    assert abs(model.dual_coef_.sum()) < 1e-12
    assert not hasattr(IncrementalSVC(), "support_vectors_")


def test_gamma_is_computed_from_rows_of_first_call(stream):
    X, y = stream
    model = IncrementalSVC().partial_fit(X[:20], y[:20]).partial_fit(100.0 * X[20:], y[20:])
    gamma = 1.0 / (3 * X[:20].var())
    fresh = IncrementalSVC(gamma=gamma).fit(np.concatenate([X[:20], 100.0 * X[20:]]), y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-7)


@pytest.mark.parametrize(
    ("where", "value"),
    [("rows", np.nan), ("weights", -1.0), ("z", 1e9), ("z", np.nan), ("y", 0.5), ("factor", np.inf)],
)
def test_loading_state_with_infeasible_solution_raises(where, value):
    rng = np.random.default_rng(0)
    model = IncrementalSVC().fit(rng.normal(size=(30, 2)), np.arange(30) % 2)
    state = model._get_state()
    solution = state["solution"]
    table = solution["problems"][0] if where in {"y", "z", "factor"} else solution
    table[where] = np.array(table[where])
    table[where].flat[0] = value
    with pytest.raises(ValueError, match=r"finite|bounds|sign"):
        IncrementalSVC()._set_state(state)
