"""IncrementalSVC has the same interface and results as scikit-learn's SVC."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from steelyard import IncrementalSVC
from steelyard.exceptions import DataError, ParameterError

IRIS_X, IRIS_Y = load_iris(return_X_y=True)
PAIR = IRIS_Y > 0
X, Y = IRIS_X[PAIR], IRIS_Y[PAIR]
RNG = np.random.default_rng(0)


@pytest.fixture(params=["linear", "rbf", "poly"])
def both(request):
    settings = {"kernel": request.param, "gamma": 0.2, "C": 0.7}
    return IncrementalSVC(**settings).fit(X, Y), SVC(tol=1e-10, **settings).fit(X, Y)


def test_support_vectors_and_coefficients_equal_those_of_svc(both):
    mine, theirs = both
    order = np.argsort(theirs.support_)
    np.testing.assert_array_equal(mine.support_, theirs.support_[order])
    np.testing.assert_array_equal(mine.n_support_, theirs.n_support_)
    np.testing.assert_array_equal(mine.support_vectors_, X[mine.support_])
    np.testing.assert_allclose(
        mine.dual_coef_, theirs.dual_coef_[:, order], atol=1e-3
    )  # LIBSVM caches 32-bit values
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, atol=2e-3)


def test_decision_function_and_predictions_equal_those_of_svc(both):
    mine, theirs = both
    np.testing.assert_allclose(mine.decision_function(X), theirs.decision_function(X), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(mine.predict(X), mine.classes_[(mine.decision_function(X) > 0).astype(int)])
    np.testing.assert_array_equal(mine.predict(X), theirs.predict(X))


def test_coef_exists_for_the_linear_kernel_only():
    mine, theirs = (make(kernel="linear").fit(X, Y) for make in (IncrementalSVC, SVC))
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-2)
    np.testing.assert_allclose(X @ mine.coef_[0] + mine.intercept_[0], mine.decision_function(X), atol=1e-9)
    curved = IncrementalSVC().fit(X, Y)
    assert not hasattr(curved, "coef_")
    with pytest.raises(AttributeError, match="only the linear kernel has coefficients"):
        curved.coef_


def test_support_indices_follow_added_and_forgotten_rows():
    model = IncrementalSVC(gamma=0.3).fit(X[:50], Y[:50]).partial_fit(X[50:], Y[50:])
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.n_support_.sum() == len(model.support_)
    model.forget(X[:20], Y[:20])
    assert model.support_.max() < len(X) - 20
    assert not hasattr(IncrementalSVC(), "support_")


def test_three_classes_are_predicted_as_accurately_as_by_one_against_one():
    model = IncrementalSVC(gamma=0.2).fit(IRIS_X, IRIS_Y)
    assert model.decision_function(IRIS_X).shape == (150, 3)
    assert model.score(IRIS_X, IRIS_Y) >= SVC(gamma=0.2).fit(IRIS_X, IRIS_Y).score(IRIS_X, IRIS_Y) - 0.02
    assert len(model.n_support_) == 3
    assert model.coef_.shape == (3, 4) if model.kernel == "linear" else not hasattr(model, "coef_")


def test_precomputed_kernel_gives_same_model_as_the_named_kernel():
    K = X @ X.T
    numbers = np.arange(len(X), dtype=float)[:, None]
    looked_up = IncrementalSVC(kernel=lambda a, b: K[np.ix_(a[:, 0].astype(int), b[:, 0].astype(int))])
    computed = SVC(kernel="precomputed", tol=1e-10).fit(K, Y)
    looked_up.fit(numbers, Y)
    np.testing.assert_allclose(looked_up.decision_function(numbers), computed.decision_function(K), atol=1e-3)
    np.testing.assert_array_equal(looked_up.support_, np.sort(computed.support_))


def test_calibrated_classifier_gives_probabilities():
    assert not hasattr(IncrementalSVC(), "predict_proba")
    calibrated = CalibratedClassifierCV(IncrementalSVC(gamma=0.2), cv=3).fit(X, Y)
    shares = calibrated.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.mean(calibrated.predict(X) == Y) > 0.9


def test_larger_class_weight_gives_more_predictions_of_the_class():
    plain = IncrementalSVC(kernel="linear", C=0.05).fit(X, Y)
    heavy = IncrementalSVC(kernel="linear", C=0.05, class_weight={2: 10.0}).fit(X, Y)
    assert (heavy.predict(X) == 2).sum() > (plain.predict(X) == 2).sum()
    theirs = SVC(kernel="linear", C=0.05, class_weight={2: 10.0}, tol=1e-10).fit(X, Y)
    np.testing.assert_allclose(heavy.decision_function(X), theirs.decision_function(X), atol=1e-3)


def test_sample_weights_equal_those_of_svc():
    weights = RNG.uniform(0.1, 5.0, size=len(Y))
    mine = IncrementalSVC(gamma=0.2).fit(X, Y, sample_weight=weights)
    theirs = SVC(gamma=0.2, tol=1e-10).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(mine.decision_function(X), theirs.decision_function(X), atol=1e-3)
    without = weights * (np.arange(len(Y)) % 3 > 0)
    left_out = IncrementalSVC(gamma=0.2).fit(X, Y, sample_weight=without)
    fewer = IncrementalSVC(gamma=0.2).fit(X[without > 0], Y[without > 0], sample_weight=weights[without > 0])
    np.testing.assert_allclose(left_out.decision_function(X), fewer.decision_function(X), atol=1e-6)
    with pytest.raises(DataError):
        IncrementalSVC().fit(X, Y, sample_weight=-weights)


def test_sparse_rows_equal_dense_rows():
    dense = IncrementalSVC(gamma=0.2).fit(X, Y)
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        model = IncrementalSVC(gamma=0.2).fit(form(X), Y)
        np.testing.assert_array_equal(model.decision_function(form(X)), dense.decision_function(X))


def test_fit_with_one_row_per_class_or_one_class_predicts():
    model = IncrementalSVC(kernel="linear").fit([[-1.0], [1.0]], [0, 1])
    np.testing.assert_allclose(model.decision_function([[-1.0], [0.0], [1.0]]), [-1.0, 0.0, 1.0], atol=1e-9)
    assert IncrementalSVC().fit([[1.0], [2.0]], ["a", "a"]).predict([[5.0]]).tolist() == ["a"]


def test_invalid_parameters_and_predict_before_fit_raise():
    for settings in (
        {"C": 0.0},
        {"C": -1.0},
        {"kernel": "none"},
        {"gamma": -1.0},
        {"tol": 0.0},
        {"degree": -1},
    ):
        with pytest.raises(ParameterError, match="must be"):
            IncrementalSVC(**settings).fit(X, Y)
    with pytest.raises(NotFittedError):
        IncrementalSVC().predict(X)
    with pytest.raises(DataError):
        IncrementalSVC().fit(X, Y[:-1])


def test_incremental_svc_works_in_pipeline_grid_search_and_clone():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), IncrementalSVC()), {"incrementalsvc__C": [0.1, 1.0]}, cv=3
    ).fit(X, Y)
    assert search.best_score_ > 0.9
    cloned = clone(search.best_estimator_[-1])
    assert not hasattr(cloned, "classes_")


def test_gamma_scale_equals_that_of_svc():
    mine, theirs = (make(gamma="scale").fit(X, Y) for make in (IncrementalSVC, SVC))
    np.testing.assert_allclose(mine.decision_function(X), theirs.decision_function(X), atol=1e-2)
