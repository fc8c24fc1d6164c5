"""Checks of copies, files, threads and interrupted calls."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.base import BatchLearner, Learner
from steelyard.checks.tools import (
    Stream,
    assert_same_scores,
    example_stream,
    learn,
    may_round_differently,
    partial_fit_if_possible,
    pickle_copy,
    saved_copy,
)
from steelyard.persistence import to_bytes


def check_loaded_learner_continues_identically(learner: BatchLearner) -> None:
    """A loaded learner and the saved learner have bit-identical scores and states after further rows."""
    stream = example_stream(8)
    original = clone(learner).fit(*stream.rows(0, 100))
    loaded = saved_copy(original)
    assert np.array_equal(loaded.decision_function(stream.X), original.decision_function(stream.X))
    for model in (original, loaded):
        partial_fit_if_possible(model, *stream.rows(100))
    assert_same_scores(loaded, original, stream.X, up_to_rounding=False, what="after loading")
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
            copied,
            expected,
            stream.X,
            up_to_rounding=may_round_differently(learner),
            what="a copy after further rows",
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
        up_to_rounding=False,
        what="loaded unfitted",
    )


def check_clone_is_unfitted(learner: BatchLearner) -> None:
    """clone() returns an unfitted learner with the same parameters."""
    stream = example_stream(15)
    model = clone(learner).fit(stream.X, stream.y)
    copied = clone(model)
    assert not hasattr(copied, "classes_")
    assert repr(copied) == repr(clone(learner))
