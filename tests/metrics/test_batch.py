"""Batch measures: values by hand, agreement with other libraries, invalid input."""

import math
import warnings
from itertools import combinations

import imblearn.metrics as imblearn
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.metrics as sklearn_metrics
from sklearn.datasets import make_classification
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import cross_val_score

from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import (
    f_beta_score,
    g_mean_score,
    imbalance_ratio,
    imbalance_report,
    pmauc_score,
    relative_sensitivity_score,
    roc_auc_score,
    sensitivity_score,
    specificity_score,
)

from . import reference

# 2 of 4 positive rows are predicted positive, and 1 of 6 negative rows.
Y_TRUE = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
Y_PRED = [1, 1, 0, 0, 1, 0, 0, 0, 0, 0]
LABEL_SCORES = [
    sensitivity_score,
    specificity_score,
    g_mean_score,
    relative_sensitivity_score,
    f_beta_score,
]


def random_predictions(seed, labels, n=200):
    rng = np.random.default_rng(seed)
    shares = np.arange(1, len(labels) + 1) ** 2.0
    y_true = rng.choice(labels, size=n, p=shares / shares.sum())
    y_pred = np.where(rng.random(n) < 0.7, y_true, rng.choice(labels, size=n))
    return y_true, y_pred, rng.random(n)


@pytest.mark.parametrize(
    ("score", "value"),
    [
        (sensitivity_score, 2 / 4),
        (specificity_score, 5 / 6),
        (g_mean_score, math.sqrt(2 / 4 * 5 / 6)),
        (relative_sensitivity_score, (2 / 4) / (5 / 6)),
        (f_beta_score, 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4)),
    ],
)
def test_measures_of_small_example_equal_manual_calculation(score, value):
    assert score(Y_TRUE, Y_PRED) == pytest.approx(value, rel=1e-15)


def test_f_beta_multiplies_precision_by_beta_squared():
    assert f_beta_score(Y_TRUE, Y_PRED, beta=2) == pytest.approx(reference.f_beta(Y_TRUE, Y_PRED, 1, 2))


def test_f_beta_without_true_positives_is_zero():
    assert f_beta_score([0, 0, 1], [0, 1, 0]) == 0.0


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [True, False]])
@pytest.mark.parametrize("seed", range(3))
def test_measures_of_two_classes_equal_imbalanced_learn(seed, labels):
    y_true, y_pred, _ = random_predictions(seed, labels)
    for positive in labels:
        ours = [score(y_true, y_pred, pos_label=positive) for score in LABEL_SCORES[:3]]
        theirs = [
            imblearn.sensitivity_score(y_true, y_pred, pos_label=positive),
            imblearn.specificity_score(y_true, y_pred, pos_label=positive),
            imblearn.geometric_mean_score(y_true, y_pred, pos_label=positive, average="binary"),
        ]
        assert ours == pytest.approx(theirs)


# imbalanced-learn is not used here because it ignores the weights of true negatives.
@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [-1.0, 1.0]])
def test_measures_of_weighted_rows_equal_scikit_learn(labels):
    y_true, y_pred, weights = random_predictions(4, labels)
    for positive, negative in (labels, labels[::-1]):
        options = {"pos_label": positive, "sample_weight": weights}
        recall = sklearn_metrics.recall_score(y_true, y_pred, **options)
        other_recall = sklearn_metrics.recall_score(y_true, y_pred, **{**options, "pos_label": negative})
        f_half = sklearn_metrics.fbeta_score(y_true, y_pred, beta=0.5, **options)
        assert sensitivity_score(y_true, y_pred, **options) == pytest.approx(recall)
        assert specificity_score(y_true, y_pred, **options) == pytest.approx(other_recall)
        assert f_beta_score(y_true, y_pred, beta=0.5, **options) == pytest.approx(f_half)


@pytest.mark.parametrize("labels", [[0, 1], [3, 1, 2], ["a", "b", "c", "d"]])
def test_g_mean_over_all_classes_agrees_with_imbalanced_learn(labels):
    y_true, y_pred, weights = random_predictions(5, labels)
    expected = imblearn.geometric_mean_score(y_true, y_pred, average="multiclass", sample_weight=weights)
    assert g_mean_score(y_true, y_pred, sample_weight=weights) == pytest.approx(expected)


def test_pos_label_with_three_classes_compares_one_class_with_the_rest():
    y_true, y_pred, _ = random_predictions(1, ["a", "b", "c"])
    for positive in "abc":
        assert sensitivity_score(y_true, y_pred, pos_label=positive) == pytest.approx(
            reference.sensitivity(y_true, y_pred, positive)
        )
        assert specificity_score(y_true, y_pred, pos_label=positive) == pytest.approx(
            reference.specificity(y_true, y_pred, positive)
        )


def test_integer_weight_equals_repeated_row():
    weights = [3, 1, 2, 1, 1, 4, 1, 1, 2, 1]
    repeated = np.repeat(Y_TRUE, weights), np.repeat(Y_PRED, weights)
    for score in LABEL_SCORES:
        assert score(Y_TRUE, Y_PRED, sample_weight=weights) == pytest.approx(score(*repeated))


def test_default_pos_label_is_the_rarer_class():
    assert sensitivity_score(["b", "b", "b", "a"], ["b", "b", "a", "a"]) == 1.0


def test_default_pos_label_of_zero_and_one_is_one():
    assert sensitivity_score([1, 1, 1, 0], [1, 1, 0, 0]) == pytest.approx(2 / 3)


def test_default_pos_label_of_equal_classes_is_the_larger_label():
    assert sensitivity_score(["x", "x", "y", "y"], ["x", "x", "x", "y"]) == 0.5


def test_three_classes_without_pos_label_raise():
    with pytest.raises(ParameterError, match="3 classes, so pos_label must say"):
        sensitivity_score([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize(
    ("score", "y_true", "y_pred"),
    [
        (sensitivity_score, [0, 0, 0], [0, 1, 0]),
        (sensitivity_score, [0, 0, 0], [0, 0, 0]),
        (g_mean_score, [0, 0, 0], [0, 1, 0]),
        (relative_sensitivity_score, [0, 0, 1], [1, 1, 1]),
        (relative_sensitivity_score, [0, 0], [0, 0]),
        (f_beta_score, [0, 0], [0, 0]),
        (sensitivity_score, [], []),
        (specificity_score, [], []),
        (g_mean_score, [], []),
    ],
)
def test_zero_denominator_returns_nan_with_a_warning(score, y_true, y_pred):
    with pytest.warns(UndefinedMetricWarning, match="undefined and set to nan"):
        assert math.isnan(score(y_true, y_pred))


def test_specificity_without_negative_rows_is_nan():
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(specificity_score([1, 1], [1, 1], pos_label=1))


def test_pos_label_without_rows_returns_nan():
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(sensitivity_score([0, 1], [0, 1], pos_label=7))


def test_g_mean_ignores_label_that_is_only_predicted():
    assert g_mean_score([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("wrap", [list, tuple, np.array, pd.Series, pl.Series, pd.Categorical])
def test_lists_arrays_and_series_give_the_same_score(wrap):
    assert sensitivity_score(wrap(["a", "a", "b"]), wrap(["a", "a", "b"])) == 1.0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1], [0], "same length; got 2 and 1"),
        (["a", "b"], [0, 1], "one kind that can be ordered; got a mix of int, str"),
        ([1, "a"], [1, "a"], "mix of int, str"),
        ([0, None], [0, 1], "needs a label; got None"),
        ([0.0, math.nan], [0, 1], "needs a label; got nan"),
        (pd.Series(["a", pd.NA], dtype=object), ["a", "b"], "needs a label; got <NA>"),
        ([0, 1], [0.3, 0.8], "must contain class labels; got 0.3"),
        ([[0, 1], [1, 0]], [0, 1], "a column of labels; got shape"),
    ],
)
def test_invalid_labels_raise_data_error(y_true, y_pred, message):
    with pytest.raises(DataError, match=message):
        g_mean_score(y_true, y_pred)


@pytest.mark.parametrize("weights", [[1, -1], [1, math.nan], [1, 1, 1]])
def test_invalid_weights_raise_data_error(weights):
    with pytest.raises(DataError, match="sample_weight must"):
        g_mean_score([0, 1], [0, 1], sample_weight=weights)


@pytest.mark.parametrize("beta", [0, -1.0, math.inf, "1"])
def test_beta_must_be_positive_and_finite(beta):
    with pytest.raises(ParameterError, match="beta must be a positive, finite number"):
        f_beta_score([0, 1], [0, 1], beta=beta)


def test_imbalance_ratio_is_largest_class_divided_by_smallest_class():
    assert imbalance_ratio(["a"] * 6 + ["b"] * 2 + ["c"] * 3) == 3.0
    assert imbalance_ratio([0, 1], sample_weight=[1, 5]) == 5.0


def test_imbalance_ratio_of_one_class_is_undefined():
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(imbalance_ratio([1, 1, 1]))


@pytest.mark.parametrize("seed", range(3))
def test_auc_equals_scikit_learn_with_ties_and_weights(seed):
    y_true, _, weights = random_predictions(seed, [0, 1])
    scores = np.random.default_rng(seed).integers(0, 6, len(y_true)) + y_true
    expected = sklearn_metrics.roc_auc_score(y_true, scores, sample_weight=weights)
    assert roc_auc_score(y_true, scores, sample_weight=weights) == pytest.approx(expected)


def test_auc_uses_scores_of_pos_label():
    y_true, scores = ["a", "b", "c", "a"], [0.9, 0.3, 0.1, 0.2]
    expected = reference.auc([label == "a" for label in y_true], scores)
    assert roc_auc_score(y_true, scores, pos_label="a") == pytest.approx(expected)


def test_auc_of_three_classes_without_pos_label_raises():
    with pytest.raises(ParameterError, match="pos_label must say which one the scores are for"):
        roc_auc_score([0, 1, 2], [0.1, 0.2, 0.3])


@pytest.mark.parametrize("y_true", [[1, 1], [], ["a"]])
def test_auc_of_one_class_is_nan(y_true):
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(roc_auc_score(y_true, np.zeros(len(y_true))))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_scores_raise_data_error(bad):
    with pytest.raises(DataError, match=r"every y_score must be a finite number; got .* in row 1"):
        roc_auc_score([0, 1, 1], [0.1, bad, 0.3])


@pytest.mark.parametrize("seed", range(3))
def test_pmauc_equals_reference_sum_over_pairs(seed):
    rng = np.random.default_rng(seed)
    labels = ["a", "b", "c", "d"]
    y_true = rng.choice(labels[: 2 + seed], 40)
    scores = rng.integers(0, 5, (40, 4)).astype(float)
    expected = reference.pmauc(y_true.tolist(), scores.tolist(), labels)
    assert pmauc_score(y_true, scores, labels=labels) == pytest.approx(expected)


def test_pmauc_of_probabilities_equals_scikit_learn_ovo():
    rng = np.random.default_rng(0)
    y_true, scores = rng.integers(0, 3, 60), rng.dirichlet(np.ones(3), 60)
    expected = sklearn_metrics.roc_auc_score(y_true, scores, multi_class="ovo")
    assert pmauc_score(y_true, scores) == pytest.approx(expected)


def test_pmauc_of_two_classes_equals_auc():
    y_true, _, scores = random_predictions(0, ["no", "yes"])
    expected = roc_auc_score(y_true, scores)
    assert pmauc_score(y_true, scores) == pytest.approx(expected)
    assert pmauc_score(y_true, np.column_stack([1 - scores, scores])) == pytest.approx(expected)


def test_pmauc_with_wrong_number_of_columns_raises():
    with pytest.raises(DataError, match=r"y_score must have shape \(3, 3\); got \(3, 2\)"):
        pmauc_score([0, 1, 2], np.zeros((3, 2)))


def test_pmauc_with_label_without_column_raises():
    with pytest.raises(DataError, match="must be one of labels"):
        pmauc_score([0, 1, 2], np.zeros((3, 2)), labels=[0, 1])


@pytest.mark.parametrize("y_true", [[], ["a"], ["a", "a"]])
def test_pmauc_of_one_class_is_nan(y_true):
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(pmauc_score(y_true, np.zeros((len(y_true), 2)), labels=["a", "b"]))


def test_scorers_work_in_cross_validation():
    X, y = make_classification(150, weights=[0.8], random_state=0)
    model = LogisticRegression()
    for score in LABEL_SCORES:
        assert np.isfinite(
            cross_val_score(model, X, y, scoring=make_scorer(score), error_score="raise")
        ).all()
    by_score = make_scorer(roc_auc_score, response_method="decision_function")
    np.testing.assert_allclose(
        cross_val_score(model, X, y, scoring=by_score), cross_val_score(model, X, y, scoring="roc_auc")
    )
    by_table = make_scorer(pmauc_score, response_method="predict_proba")
    assert np.isfinite(cross_val_score(model, X, y, scoring=by_table, error_score="raise")).all()


def test_imbalance_report_equals_the_individual_metric_functions():
    scores = np.arange(10.0)
    report = imbalance_report(Y_TRUE, Y_PRED, scores, beta=2)
    assert report.pos_label == 1
    assert report.class_weights == {0: 6.0, 1: 4.0}
    assert report.sensitivity == sensitivity_score(Y_TRUE, Y_PRED)
    assert report.g_mean == g_mean_score(Y_TRUE, Y_PRED)
    assert report.f_beta == f_beta_score(Y_TRUE, Y_PRED, beta=2)
    assert report.roc_auc == roc_auc_score(Y_TRUE, scores)
    assert report.as_dict()["imbalance_ratio"] == 1.5


def test_report_macro_means_agree_with_scikit_learn():
    y_true, y_pred, weights = random_predictions(2, [0, 1, 2])
    report = imbalance_report(y_true, y_pred, sample_weight=weights)
    expected = sklearn_metrics.precision_recall_fscore_support(
        y_true, y_pred, average="macro", sample_weight=weights
    )
    found = report.macro_precision, report.macro_recall, report.macro_f1
    assert found == pytest.approx(expected[:3])
    assert report.accuracy == pytest.approx(
        sklearn_metrics.accuracy_score(y_true, y_pred, sample_weight=weights)
    )


def test_report_of_three_classes_omits_measures_of_a_positive_class():
    report = imbalance_report([0, 1, 2], [0, 1, 2], np.eye(3))
    assert report.sensitivity is None
    assert report.pos_label is None
    assert report.pmauc == 1.0


def test_report_of_one_class_warns_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = imbalance_report([0, 0], [0, 0], [0.1, 0.2])
    assert [w.category for w in caught] == [UndefinedMetricWarning]
    assert math.isnan(report.roc_auc)
    assert report.specificity == 1.0


def test_pmauc_of_hundred_classes_equals_mean_of_weighted_pair_aucs():
    rng = np.random.default_rng(0)
    y, weights = rng.integers(0, 100, size=400), rng.integers(1, 4, size=400).astype(float)
    scores = np.round(rng.normal(size=(400, 100)), 1)  # with many ties
    present = np.unique(y)
    pairs = []
    for i, j in combinations(present.tolist(), 2):
        both = []
        for one, other in ((i, j), (j, i)):
            difference = scores[y == one, one][:, None] - scores[y == other, one]
            won = np.where(difference > 0, 1.0, np.where(difference == 0, 0.5, 0.0))
            both.append(np.average(won, weights=np.outer(weights[y == one], weights[y == other])))
        pairs.append(np.mean(both))
    found = pmauc_score(y, scores, labels=np.arange(100), sample_weight=weights)
    assert found == pytest.approx(np.mean(pairs), abs=1e-12)
