"""StreamClassifier: guarantees beyond the contract of all learners."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
from datetime import timedelta

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import steelyard
from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble import mixing
from steelyard.ensemble.experts import EXPERTS, boosting
from steelyard.ensemble.mixing import EnsembleSnapshot, PredictedScores
from steelyard.ensemble.settings import SETTINGS
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import g_mean_score, roc_auc_score
from steelyard.persistence import from_bytes, to_bytes
from steelyard.streams import ImbalanceSchedule, KOILMixture
from steelyard.svm.state import SupportState

NAMES = [config.name for config in EXPERTS]


def _run(model, X, y, size=100, **options):
    """Return out-of-sample scores and the model after all rows."""
    scores = np.zeros(len(y))
    for b in range(0, len(y), size):
        part = slice(b, b + size)
        if b:
            answers = model.decision_function(X[part])
            scores[part] = answers if answers.ndim == 1 else answers.max(axis=1)
        model.partial_fit(X[part], y[part], **{name: value[part] for name, value in options.items()})
    return scores, model


@pytest.fixture(scope="module")
def curved():
    return KOILMixture(3000, schedule=ImbalanceSchedule.constant(0.05), seed=1).rows(0, 3000)


@pytest.fixture(scope="module")
def learned(curved):
    return _run(StreamClassifier(), *curved)


def test_nonlinear_classes_are_learned(curved, learned):
    X, y = curved
    scores, model = learned
    planes, _ = _run(ProximalSVC(), X, y)
    assert roc_auc_score(y[500:], planes[500:]) < 0.6
    assert roc_auc_score(y[500:], scores[500:]) > 0.93
    assert g_mean_score(y[500:], (scores[500:] > 0).astype(int), pos_label=1) > 0.85
    assert model.explain().leader in {"kernel", "mapped", "trees"}


def test_scores_after_sudden_drift_are_better_than_those_of_fit_on_all_rows():
    X = np.random.default_rng(3).normal(size=(3000, 5))
    y = (np.where(np.arange(3000) < 1500, X[:, 0], X[:, 1]) > 1.0).astype(int)
    scores, _ = _run(StreamClassifier(), X, y)
    planes, _ = _run(ProximalSVC(), X, y)
    soon = slice(1800, 2400)
    assert roc_auc_score(y[soon], scores[soon]) > roc_auc_score(y[soon], planes[soon]) + 0.03


def test_label_frequency_expert_gets_weight_if_labels_come_in_runs():
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(0, 2, 30), 100)
    scores, model = _run(StreamClassifier(), rng.normal(size=(3000, 3)), y, size=10)
    assert roc_auc_score(y[1000:], scores[1000:]) > 0.75
    assert "label" in model.explain().leader


def test_every_expert_equals_its_learner_fitted_on_the_remembered_rows(curved, learned):
    X, y = curved
    _, model = learned
    for name, rows in (("linear", slice(None)), ("recent", slice(-200, None))):
        expert = model._ensemble.experts[NAMES.index(name)]
        fresh = ProximalSVC().fit(X[rows], y[rows])
        np.testing.assert_allclose(expert.learner().coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    kernel = model._ensemble.experts[NAMES.index("kernel")]
    last = [np.arange(2000, 3000), *(np.flatnonzero(y == label)[-200:] for label in (0, 1))]
    rows = np.unique(np.concatenate(last))
    np.testing.assert_array_equal(kernel.held, rows)
    seen = model._ensemble.views.ranks.apply(X[rows])
    fresh = clone(kernel.learner()).fit(seen, y[rows])
    difference = kernel.learner().decision_function(seen) - fresh.decision_function(seen)
    assert np.abs(difference).max() < 0.02  # the margin is 1 and the solver tolerance 1e-3


def test_forget_removes_rows_from_every_expert(curved):
    X, y = curved
    X, y = X[:1500], y[:1500]
    kept = _run(StreamClassifier(), X, y)[1]
    model = _run(StreamClassifier(), X, y)[1]
    model.partial_fit(X[:100] + 0.3, 1 - y[:100]).forget(X[:100] + 0.3, 1 - y[:100])
    probe = np.random.default_rng(0).uniform(-1, 2, size=(200, 2))  # includes regions without training rows
    ours, theirs = model.decision_function(probe), kept.decision_function(probe)
    # This model updates its expert weights at other rows than the model without the forgotten rows.
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    for one, other in zip(model._ensemble.experts, kept._ensemble.experts, strict=True):
        if isinstance(getattr(one, "learner", None), ProximalSVC):
            np.testing.assert_allclose(one.learner().coef_, other.learner().coef_, rtol=1e-5, atol=1e-7)
    for one, other in zip(model._ensemble.experts, kept._ensemble.experts, strict=True):
        if one.refits:  # the other model refits at other rows
            assert one.held.max(initial=0) < 1500
        elif hasattr(one, "held"):
            np.testing.assert_array_equal(one.held, other.held)


def _alarm_rates(threshold, seed):
    """Return the shares of alarms among positive, negative and all rows after row 500."""
    X, y = KOILMixture(3000, schedule=ImbalanceSchedule.constant(0.05), seed=seed).rows(0, 3000)
    alarms = _run(StreamClassifier(threshold=threshold), X, y)[0][500:] > 0
    truth = y[500:] == 1
    return alarms[truth].mean(), alarms[~truth].mean(), alarms.mean()


def test_threshold_follows_misclassification_costs_and_alarm_budget():
    # Means of three streams, because one positive row changes the recall of one stream by 0.008.
    careful, calm, few = (
        np.mean([_alarm_rates(threshold, seed) for seed in (1, 2, 3)], axis=0)
        for threshold in ({"miss": 100, "alarm": 1}, {"miss": 1, "alarm": 10}, {"alarms": 0.02})
    )
    assert careful[0] > 0.95 > calm[0]
    assert calm[1] < 0.02 < careful[1]
    assert 0.008 < few[2] < 0.032


def test_window_of_rows_forgets_older_rows():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1200, 3))
    y = np.where(np.arange(1200) < 500, 2, (X[:, 0] > 1).astype(int))
    model = _run(StreamClassifier(window=400), X, y)[1]
    assert model.classes_.tolist() == [0, 1]  # the third class left with its rows
    fresh = ProximalSVC().fit(X[-400:], y[-400:])
    np.testing.assert_allclose(model._ensemble.experts[0].learner().coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    model.forget(X[-10:], y[-10:])
    with pytest.raises(DataError, match="not remembered"):
        model.forget(X[:1], y[:1])


@pytest.mark.parametrize("change", ["values", "label", "weight"])
def test_forget_unknown_row_raises_and_keeps_state_if_all_rows_are_stored(change):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(800, 3))
    y = (X[:, 0] > 1).astype(int)
    model = StreamClassifier().fit(X, y)
    before = to_bytes(model)
    rows, labels, weights = X[:5].copy(), y[:5].copy(), np.ones(5)
    rows[2] += change == "values"
    labels[2] = 1 - labels[2] if change == "label" else labels[2]
    weights[2] += change == "weight"
    with pytest.raises(DataError, match="row 2 is not remembered"):
        model.forget(rows, labels, sample_weight=weights)
    assert to_bytes(model) == before


def test_time_window_uses_the_times_of_the_rows():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(600, 3)), rng.integers(0, 2, size=600)
    time = np.cumsum(rng.exponential(30.0, size=600))
    model = _run(StreamClassifier(window="1h"), X, y, time=time)[1]
    inside = time > time[-1] - 3600.0
    fresh = ProximalSVC().fit(X[inside], y[inside])
    np.testing.assert_allclose(model._ensemble.experts[0].learner().coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    before = steelyard.persistence.to_bytes(model)
    with pytest.raises(DataError, match="needs the times"):
        model.partial_fit(X[:2], y[:2])
    with pytest.raises(DataError, match="must not decrease; row 0 is "):
        model.partial_fit(X[:2], y[:2], time=[0.0, 1.0])
    with pytest.raises(DataError, match="it has left the window, or it was forgotten before"):
        model.forget(X[:1], y[:1])
    assert steelyard.persistence.to_bytes(model) == before
    assert StreamClassifier(window=timedelta(hours=1)).partial_fit(X[:9], y[:9], time=time[:9]).window


def test_small_compute_budget_reduces_rows_of_kernel_expert(curved):
    X, y = curved
    kernel = NAMES.index("kernel")
    remembered = {}
    for budget in (30.0, 90.0, 500.0):
        model = _run(StreamClassifier(compute_budget=budget), X[:900], y[:900])[1]
        remembered[budget] = model._ensemble.experts[kernel].n_rows
        assert (model._ensemble.experts[kernel].state is None) == (budget == 30.0)
        assert model._ensemble.experts[0].n_rows == 900
    assert remembered == {30.0: 0, 90.0: 450, 500.0: 900}
    fast = _run(StreamClassifier(), X, y, size=1000)[1]
    assert (fast._ensemble.experts[kernel].sampled >= 2000).sum() == 250
    assert roc_auc_score(y[1000:], fast.decision_function(X[1000:])) > 0.93


def test_sparse_rows_give_the_same_model_as_dense_rows(curved):
    X, y = curved
    dense = _run(StreamClassifier(), X[:600], y[:600])[1]
    sparse = StreamClassifier()
    for b in range(0, 600, 100):
        sparse.partial_fit(sp.csr_matrix(X[b : b + 100]), y[b : b + 100])
    np.testing.assert_array_equal(sparse.decision_function(sp.csr_matrix(X)), dense.decision_function(X))


def test_wide_sparse_rows_are_learned_in_bounded_memory():
    rng = np.random.default_rng(6)
    y = (rng.random(1500) < 0.2).astype(int)
    X = sp.random(1500, 5000, density=0.01, random_state=0, format="csr").tolil()
    marks = rng.integers(0, 20, size=(1500, 4))
    for row in np.flatnonzero(y):
        X[row, marks[row]] = 3.0
    X = X.tocsr()
    model = StreamClassifier()
    for b in range(0, 1000, 100):
        model.partial_fit(X[b : b + 100], y[b : b + 100])
    assert roc_auc_score(y[1000:], model.decision_function(X[1000:])) > 0.95
    model.forget(X[900:1000], y[900:1000])
    assert len(steelyard.persistence.to_bytes(model)) < 20_000_000


def test_model_of_many_classes_has_one_threshold_per_class():
    rng = np.random.default_rng(7)
    y = rng.choice(4, p=[0.7, 0.15, 0.1, 0.05], size=2000)
    X = rng.normal(size=(2000, 4)) + 3.0 * np.eye(4)[y]
    model = _run(StreamClassifier(), X[:1500], y[:1500])[1]
    assert model.decision_function(X).shape == (2000, 4)
    answers = model.predict(X[1500:])
    recall = [(answers[y[1500:] == label] == label).mean() for label in range(4)]
    assert min(recall) > 0.75
    assert len(model.explain().classes) == 4


def test_explanation_has_text_table_and_plot(learned):
    _, model = learned
    explanation = model.explain()
    text, html = str(explanation), explanation._repr_html_()
    assert "wide" not in text  # this expert learns only rows with more than 256 columns
    shown = [name for name in NAMES if name != "wide"]
    for name in shown:
        assert name in text
        assert name in html
    assert sum(expert.weight for expert in explanation.experts) == pytest.approx(1.0)
    assert explanation.n_rows == 3000
    matplotlib = pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    matplotlib.use("Agg")
    ax = explanation.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == shown
    early = StreamClassifier().partial_fit([[0.0], [1.0]], ["<no>", "<yes>"]).explain()
    assert "Too few rows" in str(early)
    assert "&lt;yes&gt;" in early._repr_html_()


@pytest.mark.parametrize("learns_first", [False, True], ids=["before the update", "after the update"])
def test_interrupted_kernel_update_keeps_the_state(curved, monkeypatch, learns_first):
    X, y = curved
    model = _run(StreamClassifier(), X[:800], y[:800])[1]
    probe = X[:300]
    before = model.decision_function(probe)
    update = SupportState.update

    def interrupted(self, *args, **kwargs):
        if learns_first:
            update(self, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SupportState, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[800:900], y[800:900])
    np.testing.assert_array_equal(model.decision_function(probe), before)
    same_history = _run(StreamClassifier(), X[:800], y[:800])[1]
    copied, stored = copy.deepcopy(model), from_bytes(to_bytes(model))
    for learner in (model, same_history, copied, stored):
        learner.partial_fit(X[800:1100], y[800:1100])
    # A kernel SVM that was fitted again agrees up to its tolerance of 0.001.
    for learner in (model, copied, stored):
        expected = same_history.decision_function(probe)
        np.testing.assert_allclose(learner.decision_function(probe), expected, atol=0.05)


def test_times_of_a_failed_call_are_not_used_by_the_next_call(curved):
    X, y = curved
    model = StreamClassifier(window="1h").partial_fit(X[:50], y[:50], time=np.arange(50.0))
    with pytest.raises(DataError, match="inf"):
        model.partial_fit(np.full_like(X[:5], np.inf), y[:5], time=np.arange(50.0, 55.0))
    with pytest.raises(DataError, match="needs the times"):
        model.partial_fit(X[50:55], y[50:55])


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": "zero"}, {"window": 0}, {"window": "soon"}, {"compute_budget": 0.0}, {"random_state": -1}],
)
def test_invalid_parameters_are_rejected(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        StreamClassifier(**wrong).partial_fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("old", [{"memory": 300}, {"budget": 200.0}])
def test_former_parameter_names_warn_and_work(old):
    ((name, value),) = old.items()
    with pytest.warns(FutureWarning, match=name):
        model = StreamClassifier(**old)
    assert model.get_params()[{"memory": "window", "budget": "compute_budget"}[name]] == value


@pytest.mark.parametrize("measure", ["kappa", "f1"])
def test_threshold_for_kappa_and_f1_raises_fewer_alarms_than_gmean(curved, measure):
    X, y = curved
    alarms, balanced = (
        _run(StreamClassifier(threshold=threshold), X, y)[0][500:] > 0 for threshold in (measure, "gmean")
    )
    truth = y[500:] == 1
    assert alarms.sum() < balanced.sum()
    assert alarms[truth].mean() > 0.3


def test_delayed_labels_use_the_scores_given_at_prediction_time(curved):
    X, y = curved
    model = _run(StreamClassifier(), X[:1000], y[:1000])[1]
    late, snapshot = slice(1000, 1050), model._ensemble.snapshot
    model.decision_function(X[late])
    given = snapshot.raw_scores(X[late])
    for begin in range(1200, 1700, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    model.partial_fit(X[late], y[late])
    kept = model._ensemble.recent_scores._log.rows[0][-50:]
    np.testing.assert_array_equal(kept, given)
    assert np.abs(kept[:, 1] - model._ensemble.snapshot.raw_scores(X[late])[:, 1]).max() > 1e-3


def test_second_prediction_of_the_same_rows_does_not_score_them_again(curved, monkeypatch):
    X, y = curved
    model = _run(StreamClassifier(), X[:1000], y[:1000])[1]
    scored, raw_scores = [], EnsembleSnapshot.raw_scores

    def counted(snapshot, rows, *wide):
        scored.append(len(rows))
        return raw_scores(snapshot, rows, *wide)

    monkeypatch.setattr(EnsembleSnapshot, "raw_scores", counted)
    labels, scores = model.predict(X[:50]), model.decision_function(X[:50])
    np.testing.assert_array_equal(model.predict_proba(X[:50]), copy.deepcopy(model).predict_proba(X[:50]))
    np.testing.assert_array_equal(labels, model.classes_[(scores > 0).astype(int)])
    assert scored == [50, 50]  # once by the model and once by its copy
    model.predict(X[1:51])
    model.predict(X[:50])
    assert scored == [50, 50, 50, 50]
    model.partial_fit(X[1000:1200], y[1000:1200])
    scored.clear()
    model.predict(X[:50])
    assert scored == [50]


def test_number_of_stored_scores_of_unlabelled_rows_is_bounded(monkeypatch):
    monkeypatch.setattr(mixing, "SETTINGS", dataclasses.replace(SETTINGS, predicted_rows=50))
    predicted = PredictedScores()
    for begin in range(0, 200, 20):
        predicted.keep(np.arange(begin, begin + 20, dtype=np.uint64), [0, 1], np.zeros((20, 3, 1)))
    is_missing = predicted.take(np.array([149, 150, 199], np.uint64), [0, 1], np.empty((3, 3, 1)))
    assert is_missing.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "wanted", [[0, 1, 2, 3], [1, 2], [3, 0], [2, 9, 1], [1, 1], [4, 5, 6, 7], [2, 3, 4, 5]]
)
def test_stored_scores_are_returned_for_the_rows_that_have_them(wanted):
    predicted, scores = PredictedScores(), np.arange(24.0).reshape(8, 3, 1)
    for begin in (0, 4):
        keys = np.arange(begin, begin + 4, dtype=np.uint64)
        predicted.keep(keys, [0, 1], scores[begin : begin + 4])
    out = np.full((len(wanted), 3, 1), -1.0)
    is_missing = predicted.take(np.array(wanted, np.uint64), [1, 0], out)
    seen = [row in wanted[:place] for place, row in enumerate(wanted)]
    assert is_missing.tolist() == [row > 7 or again for row, again in zip(wanted, seen, strict=True)]
    for place, row in enumerate(wanted):
        expected = np.full((3, 1), -1.0) if is_missing[place] else -scores[row]
        np.testing.assert_array_equal(out[place], expected)


def test_delay_of_labels_is_the_number_of_rows_predicted_since():
    predicted = PredictedScores()
    for begin in (0, 100, 200, 200):  # some rows are predicted twice
        predicted.keep(np.arange(begin, begin + 100, dtype=np.uint64), [0, 1], np.zeros((100, 3, 1)))
    delays = []
    for keys in ([0, 49], [120], [290, 299], [1000]):  # the last row was never predicted
        predicted.take(np.array(keys, np.uint64), [0, 1], np.empty((len(keys), 3, 1)))
        delays.append(predicted.delay_rows)
    assert delays == [250, 179, 0, 0]


def test_late_labels_reduce_the_weight_of_experts_with_short_memories(curved):
    X, y = curved
    model = _run(StreamClassifier(), X[:1000], y[:1000])[1]
    weights = model._ensemble._new_weights(model._ensemble._has_rule()).weights.weights
    model._ensemble.predicted.delay_rows = 3000
    late = model._ensemble._new_weights(model._ensemble._has_rule()).weights.weights
    kernel, mapped = NAMES.index("kernel"), NAMES.index("mapped")  # the last 1,000 rows, and all rows
    assert weights[kernel] > 0.1
    assert weights[mapped] > 0.1
    assert late[kernel] / late[mapped] == pytest.approx(0.25 * weights[kernel] / weights[mapped])


def test_tree_expert_on_long_stream_keeps_rare_rows_and_samples_others(monkeypatch):
    monkeypatch.setattr(boosting, "_MIN_FREQUENT_ROWS", 5000)
    rng = np.random.default_rng(8)
    y = (rng.random(24_000) < 0.01).astype(int)
    X = rng.normal(size=(24_000, 3)) + y[:, None]
    model = StreamClassifier(compute_budget=2000.0)
    for begin in range(0, 24_000, 1000):
        model.partial_fit(X[begin : begin + 1000], y[begin : begin + 1000])
    longest = model._ensemble.experts[NAMES.index("trees all")]
    assert set(np.flatnonzero(y[: longest.n_seen_at_update])) <= set(longest.held.tolist())
    assert 5000 <= (y[longest.held] == 0).sum() <= 5500
    gone = np.flatnonzero(y)[:3]
    model.forget(X[gone], y[gone])
    assert not any(
        np.isin(gone, numbers).any() for expert in model._ensemble.experts for numbers in expert.held_rows()
    )


def test_scores_do_not_depend_on_omp_threads():
    code = (
        "import numpy as np, hashlib\n"
        "from steelyard import StreamClassifier\n"
        "rng = np.random.default_rng(0)\n"
        "y = (rng.random(1500) < 0.1).astype(int)\n"
        "X = rng.normal(size=(1500, 5)) + y[:, None]\n"
        "model = StreamClassifier().partial_fit(X, y)\n"
        "print(hashlib.sha256(model.decision_function(X).tobytes()).hexdigest())\n"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OMP_NUM_THREADS": str(n)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in (1, 2)
    ]
    assert digests[0] == digests[1]


def test_label_experts_get_no_weight_if_labels_are_independent():
    rng = np.random.default_rng(0)
    model = StreamClassifier()
    for _ in range(10):
        y = (rng.random(1000) < 0.03).astype(int)
        X = rng.normal(size=(1000, 5))
        X[y == 1, :2] += 1.5
        model.partial_fit(X, y)
    weights = {expert.name: expert.weight for expert in model.explain().experts}
    assert weights["labels"] == weights["last labels"] == 0.0


def test_file_of_arrays_with_another_number_of_first_columns_is_refused(curved):
    X, y = curved
    state = StreamClassifier().fit(X[:200], y[:200])._get_state()
    state["first_width"] = 40_000
    with pytest.raises(ValueError, match="same number of columns"):
        StreamClassifier()._set_state(state)
