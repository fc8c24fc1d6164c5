"""The contract checks: one function for each property of a learner."""

from __future__ import annotations

import copy
import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.base import BatchLearner, ForgettingMixin, Learner, MergingMixin
from steelyard.checks.tools import (
    NotApplicable,
    Stream,
    assert_raises_and_keeps_state,
    assert_same_scores,
    example_stream,
    fitted_in_chunks,
    learn,
    may_round_differently,
    partial_fit_if_possible,
    pickle_copy,
    require,
    require_stream,
    saved_copy,
)
from steelyard.persistence import from_bytes, to_bytes

# -- chunk borders, order of rows, classes, label types, memory and data frames -------------------------


def check_inputs_unchanged(learner: BatchLearner) -> None:
    """Learning and prediction do not change the input arrays."""
    stream = example_stream()
    X, y = stream.X.copy(), stream.y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    model = clone(learner).fit(X, y)
    partial_fit_if_possible(model, X[:10], y[:10])
    model.predict(X)
    if isinstance(model, ForgettingMixin):
        model.forget(X[:10], y[:10])
    assert np.array_equal(X, stream.X)
    assert np.array_equal(y, stream.y)


def check_chunk_borders_do_not_matter(learner: BatchLearner) -> None:
    """The same rows in the same order give the same model for all chunk sizes."""
    require_stream(learner)
    stream = example_stream(1)
    in_one_chunk = fitted_in_chunks(learner, stream, [])
    for cuts in ([120], [1, 2, 3, 100], list(range(1, 240, 7))):
        in_chunks = fitted_in_chunks(learner, stream, cuts)
        assert_same_scores(
            in_chunks,
            in_one_chunk,
            stream.X,
            f"chunks that end at {cuts[:4]}",
            rounding=may_round_differently(learner),
        )


def check_fit_equals_partial_fit(learner: BatchLearner) -> None:
    """fit() discards the earlier state and then learns as one call of partial_fit() does."""
    require_stream(learner)
    stream = example_stream(2)
    expected = clone(learner).partial_fit(stream.X, stream.y)
    refitted = clone(learner).fit(*example_stream(3, n_classes=3).rows(0)).fit(stream.X, stream.y)
    assert_same_scores(refitted, expected, stream.X, "fit after another fit", rounding=False)


def check_order_does_not_matter(learner: BatchLearner) -> None:
    """An exact learner gives the same model for any order of the rows."""
    require(learner._traits.exact, "this learner processes rows in their order")
    stream = example_stream(4)
    order = np.random.default_rng(0).permutation(len(stream.y))
    shuffled = Stream(stream.X[order], stream.y[order])
    # Each learner gets all rows in one call, because the first call may fit a kernel width or a feature map.
    assert_same_scores(
        clone(learner).fit(*shuffled.rows(0)), clone(learner).fit(*stream.rows(0)), stream.X, "shuffled"
    )


def check_new_label_becomes_class(learner: BatchLearner) -> None:
    """A new label becomes a new class."""
    require_stream(learner)
    stream = example_stream(5)
    rng = np.random.default_rng(0)
    model = clone(learner).partial_fit(stream.X, stream.y)
    assert list(model.classes_) == [0, 1]
    model.partial_fit(rng.normal(size=(30, 4)) + 8.0, np.full(30, 7))
    assert list(model.classes_) == [0, 1, 7], f"classes_ is {model.classes_!r} after label 7"
    scores = model.decision_function(stream.X)
    assert scores.shape == (len(stream.y), 3)
    assert 7 in model.predict(rng.normal(size=(20, 4)) + 8.0), "no row of the new class is predicted"


def check_long_run_of_one_class(learner: BatchLearner) -> None:
    """After many rows of one class and then rows of another, both classes are known and scores are finite."""
    require_stream(learner)
    rng = np.random.default_rng(6)
    model = clone(learner)
    for _ in range(10):
        model.partial_fit(rng.normal(size=(50, 4)), np.zeros(50, dtype=int))
    assert (model.predict(rng.normal(size=(5, 4))) == 0).all()
    model.partial_fit(rng.normal(size=(20, 4)) + 4.0, np.ones(20, dtype=int))
    assert list(model.classes_) == [0, 1]
    assert np.isfinite(model.decision_function(rng.normal(size=(5, 4)))).all()


def check_labels_of_any_type(learner: BatchLearner) -> None:
    """Labels may be strings, booleans, floats and integers; predictions have the type of the labels."""
    stream = example_stream(7)
    reference = clone(learner).fit(stream.X, stream.y).predict(stream.X)
    for names in (
        np.array(["ok", "rare"]),
        np.array([False, True]),
        np.array([-1.0, 1.0]),
        np.array([10, 200]),
    ):
        model = clone(learner).fit(stream.X, names[stream.y])
        assert np.array_equal(model.classes_, names)
        assert np.array_equal(model.predict(stream.X), names[reference]), (
            f"labels {names!r} change the predictions"
        )


def check_memory_stays_bounded(learner: BatchLearner) -> None:
    """The size of the saved state does not grow with the number of rows."""
    require_stream(learner)
    require(learner._traits.bounded_memory, "the memory of this learner grows with the number of rows")
    rng = np.random.default_rng(16)
    model = clone(learner)
    sizes = []
    for rows in (1000, 1000, 3000):
        y = (rng.random(rows) < 0.3).astype(int)
        model.partial_fit(rng.normal(size=(rows, 4)) + y[:, None], y)
        sizes.append(len(to_bytes(model)))
    assert sizes[2] <= 1.5 * sizes[0], f"the state grew from {sizes[0]} to {sizes[2]} bytes"


def check_number_of_threads_does_not_matter(learner: BatchLearner) -> None:
    """One and two threads give bitwise equal scores."""
    stream = example_stream(17, n_rows=600)
    scores = []
    for threads in ("1", "2"):
        with patch.dict(os.environ, STEELYARD_NUM_THREADS=threads):
            scores.append(clone(learner).fit(stream.X, stream.y).decision_function(stream.X))
    assert np.array_equal(*scores), "one and two threads give different scores"


def check_data_frames(learner: BatchLearner) -> None:
    """Data frames are accepted; their column names are stored and compared."""
    try:
        import pandas as pd
    except ImportError:
        raise NotApplicable("pandas is not installed") from None
    stream = example_stream(18)
    frame = pd.DataFrame(stream.X, columns=list("abcd"))
    model = clone(learner).fit(frame, stream.y)
    plain = clone(learner).fit(stream.X, stream.y)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.decision_function(frame), plain.decision_function(stream.X))
    swapped = frame[list("bacd")]
    assert_raises_and_keeps_state(model, lambda: model.predict(swapped), "columns in another order")
    if isinstance(model, Learner):
        assert_raises_and_keeps_state(
            model, lambda: model.partial_fit(swapped, stream.y), "columns in another order"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that X has no feature names
        partial_fit_if_possible(model, stream.X, stream.y)


# -- copies, files, threads and interrupted calls ------------------------------------------------------


def check_loaded_learner_continues_identically(learner: BatchLearner) -> None:
    """A loaded learner and the saved learner have bit-identical scores and states after further rows."""
    stream = example_stream(8)
    original = clone(learner).fit(*stream.rows(0, 100))
    loaded = saved_copy(original)
    assert np.array_equal(loaded.decision_function(stream.X), original.decision_function(stream.X))
    for model in (original, loaded):
        partial_fit_if_possible(model, *stream.rows(100))
    assert_same_scores(loaded, original, stream.X, "after loading", rounding=False)
    assert to_bytes(loaded) == to_bytes(original), "the states differ after loading and further rows"


def check_copies_are_independent(learner: BatchLearner) -> None:
    """A copy and its original are independent, and no cached value is shared."""
    stream = example_stream(19)
    other = Stream(9.0 * stream.X, np.where(stream.y == 1, 7, stream.y))  # different rows with a new class
    original = clone(learner).fit(*stream.rows(0, 100))
    before = original.decision_function(stream.X)
    for make in (copy.deepcopy, copy.copy, pickle_copy, saved_copy):
        model = clone(learner).fit(*stream.rows(0, 100))
        model.decision_function(stream.X)
        model.predict(stream.X)
        copied = make(model)
        learn(copied, *other.rows(100))
        copied.predict(stream.X)  # predictions of the copy must not use values cached before the copy
        expected = saved_copy(original)
        learn(expected, *other.rows(100))
        assert_same_scores(
            copied, expected, stream.X, "a copy after further rows", rounding=may_round_differently(learner)
        )
        assert np.array_equal(copied.classes_, expected.classes_)
        assert np.array_equal(copied.predict(stream.X), expected.predict(stream.X))
        assert np.array_equal(model.decision_function(stream.X), before), "the copy changed the original"


def check_predictions_see_one_state(learner: BatchLearner) -> None:
    """A thread that predicts while another learns sees the state before or after a call, never between."""
    stream = example_stream(20)
    # The predicted rows were never learned, because a learner may remember the scores of predicted rows.
    questions = stream.X + 0.125
    model = clone(learner).fit(*stream.rows(0, 60))
    is_streaming = isinstance(learner, Learner)
    chunks = [stream.rows(k if is_streaming else 0, k + 10) for k in range(60, 100, 10)]
    expected = clone(learner).fit(*stream.rows(0, 60))
    states = {_score_bytes(expected, questions)}
    for chunk in chunks:
        learn(expected, *chunk)
        states.add(_score_bytes(expected, questions))
    wrong: list[str] = []
    stop = threading.Event()

    def predict() -> None:
        while not stop.is_set():
            try:
                if _score_bytes(model, questions) not in states:
                    wrong.append("the scores match no complete state")
            except Exception as error:  # noqa: BLE001 - every error is a failure
                wrong.append(repr(error))

    reader = threading.Thread(target=predict)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads switch more often than by default
    reader.start()
    try:
        for _ in range(3):
            for chunk in chunks:
                learn(model, *chunk)
            model.fit(*stream.rows(0, 60))
    finally:
        stop.set()
        reader.join()
        sys.setswitchinterval(before)
    assert not wrong, f"prediction while another thread learned: {wrong[0]}"


def check_interrupted_calls_are_atomic(learner: BatchLearner) -> None:
    """A call that a signal handler interrupts leaves the state from before or after the call."""
    stream = example_stream(21)
    fitted = clone(learner).fit(*stream.rows(0, 60))
    chunk = stream.rows(60 if isinstance(learner, Learner) else 0, 64)
    next_chunk = stream.rows(64 if isinstance(learner, Learner) else 0, 68)
    done = copy.deepcopy(fitted)
    learn(done, *chunk)
    states = {_score_bytes(fitted, stream.X), _score_bytes(done, stream.X)}
    moment = 0
    while True:
        model = copy.deepcopy(fitted)
        model.decision_function(stream.X)
        if not _interrupted(partial(learn, model, *chunk), moment):
            return
        assert _score_bytes(model, stream.X) in states, (
            f"partially changed after an interruption at moment {moment}"
        )
        learn(model, *next_chunk)  # raises if stored rows and estimator disagree
        moment += 1 + moment // 4  # tests all early moments, then increasingly few


def _interrupted(call: Callable[[], None], moment: int) -> bool:
    """Run a call and interrupt it after ``moment`` profiler events, as a signal handler could.

    Return False if the call ended before.
    """
    remaining = moment

    def profiler(_frame: object, event: str, _argument: object) -> None:
        nonlocal remaining
        if event in {"call", "return", "c_return"}:
            remaining -= 1
            if remaining < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # ignores errors in closed generators
    try:
        sys.setprofile(profiler)
        call()
    except BaseException:
        if remaining >= 0:
            raise
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook
    return remaining < 0


def _score_bytes(model: BatchLearner, X: FloatArray) -> bytes:
    return bytes(np.asarray(model.decision_function(X)).tobytes())


def check_unfitted_learner_can_be_saved(learner: BatchLearner) -> None:
    """An unfitted learner can be saved and loaded."""
    copied = saved_copy(clone(learner))
    stream = example_stream(9)
    assert_same_scores(
        copied.fit(stream.X, stream.y),
        clone(learner).fit(stream.X, stream.y),
        stream.X,
        "loaded unfitted",
        rounding=False,
    )


def check_clone_is_unfitted(learner: BatchLearner) -> None:
    """clone() returns an unfitted learner with the same parameters."""
    stream = example_stream(15)
    model = clone(learner).fit(stream.X, stream.y)
    copied = clone(model)
    assert not hasattr(copied, "classes_")
    assert repr(copied) == repr(clone(learner))


# -- forgetting, merging and failing calls -------------------------------------------------------------


def check_forget_equals_never_learned(learner: BatchLearner) -> None:
    """After forgetting rows, the model equals one that never learned them."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(10)
    expected = clone(learner).partial_fit(*stream.rows(0, 120))
    model = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    model.forget(*stream.rows(120))
    assert_same_scores(model, expected, stream.X, "learned and forgotten")
    updated = clone(learner).partial_fit(*stream.rows(0, 120))
    updated.update(add=stream.rows(120), forget=stream.rows(0, 60))
    expected = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    expected.forget(*stream.rows(0, 60))
    assert_same_scores(updated, expected, stream.X, "update")


def check_forgotten_class_is_removed(learner: BatchLearner) -> None:
    """A class is removed when all its rows are forgotten."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(11, n_classes=3)
    last = stream.y == 2
    model = (
        clone(learner)
        .partial_fit(stream.X[~last], stream.y[~last])
        .partial_fit(stream.X[last], stream.y[last])
    )
    model.forget(stream.X[last], stream.y[last])
    assert list(model.classes_) == [0, 1]
    expected = clone(learner).partial_fit(stream.X[~last], stream.y[~last])
    assert_same_scores(model, expected, stream.X, "class forgotten")


def check_merge_equals_learning_together(learner: BatchLearner) -> None:
    """Merging in any order equals learning all rows, and merge() does not change its argument."""
    require(isinstance(learner, MergingMixin), "this learner does not merge")
    stream = example_stream(12, n_classes=3)
    together, parts = clone(learner).fit(stream.X, stream.y), []
    for label in range(3):  # every learner that merges can merge disjoint classes
        of_class = stream.y == label
        parts.append(clone(learner).partial_fit(stream.X[of_class], stream.y[of_class]))
    for order in ([0, 1, 2], [2, 0, 1]):
        before = [to_bytes(part) for part in parts]
        merged = from_bytes(before[order[0]])
        for index in order[1:]:
            merged.merge(parts[index])
        assert_same_scores(merged, together, stream.X, f"merged in order {order}")
        assert [to_bytes(part) for part in parts] == before, "merging changed the other learner"


def check_errors_change_nothing(learner: BatchLearner) -> None:
    """A call that raises an error leaves the learner bitwise unchanged."""
    stream = example_stream(13)
    model = clone(learner).fit(stream.X, stream.y)
    learning = [getattr(model, name) for name in ("fit", "partial_fit") if hasattr(model, name)]
    bad = stream.X.copy()
    is_nan_allowed = model.__sklearn_tags__().input_tags.allow_nan
    bad[-1, -1] = np.inf if is_nan_allowed else np.nan
    infinite = stream.X.copy()
    infinite[7, 2] = np.inf
    wide = np.column_stack([stream.X, stream.X[:, 0]])
    cases = ((bad, "NaN or infinity in the last row"), (infinite, "infinity"), (stream.X[:5], "too few rows"))
    for X, what in cases:
        for call in learning:
            assert_raises_and_keeps_state(model, partial(call, X, stream.y), f"{call.__name__} with {what}")
    if isinstance(model, Learner):
        assert_raises_and_keeps_state(
            model, lambda: model.partial_fit(wide, stream.y), "partial_fit of wrong width"
        )
    assert_raises_and_keeps_state(model, lambda: model.predict(wide), "predict of wrong width")
    assert_raises_and_keeps_state(model, lambda: model.predict(bad), "predict with NaN or infinity")
    fresh = clone(learner)
    first = fresh.partial_fit if isinstance(fresh, Learner) else fresh.fit
    assert_raises_and_keeps_state(fresh, lambda: first(bad, stream.y), "first call with NaN or infinity")
    assert not hasattr(fresh, "n_features_in_"), "a failed first call leaves n_features_in_ behind"


def check_forget_unknown_rows_raises(learner: BatchLearner) -> None:
    """Forgetting rows that were never learned raises an error and changes nothing."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(14)
    model = clone(learner).partial_fit(stream.X, stream.y)
    far = np.full((1, 4), 1e3)
    assert_raises_and_keeps_state(
        model, lambda: model.forget(far, np.array([0])), "a row far from all learned rows"
    )
    assert_raises_and_keeps_state(
        model, lambda: model.forget(stream.X[:1], np.array([5])), "a class never seen"
    )
    rare = stream.X[stream.y == 1]
    twice = np.concatenate([rare, rare[:1]])
    assert_raises_and_keeps_state(
        model, lambda: model.forget(twice, np.ones(len(twice), dtype=int)), "more rows than learned"
    )
    assert_raises_and_keeps_state(
        model,
        lambda: model.update(add=(stream.X, stream.y), forget=(far, np.array([0]))),
        "update with an unknown row",
    )
