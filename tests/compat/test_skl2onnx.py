"""Pipelines that end in a learner, converted by skl2onnx, give the same results."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import KOIL, EnclosingClassifier, ProximalSVC, RandomFeatures

skl2onnx = pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import steelyard.compat.skl2onnx  # noqa: E402, F401  the import registers the learners

pytestmark = pytest.mark.filterwarnings("default")  # skl2onnx emits warnings of its own

LEARNERS = {
    "linear": ProximalSVC(),
    "mapped": ProximalSVC(feature_map=RandomFeatures(60)),
    "koil": KOIL(gamma=0.05, budget=40, random_state=0),
    "spheres": EnclosingClassifier(shape="sphere", kernel="rbf", gamma=0.05),
}


def labelled_rows(n_classes, seed=0, n=300):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 4)) + 1.5 * y[:, None], np.array(["low", "mid", "top"])[y]


def onnx_outputs(pipeline, X):
    session = onnxruntime.InferenceSession(
        skl2onnx.to_onnx(pipeline, X[:1]).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["label", "scores"], {"X": X})


def assert_agrees(pipeline, X, bound):
    """Assert scores within a relative ``bound``, and equal labels unless the best scores are closer."""
    labels, scores = onnx_outputs(pipeline, X)
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
def test_converted_float64_onnx_pipeline_matches_original(learner, n_classes):
    pipeline = make_pipeline(StandardScaler(), learner).fit(*labelled_rows(n_classes))
    assert_agrees(
        pipeline, labelled_rows(n_classes, seed=1)[0], 1e-4 if learner is LEARNERS["mapped"] else 1e-9
    )


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_converted_float32_onnx_pipeline_matches_original_up_to_float32_rounding(learner):
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), learner).fit(X, y)
    # The scaler works in single precision, 6e-8 relative, and subtracts means from values that are up to
    # a hundred times as large as the difference.
    assert_agrees(pipeline, X.astype(np.float32), 1e-3)


def test_learner_without_pipeline_is_converted_to_onnx():
    X, y = labelled_rows(2)
    assert_agrees(ProximalSVC().fit(X, y), X, 1e-12)
