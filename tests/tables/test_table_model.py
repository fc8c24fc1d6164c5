"""TableModel: the name of the inner model, its deprecated alias, and scikit-learn's clone."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import steelyard
from steelyard import ProximalSVC, TableModel
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.windowing import SlidingWindow


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


def test_column_of_time_written_as_text_gives_the_same_model_as_timestamps():
    rng = np.random.default_rng(0)
    at = pd.date_range("2026-01-01", periods=300, freq="h")
    frame = pd.DataFrame({"a": rng.normal(size=300), "at": at})
    y = np.where(frame["a"] + rng.normal(size=300) > 0, "yes", "no")
    scores = []
    for table in (frame, frame.assign(at=at.strftime("%Y-%m-%d %H:%M"))):
        model = TableModel(SlidingWindow(ProximalSVC(), "2d"), time="at")
        for begin in range(0, 300, 100):
            model.partial_fit(table[begin : begin + 100], y[begin : begin + 100])
        scores.append(model.decision_function(table))
    np.testing.assert_array_equal(*scores)
    with pytest.raises(DataError, match="row 0, column 'at': expected a time; got 'soon'"):
        model.partial_fit(frame.assign(at="soon"), y)


@pytest.mark.parametrize("estimator", [ProximalSVC(), steelyard.StreamClassifier()])
def test_column_of_sentences_is_warned_of_once_when_it_first_appears(estimator):
    table, y = frame()
    model = TableModel(estimator).fit(table, y)
    notes = table.assign(note=[f"the customer called about invoice {k}" for k in range(60)])
    with pytest.warns(UserWarning, match="column 'note' contains sentences.*TfidfVectorizer") as caught:
        model.partial_fit(notes, y)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(notes, y).predict(notes)
