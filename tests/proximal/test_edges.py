"""Edge cases: offsets, constants, few rows, sparse rows and errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from steelyard import ProximalSVC, persistence
from steelyard.exceptions import DataError, DataTypeError, MemoryLimitError, ParameterError, SteelyardError
from steelyard.metrics import g_mean_score
from steelyard.proximal import ClassStatistics
from tests.proximal import reference
from tests.proximal.data import assert_same_planes, imbalanced, relative_difference


def test_features_with_huge_offset_keep_six_digits_after_any_history(rng):
    X, y = imbalanced(rng, 3000, 4)
    far = X / X.std(axis=0) + 1e8
    model = ProximalSVC()
    for begin in range(0, 3000, 70):
        model.partial_fit(far[begin : begin + 70], y[begin : begin + 70])
    model.forget(far[:1500], y[:1500])
    # The reference gets the same rows without the offset; the subtraction is exact in binary.
    coef, _ = reference.proximal(far[1500:] - 1e8, y[1500:])
    assert relative_difference(model.coef_, coef) < 1e-6


def test_sliding_window_over_a_drifting_mean_keeps_its_precision(rng):
    """The origin follows the mean of the rows."""
    drift = np.repeat(np.arange(60) * 1e5, 100)[:, None]
    y = (rng.random(6000) < 0.2).astype(int)
    X = rng.normal(size=(6000, 3)) + y[:, None] + drift
    model = ProximalSVC()
    for chunk in range(60):
        rows = slice(100 * chunk, 100 * chunk + 100)
        model.partial_fit(X[rows], y[rows])
        if chunk >= 5:
            forgotten = slice(100 * (chunk - 5), 100 * (chunk - 5) + 100)
            model.forget(X[forgotten], y[forgotten])
    last = slice(5500, 6000)
    fresh = ProximalSVC().fit(X[last], y[last])
    assert relative_difference(model.coef_, fresh.coef_) < 1e-5


def test_standardize_equals_a_scaler_fitted_to_the_current_rows(rng):
    X, y = imbalanced(rng, 600, 5)
    model = ProximalSVC().fit(X[:200], y[:200])
    model.update(add=(X[200:], y[200:]), forget=(X[:100], y[:100]))
    scaler = StandardScaler().fit(X[100:])
    batch = ProximalSVC(standardize=False).fit(scaler.transform(X[100:]), y[100:])
    assert relative_difference(model.coef_, batch.coef_ / scaler.scale_) < 1e-10


@pytest.mark.parametrize("value", [0.0, 7.0, 0.1, 1e8 + 0.1])
def test_constant_feature_has_coefficient_zero(rng, value):
    X, y = imbalanced(rng, 500, 3)
    with_constant = np.column_stack([X, np.full(500, value)])
    model = ProximalSVC()
    for begin in range(0, 500, 13):
        model.partial_fit(with_constant[begin : begin + 13], y[begin : begin + 13])
    plain = ProximalSVC().fit(X, y)
    assert abs(model.coef_[0, 3]) < 1e-9 * np.abs(model.coef_).max()
    np.testing.assert_allclose(
        model.decision_function(with_constant), plain.decision_function(X), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("objective", ["margin", "auc"])
@pytest.mark.parametrize("threshold", ["zero", "gmean"])
def test_single_class_is_predicted_for_all_rows(rng, objective, threshold):
    X = rng.normal(size=(5, 3))
    model = ProximalSVC(objective=objective, threshold=threshold).fit(X, ["only"] * 5)
    assert model.predict(rng.normal(size=(4, 3))).tolist() == ["only"] * 4
    assert model.predict_proba(X).tolist() == [[1.0]] * 5
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize("objective", ["margin", "auc"])
def test_fit_with_one_row_per_class_predicts(objective):
    model = ProximalSVC(objective=objective).fit([[0.0, 1.0], [4.0, 1.0]], ["a", "b"])
    assert model.predict([[0.5, 1.0], [3.5, 1.0]]).tolist() == ["a", "b"]


def test_fewer_rows_than_features_equal_the_textbook_formula(rng):
    X, y = imbalanced(rng, 20, 200)
    assert_same_planes(ProximalSVC(C=5.0).fit(X, y), *reference.proximal(X, y, 5.0))


def test_probabilities_sum_to_one_and_agree_with_scores_and_labels(rng):
    X, y = imbalanced(rng, 500, 4, (0.6, 0.3, 0.1))
    model = ProximalSVC().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    probabilities = model.predict_proba(X, prior="balanced")  # predict() weights all classes equally
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(X)).all()


def test_gmean_threshold_maximizes_the_gmean_of_the_normal_model():
    rng = np.random.default_rng(3)
    y = (rng.random(20_000) < 0.05).astype(int)
    X = np.where(y == 1, rng.normal(3.0, 2.5, len(y)), rng.normal(0.0, 0.3, len(y)))[:, None]
    scores = ProximalSVC().fit(X, y).decision_function(X)
    best = max(
        g_mean_score(y, (scores > cut).astype(int), pos_label=1)
        for cut in np.quantile(scores, np.linspace(0.5, 1, 400))
    )
    gmean = g_mean_score(y, ProximalSVC(threshold="gmean").fit(X, y).predict(X), pos_label=1)
    zero = g_mean_score(y, ProximalSVC().fit(X, y).predict(X), pos_label=1)
    assert gmean > zero + 0.02
    assert gmean > best - 0.005


# -- sparse rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_and_dense_rows_give_equal_planes(rng, kind, dtype):
    X = sp.random_array((400, 60), density=0.1, rng=rng, format="csr").astype(dtype)
    y = (rng.random(400) < 0.2).astype(int)
    dense = ProximalSVC().fit(X.toarray(), y)
    sparse = ProximalSVC().partial_fit(kind(X[:100]), y[:100]).partial_fit(kind(X[100:]), y[100:])
    assert_same_planes(sparse, dense.coef_, dense.intercept_, 1e-9)
    np.testing.assert_allclose(
        sparse.decision_function(kind(X)), dense.decision_function(X.toarray()), rtol=1e-5, atol=1e-6
    )


def test_sparse_rows_are_forgotten_as_dense_rows_and_vice_versa(rng):
    X = sp.random_array((300, 20), density=0.3, rng=rng, format="csr")
    y = (rng.random(300) < 0.3).astype(int)
    model = ProximalSVC().fit(X.toarray(), y).forget(X[:100], y[:100])
    assert_same_planes(model, *reference.proximal(X[100:].toarray(), y[100:]), 1e-9)
    model = ProximalSVC().fit(X, y).forget(X[:100].toarray(), y[:100])
    assert_same_planes(model, *reference.proximal(X[100:].toarray(), y[100:]), 1e-9)


def test_sparse_rows_with_duplicate_columns_are_summed_without_changing_the_input():
    data, columns = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 2.0]), np.array([0, 0, 1, 2, 1, 2])
    starts = np.array([0, 2, 3, 5, 6])
    for values in (data, columns, starts):
        values.setflags(write=False)
    X, y = sp.csr_array((data, columns, starts), shape=(4, 3)), [0, 1, 0, 1]
    model = ProximalSVC().fit(X, y)
    assert X.nnz == 6
    assert_same_planes(model, *reference.proximal(X.toarray(), np.array(y)), 1e-9)
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(X.toarray()))
    statistics = ClassStatistics(3)
    statistics.add(X, y)
    np.testing.assert_allclose(statistics.gram(0), model.statistics_.gram(0))


def test_sparse_rows_are_not_converted_to_dense(rng):
    X = sp.random_array((200_000, 300), density=0.01, rng=rng, format="csr")
    y = (rng.random(200_000) < 0.1).astype(int)
    dense_bytes = 8 * X.shape[0] * X.shape[1]
    tracemalloc.start()
    ProximalSVC().fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < dense_bytes / 10


def test_too_many_features_for_memory_raise_before_allocation():
    X = sp.csr_array(([1.0, 1.0], ([0, 1], [0, 5])), shape=(2, 3_000_000))
    with pytest.raises(MemoryLimitError, match=r"72,000,048,000,008 bytes.*\n?.*RandomFeatures"):
        ProximalSVC().fit(X, [0, 1])


# -- errors -----------------------------------------------------------------------------------------


def assert_refused(model, call, message):
    before = persistence.to_bytes(model)
    with pytest.raises(DataError, match=message):
        call()
    assert persistence.to_bytes(model) == before


def test_forget_unknown_rows_or_more_rows_than_learned_raises(rng):
    X, y = load_breast_cancer(return_X_y=True)
    model = ProximalSVC().fit(X, y)
    unknown = X[:1] * 50.0
    assert_refused(model, lambda: model.forget(unknown, y[:1]), "never learned")
    assert_refused(
        model, lambda: model.forget(np.repeat(X[y == 0], 2, axis=0), np.zeros(424, int)), "only 212"
    )
    assert_refused(model, lambda: model.forget(X[:1], [9]), "only 0")
    # As many unknown rows as the class has: it would have no rows but nonzero sums.
    assert_refused(model, lambda: model.forget(X[y == 0] * 1.001, y[y == 0]), "never learned")


def test_forget_unknown_row_of_a_small_class_raises(rng):
    X, y = imbalanced(rng, 50, 3)
    model = ProximalSVC().fit(X, y)
    assert_refused(model, lambda: model.forget(X[:1] + 1e-9, y[:1]), "never learned")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C must be a positive, finite number or 'auto'; got 0.0"),
        ({"C": "best"}, "C must be"),
        ({"class_weight": "even"}, "class_weight must be 'balanced', None or a dict"),
        ({"class_weight": {0: -1.0}}, "finite numbers of at least 0"),
        ({"objective": "hinge"}, "objective must be 'margin' or 'auc'; got 'hinge'"),
        ({"threshold": 0.5}, "threshold must be"),
        ({"standardize": "yes"}, "standardize must be True or False"),
        ({"feature_map": "rbf"}, "feature_map must be None or a RandomFeatures"),
    ],
)
def test_invalid_parameters_raise_parameter_error(rng, parameters, message):
    X, y = imbalanced(rng)
    with pytest.raises(ParameterError, match=message):
        ProximalSVC(**parameters).fit(X, y).predict(X)


def test_errors_name_the_row_and_the_column(rng):
    import pandas as pd

    X, y = imbalanced(rng, 300, 3)
    frame = pd.DataFrame(X.copy(), columns=["age", "amount", "hour"])
    frame.loc[299, "amount"] = np.nan
    with pytest.raises(DataError, match=r"NaN in row 299, column 1 \('amount'\)"):
        ProximalSVC().fit(frame, y)
    with pytest.raises(DataError, match="beyond 1e\\+300"):
        ProximalSVC().fit(X * 1e300, y)


def test_merge_of_incompatible_learners_raises(rng):
    X, y = imbalanced(rng, 100, 3)
    model = ProximalSVC().fit(X, y)
    assert_refused(model, lambda: model.merge(ProximalSVC().fit(X[:, :2], y)), "same features")
    assert_refused(model, lambda: model.merge(ProximalSVC(C="auto").fit(X, y)), "fold statistics")
    assert_refused(model, lambda: model.merge("model"), "expected a ProximalSVC")


# -- C="auto" ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("objective", ["margin", "auc"])
def test_auto_C_does_not_depend_on_the_history(rng, shares, objective):
    X, y = imbalanced(rng, 600, 12, shares)
    fresh = ProximalSVC(C="auto", objective=objective).fit(X[200:], y[200:])
    lived = ProximalSVC(C="auto", objective=objective).fit(X[:300], y[:300])
    lived.merge(ProximalSVC(C="auto", objective=objective).fit(X[300:], y[300:])).forget(X[:200], y[:200])
    assert lived.C_ == fresh.C_
    assert_same_planes(lived, fresh.coef_, fresh.intercept_, 1e-8)


def test_auto_C_is_smaller_for_random_labels_than_for_structured_labels(rng):
    X = rng.normal(size=(400, 30))
    noise = rng.integers(0, 2, 400)
    structure = (X[:, 0] > 0).astype(int)
    assert ProximalSVC(C="auto").fit(X, noise).C_ < ProximalSVC(C="auto").fit(X, structure).C_


def test_auto_C_after_the_first_rows_raises(rng):
    X, y = imbalanced(rng)
    model = ProximalSVC(C=1.0).fit(X, y).set_params(C="auto")
    with pytest.raises(ParameterError, match="from the first rows on"):
        model.predict(X)


def test_statistics_with_labels_of_mixed_types_raise():
    statistics = ClassStatistics(1)
    statistics.add([[1.0], [2.0]], [0, 1])
    before = statistics.to_bytes()
    strings = ClassStatistics(1)
    strings.add([[1.0]], ["a"])
    for change in (lambda: statistics.add([[3.0]], ["a"]), lambda: statistics.merge(strings)):
        with pytest.raises(DataTypeError, match="one sortable type"):
            change()
    assert statistics.to_bytes() == before


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_merge_with_labels_of_mixed_types_raises(C):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    model = ProximalSVC(C=C).fit(X, np.arange(30) % 2)
    before = persistence.to_bytes(model)
    with pytest.raises(DataTypeError, match=r"ProximalSVC\.merge: all labels"):
        model.merge(ProximalSVC(C=C).fit(X[:1], ["a"]))
    assert persistence.to_bytes(model) == before


def test_statistics_with_missing_labels_raise():
    with pytest.raises(DataError, match="missing values"):
        ClassStatistics(1).add([[1.0], [2.0]], [np.nan, 1.0])


def test_merging_statistics_without_folds_raises_with_auto_C():
    X, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
    plain = ProximalSVC().fit(X, y)
    for other in (plain, plain.statistics_):
        with pytest.raises(DataError, match="fold"):
            ProximalSVC(C="auto").merge(other)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: ClassStatistics(2.5),
        lambda model: ClassStatistics("a"),
        lambda model: model.decay("x"),
        lambda model: model.grow(6.5),
        lambda model: model.regularization_path(["a"]),
    ],
    ids=["width 2.5", "width a", "fade", "grow", "path"],
)
def test_invalid_numbers_raise_steelyard_error(call):
    model = ProximalSVC().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(SteelyardError, match="must be"):
        call(model)
