"""ONNX graphs, run by onnxruntime, give the results of the learners."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import KOIL, EnclosingClassifier, ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError, NotFittedError

pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

from steelyard.compat.onnx import to_onnx  # noqa: E402

KERNELS = ["linear", "polynomial", "rbf", "laplacian", "sigmoid"]


def data(n_classes=2, n=240, d=5, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    return offset + rng.normal(size=(n, d)) + y[:, None], y


def onnx_outputs(model, rows):
    session = onnxruntime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    labels, scores = session.run(["label", "scores"], {"X": rows})
    return np.asarray(labels), scores


def assert_agrees(model, rows, bound):
    """Assert scores within ``bound``, and equal labels unless the two best scores are closer."""
    labels, scores = onnx_outputs(model, rows)
    expected = model.decision_function(rows).reshape(len(rows), -1)
    assert scores.shape == expected.shape
    assert np.abs(scores - expected).max() <= bound
    best = np.sort(expected, axis=1)
    lead = np.abs(best[:, 0]) if best.shape[1] == 1 else best[:, -1] - best[:, -2]
    clear = lead > 2.0 * bound
    assert clear.mean() > 0.95
    assert labels[clear].tolist() == model.predict(rows)[clear].tolist()


@pytest.mark.parametrize("n_classes", [1, 2, 4])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_onnx_linear_model_matches_up_to_rounding(n_classes, offset):
    X, y = data(n_classes, offset=offset)
    model = ProximalSVC().fit(X, y)
    rows = data(n_classes, offset=offset, seed=1)[0]
    size = (np.abs(rows) @ np.abs(model.coef_).T + np.abs(model.intercept_)).max()
    if n_classes > 1:
        assert_agrees(model, rows, 1e-14 * size)
    else:
        assert set(onnx_outputs(model, rows)[0].tolist()) == {0}


@pytest.mark.parametrize("gamma", ["rows", 0.1])
@pytest.mark.parametrize("kind", ["laplacian", "rbf", "relu", "sigmoid"])
def test_onnx_mapped_model_matches_up_to_quantization(kind, gamma):
    X, y = data(3)
    model = ProximalSVC(feature_map=RandomFeatures(60, kind=kind, gamma=gamma)).fit(X, y)
    step = model.feature_map_.step * np.abs(model.coef_).sum(axis=1).max()
    assert_agrees(model, data(3, seed=1)[0], step)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_onnx_koil_matches_up_to_rounding(kernel, n_classes):
    X, y = data(n_classes)
    model = KOIL(kernel=kernel, gamma=0.2, coef0=0.1, budget=30, random_state=0).partial_fit(X, y)
    rows = data(n_classes, seed=1)[0]
    size = np.abs(model.decision_function(rows)).max() + np.abs(model.dual_coef_).sum()
    assert_agrees(model, rows, 1e-11 * size)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", KERNELS[:-1])
def test_onnx_spheres_match_up_to_rounding(kernel, n_classes):
    X, y = data(n_classes)
    model = EnclosingClassifier(shape="sphere", kernel=kernel, gamma=0.2, coef0=0.1).partial_fit(X, y)
    assert_agrees(model, data(n_classes, seed=1)[0], 1e-9)


@pytest.mark.parametrize("names", [["no", "yes"], [False, True], [-1, 1], [2.0, 3.0]], ids=str)
def test_onnx_labels_keep_their_type(names):
    X, y = data()
    model = ProximalSVC().fit(X, np.array(names)[y])
    labels, _ = onnx_outputs(model, X)
    assert labels.tolist() == model.predict(X).tolist()


def test_to_onnx_of_unsupported_model_raises():
    X, y = data()
    with pytest.raises(DataError, match="ellipsoids have no ONNX form"):
        to_onnx(EnclosingClassifier().fit(X, y))
    with pytest.raises(DataError, match="got dict"):
        to_onnx({})
    with pytest.raises(NotFittedError):
        to_onnx(ProximalSVC())
