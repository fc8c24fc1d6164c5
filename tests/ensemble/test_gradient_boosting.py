"""Native gradient boosting, compared with a plain reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import _native
from steelyard.ensemble.experts.boosting import TreeRule, fit_trees
from tests.ensemble.tree_reference import Booster, logistic, portable_log

EARLIER_SUM = 1849.8414001935434
SETTINGS = {
    "n_trees": 6,
    "max_leaves": 7,
    "learning_rate": 0.3,
    "l2_regularization": 1.0,
    "min_rows_per_leaf": 4,
    "max_columns": 24,
    "seed": 5,
}


def _rows(n, d, n_classes, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, ::3] = np.round(X[:, ::3])  # few values
    X[:, d - 1] = 1.0  # one value
    y = np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n), np.linspace(-0.5, 1.0, n_classes - 1))
    y[:n_classes] = np.arange(n_classes)
    return X, y.astype(np.int64)


def _fit(X, y, weights=None, n_classes=2, is_category=None, **changed):
    weights = np.ones(len(y)) if weights is None else weights
    is_category = None if is_category is None else np.array(is_category, dtype=np.uint8)
    return _native.fit_gradient_boosting(X, y, weights, n_classes, is_category, **{**SETTINGS, **changed})


def _assert_equal_to_reference(X, y, weights, n_classes, is_category=None, **changed):
    """Assert that fits on one and two threads equal the reference, and batch scores those of single rows."""
    plain = Booster(X, y.tolist(), weights.tolist(), n_classes, {**SETTINGS, **changed}, is_category).fit()
    for n_threads in (1, 2):
        fitted = _fit(X, y, weights, n_classes, is_category, n_threads=n_threads, **changed)
        for ours, expected in zip(fitted, plain, strict=True):
            assert ours.tolist() == expected
    trees = _native.TreeEnsemble(*fitted, X.shape[1])
    scores = trees.scores(X)
    for n_threads in (1, 2):
        np.testing.assert_array_equal(trees.scores(np.tile(X, (9, 1)), n_threads), np.tile(scores, (9, 1)))
    np.testing.assert_array_equal(np.vstack([trees.scores(row[None]) for row in X]), scores)
    return fitted, trees


@pytest.mark.parametrize(("n_classes", "d", "max_columns"), [(2, 5, 24), (2, 9, 3), (4, 6, 4)])
def test_fit_numeric_columns_equals_reference_implementation(n_classes, d, max_columns):
    X, y = _rows(300, d, n_classes, seed=d)
    weights = np.random.default_rng(1).integers(1, 4, size=300).astype(np.float64)
    _assert_equal_to_reference(X, y, weights, n_classes, max_columns=max_columns)


@pytest.mark.parametrize(
    "changed",
    [
        {"row_fraction": 0.6},
        {"row_fraction": 1e-9},  # no row would be sampled, so all rows are used
        {"balance_classes": False},
        {"balance_classes": False, "start_from_prior": True},
        {"max_bins": 2},
        {"max_bins": 256},
        {"max_leaves": 1},
        {"max_leaves": 10**12, "min_rows_per_leaf": 20},
        {"min_rows_per_leaf": 0},
        {"pack_sums": True},
        {"pack_sums": True, "balance_classes": False, "row_fraction": 0.6, "max_bins": 256},
    ],
    ids=str,
)
def test_fit_with_non_default_settings_equals_reference_implementation(changed):
    X, y = _rows(250, 5, 2, seed=8)
    _assert_equal_to_reference(X, y, np.random.default_rng(2).random(250) + 0.01, 2, **changed)


def _missing(rng, X):
    X[rng.random(X.shape) < 0.3] = np.nan


def _one_column_missing(_rng, X):
    X[:, 0] = np.nan


def _all_missing(_rng, X):
    X[:] = np.nan


def _infinite(rng, X):
    X[rng.random(X.shape) < 0.2] = np.inf
    X[rng.random(X.shape) < 0.2] = -np.inf


def _constant(_rng, X):
    X[:] = 1e300


def _constant_or_missing(rng, X):
    X[:] = np.where(rng.random(X.shape) < 0.5, 3.0, np.nan)


def _duplicates(_rng, X):
    X[:] = X[np.arange(len(X)) % 7]


def _extremes(rng, X):
    X[:] = rng.choice([-1.7e308, 1.7e308, 5e-324, 0.0, -0.0], size=X.shape)


@pytest.mark.parametrize(
    "degrade",
    [
        _missing,
        _one_column_missing,
        _all_missing,
        _infinite,
        _constant,
        _constant_or_missing,
        _duplicates,
        _extremes,
    ],
)
@pytest.mark.parametrize("is_rare", [False, True])
def test_fit_degenerate_rows_equals_reference_implementation(degrade, is_rare):
    rng = np.random.default_rng(3)
    X, y = _rows(150, 4, 2, seed=4)
    degrade(rng, X)
    if is_rare:
        y = (np.arange(150) == 70).astype(np.int64)
    _assert_equal_to_reference(X, y, np.ones(150), 2, min_rows_per_leaf=1)


def test_fit_many_values_of_both_signs_equals_reference_implementation():
    rng = np.random.default_rng(5)
    X, y = _rows(3000, 5, 2, seed=6)
    X[:, 1] *= 10.0 ** rng.integers(-300, 300, size=3000)
    X[:, 2] = np.round(X[:, 2]) * rng.choice([-1.0, 1.0], size=3000)  # zeros of both signs
    X[::9, 3], X[1::9, 3] = np.inf, -np.inf
    X[:, 4] = np.abs(X[:, 4])
    _assert_equal_to_reference(X, y, np.ones(3000), 2, n_trees=3, max_bins=200)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fit_random_tables_equals_reference_implementation(seed):
    rng = np.random.default_rng(seed)
    n, d, n_classes = int(rng.integers(20, 200)), int(rng.integers(1, 6)), int(rng.choice([2, 2, 3]))
    X = rng.normal(size=(n, d))
    X[:, ::3] = np.round(X[:, ::3])
    is_category = rng.random(d) < 0.4
    for c in np.flatnonzero(is_category):
        X[:, c] = rng.integers(-1, rng.integers(2, 30), size=n) * rng.choice([1, 1, 40])
    X[rng.random((n, d)) < rng.choice([0.0, 0.2, 0.9])] = np.nan
    X[rng.random((n, d)) < rng.choice([0.0, 0.1])] = rng.choice([-np.inf, np.inf])
    y = np.digitize(np.nan_to_num(X[:, 0]) + 0.5 * rng.normal(size=n), np.linspace(-0.5, 1.0, n_classes - 1))
    y[:n_classes] = np.arange(n_classes)
    changed = {
        "n_trees": 3,
        "max_leaves": int(rng.integers(1, 9)),
        "l2_regularization": float(rng.choice([1e-3, 1.0])),
        "min_rows_per_leaf": int(rng.integers(1, 12)),
        "max_columns": int(rng.integers(1, 6)),
        "row_fraction": float(rng.choice([1.0, 0.6])),
        "max_bins": int(rng.choice([2, 5, 64, 256])),
        "balance_classes": bool(rng.random() < 0.5),
        "start_from_prior": bool(rng.random() < 0.5),
        "category_smoothing": float(rng.choice([1e-3, 10.0])),
        "category_l2": float(rng.choice([0.0, 10.0])),
        "max_categories": int(rng.choice([1, 3, 32])),
        "min_rows_per_category": int(rng.choice([0, 1, 10])),
        "pack_sums": bool(rng.random() < 0.5),
    }
    weights = rng.random(n) + 0.01
    _, trees = _assert_equal_to_reference(
        X, y.astype(np.int64), weights, n_classes, is_category.tolist(), **changed
    )
    np.testing.assert_allclose(trees.contributions(X).sum(axis=2), trees.scores(X), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("max_bins", [64, 256])
def test_fit_column_with_many_categories_equals_reference_implementation(max_bins):
    """Columns of more categories than a byte can hold are stored in two bytes per row."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 300, size=900) * 7, rng.normal(size=900)]).astype(np.float64)
    X[::50, 0] = np.nan
    y = ((X[:, 0] // 7 % 4 == 0) | (X[:, 1] > 1.5)).astype(np.int64)
    changed = {"max_bins": max_bins, "min_rows_per_category": 1, "n_trees": 2, "row_fraction": 0.9}
    fitted, _ = _assert_equal_to_reference(X, y, np.ones(900), 2, [True, False], **changed)
    assert 0 in fitted[0]


def test_fit_many_rows_is_independent_of_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70_000, 12))
    X[rng.random(X.shape) < 0.05] = np.nan
    X[:, 3] = rng.integers(0, 40, size=len(X))
    y = (np.nan_to_num(X[:, 0] * X[:, 1]) + np.isin(X[:, 3], [3, 9, 33]) > 0.8).astype(np.int64)
    is_category = [c == 3 for c in range(12)]
    for changed in (
        {},
        {"pack_sums": True},
        {"max_bins": 256, "row_fraction": 0.5, "max_columns": 7},
        {"max_bins": 256, "row_fraction": 0.5, "max_columns": 5, "pack_sums": True},
    ):
        one, two = (
            _fit(X, y, is_category=is_category, n_threads=n_threads, **changed) for n_threads in (1, 2)
        )
        for ours, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n", [65_535, 65_536, 1_048_575])
def test_single_leaf_equals_newton_step_of_exact_sums(n):
    """With 65,536 rows or more, hessians have fewer bits, so that the sums do not overflow."""
    y = (np.arange(n) % 3 == 0).astype(np.int64)
    weights = np.full(n, np.nextafter(1.0, 0.0))  # weights just below 1 give the largest sums
    fitted = _fit(np.zeros((n, 1)), y, weights, n_trees=1, balance_classes=False)
    g, h = n / 2 - y.sum(), n / 4
    assert fitted[2].tolist() == pytest.approx([-0.3 * g / (h + 1.0)], rel=1e-9)
    assert fitted[5].tolist() == [n]


@pytest.mark.parametrize("n", [8191, 8192, 65_536, 131_071, 131_072])
def test_packed_sums_do_not_overflow_and_are_close_to_exact_sums(n):
    """With 131,072 rows or more, a packed sum has two words of 64 bits."""
    y = (np.arange(n) % 3 == 0).astype(np.int64)
    weights = np.full(n, np.nextafter(1.0, 0.0))  # weights just below 1 give the largest sums
    fitted = _fit(np.zeros((n, 1)), y, weights, n_trees=1, balance_classes=False, pack_sums=True)
    g, h = n / 2 - y.sum(), n / 4
    assert fitted[2].tolist() == pytest.approx([-0.3 * g / (h + 1.0)], rel=1e-3)
    assert fitted[5].tolist() == [n]


def test_packed_sums_keep_the_expectation_of_small_gradients():
    """Gradients far below the unit of a packed sum are rounded up sometimes, so that they do not vanish."""
    n = 100_000
    y = (np.arange(n) % 1000 == 0).astype(np.int64)
    options = {"n_trees": 30, "balance_classes": False, "start_from_prior": True}
    scores = [
        _native.TreeEnsemble(*_fit(np.arange(n)[:, None] % 2.0, y, pack_sums=packed, **options), 1).scores(
            np.array([[0.0], [1.0]])
        )
        for packed in (False, True)
    ]
    np.testing.assert_allclose(scores[1][0], scores[0][0], atol=0.3)


def test_packed_sums_of_swapped_classes_give_scores_with_flipped_sign():
    X, y = _rows(400, 4, 2, seed=3)
    scores = [
        _native.TreeEnsemble(*_fit(X, codes, pack_sums=True, balance_classes=False), 4).scores(X)
        for codes in (y, 1 - y)
    ]
    np.testing.assert_allclose(scores[0], -scores[1], rtol=0.0, atol=1e-9)


def test_rows_of_very_different_weights_have_wide_sums():
    X, y = _rows(300, 4, 2, seed=2)
    weights = np.ones(300)
    weights[5] = 1e6
    for ours, theirs in zip(
        *[_fit(X, y, weights, balance_classes=False, pack_sums=p) for p in (False, True)], strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_missing_values_go_to_the_child_learned_in_training():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    X[:100] = np.nan
    for positive_if_missing in (False, True):
        y = np.where(np.isnan(X[:, 0]), positive_if_missing, X[:, 0] > 0.0).astype(np.int64)
        scores = _native.TreeEnsemble(*_fit(X, y), 1).scores(np.array([[np.nan]]))
        assert (scores[0, 0] > 0.0) == positive_if_missing


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_missing_values_without_missing_training_rows_go_to_the_larger_child(share):
    X = np.linspace(0.0, 1.0, 200)[:, None]
    y = (X[:, 0] > share).astype(np.int64)
    trees = _native.TreeEnsemble(*_fit(X, y, max_leaves=2), 1)
    expected = trees.scores(np.array([[1.0 if share < 0.5 else 0.0]]))
    np.testing.assert_array_equal(trees.scores(np.array([[np.nan]])), expected)


def test_category_split_separates_a_set_of_codes():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 30, size=(2000, 1)).astype(np.float64)
    positive = [2, 7, 11, 12, 25]
    y = np.isin(X[:, 0], positive).astype(np.int64)
    fitted = _fit(X, y, is_category=[True], n_trees=1, max_leaves=2)
    trees = _native.TreeEnsemble(*fitted, 1)
    scores = trees.scores(np.arange(30.0)[:, None])[:, 0]
    assert np.flatnonzero(scores > 0.0).tolist() == positive
    unknown = np.array([[30.0], [-1.0], [np.nan], [1e9], [np.inf], [-np.inf]])
    np.testing.assert_array_equal(trees.scores(unknown)[:, 0], scores[0])  # the larger child


def test_column_constant_in_the_sample_is_binned_by_all_rows():
    X = np.zeros((20_000, 1))
    X[[5, 77, 10_001, 15_003, 19_999]] = 1.0
    y = X[:, 0].astype(np.int64)
    y[::2] = 1 - y[::2]
    fitted = _fit(X, y, min_rows_per_leaf=1)
    assert fitted[2][0] == 0.5


def test_contributions_equal_shapley_values_by_enumeration():
    X, y = _rows(300, 4, 2, seed=1)
    X[::5, 1] = np.nan
    X[:, 2] = np.arange(300) % 5
    fitted = _fit(X, y, is_category=[False, False, True, False], min_rows_per_category=1, max_columns=4)
    feature, left, value, roots, _, rows, *_ = fitted
    trees = _native.TreeEnsemble(*fitted, 4)
    row = X[37:38]

    def expected(node, known):
        """Return the mean score below a node if only some features of the row are known."""
        if feature[node] < 0:
            return value[node]
        children = [left[node], left[node] + 1]
        if feature[node] in known:
            return expected(children[int(goes_right(node))], known)
        return sum(rows[c] * expected(c, known) for c in children) / rows[node]

    def goes_right(node):
        """Return whether the row goes right, computed by a tree that has only this split."""
        parts = [np.array([feature[node], -1, -1], dtype=np.int32), np.array([1, -1, -1], dtype=np.int32)]
        parts += [np.array([value[node], 0.0, 1.0]), np.zeros(1, dtype=np.int32)]
        parts += [np.array([fitted[4][node], 0, 0], dtype=np.uint8), np.array([2, 1, 1], dtype=np.int32)]
        parts += [np.array([fitted[6][node], -1, -1], dtype=np.int32), fitted[7], fitted[8], np.zeros(1)]
        return _native.TreeEnsemble(*parts, 4).scores(row)[0, 0]

    shapley = np.zeros(4)
    for c in range(4):
        others = [f for f in range(4) if f != c]
        for bits in range(8):
            known = {f for i, f in enumerate(others) if bits >> i & 1}
            weight = math.factorial(len(known)) * math.factorial(3 - len(known)) / math.factorial(4)
            shapley[c] += weight * sum(expected(r, known | {c}) - expected(r, known) for r in roots)
    found = trees.contributions(row)[0, 0]
    np.testing.assert_allclose(found[:4], shapley, rtol=0.0, atol=1e-12)
    assert found[4] == pytest.approx(sum(expected(r, set()) for r in roots), abs=1e-12)
    np.testing.assert_array_equal(trees.contributions(X, 2), trees.contributions(X, 1))


def test_native_logistic_function_is_accurate_to_eight_digits():
    for score in np.linspace(-40.0, 40.0, 1001).tolist():
        assert logistic(score) == pytest.approx(1.0 / (1.0 + np.exp(-score)), rel=1e-8)


def test_native_log_function_is_accurate_to_fifteen_digits():
    for x in np.geomspace(1e-9, 1e9, 1001).tolist():
        assert portable_log(x) == pytest.approx(math.log(x), rel=1e-15, abs=1e-15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"codes": np.array([0, 2, 0], dtype=np.int64)},
        {"codes": np.zeros(3, dtype=np.int64)},
        {"codes": np.array([0, 1], dtype=np.int64)},
        {"weights": np.array([1.0, 0.0, 1.0])},
        {"weights": np.array([1.0, np.nan, 1.0])},
        {"weights": np.array([1.0, 1e300, 1.0])},
        {"is_category": np.zeros(3, dtype=np.uint8)},
        {"n_classes": 1, "codes": np.zeros(3, dtype=np.int64)},
        {"n_trees": 0},
        {"max_leaves": 0},
        {"min_rows_per_leaf": 2**63},
        {"min_rows_per_category": 2**63},
        {"max_bins": 1},
        {"max_bins": 257},
        {"n_threads": 0},
        {"l2_regularization": 0.0},
        {"learning_rate": np.nan},
        {"row_fraction": 0.0},
        {"category_smoothing": 0.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_fit_invalid_arguments_raises(wrong):
    arguments = {"codes": np.array([0, 1, 0], dtype=np.int64), "weights": np.ones(3), "n_classes": 2}
    with pytest.raises(ValueError, match="fit_gradient_boosting"):
        _native.fit_gradient_boosting(np.zeros((3, 2)), **{**SETTINGS, **arguments, **wrong})


def _changed(fitted, number, index, value):
    arrays = [array.copy() for array in fitted]
    arrays[number][index] = value
    return arrays


@pytest.mark.parametrize(
    ("number", "index", "value"),
    [
        (0, 0, 9),  # no such column
        (1, 0, 0),  # a node is its own child
        (1, 0, 10**6),
        (2, -1, np.nan),
        (2, -1, np.inf),  # infinite score of a leaf
        (3, 0, -1),
        (3, 1, 0),  # two trees with the same root
        (5, 0, 7),  # rows are not the sum of the children's rows
        (6, 0, 10**6),
        (7, -1, 10**6),
        (9, 0, np.nan),
    ],
)
def test_tree_ensemble_of_corrupt_arrays_raises(number, index, value):
    X, y = _rows(300, 4, 2, seed=6)
    fitted = _fit(X, y, is_category=[True, False, False, False])
    assert len(fitted[7]) > 1
    _native.TreeEnsemble(*fitted, 4)
    with pytest.raises(ValueError, match="TreeEnsemble"):
        _native.TreeEnsemble(*_changed(fitted, number, index, value), 4)


def test_trees_of_balanced_classes_equal_trees_of_earlier_versions():
    """The sum of the scores equals that of version 0.2."""
    X = (np.arange(4000) * 7919 % 1009).reshape(800, 5) / 1009.0
    y = (X[:, 0] * X[:, 1] > X[:, 2] - 0.5).astype(np.int64)
    trees = fit_trees(X, y, n_trees=30, learning_rate=0.2, balance_classes=True)
    for forest in (trees.forest, trees.forest[:4]):
        scores = TreeRule([0, 1], forest, 5).scores(type("Rows", (), {"X": X}))
        assert math.fsum(scores[:, 0].tolist()) == EARLIER_SUM


def test_contributions_of_trees_loaded_from_earlier_versions_raise():
    X, y = _rows(100, 3, 2, seed=0)
    rule = TreeRule([0, 1], fit_trees(X, y, n_trees=30, learning_rate=0.2).forest[:4], 3)
    with pytest.raises(ValueError, match="no row counts"):
        rule.contributions(type("Rows", (), {"X": X}))


def test_trees_with_categories_and_class_shares_score_log_odds():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 5, size=3000), rng.normal(size=3000)])
    share = np.array([0.01, 0.02, 0.05, 0.1, 0.3])[X[:, 0].astype(int)]
    y = (rng.random(3000) < share).astype(np.int64)
    rule = fit_trees(X, y, categories=(0,), n_trees=40, learning_rate=0.1, max_bins=255)
    scores = rule.scores(type("Rows", (), {"X": X}))[:, 0]
    probabilities = 1.0 / (1.0 + np.exp(-scores))
    assert probabilities.mean() == pytest.approx(y.mean(), abs=0.003)
    assert np.corrcoef(probabilities, share)[0, 1] > 0.85
