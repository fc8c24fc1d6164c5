"""The positive class is the rarer class of all rows, independent of their order and of the chunks."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, recall_score, roc_auc_score

from steelyard import ProximalSVC
from steelyard.cli import main
from steelyard.evaluation import PrequentialEvaluator, prequential
from steelyard.streams import ArrayStream
from steelyard.streams.predictions import Predictions
from tests.runner import cli_runner


class Scripted:
    """A model whose scores are the first feature, independent of the learned rows."""

    labels_follow_scores = True

    def __init__(self, labels):
        self.classes_ = np.array(sorted(labels))

    def partial_fit(self, X, y):
        return self

    def decision_function(self, X):
        return X[:, 0]


def _rows_with_changing_minority(labels=("rare", "usual")):
    """Return rows in which the overall rarer class is the more frequent one at first."""
    rng = np.random.default_rng(1)
    n = 6000
    share = np.where(np.arange(n) < 400, 0.9, 0.05)
    y = np.where(rng.random(n) < share, *labels)
    X = rng.normal(size=(n, 1)) + 1.5 * (y == sorted(labels)[1])[:, None]
    return X, y


@pytest.mark.parametrize("chunk", [1, 7, 100, 1000, 6000])
def test_measures_do_not_depend_on_chunks(chunk):
    X, y = _rows_with_changing_minority()
    result = prequential(Scripted(["rare", "usual"]), ArrayStream(X, y, chunk=chunk), window=500)
    assert result.positive == "rare"
    said = np.where(X[:, 0] > 0, "usual", "rare")
    (total,) = result.summary()
    assert total["sensitivity"] == pytest.approx(recall_score(y, said, pos_label="rare"))
    assert total["specificity"] == pytest.approx(recall_score(y, said, pos_label="usual"))
    assert total["f1"] == pytest.approx(f1_score(y, said, pos_label="rare"))
    assert [line["row"] for line in result.table] == list(range(250, 6001, 250))
    for line in result.table:
        rows = slice(max(0, line["row"] - 500), line["row"])
        assert line["sensitivity"] == pytest.approx(recall_score(y[rows], said[rows], pos_label="rare"))
        assert line["f1"] == pytest.approx(f1_score(y[rows], said[rows], pos_label="rare"))
        assert line["auc"] == pytest.approx(roc_auc_score(y[rows] == "rare", -X[rows, 0]))


@pytest.mark.parametrize("labels", [("a", "b"), ("b", "a")])
def test_positive_rows_have_higher_scores_whatever_class_is_positive(labels):
    X, y = _rows_with_changing_minority(labels)
    result = prequential(Scripted(labels), ArrayStream(X, y, chunk=300))
    assert result.positive == labels[0]
    scores, is_positive, weights = result.score_sample("Scripted").against(labels[0])
    assert roc_auc_score(is_positive, scores, sample_weight=weights) > 0.8
    assert result.summary()[0]["auc"] > 0.8


def test_third_class_changes_measures_of_earlier_rows_to_means_over_classes():
    X, y = _rows_with_changing_minority()
    y = y.astype("U9")
    y[5000:5100] = "third"
    result = prequential(ProximalSVC(), ArrayStream(X, y, chunk=100), window=500)
    assert result.positive is None
    first = result.table[0]
    assert np.isnan([first["specificity"], first["auc"]]).all()
    assert first["sensitivity"] == pytest.approx(first["macro_recall"])
    assert result.leading == "macro_recall"


def test_given_positive_class_that_appears_late_is_counted():
    X, y = _rows_with_changing_minority()
    y = y.astype("U9")
    y[5000:5100] = "third"
    result = prequential(ProximalSVC(), ArrayStream(X, y, chunk=100), window=500, positive="third")
    assert result.positive == "third"
    assert np.isnan(result.table[0]["sensitivity"])
    assert not np.isnan([line["sensitivity"] for line in result.table if line["row"] == 5250]).any()


def test_rows_predicted_before_the_positive_class_is_known_have_the_lowest_scores():
    log_probabilities = np.log([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]])
    predictions = Predictions.of(np.array(["a", "a"]), ["a", "b", "c"], log_probabilities)
    assert (predictions.score_of("d") < log_probabilities.min()).all()
    np.testing.assert_array_equal(predictions.score_of("b"), log_probabilities[:, 1])


def test_default_positive_of_equal_classes_is_the_larger_label():
    for y in ([0, 1, 0, 1], [1, 0, 1, 0]):
        evaluator = PrequentialEvaluator({"p": ProximalSVC()})
        evaluator.run(ArrayStream(np.arange(4.0)[:, None], np.array(y), chunk=2))
        assert evaluator.positive == 1


def test_class_appearance_events_do_not_depend_on_chunks():
    X, y = _rows_with_changing_minority()
    y = y.astype("U9")
    y[4321:4500] = "third"
    for chunk in (10, 999):
        result = prequential(ProximalSVC(), ArrayStream(X, y, chunk=chunk))
        (event,) = [event for event in result.events if "'third'" in event.text]
        assert (event.row, event.kind, event.model) == (4321, "class", None)


def test_stream_command_treats_the_rarer_class_as_positive(tmp_path):
    X, y = _rows_with_changing_minority()
    pd.DataFrame({"a": X[:, 0], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    documents = {}
    for chunk in (10, 1000):
        result = cli_runner().invoke(
            main, ["stream", str(tmp_path / "t.csv"), "--target", "y", "--chunk", str(chunk), "--json"]
        )
        documents[chunk] = json.loads(result.stdout)
        assert documents[chunk]["positive"] == "rare"
    plain = cli_runner().invoke(main, ["stream", str(tmp_path / "t.csv"), "--target", "y"])
    lines = [line.split("\t") for line in plain.stdout.splitlines()]
    assert dict(zip(*lines, strict=True))["positive"] == "rare"


def test_by_class_returns_recall_precision_and_support():
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], size=3000, p=[0.1, 0.7, 0.2])
    X = rng.normal(size=(3000, 2)) + np.column_stack([y == "a", y == "b"]) * 1.5
    result = prequential(ProximalSVC(), ArrayStream(X, y, chunk=100))
    lines = result.by_class("ProximalSVC")
    assert [line["label"] for line in lines] == ["b", "c", "a"]
    labels, counts = result.confusion("ProximalSVC")
    assert labels == ["a", "b", "c"]
    for line in lines:
        place = labels.index(line["label"])
        assert line["support"] == counts[place].sum()
        assert line["recall"] == pytest.approx(counts[place, place] / counts[place].sum())
        assert line["precision"] == pytest.approx(counts[place, place] / counts[:, place].sum())
