"""StreamClassifier: what it promises beyond the contract that all learners keep."""

from __future__ import annotations

import copy
from datetime import timedelta

import numpy as np
import pytest
import scipy.sparse as sp

import steelyard
from steelyard import ProximalSVC, StreamClassifier
from steelyard.ensemble.experts import EXPERTS
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import g_mean_score, roc_auc_score
from steelyard.persistence import from_bytes, to_bytes
from steelyard.streams import ImbalanceSchedule, KOILMixture

NAMES = [trade.name for trade in EXPERTS]


def _run(model, X, y, size=100, **options):
    """Scores given before the rows were learned, and the model afterwards."""
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


def test_it_learns_what_no_plane_can(curved, learned):
    X, y = curved
    scores, model = learned
    planes, _ = _run(ProximalSVC(), X, y)
    assert roc_auc_score(y[500:], planes[500:]) < 0.6
    assert roc_auc_score(y[500:], scores[500:]) > 0.93
    assert g_mean_score(y[500:], (scores[500:] > 0).astype(int), pos_label=1) > 0.85
    assert model.explain().leader in {"kernel", "mapped"}


def test_after_a_sudden_change_short_memories_are_heard():
    X = np.random.default_rng(3).normal(size=(3000, 5))
    y = (np.where(np.arange(3000) < 1500, X[:, 0], X[:, 1]) > 1.0).astype(int)
    scores, _ = _run(StreamClassifier(), X, y)
    planes, _ = _run(ProximalSVC(), X, y)
    soon = slice(1800, 2400)
    assert roc_auc_score(y[soon], scores[soon]) > roc_auc_score(y[soon], planes[soon]) + 0.03


def test_labels_that_follow_labels_are_followed():
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(0, 2, 30), 100)
    scores, model = _run(StreamClassifier(), rng.normal(size=(3000, 3)), y, size=10)
    assert roc_auc_score(y[1000:], scores[1000:]) > 0.75
    assert model.explain().leader == "labels"


def test_every_expert_equals_its_learner_fitted_on_what_it_remembers(curved, learned):
    X, y = curved
    _, model = learned
    for name, rows in (("linear", slice(None)), ("recent", slice(-200, None))):
        expert = model._experts[NAMES.index(name)]
        fresh = ProximalSVC().fit(X[rows], y[rows])
        np.testing.assert_allclose(expert.learner.coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    kernel = model._experts[NAMES.index("kernel")]
    last = [np.arange(2000, 3000), *(np.flatnonzero(y == label)[-200:] for label in (0, 1))]
    rows = np.unique(np.concatenate(last))
    np.testing.assert_array_equal(kernel.held, rows)
    seen = kernel.views.ranks.apply(X[rows])
    fresh = type(kernel.learner)(**kernel.learner.get_params()).fit(seen, y[rows])
    difference = kernel.learner.decision_function(seen) - fresh.decision_function(seen)
    assert np.abs(difference).max() < 0.02  # of a margin of 1; both are optimal to 1e-3


def test_forgotten_rows_leave_every_memory(curved):
    X, y = curved
    X, y = X[:1500], y[:1500]
    kept = _run(StreamClassifier(), X, y)[1]
    model = _run(StreamClassifier(), X, y)[1]
    model.partial_fit(X[:100] + 0.3, 1 - y[:100]).forget(X[:100] + 0.3, 1 - y[:100])
    probe = np.random.default_rng(0).uniform(-1, 2, size=(200, 2))  # also where no rows are
    ours, theirs = model.decision_function(probe), kept.decision_function(probe)
    # Evidence on the forgotten rows is gone, but weights are judged at another row than before.
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    for one, other in zip(model._experts, kept._experts, strict=True):
        if isinstance(one.learner, ProximalSVC):
            np.testing.assert_allclose(one.learner.coef_, other.learner.coef_, rtol=1e-5, atol=1e-7)
    for one, other in zip(model._experts, kept._experts, strict=True):
        if one.trade.regrown:  # at other rows than those of the other one
            assert one.held.max() < 1500
        else:
            np.testing.assert_array_equal(one.held, other.held)


def test_the_aim_of_the_cut_is_kept(curved):
    X, y = curved
    careful = _run(StreamClassifier(threshold={"miss": 100, "alarm": 1}), X, y)[0][500:] > 0
    calm = _run(StreamClassifier(threshold={"miss": 1, "alarm": 10}), X, y)[0][500:] > 0
    few = _run(StreamClassifier(threshold={"alarms": 0.02}), X, y)[0][500:] > 0
    truth = y[500:] == 1
    assert careful[truth].mean() > 0.95 > calm[truth].mean()
    assert calm[~truth].mean() < 0.02 < careful[~truth].mean()
    assert 0.008 < few.mean() < 0.032


def test_a_memory_of_rows_holds_no_others():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1200, 3))
    y = np.where(np.arange(1200) < 500, 2, (X[:, 0] > 1).astype(int))
    model = _run(StreamClassifier(memory=400), X, y)[1]
    assert model.classes_.tolist() == [0, 1]  # the third left with its rows
    fresh = ProximalSVC().fit(X[-400:], y[-400:])
    np.testing.assert_allclose(model._experts[0].learner.coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    model.forget(X[-10:], y[-10:])
    with pytest.raises(DataError, match="not remembered"):
        model.forget(X[:1], y[:1])


def test_a_memory_of_time_follows_the_clock_of_the_rows():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(600, 3)), rng.integers(0, 2, size=600)
    time = np.cumsum(rng.exponential(30.0, size=600))
    model = _run(StreamClassifier(memory="1h"), X, y, time=time)[1]
    inside = time > time[-1] - 3600.0
    fresh = ProximalSVC().fit(X[inside], y[inside])
    np.testing.assert_allclose(model._experts[0].learner.coef_, fresh.coef_, rtol=1e-6, atol=1e-9)
    before = steelyard.persistence.to_bytes(model)
    with pytest.raises(DataError, match="needs the times"):
        model.partial_fit(X[:2], y[:2])
    with pytest.raises(DataError, match="must not go back"):
        model.partial_fit(X[:2], y[:2], time=[0.0, 1.0])
    assert steelyard.persistence.to_bytes(model) == before
    assert StreamClassifier(memory=timedelta(hours=1)).partial_fit(X[:9], y[:9], time=time[:9]).memory


def test_a_budget_spares_the_dear_expert_rows(curved):
    X, y = curved
    kernel = NAMES.index("kernel")
    remembered = {}
    for budget in (30.0, 90.0, 500.0):
        model = _run(StreamClassifier(budget=budget), X[:900], y[:900])[1]
        remembered[budget] = model._experts[kernel].n_rows
        assert (model._experts[kernel].learner is None) == (budget == 30.0)
        assert model._experts[0].n_rows == 900
    assert remembered == {30.0: 0, 90.0: 450, 500.0: 900}
    fast = _run(StreamClassifier(), X, y, size=1000)[1]
    assert fast._recent.block.offered[-1000:].sum() == 250
    assert roc_auc_score(y[1000:], fast.decision_function(X[1000:])) > 0.93


def test_sparse_rows_are_the_same_rows(curved):
    X, y = curved
    dense = _run(StreamClassifier(), X[:600], y[:600])[1]
    sparse = StreamClassifier()
    for b in range(0, 600, 100):
        sparse.partial_fit(sp.csr_matrix(X[b : b + 100]), y[b : b + 100])
    np.testing.assert_array_equal(sparse.decision_function(sp.csr_matrix(X)), dense.decision_function(X))


def test_wide_sparse_rows_are_folded_and_learned():
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


def test_many_classes_each_have_a_cut():
    rng = np.random.default_rng(7)
    y = rng.choice(4, p=[0.7, 0.15, 0.1, 0.05], size=2000)
    X = rng.normal(size=(2000, 4)) + 3.0 * np.eye(4)[y]
    model = _run(StreamClassifier(), X[:1500], y[:1500])[1]
    assert model.decision_function(X).shape == (2000, 4)
    answers = model.predict(X[1500:])
    recall = [(answers[y[1500:] == label] == label).mean() for label in range(4)]
    assert min(recall) > 0.75
    assert len(model.explain().planes) == 4


def test_explain_has_three_forms(learned):
    _, model = learned
    told = model.explain()
    text, html = str(told), told._repr_html_()
    for name in NAMES:
        assert name in text
        assert name in html
    assert sum(expert.weight for expert in told.experts) == pytest.approx(1.0)
    assert told.n_rows == 3000
    matplotlib = pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    matplotlib.use("Agg")
    ax = told.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES
    early = StreamClassifier().partial_fit([[0.0], [1.0]], ["<no>", "<yes>"]).explain()
    assert "Too few rows" in str(early)
    assert "&lt;yes&gt;" in early._repr_html_()


@pytest.mark.parametrize("learns_first", [False, True], ids=["before it learns", "after it has learned"])
def test_an_interrupted_kernel_machine_leaves_everything_as_it_was(curved, monkeypatch, learns_first):
    X, y = curved
    model = _run(StreamClassifier(), X[:800], y[:800])[1]
    probe = X[:300]
    before = model.decision_function(probe)
    kernel = type(model._experts[NAMES.index("kernel")].learner)
    update = kernel.update

    def interrupted(self, *args, **kwargs):
        if learns_first:
            update(self, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[800:900], y[800:900])
    np.testing.assert_array_equal(model.decision_function(probe), before)
    twin = _run(StreamClassifier(), X[:800], y[:800])[1]
    copied, stored = copy.deepcopy(model), from_bytes(to_bytes(model))
    for learner in (model, twin, copied, stored):
        learner.partial_fit(X[800:1100], y[800:1100])
    # A kernel machine that was made anew agrees up to its tolerance of 0.001.
    for learner in (model, copied, stored):
        expected = twin.decision_function(probe)
        np.testing.assert_allclose(learner.decision_function(probe), expected, atol=0.02)


def test_the_times_of_an_interrupted_call_are_not_those_of_the_next(curved):
    X, y = curved
    model = StreamClassifier(memory="1h").partial_fit(X[:50], y[:50], time=np.arange(50.0))
    with pytest.raises(DataError, match="NaN"):
        model.partial_fit(np.full_like(X[:5], np.nan), y[:5], time=np.arange(50.0, 55.0))
    with pytest.raises(DataError, match="needs the times"):
        model.partial_fit(X[50:55], y[50:55])


@pytest.mark.parametrize(
    "wrong", [{"threshold": "zero"}, {"memory": 0}, {"memory": "soon"}, {"budget": 0.0}, {"random_state": -1}]
)
def test_parameters_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        StreamClassifier(**wrong).partial_fit([[0.0], [1.0]], [0, 1])
