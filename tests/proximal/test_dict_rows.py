"""Rows as dictionaries equal rows of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, persistence
from steelyard.exceptions import DataError
from tests.proximal.data import imbalanced

NAMES = ["age", "amount", "hour"]


def as_dict(row):
    return dict(zip(NAMES, row.tolist(), strict=True))


@pytest.fixture
def rows(rng):
    return imbalanced(rng, 300, 3)


def learned(X, y, model=None):
    model = ProximalSVC() if model is None else model
    for row, label in zip(X, y, strict=True):
        model.learn_one(as_dict(row), label)
    return model


def test_dict_rows_equal_array_rows(rows):
    X, y = rows
    labels = np.where(y == 1, "fraud", "ok")
    ones, arrays = learned(X, labels.tolist()), ProximalSVC().partial_fit(X, labels)
    np.testing.assert_allclose(ones.coef_, arrays.coef_, rtol=1e-9)
    expected = arrays.predict(X).tolist()
    assert [ones.predict_one(as_dict(row)) for row in X] == expected
    assert type(ones.predict_one(as_dict(X[0]))) is str


def test_predict_one_before_learning_returns_none():
    assert ProximalSVC().predict_one({"age": 1.0}) is None


def test_dict_order_is_ignored_and_missing_keys_are_zero(rows):
    X, y = rows
    model = learned(X, y.tolist())
    row = as_dict(X[7])
    assert model.predict_one(dict(reversed(row.items()))) == model.predict_one(row)
    without = {"age": 2.0, "hour": -1.0}
    assert model.predict_one(without) == model.predict_one(without | {"amount": 0.0, "unknown": 7.0})


def test_new_key_adds_a_feature_that_is_zero_in_earlier_rows(rng, rows):
    X, y = rows
    model = learned(X[:100], y[:100].tolist())
    extra = rng.normal(size=200)
    for row, value, label in zip(X[100:], extra, y[100:], strict=True):
        model.learn_one({"late": value} | as_dict(row), int(label))
    wide = np.column_stack([X, np.concatenate([np.zeros(100), extra])])
    np.testing.assert_allclose(model.coef_, ProximalSVC().fit(wide, y).coef_, rtol=1e-7, atol=1e-12)


def test_feature_names_of_dict_rows_are_saved(rows):
    X, y = rows
    model = learned(X[:200], y[:200].tolist())
    loaded = persistence.from_bytes(persistence.to_bytes(model))
    row = dict(reversed(as_dict(X[250]).items()))
    assert loaded.predict_one(row) == model.predict_one(row)
    loaded.learn_one(row, int(y[250]))


def test_learn_one_weight_equals_repeated_rows(rows):
    X, y = rows
    model = learned(X, y.tolist())
    model.learn_one(as_dict(X[0]), int(y[0]), w=3.0)
    assert model.class_count_.sum() == 303.0


def test_learn_one_after_arrays_or_with_nan_raises(rows):
    X, y = rows
    with pytest.raises(DataError, match=r"learn_one: this learner has learned arrays or tables"):
        ProximalSVC().fit(X, y).learn_one(as_dict(X[0]), 1)
    model = learned(X, y.tolist())
    with pytest.raises(DataError, match="NaN"):
        model.learn_one(as_dict(X[0]) | {"age": float("nan"), "new": 1.0}, 1)
    assert model.n_features_in_ == 3
    assert model.class_count_.sum() == 300.0


def test_text_in_dict_row_raises_and_keeps_state(rows):
    X, y = rows
    model = learned(X, y.tolist())
    before = persistence.to_bytes(model)
    row = as_dict(X[0])
    first = next(iter(row))
    for call in (lambda row: model.learn_one(row, 1), model.predict_one):
        with pytest.raises(DataError, match=f"_one: expected a number for '{first}'; got 'high'"):
            call(row | {first: "high"})
    assert persistence.to_bytes(model) == before
