"""KeyedClassifier: comparison with the formula, exact forgetting, sequences of calls, key types, files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from steelyard import KeyedClassifier, ProximalSVC
from steelyard.exceptions import DataError, DataTypeError, FileFormatError, NotFittedError, ParameterError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import Quantizer
from tests.keyed.data import panel, reference_scores

pd = pytest.importorskip("pandas", reason="the extra tables is not installed")


def tabled(X, names=("customer", "a", "b", "c")):
    frame = pd.DataFrame(X, columns=list(names))
    return frame.assign(customer=[f"customer {key:.0f}" for key in X[:, 0]])


# -- planes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("borrow", [1.0, 50.0, 1e9])
def test_keyed_scores_equal_formula(rng, n_classes, borrow):
    X, y = panel(rng)
    if n_classes == 3:
        y = y + (rng.random(len(y)) < 0.3)
    model = KeyedClassifier(C=0.5, borrow=borrow).fit(X, y)
    questions = np.vstack([X[:20], [[99.0, 1.0, 2.0, 3.0]]])
    expected = reference_scores(X, y, questions, C=0.5, borrow=borrow, quantizer=model.quantizer_)
    np.testing.assert_allclose(model.decision_function(questions), expected, rtol=1e-9, atol=1e-9)


def test_unknown_key_gets_scores_of_proximal_svc_on_all_rows(rng):
    X, y = panel(rng)
    model = KeyedClassifier(borrow=20.0).fit(X, y)
    questions = X[:30].copy()
    questions[:, 0] = 1000.0
    group = ProximalSVC(quantizer=model.quantizer_).fit(X[:, 1:], y)
    np.testing.assert_allclose(
        model.decision_function(questions), group.decision_function(questions[:, 1:]), atol=1e-9
    )
    np.testing.assert_allclose(
        model.predict_proba(questions), group.predict_proba(questions[:, 1:]), atol=1e-9
    )
    assert model.group_.digest() == group.digest()


def test_borrow_auto_is_small_for_different_keys_and_large_for_similar_keys(rng):
    X, y = panel(rng, n_keys=20, n_rows=4000)
    assert KeyedClassifier().fit(X, y).borrow_ <= 10.0
    X[:, 1:] = rng.normal(size=(4000, 3)) + y[:, None]
    X[:, 0] = rng.integers(0, 400, 4000)
    assert KeyedClassifier().fit(X, y).borrow_ >= 100.0


def test_scores_do_not_depend_on_earlier_predictions():
    for seed in (10, 11):  # the number of borrowed rows differs between the first rows and all rows
        X, y = panel(np.random.default_rng(seed), n_keys=40, n_rows=500, share=0.3)
        predicting, silent = KeyedClassifier(), KeyedClassifier()
        for begin in range(0, 500, 50):
            rows = slice(begin, begin + 50)
            predicting.partial_fit(X[rows], y[rows]).decision_function(X)
            silent.partial_fit(X[rows], y[rows])
        np.testing.assert_array_equal(silent.decision_function(X), predicting.decision_function(X))


def test_shrunken_model_is_better_than_global_model_and_model_per_key(rng):
    X, y = panel(rng, n_keys=150, n_rows=3000)
    new, wanted = X[1500:], y[1500:]
    X, y = X[:1500], y[:1500]
    accuracy = [
        np.mean(KeyedClassifier(borrow=borrow).fit(X, y).predict(new) == wanted)
        for borrow in ("auto", 1e-3, 1e9)
    ]
    assert accuracy[0] > max(accuracy[1:])


# -- exactness ------------------------------------------------------------------------------------------


def test_forget_key_restores_digest_of_model_that_never_saw_the_key(rng):
    X, y = panel(rng)
    model = KeyedClassifier().fit(X, y)
    others = X[:, 0] != 5
    without = KeyedClassifier(quantizer=model.quantizer_).fit(X[others], y[others])
    before = model.digest()
    model.forget_key(5)
    assert model.digest() == without.digest()
    assert 5 not in model.keys_
    np.testing.assert_array_equal(model.decision_function(X), without.decision_function(X))
    assert model.partial_fit(X[~others], y[~others]).digest() == before
    model.forget_key(np.int64(5)).forget_key(6.0)
    with pytest.raises(DataError, match=r"the key 5 has no rows; nothing was changed"):
        model.forget_key(5)


@pytest.mark.parametrize("n_first", [0, 40, 300])
def test_forget_rows_restores_digest(rng, n_first):
    X, y = panel(rng)
    quantizer = Quantizer([-8, -8, -8])
    model = KeyedClassifier(quantizer=quantizer if n_first == 0 else None).fit(X[:600], y[:600])
    left = KeyedClassifier(quantizer=model.quantizer_).fit(X[n_first:600], y[n_first:600])
    if n_first:
        model.forget(X[:n_first], y[:n_first])
    assert model.digest() == left.digest()
    model.update(add=(X[600:], y[600:]), forget=(X[n_first:600], y[n_first:600]))
    assert model.digest() == KeyedClassifier(quantizer=model.quantizer_).fit(X[600:], y[600:]).digest()


def test_forget_of_rows_learned_before_quantizer_choice_is_exact(rng):
    X, y = panel(rng, n_rows=120)
    model = KeyedClassifier().partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert model.forget(X[:50], y[:50]).digest() == KeyedClassifier().fit(X[50:], y[50:]).digest()
    key = X[60, 0]
    others = X[50:, 0] != key
    model.forget_key(key)
    assert model.digest() == KeyedClassifier().fit(X[50:][others], y[50:][others]).digest()
    with pytest.raises(DataError, match="never learned"):
        model.forget(X[:1], y[:1])


def test_forget_of_unknown_rows_raises_and_keeps_digest(rng):
    X, y = panel(rng)
    model = KeyedClassifier().fit(X, y)
    digest = model.digest()
    unknown = X[:3].copy()
    unknown[:, 0] = 77.0
    with pytest.raises(DataError, match="the key 77 has no rows"):
        model.forget(unknown, y[:3])
    far = X[:1].copy()
    far[:, 1:] += 1000.0
    with pytest.raises(DataError, match="never learned"):
        model.forget(far, y[:1])
    with pytest.raises(DataError, match="never learned"):
        model.update(add=(X[:4], y[:4]), forget=(far, y[:1]))
    assert model.digest() == digest


def test_merge_equals_learning_all_rows(rng):
    X, y = panel(rng)
    whole = KeyedClassifier().fit(X, y)
    parts = [KeyedClassifier(quantizer=whole.quantizer_).fit(X[i::3], y[i::3]) for i in range(3)]
    merged = KeyedClassifier(quantizer=whole.quantizer_)
    for part in parts:
        merged.merge(part)
    assert merged.digest() == whole.digest()
    np.testing.assert_array_equal(merged.decision_function(X), whole.decision_function(X))
    with pytest.raises(DataError, match="round their rows differently"):
        merged.merge(KeyedClassifier(quantizer=Quantizer([0, 0, 0])).fit(X, y))
    assert merged.digest() == whole.digest()


calls = st.lists(
    st.tuples(st.sampled_from(["add", "forget", "key", "copy"]), st.integers(0, 39), st.integers(1, 12)),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(calls, st.sampled_from([None, Quantizer([-6, -6], [3.0, -9.0])]))
def test_digest_after_any_history_equals_fit_on_remaining_rows(history, quantizer):
    rng = np.random.default_rng(3)
    X, y = panel(rng, n_keys=4, n_rows=300, n_features=2)
    # Without a given quantizer, the first 256 rows determine it and are not forgotten.
    start = 0 if quantizer is not None else 256
    model = KeyedClassifier(quantizer=quantizer)
    kept = [*range(start), 260]
    model.partial_fit(X[kept], y[kept])
    for call, place, size in history:
        rows = list(range(260 + place, min(260 + place + size, 300)))
        if call == "add":
            model.partial_fit(X[rows], y[rows])
            kept += rows
        elif call == "forget" and all(kept.count(row) for row in rows):
            model.forget(X[rows], y[rows])
            for row in rows:
                kept.remove(row)
        elif call == "key" and any(X[row, 0] == place % 4 for row in kept):
            model.forget_key(place % 4)
            kept = [row for row in kept if X[row, 0] != place % 4]
        elif call == "copy":
            model = from_bytes(to_bytes(copy.deepcopy(model)))
    fresh = KeyedClassifier(quantizer=model.quantizer_)
    if not kept:
        assert model.keys_ == []
        return
    fresh.fit(X[kept], y[kept])
    assert model.digest() == fresh.digest()
    if len(model.classes_) == 2:
        # ``borrow_`` is selected when the number of rows doubles or halves, so it depends on the history.
        model.borrow = fresh.borrow = 30.0
        np.testing.assert_array_equal(model.decision_function(X), fresh.decision_function(X))


# -- keys and tables ------------------------------------------------------------------------------------


def test_text_keys_and_numeric_keys_give_same_scores(rng):
    X, y = panel(rng)
    numbers, texts = KeyedClassifier().fit(X, y), KeyedClassifier("customer").fit(tabled(X), y)
    np.testing.assert_allclose(texts.decision_function(tabled(X)), numbers.decision_function(X), atol=1e-12)
    assert list(texts.feature_names_in_) == ["customer", "a", "b", "c"]
    assert "customer 3" in texts.keys_
    texts.update(add=(tabled(X[:5]), y[:5]), forget=(tabled(X[5:9]), y[5:9]))
    numbers.update(add=(X[:5], y[:5]), forget=(X[5:9], y[5:9]))
    assert texts.group_.digest() == numbers.group_.digest()
    texts.forget_key("customer 3")
    assert "customer 3" not in texts.keys_


def test_arrow_table_with_key_column_is_accepted(rng):
    pa = pytest.importorskip("pyarrow", reason="the extra tables is not installed")
    X, y = panel(rng, n_rows=400)
    table = pa.Table.from_pandas(tabled(X), preserve_index=False)
    model = KeyedClassifier("customer").fit(table, y)
    assert model.digest() == KeyedClassifier("customer").fit(tabled(X), y).digest()


def test_invalid_key_error_names_column_and_keeps_state(rng):
    X, y = panel(rng)
    frame = tabled(X)
    model = KeyedClassifier("customer").fit(frame, y)
    digest = model.digest()
    with pytest.raises(DataError, match="no column 'customer'"):
        model.predict(frame.drop(columns="customer"))
    with pytest.raises(DataError, match="has missing values"):
        model.partial_fit(frame.assign(customer=[None, *frame["customer"][1:]]), y)
    with pytest.raises(DataTypeError, match="keys learned so far are text, and these are numbers"):
        model.partial_fit(frame.assign(customer=1.0), y)
    with pytest.raises(DataTypeError, match="X has no column names"):
        KeyedClassifier("customer").fit(X, y)
    with pytest.raises(DataError, match="key=9 is not a column"):
        KeyedClassifier(9).fit(X, y)
    with pytest.raises(DataError, match="whole numbers"):
        model.partial_fit(frame, y, sample_weight=np.full(len(y), 0.5))
    with pytest.raises(ParameterError, match="borrow"):
        KeyedClassifier(borrow=0.0).fit(X, y)
    with pytest.raises(NotFittedError):
        KeyedClassifier().forget_key(1)
    assert model.digest() == digest


def test_sums_beyond_64_bits_raise_and_keep_digest(rng):
    X, y = panel(rng, n_rows=300)
    model = KeyedClassifier(quantizer=Quantizer([-30, -30, -30])).fit(X, y)
    digest = model.digest()
    with pytest.raises(DataError, match="exceed 64 bits"):
        model.partial_fit(X, y, sample_weight=np.full(len(y), 2.0**20))
    assert model.digest() == digest


def test_predict_after_forgetting_all_rows_raises(rng):
    X, y = panel(rng, n_keys=2, n_rows=300)
    model = KeyedClassifier().fit(X, y).forget_key(0).forget_key(1)
    with pytest.raises(DataError, match="all rows have been forgotten"):
        model.predict(X)
    assert model.partial_fit(X, y).predict(X).shape == (300,)


def test_contributions_of_key_and_columns_add_up_to_score(rng):
    X, y = panel(rng)
    model = KeyedClassifier("customer", borrow=20.0).fit(tabled(X), y)
    questions = tabled(np.vstack([X[:10], [[99.0, 1.0, 2.0, 3.0]]]))
    found = model.explain(questions)
    np.testing.assert_allclose(
        found.contributions.sum(axis=1) + found.base, model.decision_function(questions)
    )
    assert found.contributions[-1, 0] == pytest.approx(0.0, abs=1e-9)  # an unknown key
    assert np.abs(found.contributions[:10, 0]).min() > 1e-3
    numeric = KeyedClassifier(borrow=20.0).fit(X, y)
    np.testing.assert_allclose(numeric.explain(X[:10]).contributions, found.contributions[:10], atol=1e-9)
    np.testing.assert_array_equal(numeric.explain(X[:10]).values, X[:10])
    assert found.values[:, 0].tolist() == questions["customer"].tolist()
    assert f"customer = {questions['customer'][0]}" in str(found[0])
    with pytest.raises(ParameterError, match="changes=True is not available"):
        model.explain(questions, changes=True)


# -- copies and files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [100, 600])
def test_copied_and_loaded_models_have_equal_digest_and_scores(rng, n_rows):
    X, y = panel(rng, n_rows=n_rows)
    for model, rows in (
        (KeyedClassifier().fit(X, y), X),
        (KeyedClassifier("customer").fit(tabled(X), y), tabled(X)),
        (KeyedClassifier(borrow=30.0).fit(X + np.array([0.5, 0.0, 0.0, 0.0]), y), X),
    ):
        for again in (pickle.loads(pickle.dumps(model)), copy.copy(model), from_bytes(to_bytes(model))):
            assert again.digest() == model.digest()
            np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
            digest = model.digest()
            again.partial_fit(rows, y)
            assert model.digest() == digest
        assert not clone(model).__sklearn_is_fitted__()


def test_forged_file_raises_file_format_error(rng):
    X, y = panel(rng)
    model = KeyedClassifier().fit(X, y)
    state = model._get_state()
    for name, value in {
        "places": state["places"] + 10_000,
        "columns": state["columns"] * 0,
        "sums": -state["sums"],
        "keys": np.full(len(model.keys_), np.nan),
        "n_folds": 9,
        "quantizer": Quantizer([0]),
    }.items():
        forged = clone(model)
        forged._get_state = lambda name=name, value=value: {**state, name: value}
        with pytest.raises(FileFormatError, match="not a valid"):
            from_bytes(to_bytes(forged))
