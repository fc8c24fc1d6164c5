"""Random feature maps: approximation of kernels, reproducibility, and exact learners behind them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from steelyard import ProximalSVC, RandomFeatures, _native, persistence
from steelyard._threads import one_thread
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.features import _median_distance
from tests.proximal.data import assert_same_planes, imbalanced


@parametrize_with_checks(
    [RandomFeatures(20), RandomFeatures(20, kind="rbf"), RandomFeatures(20, kind="relu", gamma=1.0)]
)
def test_feature_map_passes_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("rbf", lambda a, b: np.exp(-0.3 * np.square(a - b).sum())),
        ("laplacian", lambda a, b: np.exp(-0.3 * np.abs(a - b).sum())),
    ],
)
def test_fourier_features_approximate_the_kernel(rng, kind, exact):
    X = rng.normal(size=(30, 4))
    Z = RandomFeatures(40_000, kind=kind, gamma=0.3).fit_transform(X)
    expected = np.array([[exact(a, b) for b in X] for a in X])
    assert np.abs(Z @ Z.T - expected).max() < 0.03


@pytest.mark.parametrize("euclidean", [True, False])
@pytest.mark.parametrize("n_rows", [1, 2, 31, 32, 33, 100])
def test_median_distance_equals_that_of_all_ordered_pairs(rng, n_rows, euclidean):
    for rows in (rng.normal(size=(n_rows, 3)), rng.integers(0, 3, (n_rows, 2)).astype(float)):
        differences = rows[:, None] - rows
        distances = np.sqrt((differences**2).sum(axis=2)) if euclidean else np.abs(differences).sum(axis=2)
        positive = distances[distances > 0.0]
        expected = np.median(positive) if len(positive) else 1.0
        assert _median_distance(rows, euclidean=euclidean) == pytest.approx(expected, rel=1e-12)


def test_random_features_with_several_gammas_approximate_the_mean_kernel(rng):
    X = rng.normal(size=(10, 3))
    Z = RandomFeatures(60_000, kind="rbf", gamma=[0.1, 2.0]).fit_transform(X)
    squared = np.square(X[:, None] - X).sum(axis=2)
    expected = 0.5 * (np.exp(-0.1 * squared) + np.exp(-2.0 * squared))
    assert np.abs(Z @ Z.T - expected).max() < 0.03


@pytest.mark.parametrize("n_features", [2, 6])
def test_landmarks_approximate_the_kernel_near_them(rng, n_features):
    X = rng.normal(size=(150, n_features))
    features = RandomFeatures(600).fit(X)
    Z = features.transform(X)
    u = (X - X.mean(axis=0)) / X.std(axis=0)
    differences = np.abs(u[:, None] - u)
    # Distances are Euclidean for few features, and sums of absolute differences for more.
    distances = np.sqrt(np.square(differences).sum(axis=2)) if n_features <= 3 else differences.sum(axis=2)
    expected = np.exp(-distances / np.median(distances[distances > 0]))
    assert np.abs(Z @ Z.T - expected).mean() < 0.02
    assert (np.square(Z).sum(axis=1) <= 1.0 + 1e-6).all()


def test_landmarks_differ_from_all_training_rows(rng):
    X = rng.normal(size=(100, 5))
    features = RandomFeatures(200).fit(X)
    landmarks = features.map_.landmarks.T / features.map_.scale + features.map_.shift
    nearest = np.abs(landmarks[:, None] - X).sum(axis=2).min()
    assert nearest > 1e-6


@pytest.mark.parametrize("kind", ["laplacian", "rbf", "relu", "sigmoid"])
@pytest.mark.parametrize("gamma", ["rows", 0.5])
def test_same_seed_and_rows_give_same_map(rng, kind, gamma):
    X = rng.normal(size=(80, 4))
    one, other = (RandomFeatures(50, kind=kind, gamma=gamma).fit(X) for _ in range(2))
    assert one.same_map(other)
    different = RandomFeatures(50, kind=kind, gamma=gamma, random_state=1).fit(X)
    assert not one.same_map(different)


@pytest.mark.parametrize("gamma", [0.25, 1.0, 100.0])
def test_sigmoid_map_equals_hidden_layer_of_extreme_svm(rng, gamma):
    X = rng.normal(size=(50, 4)) * 10.0 ** rng.integers(-3, 4, size=(50, 1))
    draws = np.random.default_rng(7)
    weights, biases = draws.uniform(-1.0, 1.0, size=(4, 30)), draws.uniform(-1.0, 1.0, size=30)
    expected = expit(np.sqrt(gamma) * (X @ weights + biases))
    Z = RandomFeatures(30, kind="sigmoid", gamma=gamma, random_state=7).fit_transform(X)
    # Entries are rounded to 24 bits, so the argument of a large row is, too.
    tolerance = 2.0**-19 + 0.25 * 2.0**-22 * np.sqrt(gamma) * np.abs(X).sum(axis=1, keepdims=True)
    assert (np.abs(Z - expected) <= tolerance).all()
    assert (Z >= 0.0).all()
    assert (Z <= 1.0).all()


def test_map_with_numeric_gamma_depends_on_the_seed_only(rng):
    one = RandomFeatures(50, kind="rbf", gamma=0.5).fit(rng.normal(size=(5, 4)))
    other = RandomFeatures(50, kind="rbf", gamma=0.5).fit(rng.normal(size=(900, 4)) * 100.0)
    assert one.same_map(other)


MAPS = {
    "landmarks": RandomFeatures(150),
    "cosines": RandomFeatures(150, kind="rbf"),
    "numbers": RandomFeatures(150, gamma=[0.3, 2.0]),
    "rectified": RandomFeatures(150, kind="relu"),
    "rectified numbers": RandomFeatures(70, kind="relu", gamma=0.2),
    "sigmoids": RandomFeatures(150, kind="sigmoid"),
    "sigmoid numbers": RandomFeatures(70, kind="sigmoid", gamma=4.0),
}


def heavy_rows(rng, n_rows, n_features):
    """Return rows with zeros, an offset, a heavy tail and a sentinel value."""
    X = rng.normal(size=(n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.6)
    X[:, 0] += 1e6
    X[:, 1] = np.exp(5.0 * X[:, 1])
    X[7, 2] = 9999.9
    return X


@pytest.mark.parametrize("n_features", [3, 11])
@pytest.mark.parametrize("name", MAPS)
def test_mapped_row_is_bit_identical_in_any_batch_and_input_format(rng, name, n_features):
    """Rows are mapped one by one, in batches, sparse, at every SIMD level and with several thread counts."""
    X = heavy_rows(rng, 700, n_features)
    features = clone(MAPS[name]).fit(X[:300])
    expected = features.transform(X)
    chosen = _native.simd_level()
    try:
        for level in _native.simd_levels():
            _native.use_simd_level(level)
            for step in (700, 97, 4):
                parts = [features.transform(X[i : i + step]) for i in range(0, len(X), step)]
                np.testing.assert_array_equal(np.concatenate(parts), expected)
            ones = [features.transform(x[None]) for x in X[:40]]
            np.testing.assert_array_equal(np.concatenate(ones), expected[:40])
            np.testing.assert_array_equal(features.transform(sp.csr_array(X)), expected)
            many = np.tile(X, (9, 1))
            np.testing.assert_array_equal(features.transform(many)[-700:], expected)
            with one_thread():
                np.testing.assert_array_equal(features.transform(many)[-700:], expected)
    finally:
        _native.use_simd_level(chosen)


@pytest.mark.parametrize("name", MAPS)
def test_single_precision_rows_equal_double_precision_rows(rng, name):
    X = heavy_rows(rng, 200, 5).astype(np.float32)
    features = clone(MAPS[name]).fit(X)
    np.testing.assert_array_equal(features.transform(X), features.transform(X.astype(np.float64)))


@pytest.mark.parametrize("name", [name for name in MAPS if name != "rectified numbers"])
def test_mapped_values_are_integers_of_twenty_bits(rng, name):
    X = heavy_rows(rng, 300, 4)
    features = clone(MAPS[name]).fit(X)
    integers = features.transform(np.concatenate([X, 1e150 * X])) / features.step
    np.testing.assert_array_equal(integers, np.rint(integers))
    assert np.abs(integers).max() <= 2**19
    assert np.frexp(features.step)[0] == 0.5
    assert not np.signbit(integers[integers == 0.0]).any()


def test_rectified_units_with_numeric_gamma_are_large_integers(rng):
    X = 1e4 * rng.normal(size=(100, 4))
    features = clone(MAPS["rectified numbers"]).fit(X)
    values = features.transform(X)
    np.testing.assert_array_equal(values / features.step, np.rint(values / features.step))
    expected = np.maximum(X @ features.map_.weights + features.map_.starts, 0.0)
    # A coordinate of 1e4 has 24 bits, so the error of a sum is a few times 1e4 * 2**-24.
    np.testing.assert_allclose(values, expected, atol=1e4 * 2.0**-22)


@pytest.mark.parametrize("n_features", [2, 7])
def test_mapped_values_equal_the_formulas(rng, n_features):
    """The results of the formulas in NumPy may differ in the last of the twenty bits."""
    X = rng.normal(size=(400, n_features))
    u = (X - X.mean(axis=0)) / X.std(axis=0)
    cosines = RandomFeatures(90, kind="rbf").fit(X)
    fitted_map = cosines.map_
    turns = ((X - fitted_map.shift) * fitted_map.scale) @ fitted_map.weights + fitted_map.starts
    expected = np.sqrt(2.0 / 90) * np.cos(2.0 * np.pi * turns)
    np.testing.assert_allclose(cosines.transform(X), expected, atol=2.0 * cosines.step)

    landmarks = RandomFeatures(90).fit(X)
    fitted_map = landmarks.map_
    rate = (fitted_map.scale * X.std(axis=0))[0] * np.log(2.0)
    differences = np.abs(u[:, None] - fitted_map.landmarks.T / (rate / np.log(2.0)))
    distances = np.sqrt(np.square(differences).sum(axis=2)) if n_features <= 3 else differences.sum(axis=2)
    expected = np.exp(-rate * distances) @ (fitted_map.root * fitted_map.step)
    np.testing.assert_allclose(landmarks.transform(X), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["laplacian", "rbf", "relu"])
def test_feature_maps_of_version_0_1_load(rng, kind):
    """Files of version 0.1 contain these arrays."""
    X = rng.normal(size=(200, 5))
    mean, scale = X.mean(axis=0), 1.0 / X.std(axis=0)
    u = (X - mean) * scale
    state = {"n_features": 5, "mean": mean, "scale": scale}
    if kind == "laplacian":
        root = np.linalg.inv(np.eye(30) + 0.1)
        expected = np.exp(-0.2 * np.abs(u[:, None] - u[:30]).sum(axis=2)) @ root
        state |= {"map": "landmarks", "landmarks": u[:30], "root": root, "rate": 0.2, "euclidean": False}
    else:
        weights, phases = rng.normal(size=(5, 30)), rng.normal(size=30)
        angles = u @ weights + phases
        name, values = (
            ("fourier", np.sqrt(2.0) * np.cos(angles)) if kind == "rbf" else ("relu", angles.clip(0.0))
        )
        expected = values / np.sqrt(30)
        state |= {"map": name, "weights": weights, "phases": phases}
    features = RandomFeatures(30, kind=kind)
    features._set_state(state)
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["laplacian", "rbf", "relu", "sigmoid"])
def test_saved_and_loaded_feature_maps_are_equal(rng, kind):
    X = rng.normal(size=(60, 3))
    features = RandomFeatures(40, kind=kind).fit(X)
    loaded = persistence.from_bytes(persistence.to_bytes(features))
    np.testing.assert_array_equal(loaded.transform(X), features.transform(X))


def test_feature_map_can_be_fitted_on_degenerate_rows():
    for X in (np.ones((1, 3)), np.ones((5, 3)), np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 3.0]])):
        Z = RandomFeatures(10).fit_transform(X)
        assert np.isfinite(Z).all()


def test_clone_of_a_fitted_map_is_fitted(rng):
    """Learners on several machines share one fitted map."""
    features = RandomFeatures(30).fit(rng.normal(size=(50, 3)))
    model = clone(ProximalSVC(feature_map=features))
    assert model.feature_map.is_fitted
    X, y = imbalanced(rng, 200, 3)
    here, there = clone(model).fit(X[:90], y[:90]), clone(model).fit(X[90:], y[90:])
    assert_same_planes(here.merge(there), *_planes(clone(model).fit(X, y)), 1e-6)


def _planes(model):
    return model.coef_, model.intercept_


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_learners_with_feature_maps_forget_and_merge_exactly(rng, C):
    X, y = imbalanced(rng, 500, 3)
    features = RandomFeatures(60).fit(X)
    fresh = ProximalSVC(C=C, feature_map=features, objective="auc").fit(X[150:], y[150:])
    lived = ProximalSVC(C=C, feature_map=features, objective="auc").fit(X[:300], y[:300])
    lived.update(add=(X[300:], y[300:]), forget=(X[:150], y[:150]))
    np.testing.assert_allclose(lived.decision_function(X), fresh.decision_function(X), rtol=1e-6, atol=1e-9)


def test_merge_of_learners_with_different_maps_raises(rng):
    X, y = imbalanced(rng, 200, 3)
    one = ProximalSVC(feature_map=RandomFeatures(20)).fit(X[:100], y[:100])
    other = ProximalSVC(feature_map=RandomFeatures(20)).fit(X[100:], y[100:])
    with pytest.raises(DataError, match=r"different feature maps.*\n?.*fit one feature map first"):
        one.merge(other)


def test_learner_with_feature_map_separates_a_circle_from_a_ring(rng):
    X = rng.normal(size=(600, 2))
    y = (np.square(X).sum(axis=1) > 2.5).astype(int)
    linear = ProximalSVC().fit(X[:400], y[:400]).score(X[400:], y[400:])
    nonlinear = ProximalSVC(C="auto", feature_map=RandomFeatures(100)).fit(X[:400], y[:400])
    assert nonlinear.score(X[400:], y[400:]) > 0.93 > linear


@pytest.mark.parametrize(
    "parameters", [{"n_components": 0}, {"kind": "poly"}, {"gamma": -1.0}, {"gamma": []}]
)
def test_invalid_parameters_raise(parameters):
    with pytest.raises(ParameterError, match=r"RandomFeatures: .* must be"):
        RandomFeatures(**parameters).fit(np.ones((3, 2)))


def test_transform_before_fit_and_wrong_width_raise(rng):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        RandomFeatures().transform(np.ones((2, 2)))
    features = RandomFeatures(10).fit(rng.normal(size=(20, 3)))
    with pytest.raises(DataError, match="fitted to 3 features; got 2"):
        ProximalSVC(feature_map=features).fit(np.ones((4, 2)), [0, 0, 1, 1])


def test_cached_mapped_rows_are_returned_only_for_equal_rows(rng):
    X = rng.normal(size=(60, 4))
    features = RandomFeatures(30).fit(X)
    first = features.map_rows(X[:20])
    assert features.map_rows(X[:20].copy()) is first
    np.testing.assert_array_equal(first, features.transform(X[:20]))
    changed = X[:20].copy()
    features.map_rows(changed)
    changed[3, 1] += 1.0
    np.testing.assert_array_equal(features.map_rows(changed), features.transform(changed))
    features.fit(X * 2.0)
    np.testing.assert_array_equal(features.map_rows(changed), features.transform(changed))
    features.transform(X[:20])[:] = 0.0  # changing the result must not change the cache
    assert "_last_rows" not in features.__getstate__()
