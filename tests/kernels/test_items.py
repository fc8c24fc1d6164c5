"""Kernel learners on lists of sequences: learning, forgetting, saving."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import SVC

from steelyard import KOIL, AlignedSVC, EnclosingClassifier, IncrementalSVC, MultiKernelKOIL
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.kernels import EditKernel, GlobalAlignmentKernel, Kernel
from steelyard.kernels.sequences import SequenceStore
from steelyard.online import NORMA, RBP, Forgetron, Projectron
from steelyard.persistence import load, save

ALIGNMENT = GlobalAlignmentKernel(gamma=0.05)
EDIT = EditKernel(gamma=0.7)
STREAMING = {
    "IncrementalSVC": lambda kernel: IncrementalSVC(C=5.0, kernel=kernel),
    "KOIL": lambda kernel: KOIL(kernel=kernel, budget=8, learning_rate=0.1, random_state=0),
    "KOIL unbounded": lambda kernel: KOIL(kernel=kernel, policy="unbounded", learning_rate=0.1),
    "MultiKernelKOIL": lambda kernel: MultiKernelKOIL(
        [clone(kernel).set_params(gamma=gamma) for gamma in (0.2, 0.5, 2.0)],
        budget=8,
        learning_rate=0.1,
        random_state=0,
    ),
    "NORMA": lambda kernel: NORMA(kernel=kernel, memory=50),
    "RBP": lambda kernel: RBP(kernel=kernel, budget=9, random_state=0),
    "Forgetron": lambda kernel: Forgetron(kernel=kernel, budget=9),
    "Projectron": lambda kernel: Projectron(kernel=kernel),
    "ellipsoids": lambda kernel: EnclosingClassifier(kernel=kernel),
    "spheres": lambda kernel: EnclosingClassifier(shape="sphere", kernel=kernel),
}
ALL = STREAMING | {"AlignedSVC": lambda kernel: AlignedSVC(kernel=kernel)}


def trajectories(rng, n=90, classes=2):
    y = np.arange(n) % classes
    steps = [rng.normal(scale=0.4, size=(int(rng.integers(5, 12)), 2)) for _ in range(n)]
    return [
        s.cumsum(axis=0) + 0.6 * label * np.arange(len(s))[:, None] for s, label in zip(steps, y, strict=True)
    ], y


def words(rng, n=90, classes=2):
    y = np.arange(n) % classes
    letters = ["abc", "cde", "efg"]
    return ["".join(rng.choice(list(letters[label]), rng.integers(4, 9))) for label in y], y


def parts(X, *borders):
    return [X[a:b] for a, b in zip((0, *borders), (*borders, len(X)), strict=True)]


@pytest.mark.parametrize(
    ("kernel", "make"), [(ALIGNMENT, trajectories), (EDIT, words)], ids=["paths", "words"]
)
@pytest.mark.parametrize("name", ALL)
def test_every_sequence_learner_classifies_sequences(name, kernel, make, rng):
    X, y = make(rng)
    model = ALL[name](kernel).fit(X[:60], y[:60])
    assert model.n_features_in_ == (2 if make is trajectories else 1)
    assert np.mean(model.predict(X[60:]) == y[60:]) > 0.75
    assert model.decision_function(X[60:]).shape == (30,)


@pytest.mark.parametrize("name", STREAMING)
def test_model_is_independent_of_batch_boundaries(name, rng):
    X, y = trajectories(rng, classes=3)
    whole, piecewise = (STREAMING[name](ALIGNMENT) for _ in range(2))
    whole.partial_fit(X, y)
    for rows, labels in zip(parts(X, 1, 30, 31), parts(y, 1, 30, 31), strict=True):
        piecewise.partial_fit(rows, labels)
    np.testing.assert_allclose(
        piecewise.decision_function(X), whole.decision_function(X), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "name", ["KOIL", "KOIL unbounded", "MultiKernelKOIL", "NORMA", "RBP", "Forgetron", "Projectron"]
)
def test_sequence_kernel_gives_same_scores_as_equivalent_vector_kernel(name, rng):
    # The edit kernel of single letters has the values of a Gaussian kernel of two points.
    letters = rng.integers(0, 6, size=80)
    y = (letters % 2).astype(int)
    y[:4] = [0, 1, 0, 1]
    same, other = 1.0, float(EDIT(["a"], ["b"])[0, 0])
    points = np.sqrt(-np.log(other)) * np.eye(6)[letters] / np.sqrt(2.0)
    with_words = STREAMING[name](EDIT)
    if name == "MultiKernelKOIL":
        values = [float(kernel(["a"], ["b"])[0, 0]) for kernel in with_words.kernels]
        kernels = [Kernel("rbf", gamma=np.log(v) / np.log(other)) for v in values]
        with_points = clone(with_words).set_params(kernels=kernels)
    else:
        with_points = clone(with_words).set_params(kernel="rbf", gamma=1.0)
    assert same == 1.0
    with_words.partial_fit(["abcdef"[k] for k in letters], y)
    with_points.partial_fit(points, y)
    np.testing.assert_allclose(
        with_words.decision_function(list("abcdef")),
        with_points.decision_function(np.sqrt(-np.log(other)) * np.eye(6) / np.sqrt(2.0)),
        atol=1e-9,
    )


@pytest.mark.parametrize("name", ["IncrementalSVC", "spheres", "ellipsoids"])
def test_repeated_sequence_equals_sequence_with_larger_weight(name, rng):
    X, y = words(rng, 40)
    twice = STREAMING[name](EDIT).fit(X + X, np.concatenate([y, y]))
    weighted = STREAMING[name](EDIT).fit(X, y, sample_weight=np.full(len(X), 2.0))
    np.testing.assert_allclose(twice.decision_function(X), weighted.decision_function(X), atol=1e-5)


def test_incremental_svc_matches_svc_on_kernel_matrix(rng):
    X, y = trajectories(rng)
    model = IncrementalSVC(C=5.0, kernel=ALIGNMENT).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    svc = SVC(C=5.0, kernel="precomputed", tol=1e-10).fit(ALIGNMENT(X, X), y)
    np.testing.assert_allclose(model.decision_function(X), svc.decision_function(ALIGNMENT(X, X)), atol=1e-6)


def test_incremental_svc_forgets_sequences_exactly(rng):
    X, y = trajectories(rng)
    model = IncrementalSVC(C=5.0, kernel=ALIGNMENT).fit(X, y)
    model.forget([x.copy() for x in X[:40]], y[:40])
    fresh = IncrementalSVC(C=5.0, kernel=ALIGNMENT).fit(X[40:], y[40:])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-6)
    assert len(model._state.catalogue) == 50


def test_sliding_window_over_sequences_matches_fresh_fit(rng):
    X, y = words(rng)
    model = IncrementalSVC(kernel=EDIT).fit(X[:30], y[:30])
    for i in range(30):
        model.update(add=([X[30 + i]], [y[30 + i]]), forget=([X[i]], [y[i]]))
    fresh = IncrementalSVC(kernel=EDIT).fit(X[30:60], y[30:60])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-6)


def test_forget_unknown_sequence_raises_and_keeps_state(rng):
    X, y = words(rng)
    model = IncrementalSVC(kernel=EDIT).fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(DataError, match="never learned"):
        model.forget(["zzz"], [y[0]])
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert len(model._state.catalogue) == len(set(X))


@pytest.mark.parametrize(
    ("kernel", "make"), [(ALIGNMENT, trajectories), (EDIT, words)], ids=["paths", "words"]
)
@pytest.mark.parametrize("name", ALL)
def test_saved_and_copied_learners_give_same_scores(name, kernel, make, rng, tmp_path):
    X, y = make(rng, classes=3)
    model = ALL[name](kernel).fit(X[:60], y[:60])
    save(model, tmp_path / "model")
    copies = [load(tmp_path / "model"), pickle.loads(pickle.dumps(model))]
    for copy in copies:
        np.testing.assert_allclose(
            copy.decision_function(X), model.decision_function(X), rtol=1e-9, atol=1e-9
        )
    if name in STREAMING:
        for each in (model, *copies):
            each.partial_fit(X[60:], y[60:])
        for copy in copies:
            np.testing.assert_allclose(
                copy.decision_function(X), model.decision_function(X), rtol=1e-6, atol=1e-6
            )


@pytest.mark.parametrize("name", STREAMING)
def test_learned_sequences_are_copies(name, rng):
    X, y = trajectories(rng, 40)
    model = STREAMING[name](ALIGNMENT).fit(X, y)
    copies = [x.copy() for x in X]
    before = model.decision_function(copies)
    for x in X:
        x += 100.0
    np.testing.assert_array_equal(model.decision_function(copies), before)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one string", "must be a non-empty list"),
        ([], "must be a non-empty list"),
        ([np.zeros((3, 2)), np.zeros((3, 3))], "same number of dimensions"),
        ([np.zeros((3, 2)), np.full((3, 2), np.nan)], "not finite"),
        ([np.zeros((0, 2)), np.zeros((3, 2))], "at least one row"),
        (["ab", "cd"], "not an array of numbers"),
    ],
)
def test_invalid_sequences_raise(name, X, message):
    with pytest.raises((DataError, DataTypeError), match=message):
        ALL[name](ALIGNMENT).fit(X, [0, 1])


@pytest.mark.parametrize("name", ALL)
def test_sequences_of_other_width_raise_and_keep_state(name, rng):
    X, y = trajectories(rng, 30)
    model = ALL[name](ALIGNMENT).fit(X, y)
    before = model.decision_function(X)
    wide = [np.zeros((4, 3)), np.ones((4, 3))]
    with pytest.raises(DataError, match="must have 2 dimensions, as learned; got 3"):
        model.predict(wide)
    if name in STREAMING:
        with pytest.raises(DataError, match="must have 2 dimensions, as learned; got 3"):
            model.partial_fit(wide, [0, 1])
    np.testing.assert_array_equal(model.decision_function(X), before)


@pytest.mark.parametrize("name", ["KOIL", "NORMA", "spheres", "IncrementalSVC"])
def test_kernel_values_that_overflow_raise_and_keep_state(name, rng):
    X, y = trajectories(rng, 20)
    model = STREAMING[name](GlobalAlignmentKernel(gamma=0.5, normalize=False)).fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(DataError, match="exceed the range"):
        model.partial_fit([X[0], np.zeros((2000, 2))], y[:2])
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_mixed_sequence_and_vector_kernels_raise(rng):
    X, y = words(rng)
    with pytest.raises(ParameterError, match="sequence kernels of one type"):
        MultiKernelKOIL([EDIT, Kernel("rbf")]).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    with pytest.raises((DataError, DataTypeError)):
        KOIL(kernel="rbf").fit(X, y)


def test_class_of_sequences_can_be_added_removed_and_merged(rng):
    X, y = words(rng, classes=3)
    first = EnclosingClassifier(shape="sphere", kernel=EDIT).fit(
        [x for x, c in zip(X, y, strict=True) if c < 2], y[y < 2]
    )
    second = EnclosingClassifier(shape="sphere", kernel=EDIT).fit(
        [x for x, c in zip(X, y, strict=True) if c == 2], y[y == 2]
    )
    whole = EnclosingClassifier(shape="sphere", kernel=EDIT).fit(X, y)
    merged = first.merge(second)
    np.testing.assert_allclose(merged.distance_ratio(X), whole.distance_ratio(X), atol=1e-9)
    assert all(isinstance(x, str) for x in merged.support_vectors_[2])
    assert list(merged.forget_class(2).classes_) == [0, 1]


def test_changed_kernel_parameter_changes_enclosing_bodies(rng):
    X, y = words(rng)
    model = EnclosingClassifier(kernel=clone(EDIT)).fit(X, y)
    before = model.distance_ratio(X)
    model.set_params(kernel__gamma=3.0)
    fresh = EnclosingClassifier(kernel=clone(EDIT).set_params(gamma=3.0)).fit(X, y)
    assert not np.allclose(model.distance_ratio(X), before)
    np.testing.assert_array_equal(model.distance_ratio(X), fresh.distance_ratio(X))


def test_budget_learner_stores_bounded_number_of_sequences(rng):
    X, y = words(rng, 600)
    model = KOIL(kernel=EDIT, budget=5, random_state=0).fit(X, y)
    assert len(model._store) <= 10
    assert len(model.support_vectors_) <= 10
    assert len(model._store._values[0]) <= 256


# -- SequenceStore ---------------------------------------------------------------------------------


def test_equal_sequences_share_a_slot_and_free_slots_are_reused():
    store = SequenceStore()
    rows = store.add(["a", b"a", "b", "a", np.array([97], dtype=np.int32)])
    assert rows.ravel().tolist() == [0, 1, 2, 0, 3]
    store.retain(np.array([0.0, 3.0]))
    assert store.add(["c", "a"]).ravel().tolist() in ([1, 0], [2, 0])
    assert len(store) == 3


def test_sequences_with_negative_zero_and_zero_share_a_slot():
    store = SequenceStore()
    assert store.add([np.array([[0.0]]), np.array([[-0.0]])]).ravel().tolist() == [0, 0]


def test_sequence_store_has_correct_values_after_adding_and_removing(rng):
    store = SequenceStore([Kernel(EDIT)])
    for _ in range(12):
        X, _y = words(rng, 10)
        rows = store.add(X)
        np.testing.assert_allclose(
            store._values[0][np.ix_(rows[:, 0].astype(int), rows[:, 0].astype(int))], EDIT(X, X), atol=1e-12
        )
        store.retain(rows[:: int(rng.integers(1, 4))])
