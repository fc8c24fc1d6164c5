"""Rows as dictionaries are the rows that arrays hold."""

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


def test_dictionaries_are_learned_and_answered_like_arrays(rows):
    X, y = rows
    labels = np.where(y == 1, "fraud", "ok")
    ones, arrays = learned(X, labels.tolist()), ProximalSVC().partial_fit(X, labels)
    np.testing.assert_allclose(ones.coef_, arrays.coef_, rtol=1e-9)
    expected = arrays.predict(X).tolist()
    assert [ones.predict_one(as_dict(row)) for row in X] == expected
    assert type(ones.predict_one(as_dict(X[0]))) is str


def test_nothing_learned_yet_has_no_answer():
    assert ProximalSVC().predict_one({"age": 1.0}) is None


def test_the_order_of_names_does_not_matter_and_missing_ones_are_zero(rows):
    X, y = rows
    model = learned(X, y.tolist())
    row = as_dict(X[7])
    assert model.predict_one(dict(reversed(row.items()))) == model.predict_one(row)
    without = {"age": 2.0, "hour": -1.0}
    assert model.predict_one(without) == model.predict_one(without | {"amount": 0.0, "unknown": 7.0})


def test_a_new_name_grows_the_learner_as_if_it_had_been_zero(rng, rows):
    X, y = rows
    model = learned(X[:100], y[:100].tolist())
    extra = rng.normal(size=200)
    for row, value, label in zip(X[100:], extra, y[100:], strict=True):
        model.learn_one({"late": value} | as_dict(row), int(label))
    wide = np.column_stack([X, np.concatenate([np.zeros(100), extra])])
    np.testing.assert_allclose(model.coef_, ProximalSVC().fit(wide, y).coef_, rtol=1e-7, atol=1e-12)


def test_names_are_saved(rows):
    X, y = rows
    model = learned(X[:200], y[:200].tolist())
    loaded = persistence.from_bytes(persistence.to_bytes(model))
    row = dict(reversed(as_dict(X[250]).items()))
    assert loaded.predict_one(row) == model.predict_one(row)
    loaded.learn_one(row, int(y[250]))


def test_a_weight_is_so_many_rows(rows):
    X, y = rows
    model = learned(X, y.tolist())
    model.learn_one(as_dict(X[0]), int(y[0]), w=3.0)
    assert model.class_count_.sum() == 303.0


def test_learners_of_arrays_and_bad_values_get_a_sentence(rows):
    X, y = rows
    with pytest.raises(DataError, match=r"learn_one: this learner has learned arrays or tables"):
        ProximalSVC().fit(X, y).learn_one(as_dict(X[0]), 1)
    model = learned(X, y.tolist())
    with pytest.raises(DataError, match="NaN"):
        model.learn_one(as_dict(X[0]) | {"age": float("nan"), "new": 1.0}, 1)
    assert model.n_features_in_ == 3
    assert model.class_count_.sum() == 300.0
