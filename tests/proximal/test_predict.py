"""Predicted labels, which one native pass computes, agree with the scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from steelyard import ProximalSVC
from steelyard.exceptions import ParameterError

LABELS = {
    "int64": np.array([-3, 5, 7, 11]),
    "int8": np.array([-3, 5, 7, 11], dtype=np.int8),
    "float": np.array([-1.0, 1.0, 2.0, 3.0]),
    "bool": np.array([False, True]),
    "text": np.array(["fault", "fraud", "ok", "rare"]),
    "object": np.array(["fault", "fraud", "ok", "rare"], dtype=object),
}


def named_by_scores(model: ProximalSVC, X: object) -> np.ndarray:
    scores = model.decision_function(X)
    return model.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "as_rows", [np.asarray, np.float32, sp.csr_array], ids=["float64", "float32", "sparse"]
)
def test_predicted_labels_follow_the_scores(kind, n_classes, as_rows):
    labels = LABELS[kind][:n_classes]
    rng = np.random.default_rng(3)
    X, y = as_rows(rng.normal(size=(300, 7))), labels[rng.integers(0, len(labels), 300)]
    model = ProximalSVC().fit(X, y)
    predicted = model.predict(X)
    assert predicted.dtype == model.classes_.dtype
    np.testing.assert_array_equal(predicted, named_by_scores(model, X))


@pytest.mark.parametrize("n_classes", [2, 30])
def test_scores_equal_matrix_product_over_blocks_and_threads(n_classes, monkeypatch):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(9_000, 13)), rng.integers(0, n_classes, 9_000)
    model = ProximalSVC().fit(X, y)
    expected = X @ model.coef_.T + model.intercept_
    answers = []
    for n_threads in ("1", "3"):
        monkeypatch.setenv("STEELYARD_NUM_THREADS", n_threads)
        answers.append(model.decision_function(X))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_allclose(answers[0].reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_probabilities_follow_the_prior_by_bayes_rule():
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.05).astype(int)
    X = rng.normal(size=(2000, 3)) + y[:, None]
    model = ProximalSVC().fit(X, y)
    even = model.predict_proba(X, prior="balanced")
    odds = even[:, 1] / even[:, 0]
    observed = model.predict_proba(X, prior="observed")
    np.testing.assert_allclose(observed[:, 1] / observed[:, 0], odds * y.mean() / (1 - y.mean()), rtol=1e-9)
    given = model.predict_proba(X, prior={0: 3.0, 1: 1.0})
    np.testing.assert_allclose(given[:, 1] / given[:, 0], odds / 3.0, rtol=1e-9)
    np.testing.assert_allclose(observed.sum(axis=1), 1.0)
    for wrong in ("often", {0: 1.0}, {0: 1.0, 1: -1.0}):
        with pytest.raises(ParameterError, match="prior"):
            model.predict_proba(X, prior=wrong)
