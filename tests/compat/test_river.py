"""Learners as river models, and river models as learners."""

from __future__ import annotations

import numpy as np
import pytest
from river import checks, compose, datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing

from steelyard import KOIL, ProximalSVC, StreamClassifier
from steelyard.compat.river import RiverClassifier, from_river, to_river
from steelyard.exceptions import DataError, ParameterError


def rows_of(X):
    return [dict(zip("abc", row, strict=True)) for row in X.tolist()]


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    y = (rng.random(300) < 0.2).astype(int)
    return rng.normal(size=(300, 3)) + 1.5 * y[:, None], y


@pytest.mark.parametrize(
    "learner", [ProximalSVC(), KOIL(budget=20, random_state=0)], ids=lambda learner: type(learner).__name__
)
def test_river_estimator_checks_pass(learner):
    assert not to_river(learner)._unit_test_skips()
    checks.check_estimator(to_river(learner))


def test_river_classifier_matches_learner_trained_on_arrays(data):
    X, y = data
    model = to_river(ProximalSVC())
    for x, label in zip(rows_of(X), y.tolist(), strict=True):
        model.learn_one(x, label)
    batch = ProximalSVC(quantizer=model.to_learner().quantizer_).fit(X, y)
    assert model.to_learner().digest() == batch.digest()
    assert [model.predict_one(x) for x in rows_of(X)] == batch.predict(X).tolist()
    chances = [[model.predict_proba_one(x)[label] for label in (0, 1)] for x in rows_of(X)]
    np.testing.assert_array_equal(chances, batch.predict_proba(X))


@pytest.mark.parametrize("make", [ProximalSVC, StreamClassifier], ids=lambda make: make.__name__)
def test_river_pipeline_runs_progressive_validation(make):
    model = compose.Pipeline(preprocessing.StandardScaler(), to_river(make()))
    result = evaluate.progressive_val_score(datasets.Phishing().take(400), model, metrics.Accuracy())
    assert result.get() > 0.8


def test_categories_are_learned_through_river_encoder():
    model = preprocessing.OneHotEncoder() | to_river(ProximalSVC())
    for _ in range(5):
        for country, label in (("NZ", "no"), ("AU", "yes"), ("FR", "no")):
            model.learn_one({"country": country}, label)
    assert [model.predict_one({"country": c}) for c in ("NZ", "AU", "FR")] == ["no", "yes", "no"]


def test_late_features_count_as_zero_in_earlier_rows(data):
    X, y = data
    X[:100, 2] = 0.0
    model = to_river(ProximalSVC())
    for place, (x, label) in enumerate(zip(rows_of(X), y.tolist(), strict=True)):
        model.learn_one({name: x[name] for name in ("ab" if place < 100 else "cab")}, label)
    learned = model.to_learner()
    np.testing.assert_allclose(learned.coef_, ProximalSVC().fit(X, y).coef_, rtol=1e-7)


def test_fitted_learner_is_copied_into_river(data):
    X, y = data
    learner = ProximalSVC().partial_fit(X[:200], y[:200])
    before = learner.digest()
    model = to_river(learner, features="abc")
    for x, label in zip(rows_of(X[200:]), y[200:].tolist(), strict=True):
        model.learn_one(x, label)
    assert learner.digest() == before
    assert from_river(model).digest() == learner.partial_fit(X[200:], y[200:]).digest()
    assert model.clone().to_learner().digest() == before


def test_feature_names_of_table_are_kept_in_river_classifier(data):
    pd = pytest.importorskip("pandas", reason="tables need pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=list("abc"))
    learner = ProximalSVC().fit(frame, y)
    model = to_river(learner)
    turned = [dict(reversed(x.items())) for x in rows_of(X)]
    assert [model.predict_one(x) for x in turned] == learner.predict(frame).tolist()


def test_river_classifier_of_learner_without_grow_ignores_new_features(data):
    X, y = data
    model = to_river(KOIL(gamma=0.5, random_state=0), features="ab")
    for x, label in zip(rows_of(X), y.tolist(), strict=True):
        model.learn_one(x, label)
    narrow = KOIL(gamma=0.5, random_state=0).partial_fit(X[:, :2], y)
    assert [model.predict_one(x) for x in rows_of(X)] == narrow.predict(X[:, :2]).tolist()


def test_rejected_row_keeps_state_of_river_classifier(data):
    X, y = data
    model = to_river(ProximalSVC())
    for x, label in zip(rows_of(X), y.tolist(), strict=True):
        model.learn_one(x, label)
    before = model.to_learner().digest()
    with pytest.raises(DataError, match="expected a number for 'd'; got 'text'"):
        model.learn_one({"a": 1.0, "d": "text"}, 1)
    with pytest.raises(DataError, match="NaN"):
        model.learn_one({"a": float("nan"), "d": 1.0}, 1)
    assert model.to_learner().digest() == before
    model.learn_one(rows_of(X)[0], 1)
    assert model.to_learner().n_features_in_ == 3


def test_river_model_learns_arrays_and_keeps_state(data):
    X, y = data
    known, fresh = naive_bayes.GaussianNB(), naive_bayes.GaussianNB()
    for x, label in zip(rows_of(X), y.tolist(), strict=True):
        known.learn_one(x, label)
    peer = from_river(known, labels=[0, 1], features="abc")
    expected = [known.predict_one(x) for x in rows_of(X)]
    assert peer.predict(X).tolist() == expected
    assert from_river(fresh).partial_fit(X, y).predict(X).tolist() == expected


def test_binary_river_model_keeps_its_labels(data):
    X, y = data
    words = np.array(["good", "bad"])[y]
    peer = from_river(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    assert (peer.partial_fit(X, words).predict(X) == words).mean() > 0.85


def test_invalid_conversion_to_or_from_river_raises():
    with pytest.raises(ParameterError, match=r"needs partial_fit\(\)"):
        to_river(object())
    with pytest.raises(ParameterError, match="river classifier or pipeline"):
        from_river(ProximalSVC)
    with pytest.raises(ParameterError, match="3 distinct names"):
        RiverClassifier(ProximalSVC().fit(np.eye(3), [0, 1, 0]), features=["a", "b"])
    with pytest.raises(DataError, match="2 named features"):
        from_river(naive_bayes.GaussianNB(), features="ab").partial_fit(np.eye(3), np.array([0, 1, 0]))
