"""Bit-identical results of equal rows after any history, for any values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import ClassStatistics, Quantizer
from steelyard.proximal.quantizer import LARGEST_VALUE, QUANTIZER_ROWS, WEIGHT_FRACTION_BITS

from .exact_reference import exact_statistics

KINDS = ("normal", "count", "cents", "tail", "offset", "tiny", "huge", "rare", "late")


def columns(rng, n, kinds=KINDS):
    """Return features of all kinds of real tables, and adversarial ones."""
    made = {
        "normal": rng.normal(size=n),
        "count": rng.poisson(3.0, n).astype(float),
        "cents": np.round(rng.gamma(2.0, 20.0, n), 2),
        "tail": np.floor(rng.pareto(0.4, n)) * (rng.random(n) < 0.2),
        "offset": 1e12 + rng.normal(scale=1e-3, size=n),
        "tiny": rng.normal(size=n) * 1e-70,
        "huge": rng.normal(size=n) * 1e70,
        "rare": np.where(rng.random(n) < 0.01, 1e12, 0.0),
        "late": np.where(np.arange(n) < n // 2, 0.0, rng.normal(size=n)),
    }
    return np.column_stack([made[kind] for kind in kinds])


def far_points(rng, d):
    return rng.normal(size=(7, d)) * 10.0 ** rng.integers(-2, 9, size=(7, 1))


def assert_same_bits(model, fresh, rng):
    assert model.digest() == fresh.digest()
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    np.testing.assert_array_equal(model.intercept_, fresh.intercept_)
    points = far_points(rng, model.n_features_in_)
    np.testing.assert_array_equal(model.decision_function(points), fresh.decision_function(points))


def test_feature_without_remaining_nonzero_values_is_constant():
    rng = np.random.default_rng(29)
    X = rng.normal(size=(1000, 2))
    X[500:, 1] = 0.0
    y = (X[:, 0] > 0).astype(int)
    model = ProximalSVC().fit(X, y).forget(X[:500], y[:500])
    assert model.coef_[0, 1] == 0.0
    assert_same_bits(model, ProximalSVC(quantizer=model.quantizer_).fit(X[500:], y[500:]), rng)


@pytest.mark.parametrize("n", [5, 200, 700])
@pytest.mark.parametrize("weighted", [None, "whole", "fractions"])
def test_integer_sums_equal_their_definition(n, weighted, rng):
    X, y = columns(rng, n), rng.integers(0, 3, n)
    weights = {
        None: None,
        "whole": rng.integers(1, 5, n).astype(float),
        "fractions": rng.choice([0.1, 0.25, 1.0, 3.3], n),
    }[weighted]
    statistics = ClassStatistics(X.shape[1])
    statistics.add(X, y, weights)
    expected = exact_statistics(X, y, statistics.quantizer, weights)
    assert statistics.digest() == expected.digest()
    for label in statistics.classes:
        assert statistics.count(label) == expected.count(label)


@pytest.mark.parametrize("kinds", [("count",) * 9, ("normal",) * 9, ("count",) * 7 + ("normal",) * 2])
def test_class_statistics_do_not_depend_on_batch_sizes(kinds, rng):
    X, y = columns(rng, 3000, kinds), rng.integers(0, 2, 3000)
    X = np.concatenate([X, rng.permutation(X.T).T], axis=1)
    at_once = ClassStatistics(X.shape[1])
    at_once.add(X, y)
    row_by_row = ClassStatistics(X.shape[1], quantizer=at_once.quantizer)
    for i in range(0, 3000, 7):  # seven rows do not fill a register tile
        row_by_row.add(X[i : i + 7], y[i : i + 7], np.ones(len(y[i : i + 7])))
    assert at_once.digest() == row_by_row.digest()


def test_sparse_and_dense_rows_have_equal_digests(rng):
    X = sp.random(900, 30, density=0.1, random_state=1, format="csr")
    X.data = rng.normal(size=len(X.data))
    y = rng.integers(0, 3, 900)
    sparse, dense = ProximalSVC().fit(X, y), ProximalSVC().fit(X.toarray(), y)
    assert_same_bits(sparse, ProximalSVC(quantizer=sparse.quantizer_).fit(X.toarray(), y), rng)
    assert_same_bits(dense, ProximalSVC(quantizer=dense.quantizer_).fit(X, y), rng)
    sparse.forget(X[100:500].toarray(), y[100:500])
    dense.forget(X[100:500], y[100:500])
    rest = np.r_[:100, 500:900]
    for model in (sparse, dense):
        assert_same_bits(model, ProximalSVC(quantizer=model.quantizer_).fit(X[rest], y[rest]), rng)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_model_after_any_history_is_bit_identical_to_a_fresh_fit(data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = data.draw(st.sampled_from([60, 300, 900]))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    X, y = columns(rng, n, tuple(kinds)), rng.integers(0, data.draw(st.sampled_from([2, 3])), n)
    C = data.draw(st.sampled_from([1.0, "auto"]))
    model, current, new = ProximalSVC(C=C), np.zeros(n, bool), 0
    while new < n:
        step = data.draw(st.sampled_from(["add", "forget", "update", "save", "merge", "unmerge", "copy"]))
        chunk = np.arange(new, min(n, new + int(rng.choice([1, 3, 40, 250]))))
        old = rng.permutation(np.flatnonzero(current))[: rng.integers(0, max(1, current.sum() // 2))]
        if step == "add" or not current.any():
            model.partial_fit(X[chunk], y[chunk])
            current[chunk], new = True, chunk[-1] + 1
        elif step == "forget" and len(old):
            model.forget(X[old], y[old])
            current[old] = False
        elif step == "update" and len(old):
            model.update(add=(X[chunk], y[chunk]), forget=(X[old], y[old]))
            current[chunk], new = True, chunk[-1] + 1
            current[old] = False
        elif step == "save":
            model = from_bytes(to_bytes(model))
        elif step == "merge":
            model.merge(ProximalSVC(C=C, quantizer=model.quantizer_).fit(X[chunk], y[chunk]))
            current[chunk], new = True, chunk[-1] + 1
        elif step == "unmerge" and len(old):
            model.subtract(ProximalSVC(C=C, quantizer=model.quantizer_).fit(X[old], y[old]))
            current[old] = False
    fresh = ProximalSVC(C=C, quantizer=model.quantizer_).fit(X[current], y[current])
    assert model.digest() == fresh.digest()
    if C != "auto" or n > 100:
        assert_same_bits(model, fresh, rng)


def test_grow_and_permute_features_are_bit_identical_to_a_fresh_fit(rng):
    X, y = columns(rng, 600), rng.integers(0, 2, 600)
    wide = np.zeros((600, 14))
    places = [3, 0, 13, 5, 1, 8, 9, 2, 7]
    wide[:, places] = X
    model = ProximalSVC().fit(X, y).permute_features(places, 13 + 1)
    assert_same_bits(model, ProximalSVC(quantizer=model.quantizer_).fit(wide, y), rng)
    model.grow(15).forget(np.pad(wide, ((0, 0), (0, 1)))[:300], y[:300])
    fresh = ProximalSVC(quantizer=model.quantizer_).fit(np.pad(wide, ((0, 0), (0, 1)))[300:], y[300:])
    assert_same_bits(model, fresh, rng)


def test_forget_mapped_rows_is_bit_identical_to_a_fresh_fit(rng):
    X, y = rng.normal(size=(900, 4)), rng.integers(0, 2, 900)
    model = ProximalSVC(feature_map=RandomFeatures(60)).fit(X[:600], y[:600])
    for i in range(600, 900, 50):
        model.update(add=(X[i : i + 50], y[i : i + 50]), forget=(X[i - 600 : i - 550], y[i - 600 : i - 550]))
    fresh = ProximalSVC(feature_map=model._state.feature_map).fit(X[300:], y[300:])
    assert_same_bits(model, fresh, rng)


def test_model_with_finer_quantizer_steps_is_bit_identical(rng):
    X, y = columns(rng, 800, ("count", "cents", "normal")), rng.integers(0, 2, 800)
    plain = ProximalSVC().fit(X, y)
    quantizer = plain.quantizer_
    finer = Quantizer(quantizer.exponents - np.array([30, 0, 0]), None, quantizer.rounds)
    other = ProximalSVC(quantizer=finer).fit(X, y)
    assert_same_bits(plain, other, rng)


def test_integer_feature_gets_finer_quantizer_steps_after_a_fractional_value(rng):
    X = rng.integers(0, 5, size=(1000, 2)).astype(float)
    y = rng.integers(0, 2, 1000)
    model = ProximalSVC().fit(X[:500], y[:500])
    assert model.quantizer_.steps.tolist() == [1.0, 1.0]
    X[600:, 0] += 0.5
    X[700:, 1] += rng.normal(size=300)
    model.partial_fit(X[500:], y[500:])
    assert model.quantizer_.steps[0] == 0.5
    assert model.quantizer_.rounds.tolist() == [False, True]
    model.forget(X[:500], y[:500])
    assert_same_bits(model, ProximalSVC(quantizer=model.quantizer_).fit(X[500:], y[500:]), rng)


def test_merge_of_different_quantizers_uses_the_finer_steps(rng):
    X, y = rng.normal(size=(1200, 3)), rng.integers(0, 2, 1200)
    X[600:] *= 1e-4
    coarse, fine = ProximalSVC().fit(X[:600], y[:600]), ProximalSVC().fit(X[600:], y[600:])
    assert (coarse.quantizer_.exponents > fine.quantizer_.exponents).all()
    both = ProximalSVC().merge(coarse).merge(fine)
    turned = ProximalSVC().merge(fine).merge(coarse)
    assert both.digest() == turned.digest()
    assert both.quantizer_.mixed.all()
    assert both.subtract(coarse).digest() == fine.digest()


@pytest.mark.parametrize(
    ("forget", "expected"),
    [
        (lambda m, X, y: m.forget(X[:5] + 0.25, y[:5]), "never learned"),
        (lambda m, X, y: m.forget(np.full((1, 2), 1e9), [0]), "never learned"),
        (lambda m, X, y: m.forget(np.concatenate([X, X[:1]]), np.append(y, y[0])), "only"),
    ],
)
def test_forget_rows_inconsistent_with_the_sums_raises_and_keeps_state(forget, expected, rng):
    X, y = rng.integers(0, 9, size=(800, 2)).astype(float), rng.integers(0, 2, 800)
    model = ProximalSVC().fit(X, y)
    before = model.digest()
    with pytest.raises(DataError, match=expected):
        forget(model, X, y)
    assert model.digest() == before


def test_forget_of_learned_rows_never_raises(rng):
    X, y = columns(rng, 1500), rng.integers(0, 3, 1500)
    weights = rng.choice([0.1, 0.1, 3.0, 1.0], 1500)
    model = ProximalSVC().fit(X, y, weights)
    for begin in range(0, 1500, 100):
        chunk = slice(begin, begin + 100)
        model.forget(X[chunk], y[chunk], weights[chunk])
    assert model.classes_.tolist() == []


def test_decay_to_zero_removes_all_classes(rng):
    X, y = rng.normal(size=(900, 3)), rng.integers(0, 2, 900)
    model = ProximalSVC().fit(X, y).decay(0.5)
    np.testing.assert_allclose(model.coef_, ProximalSVC(C=0.5).fit(X, y).coef_, rtol=1e-6)
    model.decay(1e-200).decay(1e-200)
    assert model.classes_.tolist() == []
    with pytest.raises(DataError, match="factor"):
        model.decay(1e300)
    model.partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, ProximalSVC().fit(X, y).coef_, rtol=1e-6)


def test_huge_outliers_widen_the_integer_sums_and_keep_the_model_exact(rng):
    X, y = rng.normal(size=(600, 2)), rng.integers(0, 2, 600)
    model = ProximalSVC().fit(X, y)
    before, coef = model.digest(), model.coef_
    outliers = np.array([[1e75, 1.0], [-1e75, 1e60]])
    for _ in range(3):
        model.partial_fit(outliers, [0, 1])
        assert np.isfinite(model.coef_).all()
        model.forget(outliers, [0, 1])
        assert model.digest() == before
        np.testing.assert_array_equal(model.coef_, coef)


def test_quantizer_constants_match_the_documentation():
    assert (QUANTIZER_ROWS, WEIGHT_FRACTION_BITS, LARGEST_VALUE) == (256, 20, 1e300)
    statistics = ClassStatistics(1)
    statistics.add(np.arange(255.0)[:, None], np.zeros(255))
    assert not statistics.is_frozen
    statistics.add([[0.5]], [0])
    assert statistics.is_frozen
