"""The single-row path is bit-identical to the general path."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.proximal import FoldedStatistics


class GeneralPathSVC(ProximalSVC):
    """Subclass of ProximalSVC, because a subclass always uses the general path."""


class OddArray(np.ndarray):
    """Subclass of ndarray, whose rows need the general path."""


def pair(X, y, **parameters):
    """Return a learner with an enabled single-row path, and one that never enables it."""
    models = ProximalSVC(**parameters).fit(X, y), GeneralPathSVC(**parameters).fit(X, y)
    for model in models:
        model.predict(X[:1])
    assert uses_single_row_path(models[0])
    assert not uses_single_row_path(models[1])
    return models


def uses_single_row_path(model):
    rows = model._state.single_row
    return rows is not None and rows.label(model.__dict__, np.zeros((1, model.n_features_in_))) is not None


def outcome(call):
    """Return the result of a call, or the type and message of its error."""
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - every error is compared
        return type(error), str(error).replace("GeneralPathSVC", "ProximalSVC")
    return (value.tolist(), value.dtype) if isinstance(value, np.ndarray) else None


def check_same(fast, general, X):
    assert fast.digest() == general.digest()
    np.testing.assert_array_equal(fast.classes_, general.classes_)
    np.testing.assert_array_equal(fast.coef_, general.coef_)
    np.testing.assert_array_equal(fast.intercept_, general.intercept_)
    np.testing.assert_array_equal(fast.decision_function(X), general.decision_function(X))


def rows_of(rng, n_rows=400, n_features=5, n_classes=2):
    y = rng.integers(0, n_classes, n_rows)
    return rng.normal(size=(n_rows, n_features)) + y[:, None], y


def test_single_row_path_is_enabled_by_the_first_single_row(rng):
    X, y = rows_of(rng)
    fast, general = ProximalSVC().fit(X[:300], y[:300]), GeneralPathSVC().fit(X[:300], y[:300])
    for model in (fast, general):
        model.partial_fit(X[300:301], y[300:301])
    assert uses_single_row_path(fast)
    assert not uses_single_row_path(general)
    y[360:] = 2  # a new class
    for i in range(301, 400):
        for model in (fast, general):
            model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert uses_single_row_path(fast)
    check_same(fast, general, X)
    assert ProximalSVC(C="auto").fit(X, y).partial_fit(X[:1], y[:1])._state.single_row is None


@pytest.mark.parametrize("n_classes", [1, 2, 3, 9])
@pytest.mark.parametrize("n_features", [1, 5, 70])
@pytest.mark.parametrize("labels", ["numbers", "words", "booleans"])
def test_stream_of_single_rows_equals_the_general_path(rng, n_classes, n_features, labels):
    X, y = rows_of(rng, 420, n_features, n_classes)
    y = {"numbers": y, "words": np.array([f"class {k}" for k in y]), "booleans": y > 0}[labels]
    fast, general = pair(X[:300], y[:300])
    for i in range(300, 420):
        ours, theirs = fast.predict(X[i : i + 1]), general.predict(X[i : i + 1])
        assert ours.dtype == theirs.dtype
        assert ours.shape == (1,)
        np.testing.assert_array_equal(ours, theirs)
        assert fast.partial_fit(X[i : i + 1], y[i : i + 1]) is fast
        assert uses_single_row_path(fast)
        general.partial_fit(X[i : i + 1], y[i : i + 1])
    check_same(fast, general, X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"class_weight": None},
        {"objective": "auc"},
        {"standardize": False, "penalize_intercept": False},
        {"C": 1e3},
    ],
    ids=str,
)
def test_single_row_path_equals_the_general_path_for_all_parameters(rng, parameters):
    X, y = rows_of(rng)
    fast, general = pair(X[:300], y[:300], **parameters)
    for i in range(300, 340):
        np.testing.assert_array_equal(fast.predict(X[i : i + 1]), general.predict(X[i : i + 1]))
        fast.partial_fit(X[i : i + 1], y[i : i + 1])
        general.partial_fit(X[i : i + 1], y[i : i + 1])
    check_same(fast, general, X)


def _unusual_rows():
    row = np.array([[0.3, -1.0, 2.0, 0.0, 5.0]])
    wide = np.zeros((3, 10))
    wide[:, ::2] = row
    return {
        "nan": np.where(row == 2.0, np.nan, row),
        "infinity": np.where(row == 2.0, np.inf, row),
        "too large": row * 1e200,
        "too narrow": row[:, :4],
        "too wide": np.hstack([row, row]),
        "flat": row[0],
        "no rows": row[:0],
        "two rows": np.vstack([row, row]),
        "float32": row.astype(np.float32),
        "integers": row.astype(np.int64),
        "objects": row.astype(object),
        "other byte order": row.astype(">f8"),
        "columns first": np.asfortranarray(np.vstack([row, row]))[:1],
        "every other value": wide[:1, ::2],
        "list": row.tolist(),
        "subclass": row.view(OddArray),
        "sparse": sp.csr_matrix(row),
        "table": pd.DataFrame(row, columns=list("abcde")),
        "texts": row.astype(str),
        "none": None,
        "finer than the steps": row + 1e-13,
    }


@pytest.mark.parametrize("name", _unusual_rows())
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_single_row_path_and_general_path_agree_on_unusual_rows(rng, name):
    X, y = rows_of(rng)
    row = _unusual_rows()[name]
    fast, general = pair(X, y)
    labels = y[: 2 if name == "two rows" else 1]
    assert outcome(lambda: fast.predict(row)) == outcome(lambda: general.predict(row))
    learned = outcome(lambda: fast.partial_fit(row, labels) and None)
    assert learned == outcome(lambda: general.partial_fit(row, labels) and None)
    check_same(fast, general, X)
    np.testing.assert_array_equal(fast.predict(X[:1]), general.predict(X[:1]))


@pytest.mark.parametrize(
    "labels",
    [[7], np.array([7]), np.array(["new"]), np.array([True]), np.array([1.0]), np.array([1], dtype=np.uint8),
     np.array([1], dtype=object), np.array([[1]]), np.array([]), np.array([np.nan]), None, np.array([1, 0]),
     (1,)],
    ids=repr,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_single_row_path_and_general_path_agree_on_unusual_labels(rng, labels):
    X, y = rows_of(rng)
    fast, general = pair(X, y)
    given = outcome(lambda: fast.partial_fit(X[:1], labels) and None)
    assert given == outcome(lambda: general.partial_fit(X[:1], labels) and None)
    check_same(fast, general, X)
    for model in (fast, general):
        model.partial_fit(X[1:2], y[1:2])
    check_same(fast, general, X)


def test_changed_parameters_apply_to_the_next_single_row(rng):
    X, y = rows_of(rng)
    fast, general = pair(X[:300], y[:300])
    changes = [
        {"C": 1e-4},
        {"class_weight": None},
        {"class_weight": {0: 5.0}},
        {"threshold": "gmean"},
        {"threshold": "zero", "class_weight": "balanced", "C": 2.0},
    ]
    for step, change in enumerate(changes):
        for model in (fast, general):
            model.set_params(**change)
        for i in range(300 + 10 * step, 310 + 10 * step):
            np.testing.assert_array_equal(fast.predict(X[i : i + 1]), general.predict(X[i : i + 1]))
            fast.partial_fit(X[i : i + 1], y[i : i + 1])
            general.partial_fit(X[i : i + 1], y[i : i + 1])
        check_same(fast, general, X)
    fast.set_params(C=-1.0)
    with pytest.raises(ValueError, match="C must be"):
        fast.predict(X[:1])
    with pytest.raises(ValueError, match="C must be"):
        fast.partial_fit(X[:1], y[:1])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["row", "chunk", "forget", "ask", "merge", "copy", "fade"]), max_size=25),
    st.sampled_from(["zero", "gmean"]),
)
def test_single_row_path_equals_the_general_path_after_any_history(steps, threshold):
    rng = np.random.default_rng(len(steps))
    X, y = rows_of(rng, 600, 3, 3)
    fast, general = pair(X[:260], y[:260], threshold=threshold)
    learned = list(range(260))
    place = 260
    does = {
        "row": lambda model: model.partial_fit(X[place : place + 1], y[place : place + 1]),
        "chunk": lambda model: model.partial_fit(X[place : place + 7], y[place : place + 7]),
        "forget": lambda model: model.forget(X[learned[:3]], y[learned[:3]]),
        "ask": lambda model: model.predict(X[5:6]),
        "merge": lambda model: model.merge(ProximalSVC(quantizer=model.quantizer_).fit(X[590:], y[590:])),
        "fade": lambda model: model.decay(0.5).decay(2.0),
    }
    for step in steps:
        if step == "copy":
            fast, general = copy.copy(fast), copy.copy(general)
            continue
        for model in (fast, general):
            does[step](model)
        place += {"row": 1, "chunk": 7}.get(step, 0)
        learned = learned[3:] if step == "forget" else learned
        np.testing.assert_array_equal(fast.predict(X[7:8]), general.predict(X[7:8]))
    check_same(fast, general, X)


def test_predictions_include_batches_learned_between_single_rows(rng):
    X = rng.normal(size=(300, 2)) * 0.1
    y = rng.integers(0, 2, 300)
    X[:, 0] += y
    model, _ = pair(X, y)
    probe = np.array([[1.0, 0.0]])
    assert model.predict(probe) == 1
    model.partial_fit(np.repeat(X[y == 1], 50, axis=0), np.zeros(50 * (y == 1).sum(), dtype=int))
    model.partial_fit(np.repeat(X[y == 0], 50, axis=0), np.ones(50 * (y == 0).sum(), dtype=int))
    assert model.predict(probe) == 0


def test_class_without_rows_can_be_learned_again_on_the_single_row_path(rng):
    X, y = rows_of(rng, 400, 4, 3)
    fast, general = pair(X, y)
    forgotten = y == 2
    for model in (fast, general):
        model.forget(X[forgotten], y[forgotten])
        model.predict(X[:1])
        model.partial_fit(X[forgotten][:1], y[forgotten][:1])
    assert 2 in fast.classes_
    check_same(fast, general, X)
    np.testing.assert_array_equal(fast.predict(X[forgotten][:1]), general.predict(X[forgotten][:1]))


def test_copies_and_pickles_have_no_single_row_model(rng):
    X, y = rows_of(rng)
    fast, _ = pair(X[:300], y[:300])
    copies = [copy.copy(fast), copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))]
    before = fast.digest()
    for copied in copies:
        assert copied._state.single_row is None
        copied.predict(X[:1])
        copied.partial_fit(X[300:301], y[300:301])
    assert fast.digest() == before
    assert len({copied.digest() for copied in copies}) == 1


def test_learner_with_feature_names_uses_the_general_path(rng):
    X, y = rows_of(rng)
    table = pd.DataFrame(X, columns=list("abcde"))
    model = ProximalSVC().fit(table, y)
    model.predict(table[:1])
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(X[:1])


def test_learner_with_folds_uses_the_general_path(rng):
    X, y = rows_of(rng)
    model = ProximalSVC(C="auto").fit(X, y)
    for _ in range(3):
        model.predict(X[:1])
    assert isinstance(model._state, FoldedStatistics)
    assert model._state.single_row is None
    model.partial_fit(X[:1], y[:1])


def test_learner_with_ledger_uses_single_row_path_for_prediction_only(rng):
    X, y = rows_of(rng)
    model, expected = (
        ProximalSVC(track_rows=True).fit(X[:50], y[:50]),
        GeneralPathSVC(track_rows=True).fit(X[:50], y[:50]),
    )
    for i in range(50, len(X)):
        n_predictions = i % 4  # zero to three predictions; the first one uses the general path
        for _ in range(n_predictions):
            np.testing.assert_array_equal(model.predict(X[i : i + 1]), expected.predict(X[i : i + 1]))
        assert (model._state.single_row is not None) == (n_predictions >= 2)
        for each in (model, expected):
            each.partial_fit(X[i : i + 1], y[i : i + 1])
    assert model.digest() == expected.digest()
    for each in (model, expected):
        each.forget(X[60:70], y[60:70])  # the ledger contains these rows
        with pytest.raises(DataError):
            each.forget(X[60:61] + 1.0, y[60:61])
    assert model.digest() == expected.digest()
    np.testing.assert_array_equal(model.predict(X[:1]), expected.predict(X[:1]))


def test_concurrent_predictions_see_consistent_states(rng):
    X, y = rows_of(rng, 1500, 4)
    probe = X[:1]
    alone = GeneralPathSVC().fit(X[:300], y[:300])
    answers = {int(alone.predict(probe)[0])}
    for i in range(300, 1500):
        alone.partial_fit(X[i : i + 1], y[i : i + 1])
        answers.add(int(alone.predict(probe)[0]))
    model = ProximalSVC().fit(X[:300], y[:300])
    model.predict(probe)
    stop, seen, troubles = threading.Event(), set(), []

    def predict():
        try:
            while not stop.is_set():
                seen.add(int(model.predict(probe)[0]))
        except Exception as error:  # noqa: BLE001 - the exception of a thread would be lost
            troubles.append(error)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(300, 1500):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    stop.set()
    for thread in threads:
        thread.join()
    assert not troubles
    assert seen
    assert seen <= answers
    check_same(model, alone, X)
