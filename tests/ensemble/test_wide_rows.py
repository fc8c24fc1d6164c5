"""Rows with more than 256 columns: the expert that learns them before they are hashed."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from steelyard import StreamClassifier, load, save
from steelyard.ensemble.experts import wide
from steelyard.ensemble.experts.wide import WideExpert

N_COLUMNS = 600


def _text(n_rows, seed=0, n_classes=2):
    """Return sparse rows that resemble texts. Each class has some words that are more frequent in it."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n_rows, p=[0.8] + [0.2 / (n_classes - 1)] * (n_classes - 1))
    words = np.minimum(rng.zipf(1.3, size=(n_rows, 30)), N_COLUMNS) - 1
    topic = 100 + 40 * y[:, None] + rng.integers(0, 40, size=(n_rows, 30))
    words = np.where(rng.random((n_rows, 30)) < 0.1, topic, words)
    X = sp.csr_matrix(
        (np.ones(words.size), (np.repeat(np.arange(n_rows), 30), words.ravel())), (n_rows, N_COLUMNS)
    )
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    return sp.csr_matrix(X.multiply(1.0 / norms)), y


def _learned(X, y, size=100, **options):
    model = StreamClassifier(**options)
    for begin in range(0, X.shape[0], size):
        model.partial_fit(X[begin : begin + size], y[begin : begin + size])
    return model


def _wide_expert(model):
    return next(expert for expert in model._ensemble.experts if isinstance(expert, WideExpert))


@pytest.fixture(scope="module")
def stream():
    return _text(400)


@pytest.fixture(scope="module")
def model(stream):
    return _learned(*stream)


def test_wide_expert_ranks_sparse_rows_and_gets_the_largest_weight(model):
    X, y = _text(300, seed=1)
    assert roc_auc_score(y, model.decision_function(X)) > 0.9
    number = model._ensemble.experts.index(_wide_expert(model))
    assert np.argmax(model._ensemble.snapshot.weights.weights) == number


def test_wide_expert_is_enabled_only_if_rows_are_wide(stream, model):
    assert _wide_expert(model).is_enabled
    narrow = _learned(stream[0][:, :50], stream[1])
    assert not _wide_expert(narrow).is_enabled
    assert "wide" not in {expert.name for expert in narrow.explain().experts}


def test_dense_and_sparse_rows_give_the_same_scores(stream, model):
    X, y = stream
    dense = _learned(X.toarray(), y)
    np.testing.assert_array_equal(dense.decision_function(X[:50]), model.decision_function(X[:50].toarray()))


def test_wide_expert_after_forget_does_not_depend_on_forgotten_row(stream):
    X, y = stream
    changed = X.tolil()
    changed[150] = 0.0
    changed[150, 17] = 5.0  # the row that will be forgotten differs between both models
    models = [_learned(rows, y) for rows in (X, sp.csr_matrix(changed))]
    for model, rows in zip(models, (X, sp.csr_matrix(changed)), strict=True):
        model.forget(rows[150], y[150:151])
    rules = [_wide_expert(model).rule for model in models]
    np.testing.assert_array_equal(rules[0].coef, rules[1].coef)
    np.testing.assert_array_equal(rules[0].intercept, rules[1].intercept)
    assert 150 not in _wide_expert(models[0]).held


def test_rows_with_equal_hashed_columns_are_forgotten_separately():
    model = StreamClassifier()
    model.partial_fit(*_text(200))
    places, signs = model._input.hashed.sketch()
    second = next(k for k in range(1, N_COLUMNS) if places[k] == places[0] and signs[k] == signs[0])
    both = sp.csr_matrix(([1.0, 1.0], ([0, 1], [0, second])), (2, N_COLUMNS))
    model.partial_fit(both, [1, 1])
    model.forget(both[1], [1])
    kept = _wide_expert(model)._together().wide
    assert kept[kept.shape[0] - 1].indices.tolist() == [0]


@pytest.mark.parametrize("copied", ["file", "pickle", "deepcopy"])
def test_copied_model_continues_bit_identically(stream, model, tmp_path, copied):
    X, y = stream
    if copied == "file":
        save(model, tmp_path / "model.steelyard")
        other = load(tmp_path / "model.steelyard")
    else:
        other = pickle.loads(pickle.dumps(model)) if copied == "pickle" else copy.deepcopy(model)
    first, more = copy.deepcopy(model), _text(100, seed=2)
    for both in (first, other):
        both.partial_fit(*more)
    np.testing.assert_array_equal(first.decision_function(X[:30]), other.decision_function(X[:30]))
    for both in (first, other):
        both.forget(X[300:302], y[300:302])
    np.testing.assert_array_equal(first.decision_function(X[:30]), other.decision_function(X[:30]))


def test_pending_single_rows_survive_save_and_load(stream, tmp_path):
    X, y = stream
    model = _learned(X[:300], y[:300])
    for row in range(300, 303):
        model.partial_fit(X[row], y[row : row + 1])
    assert model._ensemble.pending.n_rows == 3
    save(model, tmp_path / "model.steelyard")
    other = load(tmp_path / "model.steelyard")
    for both in (model, other):
        both.partial_fit(X[303:400], y[303:400])
    np.testing.assert_array_equal(model.decision_function(X[:30]), other.decision_function(X[:30]))


def test_model_of_wide_rows_is_bit_identical_for_any_number_of_threads(stream, monkeypatch):
    X, y = stream
    scores = []
    for n_threads in ("1", "3"):
        monkeypatch.setenv("STEELYARD_NUM_THREADS", n_threads)
        scores.append(_learned(X[:200], y[:200]).decision_function(X[200:]))
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_contributions_of_original_columns_add_up_to_the_score(n_classes):
    X, y = _text(300, n_classes=n_classes)
    model = _learned(X, y)
    found = model.explain(X[:5], changes=False)
    assert found.contributions.shape[:2] == (5, N_COLUMNS)
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, model.decision_function(X[:5]), rtol=0, atol=1e-9)


def test_memory_of_wide_rows_is_bounded_and_keeps_the_rare_class(monkeypatch):
    monkeypatch.setattr(wide, "_MAX_VALUES", 2000)
    X, y = _text(500)
    y = (y > 0) & (np.arange(500) < 200)  # the rare class does not occur later
    model = _learned(X, y.astype(int))
    rows = _wide_expert(model)._together()
    assert rows.wide.nnz < 2 * 2000
    assert np.count_nonzero(rows.codes == model._ensemble.code_of[1]) >= 20


def test_rows_outside_the_window_are_not_remembered(stream):
    expert = _wide_expert(_learned(*stream, window=150))
    assert expert.held[0] >= 200  # a tenth of the rows may have left the window since the last fit


def test_dense_columns_of_any_scale_are_standardized():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(500, 300)), rng.integers(0, 2, size=500)
    X[:, :10] += 1.2 * y[:, None]
    X = X * 10.0 ** rng.uniform(-3, 3, size=300) + 10.0 ** rng.uniform(-3, 3, size=300)
    rule = _wide_expert(_learned(X[:300], y[:300])).rule
    assert roc_auc_score(y[300:], X[300:] @ rule.coef[0]) > 0.9


def test_columns_with_mean_zero_are_scaled_as_other_columns():
    values = np.array([[-3.0, 5.0, 1.0], [3.0, 7.0, 0.0], [-3.0, 5.0, 0.0], [3.0, 7.0, 0.0]])
    X = sp.csr_matrix(values)
    shift, factor = wide._standardization(X, values.mean(axis=0))
    np.testing.assert_allclose(wide._transformed(X, shift, factor).toarray(), (values - shift) * factor)
    np.testing.assert_allclose(((values - shift) * factor).std(axis=0)[:2], 1.0)


def test_model_from_file_without_wide_rows_uses_only_hashed_rows(stream, model):
    X, y = stream
    state = model._get_state()
    state["wide"] = False
    state["recent"].pop("keys")
    state["experts"] = state["experts"][: model._ensemble.experts.index(_wide_expert(model))]
    other = StreamClassifier()
    other._set_state(state)
    other.partial_fit(*_text(100, seed=3))
    assert _wide_expert(other).rule is None
    other.forget(X[390:391], y[390:391])
