"""TableModel: the name of the inner model, its deprecated alias, and scikit-learn's clone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import steelyard
from steelyard import ProximalSVC, TableModel
from steelyard.persistence import from_bytes, to_bytes


def frame(n=60):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"amount": rng.normal(size=n), "country": rng.choice(["NZ", "AU"], n)})
    return table, np.where(table["amount"] > 0, "yes", "no")


def test_table_model_is_exported_at_top_level():
    assert steelyard.TableModel is TableModel


def test_learner_parameter_and_attribute_are_deprecated_aliases_of_estimator():
    inner = ProximalSVC()
    with pytest.warns(FutureWarning, match="estimator"):
        model = TableModel(learner=inner)
    assert model.estimator is inner
    with pytest.warns(FutureWarning, match="estimator"):
        assert model.learner is inner


def test_answers_is_a_deprecated_alias_of_predictions():
    table, y = frame()
    model = TableModel(ProximalSVC()).fit(table, y)
    with pytest.warns(FutureWarning, match="predictions"):
        ((_, found),) = model.answers(table)
    assert found.labels.tolist() == model.predict(table).tolist()


def test_clone_of_table_model_keeps_all_parameters():
    model = TableModel(ProximalSVC(C=3.0), target="fraud", time="when")
    copied = clone(model)
    assert copied.estimator is not model.estimator
    assert copied.estimator.C == 3.0
    assert (copied.target, copied.time) == ("fraud", "when")


def test_saved_model_predicts_identically():
    table, y = frame()
    model = TableModel(ProximalSVC()).fit(table, y)
    loaded = from_bytes(to_bytes(model))
    assert loaded.estimator.digest() == model.estimator.digest()
    assert loaded.predict(table).tolist() == model.predict(table).tolist()
