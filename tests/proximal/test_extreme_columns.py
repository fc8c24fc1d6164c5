"""Columns of any size, from 1e-300 to 1e300, are learned, forgotten, merged and solved exactly."""

import numpy as np
import pytest
import scipy.sparse as sp

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.windowing import AdaptiveWindows, SlidingWindow

SIZES = [1e-300, 1e-160, 1e-90, 1.0, 1e90, 1e100, 1e150, 1e200, 1e300]
SETTINGS = [
    {},
    {"objective": "auc"},
    {"threshold": "gmean"},
    {"penalize_intercept": False},
    {"class_weight": {0: 1.0, 1: 3.0}},
    {"C": 100.0, "objective": "auc", "threshold": "gmean"},
]


def problem(rng, n=900, n_classes=2):
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 3)) + y[:, None] * [1.0, 0.5, 0.0]
    return X / np.abs(X).max(axis=0), y


def power_of_two(size):
    return 2.0 ** np.floor(np.log2(size))


# -- planes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_standardized_scores_do_not_depend_on_the_scale_of_a_column(size, settings, rng):
    X, y = problem(rng)
    unit = np.array([power_of_two(size), 1.0, 1.0])
    plain, extreme = ProximalSVC(**settings).fit(X, y), ProximalSVC(**settings).fit(X * unit, y)
    assert np.isfinite(extreme.coef_).all()
    probes = rng.normal(size=(50, 3))
    np.testing.assert_allclose(
        extreme.decision_function(probes * unit), plain.decision_function(probes), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_scores_converge_as_scale_of_raw_column_tends_to_0_or_infinity(size, n_classes, settings, rng):
    """A tiny column has no effect, and a huge one has no penalty."""
    X, y = problem(rng, n_classes=n_classes)
    unit = np.array([power_of_two(size), 1.0, 1.0])
    model = ProximalSVC(standardize=False, **settings).fit(X * unit, y)
    scores = model.decision_function(X * unit)
    assert np.isfinite(scores).all()
    limit = 1e8 if size > 1.0 else 1e-8 if size < 1.0 else 1.0
    near = ProximalSVC(standardize=False, **settings).fit(X * [limit, 1.0, 1.0], y)
    np.testing.assert_allclose(scores, near.decision_function(X * [limit, 1.0, 1.0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [1e-300, 1e200, -1e300])
@pytest.mark.parametrize("settings", [{}, {"standardize": False}, {"standardize": False, "C": 1e-6}], ids=str)
def test_constant_column_with_extreme_value_does_not_change_the_scores(value, settings, rng):
    X, y = problem(rng)
    X[:, 0] = value
    model = ProximalSVC(**settings).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()
    if not settings:
        assert model.coef_[0, 0] == 0.0


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_native_reference_and_single_row_planes_agree(size, rng):
    """Compare the native solver, the reference solver, and a learner of single rows."""
    X, y = problem(rng)
    X = X * [size, 1.0, 1.0]
    model = ProximalSVC().fit(X[:600], y[:600])
    for i in range(600, 620):
        model.predict(X[i : i + 1])
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    whole = ProximalSVC(quantizer=model.quantizer_).fit(X[:620], y[:620])
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    reference = ProximalSVC(quantizer=model.quantizer_, class_weight={0: 1.0, 1: 1.0}).fit(X[:620], y[:620])
    equal = ProximalSVC(quantizer=model.quantizer_, class_weight=None).fit(X[:620], y[:620])
    np.testing.assert_allclose(reference.coef_, equal.coef_, rtol=1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("standardize", [False, True])
def test_C_is_selected_for_columns_of_any_scale(size, standardize, rng):
    """Folds depend on the values of rows, so scaled columns have other folds and a slightly other loss."""
    X, y = problem(rng)
    unit = [size, 1.0, 1.0]
    model = ProximalSVC(C="auto", standardize=standardize).fit(X * unit, y)
    assert np.isfinite(model.coef_).all()
    assert (model.predict(X * unit) == y).mean() > 0.55


def test_extreme_row_in_a_test_fold_does_not_determine_selected_C(rng):
    X, y = problem(rng)
    expected = ProximalSVC(C="auto").fit(X, y).C_
    X[:, 0] *= 1e-300
    X[5, 0] = 1e300
    chosen = ProximalSVC(C="auto").fit(X, y).C_
    assert chosen >= expected / 1e3


# -- histories ------------------------------------------------------------------------------------

COLUMNS = {
    "tiny": lambda rng, n: rng.normal(size=n) * 1e-300,
    "smallest of all": lambda rng, n: rng.integers(-5, 6, n) * 5e-324,
    "huge": lambda rng, n: rng.uniform(-1e300, 1e300, n),
    "between 1e100 and 1e150": lambda rng, n: 10.0 ** rng.uniform(100, 150, n),
    "all sizes": lambda rng, n: rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-300, 300, n),
    "whole and huge": lambda rng, n: rng.integers(1, 100, n) * 2.0**900,
    "constant, then not": lambda rng, n: np.where(np.arange(n) < n // 2, 1e300, rng.normal(size=n)),
    "normal, then tiny": lambda rng, n: np.where(np.arange(n) < n // 2, 3.0, 1e-300 * rng.normal(size=n)),
    "coarse, then tiny": lambda rng, n: np.where(np.arange(n) < n // 2, 2.0**900, 1e-300),
    "coarse, tiny, then one": lambda rng, n: np.choose(np.arange(n) * 3 // n, [2.0**200, -1e-300, 1.0]),
    "one of 1e12 among zeros": lambda rng, n: np.where(np.arange(n) == n // 3, 1e12, 0.0),
    "an offset of 1e12": lambda rng, n: 1e12 + 1e-3 * rng.normal(size=n),
    "one of 1e300 among small": lambda rng, n: np.where(np.arange(n) == n // 3, 1e300, rng.normal(size=n)),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_model_of_extreme_columns_is_bit_identical_to_fresh_fit_after_any_history(kind, sparse, rng):
    n = 900
    y = rng.integers(0, 3, n)
    X = np.column_stack([COLUMNS[kind](rng, n), rng.normal(size=n) + y])
    given = sp.csr_array(X) if sparse else X
    model, other = ProximalSVC(), None
    for begin in range(0, 600, 50):
        model.partial_fit(given[begin : begin + 50], y[begin : begin + 50], classes=[0, 1, 2])
        if begin >= 300:
            old = slice(begin - 300, begin - 250)
            model.forget(given[old], y[old])
    other = ProximalSVC(quantizer=model.quantizer_).fit(given[600:], y[600:])
    model = from_bytes(to_bytes(model))
    before = model.digest()
    model.merge(other)
    fresh = ProximalSVC(quantizer=model.quantizer_).fit(X[300:], y[300:])
    assert model.digest() == fresh.digest()
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    np.testing.assert_array_equal(model.intercept_, fresh.intercept_)
    probes = rng.normal(size=(20, 2)) * np.abs(X).max(axis=0)
    np.testing.assert_array_equal(model.decision_function(probes), fresh.decision_function(probes))
    model.subtract(other)
    assert model.digest() == before
    model.forget(given[300:600], y[300:600])
    assert model.classes_.tolist() == []


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_extreme_columns_are_forgotten_one_by_one(kind, rng):
    """The rows of small classes are stored, so each row is found again and an unknown row is detected."""
    n = 300
    y = np.arange(n) % 2
    X = np.column_stack([COLUMNS[kind](rng, n), rng.normal(size=n)])
    model = ProximalSVC(track_rows=True).fit(X, y)
    for i in rng.permutation(n):
        model.forget(X[i : i + 1], y[i : i + 1])
        with pytest.raises(DataError):
            model.forget(X[i : i + 1], y[i : i + 1])
    assert model.classes_.tolist() == []


def test_sliding_window_over_columns_of_all_scales_is_exact(rng):
    n = 1200
    X = np.column_stack([make(rng, n) for make in COLUMNS.values()])
    y = rng.integers(0, 2, n)
    window = SlidingWindow(ProximalSVC(), size=400)
    for begin in range(0, n, 100):
        window.partial_fit(X[begin : begin + 100], y[begin : begin + 100], classes=[0, 1])
    model = window.estimator_
    fresh = ProximalSVC(quantizer=model.quantizer_).fit(X[-400:], y[-400:])
    assert model.digest() == fresh.digest()
    np.testing.assert_array_equal(model.coef_, fresh.coef_)


def test_memory_of_an_outlier_is_released_when_it_is_forgotten(rng):
    X, y = rng.normal(size=(2000, 30)), rng.integers(0, 2, 2000)
    model = ProximalSVC().fit(X, y)
    size = len(to_bytes(model))
    outlier = np.full((20, 30), 1e300)
    model.partial_fit(outlier, np.zeros(20, int))
    assert len(to_bytes(model)) > 5 * size
    model.forget(outlier, np.zeros(20, int))
    assert len(to_bytes(model)) < 1.5 * size


def test_feature_maps_and_adaptive_windows_accept_extreme_columns(rng):
    X, y = problem(rng)
    model = ProximalSVC(feature_map=RandomFeatures(50, random_state=0)).fit(X * [1e300, 1e-300, 1.0], y)
    assert np.isfinite(model.decision_function(X * [1e300, 1e-300, 1.0])).all()
    drifting = AdaptiveWindows(ProximalSVC()).partial_fit(X * [1e300, 1e-300, 1.0], y)
    assert np.isfinite(drifting.decision_function(X[:9] * [1e300, 1e-300, 1.0])).all()


@pytest.mark.parametrize("learn", [ProximalSVC().fit, ProximalSVC(feature_map=RandomFeatures(20)).fit])
def test_values_beyond_the_limit_raise_data_error(learn, rng):
    X, y = problem(rng)
    X[7, 1] = 1.1e300
    with pytest.raises(DataError, match=r"values beyond 1e\+300 \(up to 1.1e\+300\)"):
        learn(X, y)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_that_overflow_keep_their_sign(kind, n_classes, rng):
    """Overflowing terms of opposite sign are summed with separate exponents, so the sum is not NaN."""
    X, y = problem(rng, n_classes=n_classes)
    model = ProximalSVC().fit(X * 1e-300, y)
    probes = np.array([[1.0, -2.0, 0.5], [-1.0, 0.25, -2.0], [0.5, 0.5, -0.5], [0.0, 0.0, 0.0]])
    near, far = model.decision_function(probes * 1e-200), model.decision_function(kind(probes * 1e300))
    assert np.isfinite(far).all()
    np.testing.assert_array_equal(np.sign(far), np.sign(near))
    expected = model.predict(probes * 1e-200) if n_classes == 2 else None
    answers = model.predict(kind(probes * 1e300))
    if expected is not None:
        np.testing.assert_array_equal(answers, expected)
    np.testing.assert_array_equal(answers[:1], model.predict(kind(probes[:1] * 1e300)))
    with pytest.raises(DataError, match="NaN in row 1"):
        model.predict(np.array([[1e300, 1e300, 1e300], [np.nan, 0.0, 0.0]]))
