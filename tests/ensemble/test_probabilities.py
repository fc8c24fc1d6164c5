"""Probabilities of StreamClassifier: calibrated, and ordered as the scores."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import (
    KOIL,
    AdaptiveThresholdClassifier,
    EnclosingClassifier,
    IncrementalSVC,
    MultiKernelKOIL,
    StreamClassifier,
)
from steelyard.ensemble.multiclass import softmax_slope
from steelyard.exceptions import ParameterError
from steelyard.metrics import expected_calibration_error
from steelyard.online import NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron


def _stream(n, seed=0, share=0.1):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return rng.normal(size=(n, 3)) + 1.2 * y[:, None], y


@pytest.fixture(scope="module")
def learned():
    X, y = _stream(3000)
    model = StreamClassifier()
    for begin in range(0, 3000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    return model


def test_probabilities_sum_to_one_and_are_ordered_as_scores(learned):
    X, _ = _stream(500, seed=1)
    P = learned.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    balanced = learned.predict_proba(X, prior="balanced")
    assert (learned.classes_[balanced.argmax(axis=1)] == learned.predict(X)).mean() > 0.95
    order = np.argsort(learned.decision_function(X))
    assert (np.diff(P[order, 1]) >= 0.0).all()


def test_default_probabilities_agree_with_observed_frequencies(learned):
    X, y = _stream(20_000, seed=2)
    p = learned.predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(y.mean(), rel=0.35)
    for low, high in ((0.0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 1.0)):
        rows = (p >= low) & (p < high)
        assert y[rows].mean() == pytest.approx(p[rows].mean(), abs=0.02 + 0.35 * p[rows].mean())
    entropy = -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))
    share = y.mean()
    assert entropy < -0.8 * (share * np.log(share) + (1 - share) * np.log(1 - share))


def test_share_of_a_class_without_recent_rows_stays_above_a_quarter_of_a_row():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8000, 2)), np.zeros(8000, dtype=int)
    y[:5] = 1
    model = StreamClassifier()
    for begin in range(0, 8000, 1000):
        model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000])
    shares = model._ensemble.shares()  # with a half-life of 1,000 rows, all weights sum to 1,440
    assert shares.sum() == pytest.approx(1.0)
    assert 0.25 / 1440 < shares[1] < 1.0 / 1440


def test_given_prior_changes_probabilities_by_bayes_rule(learned):
    X, _ = _stream(200, seed=3)
    balanced = learned.predict_proba(X, prior="balanced")
    given = learned.predict_proba(X, prior={0: 0.98, 1: 0.02})
    odds = balanced[:, 1] / balanced[:, 0] * 0.02 / 0.98
    np.testing.assert_allclose(given[:, 1], odds / (1.0 + odds), rtol=1e-9)
    for wrong, words in (("even", "balanced"), ({0: 1.0}, "class 1"), ({0: 1.0, 1: 0.0}, "positive")):
        with pytest.raises(ParameterError, match=words):
            learned.predict_proba(X, prior=wrong)


def test_cost_based_threshold_does_not_change_probabilities():
    X, y = _stream(3000, seed=4)
    even, careful = (
        StreamClassifier(threshold=threshold).partial_fit(X, y)
        for threshold in ("gmean", {"miss": 50, "alarm": 1})
    )
    p, q = (model.predict_proba(X)[:, 1] for model in (even, careful))
    assert (careful.predict(X) == 1).mean() > (even.predict(X) == 1).mean() + 0.1
    assert np.abs(p - q).mean() < 0.08


def test_probabilities_of_many_classes_are_calibrated():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 5, 2500)
    X = rng.normal(size=(2500, 4)) + 1.5 * np.random.default_rng(9).normal(size=(5, 4))[y]
    model = StreamClassifier()
    for begin in range(0, 2000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    P, rest = model.predict_proba(X[2000:], prior="balanced"), y[2000:]
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_array_equal(P.argmax(axis=1), model.predict(X[2000:]))
    sure = P.max(axis=1)
    hits = P.argmax(axis=1) == rest
    assert sure.mean() == pytest.approx(hits.mean(), abs=0.07)


def test_predict_proba_is_1_for_single_class_and_less_for_two_classes_of_one_row():
    assert StreamClassifier().partial_fit([[0.0], [1.0]], [3, 3]).predict_proba([[5.0]]).tolist() == [[1.0]]
    early = StreamClassifier().partial_fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.0], [1.0]])
    assert ((early > 0.0) & (early < 1.0)).all()


def test_softmax_slope_has_the_largest_likelihood():
    rng = np.random.default_rng(6)
    places = (rng.random(400) < 0.2).astype(int)
    scores = np.column_stack([np.zeros(400), rng.normal(size=400) + 2.0 * places - 1.0])
    n_of = np.bincount(places)

    def loss(slope):
        logits = slope * scores
        log_p = logits - np.logaddexp(logits[:, 0], logits[:, 1])[:, None]
        doubt = (1.0 / (n_of + 2.0))[places][:, None]
        target = (1.0 - doubt) * np.eye(2)[places] + doubt / 2.0
        return -((target * log_p).sum(axis=1) / n_of[places]).sum()

    best = softmax_slope(scores, places)
    assert all(loss(best) <= loss(best * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))
    parted = np.column_stack([np.zeros(60), np.where(np.arange(60) < 30, -1.0, 1.0)])
    assert 1.0 < softmax_slope(parted, (np.arange(60) >= 30).astype(int)) < 10.0


@pytest.mark.parametrize(
    "learner",
    [
        KOIL(),
        MultiKernelKOIL(),
        IncrementalSVC(),
        EnclosingClassifier(),
        NORMA(),
        Forgetron(),
        Projectron(),
        RBP(),
        OAM(),
        OPAUC(),
        OnlinePerceptron(),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_wrapper_adds_calibrated_probabilities_to_learner_with_scores_only(learner):
    assert not hasattr(learner, "predict_proba")
    X, y = _stream(800, seed=4, share=0.3)
    model, parts = AdaptiveThresholdClassifier(learner), []
    for begin in range(0, 800, 50):
        if begin >= 400:
            parts.append(model.predict_proba(X[begin : begin + 50])[:, 1])
        model.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    p, truth = np.concatenate(parts), y[400:]
    share = truth.mean()
    assert p.mean() == pytest.approx(share, abs=0.1)
    assert np.mean(np.square(p - truth)) < 0.95 * share * (1.0 - share)
    assert expected_calibration_error(truth, p) < 0.12  # 400 rows in ten bins


def test_prediction_sets_of_many_classes_cover_each_class():
    rng = np.random.default_rng(5)
    centres = 3.0 * rng.normal(size=(5, 4))
    y = rng.choice(5, size=6000, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    X = centres[y] + 1.5 * rng.normal(size=(6000, 4))
    model = StreamClassifier()
    for begin in range(0, 4000, 200):
        model.partial_fit(X[begin : begin + 200], y[begin : begin + 200])
    sets = model.predict_set(X[4000:], coverage=0.9)
    covered = sets[np.arange(2000), y[4000:]]
    assert covered.mean() == pytest.approx(0.9, abs=0.04)
    for label in range(5):
        rows = y[4000:] == label
        # Four standard errors: of about 200 recent rows, which set the quantile, and of the test rows.
        assert covered[rows].mean() > 0.9 - 4.0 * np.sqrt(0.09 / 200 + 0.09 / rows.sum())
    assert sets.sum(axis=1).mean() < 2.0
