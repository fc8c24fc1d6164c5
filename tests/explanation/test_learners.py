"""``explain(X)`` of every learner: contributions add up to the score, near and far from the data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from steelyard import (
    KOIL,
    AdaptiveThresholdClassifier,
    AlignedSVC,
    EnclosingClassifier,
    IncrementalSVC,
    MultiKernelKOIL,
    ProximalSVC,
    RandomFeatures,
    StreamClassifier,
)
from steelyard.exceptions import DataError, NotFittedError
from steelyard.kernels import EditKernel
from steelyard.online import AROW, NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, Refit, SlidingWindow
from tests.explanation.reference import one_reference, shapley_values

LEARNERS = {
    "ProximalSVC": ProximalSVC(),
    "ProximalSVC, landmarks": ProximalSVC(feature_map=RandomFeatures(60)),
    "ProximalSVC, Fourier features": ProximalSVC(feature_map=RandomFeatures(60, kind="rbf")),
    "IncrementalSVC": IncrementalSVC(),
    "IncrementalSVC, polynomial": IncrementalSVC(kernel="poly", degree=2, gamma=0.2),
    "KOIL": KOIL(random_state=0),
    "MultiKernelKOIL": MultiKernelKOIL(random_state=0),
    "OnlinePerceptron": OnlinePerceptron(),
    "OAM": OAM(random_state=0),
    "OPAUC": OPAUC(),
    "AROW": AROW(),
    "NORMA": NORMA(),
    "RBP": RBP(random_state=0),
    "Forgetron": Forgetron(),
    "Projectron": Projectron(),
    "AlignedSVC": AlignedSVC(random_state=0),
    "EnclosingClassifier": EnclosingClassifier(),
    "SlidingWindow": SlidingWindow(ProximalSVC(), 100),
    "SlidingWindow of IncrementalSVC": SlidingWindow(IncrementalSVC(), 100),
    "ExponentialDecay": ExponentialDecay(ProximalSVC(), 100),
    "AdaptiveWindows": AdaptiveWindows(ProximalSVC(), lengths=(50, None), block=25),
    "AdaptiveWindows, blend": AdaptiveWindows(ProximalSVC(), lengths=(50, None), block=25, rule="blend"),
    "Refit": Refit(ProximalSVC(), every=50),
    "Refit of KOIL": Refit(KOIL(random_state=0), every=50),
    "Refit of LogisticRegression": Refit(LogisticRegression(), every=50),
    "AdaptiveThresholdClassifier": AdaptiveThresholdClassifier(ProximalSVC()),
    "AdaptiveThresholdClassifier of KOIL": AdaptiveThresholdClassifier(KOIL(random_state=0)),
    "AdaptiveThresholdClassifier of GaussianNB": AdaptiveThresholdClassifier(GaussianNB()),
    "StreamClassifier": StreamClassifier(),
}


def labelled_rows(n_classes, n_rows=240):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n_rows, 4))
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [0.8, 1.8][: n_classes - 1])
    return X, np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", LEARNERS)
def test_contributions_add_up_to_decision_function(name, n_classes):
    X, y = labelled_rows(n_classes)
    model = LEARNERS[name].fit(X, y)
    rows = np.concatenate([X[:10], 50.0 * X[:5], 1e6 * X[:3], np.zeros((1, 4))])
    scores = model.decision_function(rows)
    found = model.explain(rows, changes=False)
    assert found.contributions.shape == ((19, 4) if n_classes == 2 else (19, 4, 3))
    assert np.isfinite(found.contributions).all()
    np.testing.assert_array_equal(found.score, scores)
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total[:15], scores[:15], rtol=0, atol=1e-9)
    np.testing.assert_allclose(total, scores, rtol=1e-12, atol=1e-9)  # scores of linear learners reach 1e7
    assert found.column_names == ["x0", "x1", "x2", "x3"]
    assert found.labels.tolist() == model.predict(rows).tolist()
    np.testing.assert_array_equal(model.decision_function(rows), scores)


def test_linear_contributions_are_relative_to_mean_of_learned_rows():
    X, y = labelled_rows(2)
    model = ProximalSVC().fit(X + 3.0, y)
    found = model.explain(X[:7] + 3.0)
    np.testing.assert_allclose(found.contributions, (X[:7] - X.mean(axis=0)) * model.coef_[0], atol=1e-6)
    assert found.nearest == [[]] * 7  # no row is remembered
    assert found.changes == [[]] * 7


@pytest.mark.parametrize("learner", [IncrementalSVC(), KOIL(random_state=0)], ids=["IncrementalSVC", "KOIL"])
def test_kernel_learner_with_one_background_row_matches_definition(learner):
    X, y = labelled_rows(2)
    model = learner.fit(X, y)
    found = model.explain(X[:3], background=X[9:10])
    for row, contributions in zip(X[:3], found.contributions, strict=True):
        game = one_reference(lambda Z: model.decision_function(Z)[:, None], row, X[9])
        np.testing.assert_allclose(contributions, shapley_values(game, 4)[:, 0], atol=1e-10)


@pytest.mark.parametrize(
    "name", ["IncrementalSVC", "KOIL", "EnclosingClassifier", "SlidingWindow", "NORMA", "Refit of KOIL"]
)
def test_nearest_rows_are_remembered_rows_of_both_classes(name):
    X, y = labelled_rows(2)
    model = LEARNERS[name].fit(X, y)
    labels = dict(zip(map(bytes, X), y, strict=True))
    for near in model.explain(X[:20] + 0.01, changes=False).nearest:
        assert {row.label for row in near} == {"a", "b"}
        assert [row.distance for row in near] == sorted(row.distance for row in near)
        assert all(labels[bytes(np.ascontiguousarray(row.values))] == row.label for row in near)


def test_nearest_rows_of_three_classes_in_koil_have_their_labels():
    X, y = labelled_rows(3)
    labels = dict(zip(map(bytes, X), y, strict=True))
    near = KOIL(random_state=0, budget=200).fit(X, y).explain(X[:5], changes=False).nearest
    assert {row.label for rows in near for row in rows} == {"a", "b", "c"}
    assert all(labels[bytes(np.ascontiguousarray(row.values))] == row.label for rows in near for row in rows)


@pytest.mark.parametrize("name", ["IncrementalSVC", "SlidingWindow", "StreamClassifier"])
def test_suggested_changes_lead_to_the_stated_prediction(name):
    X, y = labelled_rows(2)
    model = LEARNERS[name].fit(X, y)
    found = model.explain(X[:20])
    n_changes = 0
    for row, changes in enumerate(found.changes):
        for change in changes:
            other = X[row].copy()
            for column, value in change.values.items():
                other[int(column[1:])] = value
            assert model.predict(other[None])[0] == change.label != found.labels[row]
            np.testing.assert_allclose(model.decision_function(other[None])[0], change.score, atol=1e-9)
            n_changes += 1
    assert n_changes > 10


@pytest.mark.parametrize("estimator", [KOIL(random_state=0), StreamClassifier(), LogisticRegression()])
def test_features_added_after_the_last_fit_contribute_nothing(estimator):
    X, y = labelled_rows(2)
    model = Refit(estimator, every=50).fit(X, y).grow(6)
    rows = np.column_stack([X[:5], X[:5, :2] + 1.0])
    found = model.explain(rows)
    np.testing.assert_allclose(found.contributions[:, 4:], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        found.contributions.sum(axis=1) + found.base, model.decision_function(rows), atol=1e-9
    )
    assert len(found.to_dicts()[0]["contributions"]) == 6


def test_column_without_remembered_values_is_not_changed():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), np.full(400, np.nan)])
    y = (rng.random(400) < 0.01).astype(int)
    y[:3] = 1
    model = StreamClassifier(threshold={"precision": 0.99}).fit(X, y)  # no row is an alarm
    assert model.explain(X[:2]).changes == [[], []]


def test_explain_sparse_rows_equals_dense_rows():
    X, y = labelled_rows(2)
    model = ProximalSVC().fit(X, y)
    dense, sparse = model.explain(X[:5]), model.explain(sp.csr_array(X[:5]))
    np.testing.assert_array_equal(dense.contributions, sparse.contributions)


def test_explain_table_returns_its_column_names():
    X, y = labelled_rows(2)
    frame = pd.DataFrame(X, columns=["amount", "age", "hour", "speed"])
    found = IncrementalSVC().fit(frame, y).explain(frame[:2])
    assert found.column_names == list(frame.columns)
    assert "amount = " in str(found)


def test_explain_before_learning_raises():
    with pytest.raises(NotFittedError):
        ProximalSVC().explain([[1.0]])
    with pytest.raises(NotFittedError):
        StreamClassifier().explain([[1.0]])


def test_explain_nan_raises():
    X, y = labelled_rows(2)
    with pytest.raises(DataError):
        IncrementalSVC().fit(X, y).explain([[1.0, np.nan, 0.0, 0.0]])


def test_explain_sequences_raises():
    model = IncrementalSVC(kernel=EditKernel()).fit(["aab", "aba", "zzy", "zyz"], [0, 0, 1, 1])
    with pytest.raises(DataError, match="sequences"):
        model.explain(["aaa"])


def test_explanation_of_model_with_one_class_has_no_contributions():
    found = StreamClassifier().fit(np.eye(3), ["only"] * 3).explain(np.eye(3))
    assert not found.contributions.any()
    assert found.labels.tolist() == ["only"] * 3


def test_contributions_match_shap_package():
    shap = pytest.importorskip("shap", reason="the shap package is an optional reference")
    X, y = labelled_rows(2)
    for model in (IncrementalSVC().fit(X, y), EnclosingClassifier().fit(X, y)):
        explainer = shap.KernelExplainer(model.decision_function, X[9:10])  # enumerates sets of 4 columns
        found = model.explain(X[:5], background=X[9:10])
        np.testing.assert_allclose(found.contributions, explainer.shap_values(X[:5], silent=True), atol=1e-6)
        np.testing.assert_allclose(found.base, explainer.expected_value, atol=1e-6)
    linear = ProximalSVC().fit(X, y)
    masker = shap.maskers.Independent(X, max_samples=len(X))
    values = shap.LinearExplainer((linear.coef_[0], linear.intercept_[0]), masker)(X[:5])
    np.testing.assert_allclose(linear.explain(X[:5]).contributions, values.values, atol=1e-6)
