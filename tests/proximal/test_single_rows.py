"""Single rows take a short way through native code, which is that of all rows to the bit."""

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
from steelyard.proximal.state.folds import FoldedStatistics


class LongWay(ProximalSVC):
    """A subclass, whose rows always go the general way."""


class OddArray(np.ndarray):
    """A subclass of ndarray, which is no finished array."""


def pair(X, y, **parameters):
    """A learner that has found the short way, and one that never will."""
    models = ProximalSVC(**parameters).fit(X, y), LongWay(**parameters).fit(X, y)
    for model in models:
        model.predict(X[:1])
    assert takes_short_way(models[0])
    assert not takes_short_way(models[1])
    return models


def takes_short_way(model):
    rows = model._state.rows_in_turn
    return rows is not None and rows.label(model.__dict__, np.zeros((1, model.n_features_in_))) is not None


def outcome(call):
    """What a call gives, or the kind and the words of what it raises."""
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - whatever comes is compared
        return type(error), str(error).replace("LongWay", "ProximalSVC")
    return (value.tolist(), value.dtype) if isinstance(value, np.ndarray) else None


def check_same(short, long, X):
    assert short.digest() == long.digest()
    np.testing.assert_array_equal(short.classes_, long.classes_)
    np.testing.assert_array_equal(short.coef_, long.coef_)
    np.testing.assert_array_equal(short.intercept_, long.intercept_)
    np.testing.assert_array_equal(short.decision_function(X), long.decision_function(X))


def rows_of(rng, n_rows=400, n_features=5, n_classes=2):
    y = rng.integers(0, n_classes, n_rows)
    return rng.normal(size=(n_rows, n_features)) + y[:, None], y


def test_the_first_row_alone_paves_the_way_of_those_that_follow(rng):
    X, y = rows_of(rng)
    short, long = ProximalSVC().fit(X[:300], y[:300]), LongWay().fit(X[:300], y[:300])
    for model in (short, long):
        model.partial_fit(X[300:301], y[300:301])
    assert takes_short_way(short)
    assert not takes_short_way(long)
    y[360:] = 2  # a class that nobody has seen
    for i in range(301, 400):
        for model in (short, long):
            model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert takes_short_way(short)
    check_same(short, long, X)
    assert ProximalSVC(C="auto").fit(X, y).partial_fit(X[:1], y[:1])._state.rows_in_turn is None


@pytest.mark.parametrize("n_classes", [1, 2, 3, 9])
@pytest.mark.parametrize("n_features", [1, 5, 70])
@pytest.mark.parametrize("labels", ["numbers", "words", "booleans"])
def test_a_stream_of_single_rows_is_answered_and_learned_alike(rng, n_classes, n_features, labels):
    X, y = rows_of(rng, 420, n_features, n_classes)
    y = {"numbers": y, "words": np.array([f"class {k}" for k in y]), "booleans": y > 0}[labels]
    short, long = pair(X[:300], y[:300])
    for i in range(300, 420):
        ours, theirs = short.predict(X[i : i + 1]), long.predict(X[i : i + 1])
        assert ours.dtype == theirs.dtype
        assert ours.shape == (1,)
        np.testing.assert_array_equal(ours, theirs)
        assert short.partial_fit(X[i : i + 1], y[i : i + 1]) is short
        assert takes_short_way(short)
        long.partial_fit(X[i : i + 1], y[i : i + 1])
    check_same(short, long, X)


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
def test_every_rule_of_the_native_planes_is_followed(rng, parameters):
    X, y = rows_of(rng)
    short, long = pair(X[:300], y[:300], **parameters)
    for i in range(300, 340):
        np.testing.assert_array_equal(short.predict(X[i : i + 1]), long.predict(X[i : i + 1]))
        short.partial_fit(X[i : i + 1], y[i : i + 1])
        long.partial_fit(X[i : i + 1], y[i : i + 1])
    check_same(short, long, X)


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
        "finer than the grid": row + 1e-13,
    }


@pytest.mark.parametrize("name", _unusual_rows())
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_unusual_rows_meet_the_same_answers_and_sentences(rng, name):
    X, y = rows_of(rng)
    row = _unusual_rows()[name]
    short, long = pair(X, y)
    labels = y[: 2 if name == "two rows" else 1]
    assert outcome(lambda: short.predict(row)) == outcome(lambda: long.predict(row))
    learned = outcome(lambda: short.partial_fit(row, labels) and None)
    assert learned == outcome(lambda: long.partial_fit(row, labels) and None)
    check_same(short, long, X)
    np.testing.assert_array_equal(short.predict(X[:1]), long.predict(X[:1]))


@pytest.mark.parametrize(
    "labels",
    [[7], np.array([7]), np.array(["new"]), np.array([True]), np.array([1.0]), np.array([1], dtype=np.uint8),
     np.array([1], dtype=object), np.array([[1]]), np.array([]), np.array([np.nan]), None, np.array([1, 0]),
     (1,)],
    ids=repr,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_unusual_labels_meet_the_same_sentences_and_classes(rng, labels):
    X, y = rows_of(rng)
    short, long = pair(X, y)
    given = outcome(lambda: short.partial_fit(X[:1], labels) and None)
    assert given == outcome(lambda: long.partial_fit(X[:1], labels) and None)
    check_same(short, long, X)
    for model in (short, long):
        model.partial_fit(X[1:2], y[1:2])
    check_same(short, long, X)


def test_parameters_that_change_are_followed_at_once(rng):
    X, y = rows_of(rng)
    short, long = pair(X[:300], y[:300])
    changes = [
        {"C": 1e-4},
        {"class_weight": None},
        {"class_weight": {0: 5.0}},
        {"threshold": "gmean"},
        {"threshold": "zero", "class_weight": "balanced", "C": 2.0},
    ]
    for step, change in enumerate(changes):
        for model in (short, long):
            model.set_params(**change)
        for i in range(300 + 10 * step, 310 + 10 * step):
            np.testing.assert_array_equal(short.predict(X[i : i + 1]), long.predict(X[i : i + 1]))
            short.partial_fit(X[i : i + 1], y[i : i + 1])
            long.partial_fit(X[i : i + 1], y[i : i + 1])
        check_same(short, long, X)
    short.set_params(C=-1.0)
    with pytest.raises(ValueError, match="C must be"):
        short.predict(X[:1])
    with pytest.raises(ValueError, match="C must be"):
        short.partial_fit(X[:1], y[:1])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["row", "chunk", "forget", "ask", "merge", "copy", "fade"]), max_size=25),
    st.sampled_from(["zero", "gmean"]),
)
def test_any_history_of_rows_chunks_and_losses_ends_alike(steps, threshold):
    rng = np.random.default_rng(len(steps))
    X, y = rows_of(rng, 600, 3, 3)
    short, long = pair(X[:260], y[:260], threshold=threshold)
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
            short, long = copy.copy(short), copy.copy(long)
            continue
        for model in (short, long):
            does[step](model)
        place += {"row": 1, "chunk": 7}.get(step, 0)
        learned = learned[3:] if step == "forget" else learned
        np.testing.assert_array_equal(short.predict(X[7:8]), long.predict(X[7:8]))
    check_same(short, long, X)


def test_answers_follow_chunks_that_come_between_rows(rng):
    X = rng.normal(size=(300, 2)) * 0.1
    y = rng.integers(0, 2, 300)
    X[:, 0] += y
    model, _ = pair(X, y)
    probe = np.array([[1.0, 0.0]])
    assert model.predict(probe) == 1
    model.partial_fit(np.repeat(X[y == 1], 50, axis=0), np.zeros(50 * (y == 1).sum(), dtype=int))
    model.partial_fit(np.repeat(X[y == 0], 50, axis=0), np.ones(50 * (y == 0).sum(), dtype=int))
    assert model.predict(probe) == 0


def test_a_class_whose_rows_have_all_left_comes_back(rng):
    X, y = rows_of(rng, 400, 4, 3)
    short, long = pair(X, y)
    gone = y == 2
    for model in (short, long):
        model.forget(X[gone], y[gone])
        model.predict(X[:1])
        model.partial_fit(X[gone][:1], y[gone][:1])
    assert 2 in short.classes_
    check_same(short, long, X)
    np.testing.assert_array_equal(short.predict(X[gone][:1]), long.predict(X[gone][:1]))


def test_copies_and_pickles_go_their_own_way(rng):
    X, y = rows_of(rng)
    short, _ = pair(X[:300], y[:300])
    twins = [copy.copy(short), copy.deepcopy(short), pickle.loads(pickle.dumps(short))]
    before = short.digest()
    for twin in twins:
        assert twin._state.rows_in_turn is None
        twin.predict(X[:1])
        twin.partial_fit(X[300:301], y[300:301])
    assert short.digest() == before
    assert len({twin.digest() for twin in twins}) == 1


def test_tables_with_names_never_take_the_short_way(rng):
    X, y = rows_of(rng)
    table = pd.DataFrame(X, columns=list("abcde"))
    model = ProximalSVC().fit(table, y)
    model.predict(table[:1])
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(X[:1])


def test_folds_keep_the_general_way(rng):
    X, y = rows_of(rng)
    model = ProximalSVC(C="auto").fit(X, y)
    for _ in range(3):
        model.predict(X[:1])
    assert isinstance(model._state, FoldedStatistics)
    assert model._state.rows_in_turn is None
    model.partial_fit(X[:1], y[:1])


def test_a_learner_with_a_ledger_answers_in_the_short_way_and_learns_in_the_long_one(rng):
    X, y = rows_of(rng)
    model, expected = (
        ProximalSVC(track_rows=True).fit(X[:50], y[:50]),
        LongWay(track_rows=True).fit(X[:50], y[:50]),
    )
    for i in range(50, len(X)):
        asked = i % 4  # not at all, once (in the long way), and again
        for _ in range(asked):
            np.testing.assert_array_equal(model.predict(X[i : i + 1]), expected.predict(X[i : i + 1]))
        assert (model._state.rows_in_turn is not None) == (asked >= 2)
        for each in (model, expected):
            each.partial_fit(X[i : i + 1], y[i : i + 1])
    assert model.digest() == expected.digest()
    for each in (model, expected):
        each.forget(X[60:70], y[60:70])  # the ledger has all of them
        with pytest.raises(DataError):
            each.forget(X[60:61] + 1.0, y[60:61])
    assert model.digest() == expected.digest()
    np.testing.assert_array_equal(model.predict(X[:1]), expected.predict(X[:1]))


def test_threads_that_ask_while_one_learns_see_whole_states(rng):
    X, y = rows_of(rng, 1500, 4)
    probe = X[:1]
    alone = LongWay().fit(X[:300], y[:300])
    answers = {int(alone.predict(probe)[0])}
    for i in range(300, 1500):
        alone.partial_fit(X[i : i + 1], y[i : i + 1])
        answers.add(int(alone.predict(probe)[0]))
    model = ProximalSVC().fit(X[:300], y[:300])
    model.predict(probe)
    stop, seen, troubles = threading.Event(), set(), []

    def ask():
        try:
            while not stop.is_set():
                seen.add(int(model.predict(probe)[0]))
        except Exception as error:  # noqa: BLE001 - a thread's exception would be lost
            troubles.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
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
