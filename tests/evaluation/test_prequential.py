"""Test-then-train: what is predicted when, what is learned when, and what the measures say."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score, recall_score, roc_auc_score
from sklearn.naive_bayes import GaussianNB

from steelyard import KOIL, ProximalSVC, StreamClassifier
from steelyard.evaluation import SklearnPeer, prequential
from steelyard.evaluation.contributions import contributions
from steelyard.evaluation.measures import bands
from steelyard.evaluation.samples import ScoreSample
from steelyard.exceptions import DataError, FileAccessError, ParameterError, SteelyardError
from steelyard.metrics import g_mean_score, pmauc_score
from steelyard.streams import ArrayStream, Drift, Gaussians, ImbalanceSchedule
from steelyard.tables import open_stream
from steelyard.windowing import AdaptiveWindows, SlidingWindow


class Diary:
    """A model that writes down what it is asked and taught, and answers the last label it was taught."""

    def __init__(self):
        self.events = []

    def partial_fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.events += [("learn", int(row)) for row in X[:, 0]]
        return self

    def predict(self, X):
        self.events += [("predict", int(row)) for row in X[:, 0]]
        return np.zeros(len(X), dtype=int)


def _numbered(n, chunk):
    return ArrayStream(np.arange(n, dtype=float)[:, None], np.arange(n) % 2, chunk=chunk)


def _by_hand(stream, model, window):
    """The measures of the last window, from scikit-learn, after predicting every chunk before learning it."""
    true, predicted, scores = [], [], []
    for chunk in stream:
        if chunk.first_row:
            true += chunk.y.tolist()
            predicted += model.predict(chunk.X).tolist()
            scores += model.decision_function(chunk.X).tolist()
        model.partial_fit(chunk.X, chunk.y)
    return true[-window:], predicted[-window:], scores[-window:]


def test_every_row_is_predicted_before_it_is_learned():
    diary = Diary()
    prequential(diary, _numbered(10, 2))
    seen = set()
    for event, row in diary.events:
        assert (event == "learn") or row not in seen
        if event == "learn":
            seen.add(row)
    assert [row for event, row in diary.events if event == "learn"] == list(range(10))


@pytest.mark.parametrize("chunk", [1, 3, 10])
@pytest.mark.parametrize("delay", [0, 1, 4, 50])
def test_a_label_is_learned_when_delay_further_rows_have_come(chunk, delay):
    diary = Diary()
    prequential(diary, _numbered(30, chunk), delay=delay)
    learned = [row for event, row in diary.events if event == "learn"]
    assert learned == list(range(30))
    for position, (event, row) in enumerate(diary.events):
        if event == "predict":
            assert all(
                kind == "predict" or other < row - delay + chunk for kind, other in diary.events[:position]
            )


def test_rows_of_the_warm_up_are_learned_and_not_tested():
    diary = Diary()
    result = prequential(diary, _numbered(30, 10), warmup=15)
    assert min(row for event, row in diary.events if event == "predict") == 15
    assert result.summary()[0]["tested"] == 15


def test_running_measures_equal_those_of_the_last_window():
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


def test_totals_equal_those_of_all_tested_rows():
    stream = Gaussians(3000, schedule=ImbalanceSchedule.constant(0.3), distance=1.2, chunk=500)
    (total,) = prequential(ProximalSVC(), stream, positive=1).summary()
    true, predicted, scores = _by_hand(stream, ProximalSVC(), 3000)
    assert total["g_mean"] == pytest.approx(g_mean_score(true, predicted, pos_label=1))
    assert total["auc"] == pytest.approx(roc_auc_score(true, scores))  # all rows fit into the sample


def test_many_classes_get_pmauc_and_means_over_classes():
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


def test_the_rarer_label_is_positive_whatever_its_name():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(3000) < 0.1, "a rare one", "zero")
    X = rng.normal(size=(3000, 2)) + 2.0 * (y == "a rare one")[:, None]
    result = prequential(ProximalSVC(), ArrayStream(X, y))
    assert result.positive == "a rare one"
    assert result.summary()[0]["auc"] > 0.8
    assert result.table[-1]["auc"] > 0.8


def test_several_models_race_on_the_same_rows():
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


def test_new_categories_widen_one_model_and_not_the_other():
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


def test_a_peer_that_cannot_take_a_late_class_counts_what_it_refused():
    stream = Gaussians(3000, n_classes=3, presence={2: (2000, 3000)})
    peer = SklearnPeer(SGDClassifier(random_state=0))
    prequential(peer, stream)
    n_late = sum(int((chunk.y == 2).sum()) for chunk in stream)
    assert peer.n_refused_ == n_late > 0


def test_an_error_in_the_stream_keeps_what_was_measured(tmp_path):
    path = tmp_path / "data.csv"
    lines = [f"{i % 7},{i % 2}" for i in range(2500)]
    path.write_text("\n".join(["a,y", *lines, "1,0,3"]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2,502: expected 2 columns") as caught:
        prequential(ProximalSVC(), open_stream(path, "y"))
    assert caught.value.result.n_rows == 2500
    assert caught.value.result.models["ProximalSVC"].class_count_.sum() == 2500


def test_results_go_to_pandas_polars_csv_and_json(tmp_path):
    result = prequential(ProximalSVC(), Gaussians(4000), window=1000)
    frame = result.to_pandas()
    assert len(frame) == len(result.table) == 6  # at 1,500, 2,000, ..., 4,000
    assert result.to_polars().shape == frame.shape
    result.to_csv(tmp_path / "table.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "table.csv"), frame)
    document = json.loads(result.to_json(tmp_path / "all.json"))
    assert document["rows"] == 4000
    assert json.loads((tmp_path / "all.json").read_text()) == document


def test_the_table_of_a_long_stream_stays_bounded(monkeypatch):
    monkeypatch.setattr("steelyard.evaluation.tracking._MAX_CELLS", 0)
    result = prequential(ProximalSVC(), Gaussians(3000, n_features=2, chunk=10), window=10, every=10)
    assert 50 <= len(result.table) <= 101
    assert result.table[-1]["row"] == 3000


def test_a_sudden_drift_is_found_where_it_was():
    result = prequential(ProximalSVC(), Gaussians(40_000, drifts=[Drift(20_000)], distance=3.0, seed=3))
    assert any(abs(row - 20_000) <= 2000 for row in result.changes("ProximalSVC"))


def test_no_change_is_found_in_a_quiet_stream():
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
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        prequential(ProximalSVC(), Gaussians(10), **options)


def test_bands_come_from_resampled_blocks():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 30, size=(20, 2, 2)).astype(float)
    draws = rng.multinomial(20, np.full(20, 0.05), size=200).astype(float)
    samples = []
    for draw in draws:
        (tn, fp), (fn, tp) = np.tensordot(draw, counts, 1)
        samples.append(np.sqrt(tp / (tp + fn) * tn / (tn + fp)))
    tallies = np.stack([counts.diagonal(axis1=1, axis2=2), counts.sum(axis=2), counts.sum(axis=1)], axis=1)
    low, high = bands(tallies, draws, 1)["g_mean"]
    assert (low, high) == pytest.approx((sorted(samples)[5], sorted(samples)[-6]))
    many = bands(tallies, draws, None)["g_mean"]
    assert many == pytest.approx((low, high))


def test_bands_hold_the_measure_between_them():
    result = prequential(ProximalSVC(), Gaussians(20_000), window=2000)
    for line in result.table:
        assert line["g_mean_low"] <= line["g_mean"] <= line["g_mean_high"]


def test_the_sample_of_scores_is_fair_and_does_not_depend_on_chunks():
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
def test_the_measures_agree_with_rivers_progressive_validation(delay):
    from river import evaluate, linear_model, metrics, preprocessing

    from steelyard.evaluation import RiverPeer

    stream = Gaussians(1500, n_features=3, schedule=ImbalanceSchedule.constant(0.3), chunk=1)
    X, y = stream.rows(0, 1500)
    rows = [(dict(enumerate(row)), bool(label)) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    theirs = {"accuracy": metrics.Accuracy(), "f1": metrics.F1(), "g_mean": metrics.GeometricMean()}
    pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    # river counts from the row itself: with its delay of 1 a label comes before the next row.
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
def test_a_model_that_did_not_race_is_named(method):
    result = prequential({"a": ProximalSVC()}, Gaussians(200, chunk=50))
    with pytest.raises(ParameterError, match="no model 'b'; there are 'a'"):
        getattr(result, method)("b")


def test_a_table_that_cannot_be_written_gives_a_sentence(tmp_path):
    result = prequential(ProximalSVC(), Gaussians(200, chunk=50))
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileAccessError, match="cannot be written"):
        result.to_csv(tmp_path / "file" / "table.csv")


def test_a_measure_that_is_nan_has_no_band():
    """One class alone has no G-mean, so it can lie in no interval."""
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
    ids=["seed of a race", "seed of rows", "rows", "no length", "text", "text in X", "times"],
)
def test_what_cannot_be_gives_a_sentence(call):
    with pytest.raises(SteelyardError, match=r"must be|expected"):
        call()


# -- what carries a model, and when -------------------------------------------------------------------


def test_the_strength_of_features_is_followed_along_the_stream():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8000, 3)) * [1.0, 10.0, 1.0], rng.integers(0, 2, size=8000)
    X[:4000, 0] += 3.0 * y[:4000]  # the first feature tells the classes apart, later the last one does
    X[4000:, 2] += 3.0 * y[4000:]
    model = SlidingWindow(ProximalSVC(), 1000)
    result = prequential({"a": model}, ArrayStream(X, y, chunk=100), window=400)
    rows, strengths = result.carried_by("a")
    assert rows == sorted(set(rows))
    assert strengths.shape == (len(rows), 3)
    assert strengths[rows.index(3800)].argmax() == 0
    assert strengths[rows.index(7800)].argmax() == 2
    expected = model.estimator_.coef_ * X[7000:].std(axis=0)
    np.testing.assert_allclose(contributions(model), expected, rtol=1e-9)


def test_a_committee_is_carried_by_the_features_of_its_linear_expert():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 3)) * [1.0, 10.0, 1.0], rng.integers(0, 2, size=1500)
    X[:, 2] += 3.0 * y
    model = StreamClassifier()
    result = prequential({"a": model}, ArrayStream(X, y, chunk=100), window=400)
    rows, strengths = result.carried_by("a")
    assert len(rows) > 1
    assert strengths.shape == (len(rows), 3)
    assert strengths[-1].argmax() == 2
    told = model.linear_.class_count_.sum()
    model.linear_.partial_fit(X[:10], y[:10])  # a copy: the committee does not hear of it
    assert model.linear_.class_count_.sum() == told
    assert not hasattr(StreamClassifier(), "linear_")


def test_strengths_and_moments_stay_bounded():
    X, y = np.random.default_rng(1).normal(size=(30_000, 2)), np.arange(30_000) % 2
    stream = ArrayStream(X, y, chunk=20, time=np.arange(30_000.0))
    result = prequential({"a": ProximalSVC()}, stream, window=40)
    assert len(result.carried_by("a")[0]) <= 64
    assert len(result.moments) <= 1001
    assert result.moments[0] == (0, 0.0)
    assert result.moments[-1] == (30_000, 29_999.0)
    assert result.time_of(15_000) == pytest.approx(15_000, abs=60)


def test_a_stream_without_times_and_a_model_without_planes_have_neither():
    result = prequential({"a": KOIL()}, Gaussians(600, chunk=100))
    assert result.time_of(100) is None
    assert result.carried_by("a")[0] == []
