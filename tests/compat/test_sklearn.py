"""ProximalSVC with scikit-learn tools."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.fixes import parse_version

from steelyard import KOIL, EnclosingClassifier, ProximalSVC, RandomFeatures


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    y = (rng.random(500) < 0.25).astype(int)
    table = pd.DataFrame(rng.normal(size=(500, 3)) + y[:, None], columns=list("abc"))
    table["kind"] = rng.choice(["x", "z"], size=500)
    return table, y, rng.integers(1, 4, size=500)


@pytest.mark.parametrize(
    "scoring",
    [
        "balanced_accuracy",
        pytest.param(
            None,
            marks=pytest.mark.skipif(
                parse_version(sklearn.__version__) < parse_version("1.8"),
                reason="scikit-learn 1.7 asks the pipeline, not its last step, if score takes weights",
            ),
        ),
    ],
)
def test_sample_weight_is_routed_through_pipeline_and_grid_search(frame, scoring):
    table, y, weights = frame
    X = table[["a", "b", "c"]].to_numpy()
    with sklearn.config_context(enable_metadata_routing=True):
        learner = ProximalSVC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        plain = StandardScaler().set_fit_request(sample_weight=False)
        scorer = scoring and get_scorer(scoring).set_score_request(sample_weight=True)
        search = GridSearchCV(make_pipeline(plain, learner), {"proximalsvc__C": [0.5]}, scoring=scorer)
        search.fit(X, y, sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    expected = ProximalSVC(C=0.5).fit(scaled, y, sample_weight=weights)
    np.testing.assert_array_equal(search.best_estimator_[-1].coef_, expected.coef_)
    assert (expected.coef_ != ProximalSVC(C=0.5).fit(scaled, y).coef_).any()


def test_pipeline_passes_data_frames_with_names(frame):
    table, y, _ = frame
    numbers = table[["a", "b", "c"]]
    steps = make_pipeline(StandardScaler(), RandomFeatures(8), ProximalSVC()).set_output(transform="pandas")
    steps.fit(numbers, y)
    assert steps[-1].feature_names_in_.tolist() == [f"randomfeatures{place}" for place in range(8)]
    arrays = make_pipeline(StandardScaler(), RandomFeatures(8), ProximalSVC()).fit(numbers.to_numpy(), y)
    np.testing.assert_array_equal(
        steps.decision_function(numbers), arrays.decision_function(numbers.to_numpy())
    )


def test_halving_search_finds_parameters(frame):
    table, y, _ = frame
    X = table[["a", "b", "c"]].to_numpy()
    search = HalvingGridSearchCV(ProximalSVC(), {"C": [1e-8, 0.1, 1.0]}, random_state=0, scoring="roc_auc")
    assert search.fit(X, y).best_estimator_.score(X, y) > 0.7


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_classifier_gives_calibrated_probabilities(frame, method):
    table, y, _ = frame
    X = table[["a", "b", "c"]].to_numpy()
    probabilities = CalibratedClassifierCV(ProximalSVC(), method=method).fit(X, y).predict_proba(X)[:, 1]
    assert abs(probabilities.mean() - y.mean()) < 0.02  # balanced probabilities do not satisfy this
    balanced = ProximalSVC().fit(X, y).predict_proba(X, prior="balanced")[:, 1]
    assert abs(balanced.mean() - y.mean()) > 0.05


@pytest.mark.parametrize("sparse_threshold", [0.0, 1.0])
def test_column_transformer_output_is_learned(frame, sparse_threshold):
    table, y, _ = frame
    parts = [("numbers", StandardScaler(), ["a", "b", "c"]), ("kinds", OneHotEncoder(), ["kind"])]
    model = make_pipeline(ColumnTransformer(parts, sparse_threshold=sparse_threshold), ProximalSVC())
    by_hand = np.column_stack(
        [StandardScaler().fit_transform(table[["a", "b", "c"]]), table["kind"] == "x", table["kind"] == "z"]
    )
    expected = ProximalSVC().fit(by_hand, y).decision_function(by_hand)
    np.testing.assert_allclose(model.fit(table, y).decision_function(table), expected, atol=1e-9)


@pytest.mark.parametrize(
    "learner",
    [ProximalSVC(), KOIL(random_state=0), EnclosingClassifier()],
    ids=lambda one: type(one).__name__,
)
def test_learner_continues_learning_after_joblib_roundtrip(frame, learner, tmp_path):
    table, y, _ = frame
    X = table[["a", "b", "c"]].to_numpy()
    model = sklearn.clone(learner).partial_fit(X[:300], y[:300])
    joblib.dump(model, tmp_path / "model.joblib")
    back = joblib.load(tmp_path / "model.joblib")
    for each in (model, back):
        each.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(back.decision_function(X), model.decision_function(X))
