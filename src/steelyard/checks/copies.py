"""Checks of copies, files and threads: what is kept goes on as if nothing had happened."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.base import clone

from steelyard import persistence
from steelyard._types import FloatArray
from steelyard.base import BatchLearner, Learner
from steelyard.checks.tools import (
    Stream,
    example_stream,
    learn_more,
    pickled,
    same_answers,
    saved,
    teach,
    written,
)

__all__ = [
    "check_answers_belong_to_one_state",
    "check_copies_go_their_own_way",
    "check_interrupted_calls_change_all_or_nothing",
    "check_save_load_go_on",
    "check_sklearn_clone_forgets",
    "check_unfitted_save_load",
]


def check_save_load_go_on(learner: BatchLearner) -> None:
    """Stop, save, load and go on equals never stopping, bit for bit."""
    stream = example_stream(8)
    never_stopped = clone(learner).fit(*stream.rows(0, 100))
    stopped = persistence.from_bytes(written(never_stopped))
    assert np.array_equal(stopped.decision_function(stream.X), never_stopped.decision_function(stream.X))
    for model in (never_stopped, stopped):
        learn_more(model, *stream.rows(100))
    same_answers(stopped, never_stopped, stream.X, exact=False, what="after loading")
    assert written(stopped) == written(never_stopped), "the states differ after loading and going on"


def check_copies_go_their_own_way(learner: BatchLearner) -> None:
    """Learn, ask, copy, learn, ask: a copy answers from what it has learned itself, as does the original."""
    stream = example_stream(19)
    other = Stream(9.0 * stream.X, np.where(stream.y == 1, 7, stream.y))  # other rows and a new class
    never_copied = clone(learner).fit(*stream.rows(0, 100))
    before = never_copied.decision_function(stream.X)
    for make in (copy.deepcopy, copy.copy, pickled, saved):
        model = clone(learner).fit(*stream.rows(0, 100))
        model.decision_function(stream.X)
        model.predict(stream.X)
        twin = make(model)
        teach(twin, *other.rows(100))
        twin.predict(stream.X)  # nothing that is remembered may be of the time before
        expected = persistence.from_bytes(written(never_copied))
        teach(expected, *other.rows(100))
        same_answers(twin, expected, stream.X, exact=learner._traits.exact, what="a copy that went on")
        assert np.array_equal(twin.classes_, expected.classes_)
        assert np.array_equal(twin.predict(stream.X), expected.predict(stream.X))
        assert np.array_equal(model.decision_function(stream.X), before), "the copy changed the original"


def check_answers_belong_to_one_state(learner: BatchLearner) -> None:
    """While one thread learns, another is only ever given answers of a state before or after a call."""
    stream = example_stream(20)
    questions = stream.X + 0.125  # not the rows that are taught: a learner may use the scores it gave them
    model = clone(learner).fit(*stream.rows(0, 60))
    streams = isinstance(learner, Learner)
    lessons = [stream.rows(k if streams else 0, k + 10) for k in range(60, 100, 10)]
    expected = clone(learner).fit(*stream.rows(0, 60))
    states = {_answers(expected, questions)}
    for lesson in lessons:
        teach(expected, *lesson)
        states.add(_answers(expected, questions))
    wrong: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                if _answers(model, questions) not in states:
                    wrong.append("an answer of no state")
            except Exception as error:  # noqa: BLE001 - a question that can be answered must be
                wrong.append(repr(error))

    asking = threading.Thread(target=ask)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns more often than they otherwise would
    asking.start()
    try:
        for _ in range(3):
            for lesson in lessons:
                teach(model, *lesson)
            model.fit(*stream.rows(0, 60))
    finally:
        stop.set()
        asking.join()
        sys.setswitchinterval(before)
    assert not wrong, f"asked while another thread learned: {wrong[0]}"


def check_interrupted_calls_change_all_or_nothing(learner: BatchLearner) -> None:
    """An exception from a signal handler, at any of some moments, leaves a learner before or after a call."""
    stream = example_stream(21)
    taught = clone(learner).fit(*stream.rows(0, 60))
    lesson = stream.rows(60 if isinstance(learner, Learner) else 0, 64)
    done = copy.deepcopy(taught)
    teach(done, *lesson)
    states = {_answers(taught, stream.X), _answers(done, stream.X)}
    moment = 0
    while True:
        model = copy.deepcopy(taught)
        model.decision_function(stream.X)
        if not _interrupted(partial(teach, model, *lesson), moment):
            return
        assert _answers(model, stream.X) in states, f"interrupted at moment {moment}, it is in between"
        moment += 1 + moment // 4  # all of the first ones, then fewer and fewer


def _interrupted(call: Callable[[], None], moment: int) -> bool:
    """Whether a call was interrupted at a moment where a handler could run, or had ended before."""
    left = moment

    def profiler(_frame: object, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "return", "c_return"}:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # generators that are put away
    try:
        sys.setprofile(profiler)
        call()
    except BaseException:
        if left >= 0:
            raise
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook
    return left < 0


def _answers(model: BatchLearner, X: FloatArray) -> bytes:
    return bytes(np.asarray(model.decision_function(X)).tobytes())


def check_unfitted_save_load(learner: BatchLearner) -> None:
    """A learner that has seen nothing can be saved too."""
    twin = persistence.from_bytes(written(clone(learner)))
    stream = example_stream(9)
    same_answers(
        twin.fit(stream.X, stream.y),
        clone(learner).fit(stream.X, stream.y),
        stream.X,
        exact=False,
        what="loaded unfitted",
    )


def check_sklearn_clone_forgets(learner: BatchLearner) -> None:
    """clone() gives a learner that has learned nothing, with the same parameters."""
    stream = example_stream(15)
    model = clone(learner).fit(stream.X, stream.y)
    twin = clone(model)
    assert not hasattr(twin, "classes_")
    assert repr(twin) == repr(clone(learner))
