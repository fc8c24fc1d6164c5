"""Refit: any classifier with fit() as a learner of streams."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from steelyard import ProximalSVC, StreamClassifier
from steelyard.evaluation import prequential
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.windowing import Refit


def _rows(n=600, seed=0, labels=("no", "yes")):
    rng = np.random.default_rng(seed)
    is_positive = rng.random(n) < 0.3
    return rng.normal(size=(n, 3)) + is_positive[:, None], np.where(is_positive, labels[1], labels[0])


def _learned(model, X, y, chunk=50, **more):
    for begin in range(0, len(y), chunk):
        part = slice(begin, begin + chunk)
        model.partial_fit(X[part], y[part], **{name: value[part] for name, value in more.items()})
    return model


class _NumbersOnly(ClassifierMixin, BaseEstimator):
    """Classifier that accepts only the labels 0, 1, ..., as XGBoost does."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        if self.classes_.tolist() != list(range(len(self.classes_))):
            raise ValueError(f"invalid classes {self.classes_}")
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[-1])


@pytest.mark.parametrize("window", [200, None])
def test_refit_equals_fit_on_the_rows_of_its_window(window):
    X, y = _rows(650)
    model = _learned(
        Refit(DecisionTreeClassifier(max_depth=4, random_state=0), every=300, window=window), X, y
    )
    end = {200: 600, None: 400}[window]  # fits after 100, 200, 400 and, with a window, 600 rows
    rows = slice(0 if window is None else end - window, end)
    expected = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X[rows], y[rows])
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X))
    assert model.classes_.tolist() == ["no", "yes"]


def test_estimator_is_refitted_when_rows_double_and_later_every_n_rows():
    X, y = _rows(2000)
    model, fitted_at = Refit(LogisticRegression(), every=500, window=None), []
    for row in range(2000):
        before = model.n_fits_
        until = model.n_rows_until_fit_ if row else 100
        model.partial_fit(X[row : row + 1], y[row : row + 1])
        if model.n_fits_ > before:
            assert until == (1 if row else 100)
            fitted_at.append(row + 1)
    assert fitted_at == [100, 200, 400, 800, 1300, 1800]


def test_refit_every_share_of_window_waits_for_at_least_100_new_rows():
    X, y = _rows(3000)
    model = Refit(DecisionTreeClassifier(random_state=0), every=0.2, window=1000)
    fitted_at = []
    for begin in range(0, 3000, 50):
        before = model.n_fits_
        model.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
        if model.n_fits_ > before:
            fitted_at.append(begin + 50)
    assert fitted_at[:4] == [100, 200, 300, 400]
    assert np.diff(fitted_at)[-5:].tolist() == [200] * 5


def test_duration_window_keeps_rows_by_time():
    X, y = _rows(400)
    time = np.arange(400) * 3600.0
    model = Refit(DecisionTreeClassifier(random_state=0), every=100, window="100h")
    _learned(model, X, y, chunk=100, time=time)
    expected = DecisionTreeClassifier(random_state=0).fit(X[-100:], y[-100:])
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    with pytest.raises(DataError, match="needs the times of the rows"):
        Refit(LogisticRegression(), window="1d").partial_fit(X, y)


def test_estimator_receives_class_indices_and_translated_class_weights():
    X, y = _rows(300)
    assert set(_learned(Refit(_NumbersOnly()), X, y).predict(X)) == {"yes"}
    weights = {"no": 1.0, "yes": 50.0}
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(class_weight=weights))
    model = Refit(pipeline, every=300).partial_fit(X, y)
    expected = clone(pipeline).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X))
    assert pipeline.get_params()["logisticregression__class_weight"] == weights


def test_predict_before_first_fit_raises_and_window_of_one_class_keeps_last_fit():
    X, y = _rows(400)
    model = Refit(LogisticRegression(), every=100, window=100).partial_fit(X[:60], y[:60])
    with pytest.raises(NotFittedError, match="there are 60 rows"):
        model.predict(X)
    assert not hasattr(model, "classes_")
    model.partial_fit(X[60:200], y[60:200])
    before = model.predict(X)
    model.partial_fit(X[:300], np.full(300, "no"))
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.n_fits_ == 1


def test_new_class_is_predicted_after_the_next_fit():
    X, y = _rows(300)
    model = Refit(DecisionTreeClassifier(random_state=0), every=100).partial_fit(X, y)
    model.partial_fit(X[:100] + 50, np.full(100, "new"))
    assert model.classes_.tolist() == ["new", "no", "yes"]
    assert set(model.predict(X[:100] + 50)) == {"new"}


def test_nan_is_passed_to_estimator_and_its_error_names_the_estimator():
    X, y = _rows(300)
    X[::7, 1] = np.nan
    assert (
        len(Refit(HistGradientBoostingClassifier(max_iter=3), every=300).partial_fit(X, y).predict(X)) == 300
    )
    model = Refit(LogisticRegression(), every=100).partial_fit(np.nan_to_num(X), y)
    before = model.predict_proba(np.nan_to_num(X))
    with pytest.raises(DataError, match=r"Refit\(LogisticRegression\): .* 600 rows: Input X contains NaN"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(np.nan_to_num(X)), before)


def test_rows_are_copied_and_new_features_are_used_from_next_fit():
    X, y = _rows(250)
    buffer = X.copy()
    model = Refit(DecisionTreeClassifier(random_state=0), every=200)
    for begin in range(0, 200, 50):
        part = buffer[begin : begin + 50]
        model.partial_fit(part, y[begin : begin + 50])
        part[:] = 0.0
    expected = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    model.grow(5)
    wide = np.column_stack([X, np.ones((250, 2))])
    np.testing.assert_array_equal(model.predict(wide), expected.predict(X))
    model.partial_fit(wide[:200], y[:200])
    assert model.estimator_.n_features_in_ == 5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), copy.copy])
def test_copies_of_refit_are_independent(copied):
    X, y = _rows(300)
    model = Refit(LogisticRegression(), every=100).partial_fit(X, y)
    other, before = copied(model), model.predict_proba(X)
    other.partial_fit(X + 3, y[::-1])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert other.n_fits_ == 2
    assert not hasattr(clone(model), "classes_")
    assert model.fit(X[:150], y[:150]).n_fits_ == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"every": 0}, "every must be a whole number"),
        ({"every": 1.5}, "a share between 0 and 1"),
        ({"window": 0}, "window must be a whole number of rows"),
        ({"window": "soon"}, "window must be"),
        ({"estimator": StandardScaler()}, r"must have predict\(\)"),
    ],
)
def test_invalid_parameters_of_refit_raise(parameters, message):
    model = Refit(**{"estimator": LogisticRegression(), **parameters})
    with pytest.raises(ParameterError, match=message):
        model.partial_fit(*_rows(10))


def test_prequential_accepts_any_scikit_learn_classifier():
    from sklearn.naive_bayes import GaussianNB

    X, y = _rows(1500)
    models = {
        "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
        "bayes": GaussianNB(),
        "refit": Refit(LogisticRegression(), every=0.1, window=None),
        "ours": ProximalSVC(),
        "default": StreamClassifier(),
    }
    result = prequential(models, X, y)
    assert isinstance(result.models["tree"], Refit)
    assert all(line["auc"] > 0.75 for line in result.summary())
    with pytest.raises(ParameterError, match=r"neither partial_fit\(\) nor fit\(\)"):
        prequential({"text": "no model"}, X, y)
