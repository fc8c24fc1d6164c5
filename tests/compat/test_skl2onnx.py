"""Pipelines that end in a learner are converted by skl2onnx, and answer as they do here."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import KOIL, EnclosingClassifier, ProximalSVC, RandomFeatures

skl2onnx = pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import steelyard.compat.skl2onnx  # noqa: E402, F401  it registers

pytestmark = pytest.mark.filterwarnings("default")  # those of skl2onnx are not ours to mend

LEARNERS = {
    "linear": ProximalSVC(),
    "mapped": ProximalSVC(feature_map=RandomFeatures(60)),
    "koil": KOIL(gamma=0.05, budget=40, random_state=0),
    "spheres": EnclosingClassifier(shape="sphere", kernel="rbf", gamma=0.05),
}


def made(n_classes, seed=0, n=300):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 4)) + 1.5 * y[:, None], np.array(["low", "mid", "top"])[y]


def asked(pipeline, X):
    session = onnxruntime.InferenceSession(
        skl2onnx.to_onnx(pipeline, X[:1]).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["label", "scores"], {"X": X})


def assert_agrees(pipeline, X, bound):
    """Scores within a share of their size; labels equal wherever the best two are further apart."""
    labels, scores = asked(pipeline, X)
    expected = pipeline.decision_function(X).reshape(len(X), -1)
    allowed = bound * np.abs(expected).max()
    assert np.abs(scores - expected).max() <= allowed
    best = np.sort(expected, axis=1)
    lead = np.abs(best[:, 0]) if best.shape[1] == 1 else best[:, -1] - best[:, -2]
    clear = lead > 2.0 * allowed
    assert clear.mean() > 0.95
    assert np.asarray(labels)[clear].tolist() == pipeline.predict(X)[clear].tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_pipeline_of_doubles_agrees(learner, n_classes):
    pipeline = make_pipeline(StandardScaler(), learner).fit(*made(n_classes))
    assert_agrees(pipeline, made(n_classes, seed=1)[0], 1e-4 if learner is LEARNERS["mapped"] else 1e-9)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_pipeline_of_floats_agrees_to_floats_on_real_rows(learner):
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), learner).fit(X, y)
    # The scaler works in single precision, 6e-8 of a value, and what it takes the mean from is up to
    # a hundred times as large as what is left.
    assert_agrees(pipeline, X.astype(np.float32), 1e-3)


def test_the_learner_alone_is_converted_too():
    X, y = made(2)
    assert_agrees(ProximalSVC().fit(X, y), X, 1e-12)
