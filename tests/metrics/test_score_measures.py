"""Measures of scores and probabilities: agreement with scikit-learn, ties, windows, scorers."""

import math
import warnings

import numpy as np
import pytest
import sklearn.metrics as sklearn_metrics
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_classification
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.metrics import (
    WindowScores,
    average_precision_score,
    brier_score,
    cohen_kappa_score,
    expected_calibration_error,
    get_scorer,
    log_loss_score,
    make_scorer,
    precision_at_k_score,
    recall_at_k_score,
    reliability_curve,
    streaming_metric,
)
from steelyard.metrics.formulas import ranking_measures

BATCH = {
    "average_precision": average_precision_score,
    "precision_at_k": lambda y, s: precision_at_k_score(y, s, k=5),
    "recall_at_k": lambda y, s: recall_at_k_score(y, s, k=5),
    "log_loss": log_loss_score,
    "brier": brier_score,
    "expected_calibration_error": expected_calibration_error,
}


def rows(seed, n=300, decimals=2):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.2).astype(int)
    return y, np.round(np.clip(0.3 * y + 0.7 * rng.random(n), 0, 1), decimals), rng.random(n) + 0.1


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("seed", range(3))
def test_measures_equal_scikit_learn_with_ties_and_weights(seed, decimals):
    y, p, w = rows(seed, decimals=decimals)
    for weights in (None, w):
        options = {"sample_weight": weights}
        pairs = [
            (average_precision_score, sklearn_metrics.average_precision_score),
            (log_loss_score, sklearn_metrics.log_loss),
            (brier_score, sklearn_metrics.brier_score_loss),
        ]
        for ours, theirs in pairs:
            assert ours(y, p, **options) == pytest.approx(theirs(y, p, **options), rel=1e-12)
        predicted = (p > 0.4).astype(int)
        expected = sklearn_metrics.cohen_kappa_score(y, predicted, **options)
        assert cohen_kappa_score(y, predicted, **options) == pytest.approx(expected, rel=1e-12)


def test_measures_of_three_classes_equal_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], 200)
    p = rng.dirichlet(np.ones(3), 200)
    assert log_loss_score(y, p) == pytest.approx(sklearn_metrics.log_loss(y, p))
    one_hot = y[:, None] == np.array(["a", "b", "c"])
    assert brier_score(y, p) == pytest.approx(((p - one_hot) ** 2).sum(axis=1).mean())
    predicted = rng.choice(["a", "b", "c"], 200)
    assert cohen_kappa_score(y, predicted) == pytest.approx(sklearn_metrics.cohen_kappa_score(y, predicted))


def test_probabilities_in_two_columns_give_same_measures_as_one_column():
    y, p, _ = rows(1)
    both = np.column_stack([1 - p, p])
    assert log_loss_score(y, both) == pytest.approx(log_loss_score(y, p))
    assert brier_score(y, both) == pytest.approx(brier_score(y, p))


def test_log_loss_of_a_wrong_certain_prediction_is_finite():
    assert log_loss_score([0, 1], [1.0, 1.0]) == pytest.approx(sklearn_metrics.log_loss([0, 1], [1.0, 1.0]))


@pytest.mark.parametrize("n_bins", [1, 5, 10])
def test_reliability_curve_equals_scikit_learn(n_bins):
    y, p, _ = rows(2)
    curve = reliability_curve(y, p, n_bins=n_bins)
    rate, mean = calibration_curve(y, p, n_bins=n_bins)
    np.testing.assert_allclose(curve.positive_rate, rate)
    np.testing.assert_allclose(curve.mean_probability, mean)
    assert curve.n_rows.sum() == len(y)
    error = (curve.n_rows / len(y) * np.abs(curve.positive_rate - curve.mean_probability)).sum()
    assert expected_calibration_error(y, p, n_bins=n_bins) == pytest.approx(error)


def test_measures_at_k_with_tied_scores_are_means_over_all_orders():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 2, 30), rng.integers(0, 4, 30).astype(float)
    for k in (1, 3, 10, 30, 100):
        hits = []
        for _ in range(4000):
            order = np.lexsort((rng.random(30), -scores))
            hits.append(y[order[:k]].sum())
        assert precision_at_k_score(y, scores, k=k) == pytest.approx(np.mean(hits) / min(k, 30), abs=0.02)
        assert recall_at_k_score(y, scores, k=k) == pytest.approx(np.mean(hits) / y.sum(), abs=0.02)


def test_measures_at_k_with_groups_are_means_over_groups():
    y, scores, days = [1, 0, 1, 1, 0, 0], [3, 2, 1, 1, 2, 3], ["mon"] * 3 + ["tue"] * 3
    assert precision_at_k_score(y, scores, k=1, groups=days) == 0.5
    assert recall_at_k_score(y, scores, k=1, groups=days) == pytest.approx((1 / 2 + 0) / 2)
    assert recall_at_k_score([1, 0, 0], [3, 2, 1], k=1, groups=["mon", "mon", "tue"]) == 1.0


@pytest.mark.parametrize(
    ("score", "value"),
    [(average_precision_score, 0.0), (recall_at_k_score, 0.0), (log_loss_score, None), (brier_score, None)],
)
def test_undefined_measures_are_nan_with_a_warning(score, value):
    y = [] if value is None else [0, 0]
    options = {} if value is None else {"pos_label": 1}
    with pytest.warns(UndefinedMetricWarning, match="undefined and set to nan"):
        assert math.isnan(score(y, np.full(len(y), 0.5), **options))


def test_kappa_of_one_constant_class_is_nan():
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(cohen_kappa_score([1, 1], [1, 1]))


@pytest.mark.parametrize("score", [log_loss_score, brier_score, expected_calibration_error])
def test_probabilities_outside_0_and_1_raise(score):
    with pytest.raises(DataError, match=r"between 0 and 1; got .*1\.5"):
        score([0, 1], [0.5, 1.5])


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_invalid_k_raises(k):
    with pytest.raises(ParameterError, match="k must be a whole number from 1"):
        precision_at_k_score([0, 1], [0.1, 0.2], k=k)


@pytest.mark.parametrize("measure", BATCH)
@pytest.mark.parametrize("window", [1, 20, 1000])
def test_window_scores_equal_the_batch_measure_of_the_last_rows(measure, window):
    y, p, _ = rows(3, n=120)
    metric = WindowScores(window, measure, k=5, pos_label=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for end in range(1, len(y) + 1):
            metric.update(y[end - 1], y_score=p[end - 1])
            last = slice(max(0, end - window), end)
            both = {0, 1} <= set(y[last])
            if both:
                assert metric.get() == pytest.approx(BATCH[measure](y[last], p[last]), rel=1e-12)
                assert type(metric.get()) is float


def test_window_scores_state_continues_identically():
    y, p, _ = rows(4, n=90)
    metric = WindowScores(40).update(y[:50], y_score=p[:50])
    restored = WindowScores.from_state(metric.to_state())
    for each in (metric, restored):
        each.update(y[50:], y_score=p[50:])
    assert restored.get() == metric.get() == average_precision_score(y[50:], p[50:])
    with pytest.raises(FileFormatError, match="damaged"):
        WindowScores.from_state(metric.to_state() | {"codes": np.array([7] * 40, dtype=np.int32)})


def test_window_of_probability_measure_rejects_scores_outside_zero_to_one():
    metric = WindowScores(5, "brier").update([0, 1], y_score=[0.2, 0.9])
    with pytest.raises(DataError, match="between 0 and 1"):
        metric.update([0], y_score=[-3.0])
    assert metric.get() == pytest.approx((0.04 + 0.01) / 2)


def test_streaming_metric_by_name_returns_window_scores():
    metric = streaming_metric("recall_at_k", window=10, k=3)
    assert repr(metric) == "WindowScores(window=10, measure='recall_at_k', pos_label=None, k=3, n_bins=10)"
    with pytest.raises(ParameterError, match="needs a window"):
        streaming_metric("log_loss")
    with pytest.raises(ParameterError, match="measure must be one of"):
        WindowScores(5, "nonsense")


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("average_precision", "average_precision"),
        ("neg_log_loss", "neg_log_loss"),
        ("neg_brier", "neg_brier_score"),
    ],
)
def test_scorers_equal_scikit_learn_scorers(name, theirs):
    X, y = make_classification(400, weights=[0.8], random_state=0)
    ours = cross_val_score(LogisticRegression(), X, y, scoring=get_scorer(name))
    np.testing.assert_allclose(ours, cross_val_score(LogisticRegression(), X, y, scoring=theirs))


def test_precision_at_k_scorer_accepts_k():
    X, y = make_classification(400, weights=[0.8], random_state=0)
    values = cross_val_score(LogisticRegression(), X, y, scoring=make_scorer("precision_at_k", k=5))
    assert ((values * 5) % 1 == 0).all()
    assert values.mean() > 0.6


@pytest.mark.parametrize("decimals", [1, 12])
def test_weighted_auc_equals_scikit_learn(decimals):
    y, scores, weights = rows(5, decimals=decimals)
    expected = sklearn_metrics.roc_auc_score(y, scores, sample_weight=weights)
    assert ranking_measures(y == 1, scores, weights)["roc_auc"] == pytest.approx((expected,) * 2, rel=1e-12)
    assert np.isnan(ranking_measures(y == 7, scores, weights)["roc_auc"]).all()
    for found in ranking_measures(y == 1, scores, np.zeros(len(y))).values():
        assert np.isnan(found).all()
