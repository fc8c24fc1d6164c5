"""ClassStatistics: sums, differences and messages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.exceptions import DataError, FileFormatError
from steelyard.proximal import ClassStatistics
from tests.proximal.data import imbalanced, relative_difference

# A value is rounded by at most half a step, and the typical deviation has at least 2**33 steps. The relative
# error of a sum over n rows is about 6e-11 / sqrt(n): 1e-11 for a rare class of a few dozen rows.
ROUNDED = 1e-10


def naive_gram(X, y, label, weights=None):
    E = np.column_stack([X, -np.ones(len(X))])[y == label]
    w = np.ones(len(E)) if weights is None else weights[y == label]
    return E.T @ np.diag(w) @ E


def filled(X, y, weights=None):
    statistics = ClassStatistics(X.shape[1])
    statistics.add(X, y, weights)
    return statistics


@pytest.mark.parametrize("n_rows", [1, 5, 63, 64, 65, 300, 2000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gram_matrix_is_the_sum_of_products_of_extended_rows(rng, n_rows, dtype):
    X, y = imbalanced(rng, max(n_rows, 4), 7, (0.6, 0.4))
    X, y = X[:n_rows].astype(dtype), y[:n_rows]
    weights = np.round(rng.uniform(0.5, 2.0, n_rows) * 2**20) / 2**20  # weights are multiples of 2**-20
    statistics = filled(X, y, weights)
    for label in np.unique(y):
        expected = naive_gram(X.astype(np.float64), y, label, weights)
        assert relative_difference(statistics.gram(label), expected) < 1e-9
        assert statistics.count(label) == pytest.approx(weights[y == label].sum())


def test_merging_the_difference_into_old_statistics_gives_new_statistics(rng):
    """A site sends the rows added minus the rows removed since its last message."""
    X, y = imbalanced(rng, 900, 4, (0.7, 0.25, 0.05))
    site = filled(X[:500], y[:500])
    master = filled(X[:500], y[:500])
    last_message = site.copy()
    site.add(X[500:], y[500:])
    site.remove(X[100:400], y[100:400])
    delta = ClassStatistics.from_bytes((site - last_message).to_bytes())
    master.merge(delta)
    kept = np.r_[0:100, 400:900]
    for label in range(3):
        assert relative_difference(master.gram(label), naive_gram(X[kept], y[kept], label)) < 1e-10


def test_statistics_minus_themselves_are_empty(rng):
    X, y = imbalanced(rng, 1000, 5)
    nothing = filled(X, y) - filled(X, y)
    assert nothing.classes == []
    assert nothing.n_rows == 0


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 400), max_size=5))
def test_sums_do_not_depend_on_the_partition_of_the_rows(seed, cuts):
    X, y = imbalanced(np.random.default_rng(seed), 400, 3, (0.9, 0.1))
    total = ClassStatistics(3)
    borders = [0, *sorted(cuts), 400]
    for begin, end in pairwise(borders):
        if begin < end:
            total = total + filled(X[begin:end], y[begin:end])
    for label in (0, 1):
        assert relative_difference(total.gram(label), naive_gram(X, y, label)) < ROUNDED


def test_to_bytes_round_trip_is_compact(rng):
    X, y = imbalanced(rng, 5000, 100)
    statistics = filled(X, y)
    data = statistics.to_bytes()
    again = ClassStatistics.from_bytes(data)
    assert again.to_bytes() == data
    np.testing.assert_array_equal(again.gram(0), statistics.gram(0))
    triangle = 8 * 101 * 102 // 2
    assert len(data) < 2 * (triangle + 8 * 100 * 64) + 4096


@pytest.mark.parametrize("damage", [b"", b"no statistics", None])
def test_damaged_bytes_raise(rng, damage):
    X, y = imbalanced(rng)
    data = filled(X, y).to_bytes() if damage is None else damage
    with pytest.raises(FileFormatError):
        ClassStatistics.from_bytes(data[:-3] if damage is None else data)


def test_grow_appends_zero_features(rng):
    X, y = imbalanced(rng, 500, 3)
    grown = filled(X[:300], y[:300]).grow(5)
    wide = np.column_stack([X, rng.normal(size=(500, 2))])
    wide[:300, 3:] = 0.0
    grown.add(wide[300:], y[300:])
    for label in (0, 1):
        assert relative_difference(grown.gram(label), naive_gram(wide, y, label)) < ROUNDED


def test_scale_multiplies_every_weight(rng):
    X, y = imbalanced(rng, 500, 3)
    faded = filled(X[:300], y[:300]).scale(0.25)
    faded.add(X[300:], y[300:])
    weights = np.where(np.arange(500) < 300, 0.25, 1.0)
    for label in (0, 1):
        assert relative_difference(faded.gram(label), naive_gram(X, y, label, weights)) < ROUNDED


def test_memory_does_not_depend_on_the_number_of_rows(rng):
    X, y = imbalanced(rng, 20_000, 20)
    statistics = filled(X[:2000], y[:2000])
    few = statistics.nbytes
    for begin in range(2000, 20_000, 500):
        statistics.add(X[begin : begin + 500], y[begin : begin + 500])
    assert statistics.nbytes <= 1.5 * few


def test_small_classes_store_rows_instead_of_matrices(rng):
    X = rng.normal(size=(1080, 1000))
    statistics = filled(X, np.repeat(np.arange(270), 4))
    assert statistics.nbytes <= 2 * X.nbytes


@pytest.mark.parametrize(
    ("X", "y", "weights", "message"),
    [
        ([[1.0]], ["a"], None, "1 features"),
        ([[1.0, 2.0]], ["a", "b"], None, "X has 1 rows but y has 2 labels"),
        ([[1.0, np.nan]], ["a"], None, "NaN"),
        ([[1.0, 2.0]], ["a"], [-1.0], "Negative values"),
        ([["x", "y"]], ["a"], None, "could not convert"),
    ],
)
def test_invalid_rows_raise_and_change_nothing(X, y, weights, message):
    statistics = filled(np.ones((3, 2)), np.array(["a", "a", "b"]))
    before = statistics.to_bytes()
    with pytest.raises(DataError, match=message):
        statistics.add(X, y, weights)
    assert statistics.to_bytes() == before


def test_add_statistics_of_different_width_raises():
    with pytest.raises(DataError, match=r"same number of features; got 2 and 3.*\n?.*grow"):
        filled(np.ones((2, 2)), np.zeros(2)) + filled(np.ones((2, 3)), np.zeros(2))


@pytest.mark.parametrize(
    "largest", [1.0, 1e40, 1e200]
)  # sums fit one register, need several, or need a separate unit per feature
@pytest.mark.parametrize(
    "n_rows", [40, 300, 3000]
)  # stored before the quantizer is chosen, as pending rows, and as sums
def test_view_of_groups_is_bit_identical_to_regrouped_statistics(rng, largest, n_rows):
    X = rng.normal(size=(n_rows, 3)) * [1.0, largest, 1.0]
    keys = rng.integers(0, 6, n_rows)
    statistics = ClassStatistics(3)
    statistics.add(X, keys)
    labels = {0: "a", 2: "b", 3: "a", 5: "a"}
    copied = statistics.regrouped(labels)
    assert copied.classes == ["a", "b"]
    seen, expected = statistics.view([[0, 3, 5], [2]]), copied.view()
    for name in ("origin", "units", "variance"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(expected, name))
    np.testing.assert_array_equal(seen.total(), expected.total())
    for k in range(2):
        assert (
            seen.count(k)
            == expected.count(k)
            == sum(np.sum(keys == key) for key in labels if labels[key] == "ab"[k])
        )
        np.testing.assert_array_equal(seen.sums(k), expected.sums(k))
        np.testing.assert_array_equal(seen.matrix(k), expected.matrix(k))
        np.testing.assert_array_equal(seen.factor(k, np.ones(4)), expected.factor(k, np.ones(4)))
        assert seen.canonical(k) == expected.canonical(k)
