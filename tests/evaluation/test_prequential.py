"""Prequential evaluation: order of predicting and learning, measures and results."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score, recall_score, roc_auc_score
from sklearn.naive_bayes import GaussianNB

from steelyard import KOIL, ProximalSVC, StreamClassifier
from steelyard.evaluation import PrequentialEvaluator, SklearnPeer, prequential
from steelyard.evaluation.contributions import contributions
from steelyard.evaluation.tracking import ScoreSample, bootstrap_bands
from steelyard.exceptions import DataError, FileAccessError, ParameterError, SteelyardError
from steelyard.metrics import (
    average_precision_score,
    brier_score,
    cohen_kappa_score,
    expected_calibration_error,
    g_mean_score,
    log_loss_score,
    pmauc_score,
    precision_at_k_score,
    recall_at_k_score,
)
from steelyard.streams import ArrayStream, Drift, Gaussians, ImbalanceSchedule
from steelyard.tables import open_stream
from steelyard.windowing import AdaptiveWindows, SlidingWindow


class RecordingModel:
    """A model that records its calls and predicts the last learned label."""

    def __init__(self):
        self.events = []

    def partial_fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.events += [("learn", int(row)) for row in X[:, 0]]
        return self

    def predict(self, X):
        self.events += [("predict", int(row)) for row in X[:, 0]]
        return np.zeros(len(X), dtype=int)


def _rows_in_order(n, chunk):
    return ArrayStream(np.arange(n, dtype=float)[:, None], np.arange(n) % 2, chunk=chunk)


def _by_hand(stream, model, window):
    """Return labels, predictions and scores of the last window of a hand-written test-then-train loop."""
    true, predicted, scores = [], [], []
    for chunk in stream:
        if chunk.first_row:
            true += chunk.y.tolist()
            predicted += model.predict(chunk.X).tolist()
            scores += model.decision_function(chunk.X).tolist()
        model.partial_fit(chunk.X, chunk.y)
    return true[-window:], predicted[-window:], scores[-window:]


def test_every_row_is_predicted_before_it_is_learned():
    model = RecordingModel()
    prequential(model, _rows_in_order(10, 2))
    seen = set()
    for event, row in model.events:
        assert (event == "learn") or row not in seen
        if event == "learn":
            seen.add(row)
    assert [row for event, row in model.events if event == "learn"] == list(range(10))


@pytest.mark.parametrize("chunk", [1, 3, 10])
@pytest.mark.parametrize("delay", [0, 1, 4, 50])
def test_delayed_label_is_learned_after_the_given_number_of_rows(chunk, delay):
    model = RecordingModel()
    prequential(model, _rows_in_order(30, chunk), delay=delay)
    learned = [row for event, row in model.events if event == "learn"]
    assert learned == list(range(30))
    for position, (event, row) in enumerate(model.events):
        if event == "predict":
            assert all(
                kind == "predict" or other < row - delay + chunk for kind, other in model.events[:position]
            )


def test_warmup_rows_are_learned_and_not_tested():
    model = RecordingModel()
    result = prequential(model, _rows_in_order(30, 10), warmup=15)
    assert min(row for event, row in model.events if event == "predict") == 15
    assert result.summary()[0]["tested"] == 15


def test_last_line_of_result_table_equals_measures_of_last_window():
    stream = Gaussians(6000, schedule=ImbalanceSchedule.constant(0.2), distance=1.2, chunk=300)
    result = prequential(ProximalSVC(), stream, window=900, positive=1)
    true, predicted, scores = _by_hand(stream, ProximalSVC(), 900)
    last = result.table[-1]
    assert last["row"] == 6000
    assert last["sensitivity"] == pytest.approx(recall_score(true, predicted))
    assert last["specificity"] == pytest.approx(recall_score(true, predicted, pos_label=0))
    assert last["g_mean"] == pytest.approx(g_mean_score(true, predicted, pos_label=1))
    assert last["f1"] == pytest.approx(f1_score(true, predicted))
    assert last["rs"] == pytest.approx(last["sensitivity"] / last["specificity"])
    assert last["auc"] == pytest.approx(roc_auc_score(true, scores))
    assert last["imbalance_ratio"] == pytest.approx(np.bincount(true)[0] / np.bincount(true)[1])


def test_summary_equals_measures_of_all_tested_rows():
    stream = Gaussians(3000, schedule=ImbalanceSchedule.constant(0.3), distance=1.2, chunk=500)
    (total,) = prequential(ProximalSVC(), stream, positive=1).summary()
    true, predicted, scores = _by_hand(stream, ProximalSVC(), 3000)
    assert total["g_mean"] == pytest.approx(g_mean_score(true, predicted, pos_label=1))
    assert total["auc"] == pytest.approx(roc_auc_score(true, scores))  # all rows fit into the sample


def test_four_classes_give_pmauc_and_means_over_classes():
    stream = Gaussians(3000, n_classes=4, schedule=ImbalanceSchedule.constant(0.5), presence={3: (900, 3000)})
    model = ProximalSVC()
    metrics = ("g_mean", "sensitivity", "specificity", "pmauc", "auc")
    result = prequential(model, stream, metrics=metrics, window=1000)
    true, predicted, scores = _by_hand(stream, ProximalSVC(), 1000)
    last = result.table[-1]
    assert result.positive is None
    assert last["sensitivity"] == pytest.approx(recall_score(true, predicted, average="macro"))
    assert last["pmauc"] == pytest.approx(pmauc_score(true, scores))
    assert np.isnan(last["auc"])
    assert np.isnan(last["specificity"])


def test_default_positive_class_is_the_rarer_label():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(3000) < 0.1, "a rare one", "zero")
    X = rng.normal(size=(3000, 2)) + 2.0 * (y == "a rare one")[:, None]
    result = prequential(ProximalSVC(), ArrayStream(X, y))
    assert result.positive == "a rare one"
    assert result.summary()[0]["auc"] > 0.8
    assert result.table[-1]["auc"] > 0.8


def test_several_models_are_tested_on_the_same_rows():
    stream = Gaussians(4000, schedule=ImbalanceSchedule.constant(0.05))
    models = {
        "balanced": ProximalSVC(),
        "window": SlidingWindow(ProximalSVC(), 1500),
        "sgd": SklearnPeer(SGDClassifier(random_state=0)),
        "bayes": SklearnPeer(GaussianNB(), scale=False),
    }
    result = prequential(models, stream)
    assert [row["model"] for row in result.summary()] == list(models)
    assert {row["tested"] for row in result.summary()} == {3000}
    assert all(0.5 < row["auc"] <= 1 for row in result.summary())


def test_new_categories_add_features_only_to_models_that_support_grow():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=3000), "c": [f"v{i // 500}" for i in range(3000)]})
    frame["y"] = ((frame["a"] > 0) | (frame["c"] == "v5")).astype(int)
    models = {"grows": ProximalSVC(), "fixed": SklearnPeer(SGDClassifier(random_state=0))}
    result = prequential(models, open_stream(frame, "y", chunk=250))
    assert result.models["grows"].n_features_in_ == 7
    assert result.models["fixed"].n_features_in_ == 33
    whole = open_stream(frame, "y", chunk=3000)
    (chunk,) = whole
    np.testing.assert_allclose(
        result.models["grows"].coef_, ProximalSVC().fit(chunk.X, chunk.y).coef_, rtol=1e-7, atol=1e-9
    )


def test_sklearn_model_counts_rejected_rows_of_class_that_appears_late():
    stream = Gaussians(3000, n_classes=3, presence={2: (2000, 3000)})
    peer = SklearnPeer(SGDClassifier(random_state=0))
    prequential(peer, stream)
    n_late = sum(int((chunk.y == 2).sum()) for chunk in stream)
    assert peer.n_refused_ == n_late > 0


def test_error_of_the_stream_contains_result_for_earlier_rows(tmp_path):
    path = tmp_path / "data.csv"
    lines = [f"{i % 7},{i % 2}" for i in range(2500)]
    path.write_text("\n".join(["a,y", *lines, "1,0,3"]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2,502: expected 2 columns") as caught:
        prequential(ProximalSVC(), open_stream(path, "y"))
    assert caught.value.result.n_rows == 2500
    assert caught.value.result.models["ProximalSVC"].class_count_.sum() == 2500


def test_result_converts_to_pandas_polars_csv_and_json(tmp_path):
    result = prequential(ProximalSVC(), Gaussians(4000), window=1000)
    frame = result.to_pandas()
    assert len(frame) == len(result.table) == 6  # at 1,500, 2,000, ..., 4,000
    assert result.to_polars().shape == frame.shape
    result.to_csv(tmp_path / "table.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "table.csv"), frame)
    document = json.loads(result.to_json(tmp_path / "all.json"))
    assert document["rows"] == 4000
    assert json.loads((tmp_path / "all.json").read_text()) == document


def test_number_of_table_lines_of_a_long_stream_is_bounded(monkeypatch):
    monkeypatch.setattr("steelyard.evaluation.tracking._MAX_CELLS", 0)
    result = prequential(ProximalSVC(), Gaussians(3000, n_features=2, chunk=10), window=10, every=10)
    assert 50 <= len(result.table) <= 101
    assert result.table[-1]["row"] == 3000


def test_changes_finds_abrupt_drift():
    result = prequential(ProximalSVC(), Gaussians(40_000, drifts=[Drift(20_000)], distance=3.0, seed=3))
    assert any(abs(row - 20_000) <= 2000 for row in result.changes("ProximalSVC"))


def test_changes_finds_no_drift_in_stationary_stream():
    result = prequential(ProximalSVC(), Gaussians(40_000, seed=3), warmup=1000)
    assert result.changes("ProximalSVC") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["g_mean", "luck"]}, "got 'luck'"),
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"delay": -1}, "delay must be a whole number of at least 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ParameterError, match=message):
        prequential(ProximalSVC(), Gaussians(10), **options)


def test_bootstrap_bands_equal_percentiles_of_resampled_blocks():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 30, size=(20, 2, 2)).astype(float)
    draws = rng.multinomial(20, np.full(20, 0.05), size=200).astype(float)
    samples = []
    for draw in draws:
        (tn, fp), (fn, tp) = np.tensordot(draw, counts, 1)
        samples.append(np.sqrt(tp / (tp + fn) * tn / (tn + fp)))
    tallies = np.stack([counts.diagonal(axis1=1, axis2=2), counts.sum(axis=2), counts.sum(axis=1)], axis=1)
    low, high = bootstrap_bands(tallies, draws, 1)["g_mean"]
    assert (low, high) == pytest.approx((sorted(samples)[5], sorted(samples)[-6]))
    many = bootstrap_bands(tallies, draws, None)["g_mean"]
    assert many == pytest.approx((low, high))


def test_measure_is_within_its_confidence_band():
    result = prequential(ProximalSVC(), Gaussians(20_000), window=2000)
    for line in result.table:
        assert line["g_mean_low"] <= line["g_mean"] <= line["g_mean_high"]


def test_score_sample_is_uniform_and_does_not_depend_on_chunks():
    labels = np.arange(10_000) % 2
    scores = np.arange(10_000, dtype=float)
    samples = []
    for chunk in (100, 10_000):
        sample = ScoreSample(size=500, seed=1)
        for begin in range(0, 10_000, chunk):
            sample.update(labels[begin : begin + chunk], scores[begin : begin + chunk])
        samples.append(np.sort(sample.scores(0)))
        assert sample.counts == {0: 5000, 1: 5000}
    np.testing.assert_array_equal(*samples)
    assert samples[0].mean() == pytest.approx(5000, abs=400)


@pytest.mark.parametrize("delay", [0, 5])
def test_measures_equal_river_progressive_validation(delay):
    from river import evaluate, linear_model, metrics, preprocessing

    from steelyard.evaluation import RiverPeer

    stream = Gaussians(1500, n_features=3, schedule=ImbalanceSchedule.constant(0.3), chunk=1)
    X, y = stream.rows(0, 1500)
    rows = [(dict(enumerate(row)), bool(label)) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    theirs = {"accuracy": metrics.Accuracy(), "f1": metrics.F1(), "g_mean": metrics.GeometricMean()}
    pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    # river counts the delay from the row itself: with 1 a label arrives before the next row.
    both = theirs["accuracy"] + theirs["f1"] + theirs["g_mean"]
    evaluate.progressive_val_score(rows, pipeline, both, delay=delay + 1 if delay else None, moment=None)
    ours = prequential(
        RiverPeer(linear_model.LogisticRegression(), labels=(False, True)),
        ArrayStream(X, y.astype(bool), chunk=1),
        metrics=tuple(theirs),
        delay=delay,
        positive=True,
    ).summary()[0]
    assert {name: ours[name] for name in theirs} == pytest.approx({k: m.get() for k, m in theirs.items()})


@pytest.mark.parametrize("method", ["changes", "confusion"])
def test_unknown_model_name_raises(method):
    result = prequential({"a": ProximalSVC()}, Gaussians(200, chunk=50))
    with pytest.raises(ParameterError, match="no model 'b'; there are 'a'"):
        getattr(result, method)("b")


def test_to_csv_to_invalid_path_raises(tmp_path):
    result = prequential(ProximalSVC(), Gaussians(200, chunk=50))
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileAccessError, match="cannot be written"):
        result.to_csv(tmp_path / "file" / "table.csv")


def test_confidence_band_of_undefined_measure_is_nan():
    stream = ArrayStream(np.arange(400.0)[:, None], np.zeros(400, dtype=int), chunk=50)
    (line,) = prequential(ProximalSVC(), stream, window=100).summary()
    assert np.isnan([line["g_mean"], line["g_mean_low"], line["g_mean_high"]]).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: prequential(ProximalSVC(), Gaussians(100), seed=-1),
        lambda: Gaussians(100, seed=-1),
        lambda: Gaussians(2.5),
        lambda: AdaptiveWindows(ProximalSVC(), (0,)).partial_fit([[1.0]], [0]),
        lambda: AdaptiveWindows(ProximalSVC(), "ab").partial_fit([[1.0]], [0]),
        lambda: ArrayStream([["a"]], [0]),
        lambda: ArrayStream([[1.0], [2.0]], [0, 1], time=[1.0]),
    ],
    ids=["seed of an evaluation", "seed of rows", "rows", "no length", "text", "text in X", "times"],
)
def test_invalid_arguments_raise(call):
    with pytest.raises(SteelyardError, match=r"must be|expected"):
        call()


# -- feature strengths and times ---------------------------------------------------------------------


def test_feature_strengths_follow_concept_drift():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8000, 3)) * [1.0, 10.0, 1.0], rng.integers(0, 2, size=8000)
    X[:4000, 0] += 3.0 * y[:4000]  # the first feature separates the classes, later the last one
    X[4000:, 2] += 3.0 * y[4000:]
    model = SlidingWindow(ProximalSVC(), 1000)
    result = prequential({"a": model}, ArrayStream(X, y, chunk=100), window=400)
    rows, strengths = result.feature_strengths("a")
    assert rows == sorted(set(rows))
    assert strengths.shape == (len(rows), 3)
    assert (strengths[[1000 <= row <= 4000 for row in rows]].argmax(axis=1) == 0).all()
    assert (strengths[[row > 5000 for row in rows]].argmax(axis=1) == 2).all()
    assert rows[-1] > 7000
    expected = model.estimator_.coef_ * X[7000:].std(axis=0)
    np.testing.assert_allclose(contributions(model), expected, rtol=1e-9)


def test_evaluator_that_does_not_explain_measures_the_same_without_feature_strengths():
    X, y = np.random.default_rng(0).normal(size=(2000, 3)), np.arange(2000) % 2
    results = []
    for explains in (True, False):
        evaluator = PrequentialEvaluator({"a": ProximalSVC()}, window=200, explains=explains)
        evaluator.run(ArrayStream(X, y, chunk=100))
        results.append(evaluator.result(ArrayStream(X, y)))
    assert results[0].totals("a") == pytest.approx(results[1].totals("a"), nan_ok=True)
    assert [bool(result.feature_strengths("a")[0]) for result in results] == [True, False]


def test_feature_strengths_of_ensemble_are_those_of_its_linear_expert():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 3)) * [1.0, 10.0, 1.0], rng.integers(0, 2, size=1500)
    X[:, 2] += 3.0 * y
    model = StreamClassifier()
    result = prequential({"a": model}, ArrayStream(X, y, chunk=100), window=400)
    rows, strengths = result.feature_strengths("a")
    assert len(rows) > 1
    assert strengths.shape == (len(rows), 3)
    assert strengths[-1].argmax() == 2
    n_rows = model.linear_.class_count_.sum()
    model.linear_.partial_fit(X[:10], y[:10])  # a copy, so the ensemble does not change
    assert model.linear_.class_count_.sum() == n_rows
    assert not hasattr(StreamClassifier(), "linear_")


def test_number_of_stored_feature_strengths_and_times_is_bounded():
    X, y = np.random.default_rng(1).normal(size=(30_000, 2)), np.arange(30_000) % 2
    stream = ArrayStream(X, y, chunk=20, time=np.arange(30_000.0))
    result = prequential({"a": ProximalSVC()}, stream, window=40)
    assert len(result.feature_strengths("a")[0]) <= 64
    assert len(result.moments) <= 1001
    assert result.moments[0] == (0, 0.0)
    assert result.moments[-1] == (30_000, 29_999.0)
    assert result.time_of(15_000) == pytest.approx(15_000, abs=60)


def test_result_has_no_times_or_feature_strengths_if_unavailable():
    result = prequential({"a": SklearnPeer(GaussianNB()), "b": KOIL()}, Gaussians(600, chunk=100))
    assert result.time_of(100) is None
    assert result.feature_strengths("a")[0] == []
    assert result.feature_strengths("b")[0] == [500, 600]


# -- measures of scores and probabilities ---------------------------------------------------------------

SCORE_METRICS = ("average_precision", "precision_at_k", "recall_at_k", "cohen_kappa")
PROBABILITY_METRICS = ("log_loss", "brier", "expected_calibration_error")


def _rare_rows(flip=False):
    rng = np.random.default_rng(3)
    y = (rng.random(3000) < 0.15).astype(int)
    X = rng.normal(size=(3000, 2)) + 1.2 * y[:, None]
    return X, 1 - y if flip else y


def _scored_by_hand(X, y, window):
    model, true, predicted, scores, probabilities = ProximalSVC(), [], [], [], []
    for begin in range(0, len(y), 100):
        part = slice(begin, begin + 100)
        if begin:
            true += y[part].tolist()
            predicted += model.predict(X[part]).tolist()
            scores += model.decision_function(X[part]).tolist()
            probabilities += model.predict_proba(X[part])[:, 1].tolist()
        model.partial_fit(X[part], y[part])
    return (np.array(values[-window:]) for values in (true, predicted, scores, probabilities))


@pytest.mark.parametrize("flip", [False, True])
def test_window_score_measures_equal_batch_functions_for_either_positive_class(flip):
    X, y = _rare_rows(flip)
    positive = 0 if flip else 1
    metrics = SCORE_METRICS + PROBABILITY_METRICS
    result = prequential(ProximalSVC(), X, y, metrics=metrics, window=800, k=50, positive=positive)
    assert result.positive == positive
    true, predicted, scores, probabilities = _scored_by_hand(X, y, 800)
    if flip:
        scores, probabilities = -scores, 1 - probabilities
    last = result.table[-1]
    expected = {
        "average_precision": average_precision_score(true, scores, pos_label=positive),
        "precision_at_k": precision_at_k_score(true, scores, k=50, pos_label=positive),
        "recall_at_k": recall_at_k_score(true, scores, k=50, pos_label=positive),
        "cohen_kappa": cohen_kappa_score(true, predicted),
        "log_loss": log_loss_score(true == positive, probabilities),
        "brier": brier_score(true == positive, probabilities),
        "expected_calibration_error": expected_calibration_error(true, probabilities, pos_label=positive),
    }
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    true, _, scores, probabilities = _scored_by_hand(X, y, 3000)
    (total,) = result.summary()
    assert total["log_loss"] == pytest.approx(log_loss_score(true, probabilities))
    assert total["brier"] == pytest.approx(brier_score(true, probabilities))
    sign = -1 if flip else 1
    assert total["average_precision"] == pytest.approx(
        average_precision_score(true, sign * scores, pos_label=positive)
    )
    document = json.loads(result.to_json())
    curve = document["reliability"]["ProximalSVC"]
    assert sum(curve["n_rows"]) == total["tested"]
    assert document["summary"][0]["average_precision"] == total["average_precision"]


def test_probability_measures_of_three_classes_cover_all_classes():
    stream = Gaussians(2000, n_classes=3, schedule=ImbalanceSchedule.constant(0.5), chunk=100)
    (line,) = prequential(ProximalSVC(), stream, metrics=("log_loss", "brier", "average_precision")).summary()
    true, probabilities = [], []
    model = ProximalSVC()
    for chunk in stream:
        if chunk.first_row:
            true += chunk.y.tolist()
            probabilities.append(model.predict_proba(chunk.X))
        model.partial_fit(chunk.X, chunk.y)
    assert line["log_loss"] == pytest.approx(log_loss_score(true, np.concatenate(probabilities)))
    assert line["brier"] == pytest.approx(brier_score(true, np.concatenate(probabilities)))
    assert np.isnan(line["average_precision"])


def test_probability_measures_of_model_without_probabilities_are_nan():
    stream = Gaussians(600, chunk=100)
    result = prequential(KOIL(), stream, metrics=("g_mean", "log_loss", "expected_calibration_error"))
    assert np.isnan(result.summary()[0]["log_loss"])
    assert np.isnan(result.table[-1]["expected_calibration_error"])
    assert result.reliability("KOIL") is None
