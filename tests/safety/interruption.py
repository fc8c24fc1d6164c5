"""Interruption of a call at a chosen moment, like a signal handler that raises.

The interpreter runs signal handlers when a function begins and after native calls. It calls a profiler at the
same moments. A profiler that raises therefore simulates a signal handler, and every moment can be tested.
"""

from __future__ import annotations

import copy
import random
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard import IncrementalSVC, StreamClassifier
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.tree import encode

__all__ = ["Count", "Interrupted", "interrupt_at", "interrupt_by_signal", "lock_is_free", "try_call"]


class Interrupted(BaseException):
    """Exception that the handler raises. It is not a subclass of Exception."""


def interrupt_at(moment: int, call: Callable[[], object]) -> bool:
    """Run a call, raise at the given moment, and return whether the call was interrupted."""
    left = moment

    def profiler(_frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if event in {"call", "return", "c_return"} and argument is not sys.setprofile:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise Interrupted

    # If an exception is raised while a generator is closed, Python only prints it, and the call continues.
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        sys.setprofile(profiler)
        call()
    except BaseException:
        if left >= 0:
            raise
        return True  # NumPy may replace the exception
    finally:
        sys.setprofile(None)
        sys.unraisablehook = before
    return left < 0


def interrupt_by_signal(longest: float, call: Callable[[], object], random_: random.Random) -> bool:
    """Run a call, interrupt it by a timer signal after a random time, and return whether this succeeded."""

    fired = over = False

    def handler(_number: int, _frame: Any) -> None:
        nonlocal fired
        fired = True
        if not over:
            raise Interrupted

    # The handler stays installed and ignores late signals. Another thread may receive the signal after the
    # timer is stopped, and without the handler the signal would end the process.
    signal.signal(signal.SIGALRM, handler)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, random_.uniform(0.0, longest)))
        call()
        over = True  # later signals are ignored
    except BaseException:
        over = True
        if not fired:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = hook
    return fired


def lock_is_free(model: Any) -> bool:
    """Return whether another thread can acquire the lock of the learner."""
    lock = model.__dict__.get("_lock")
    if lock is None:
        return True
    acquired: list[bool] = []

    def try_acquire() -> None:
        acquired.append(lock.acquire(timeout=60.0))
        if acquired[0]:
            lock.release()

    thread = threading.Thread(target=try_acquire)
    thread.start()
    thread.join()
    return acquired[0]


def comparable_bytes(model: Any) -> bytes:
    """Return the bytes of a learner without the caches of an exact solver.

    After an interruption the solver may cache other rows of the kernel matrix, and a recomputed factor may
    have other last digits. The values that determine predictions are bitwise equal.
    """
    learner = getattr(model, "estimator_", model)
    if isinstance(model, StreamClassifier):
        return _ensemble_bytes(model)
    if not isinstance(learner, IncrementalSVC):
        return to_bytes(model)
    tree = learner._get_state()
    for name in ("kept", "n_wanted", "value_bytes"):
        del tree["solution"][name]
    for problem in tree["solution"]["problems"]:
        del problem["factor"]
    kernel = repr(tree.pop("kernel"))
    window = (
        None
        if learner is model
        else {
            name: value for name, value in model._get_state().items() if name not in {"learner", "classifier"}
        }
    )
    return encode({"tree": tree, "kernel": kernel, "window": window})


def _ensemble_bytes(model: StreamClassifier) -> bytes:
    """Return the bytes of an ensemble without the solution of its kernel SVM.

    A kernel SVM that an interrupted call has changed is fitted again on its rows and agrees up to its
    tolerance. The values that determine current predictions are bitwise equal.
    """
    tree = model._get_state()
    for expert in tree["experts"]:
        learner = expert.get("learner")
        if isinstance(learner, IncrementalSVC):
            rows = learner._get_state()["solution"]["rows"]
            expert["learner"] = [learner.class_count_, np.sort(rows, axis=0)]
        elif learner is not None:
            expert["learner"] = to_bytes(learner).hex()
    feature_map = tree["views"].pop("map", None)
    tree["map"] = feature_map and to_bytes(feature_map).hex()
    return encode(tree)


@dataclass
class Count:
    """Counts of the states after interrupted calls."""

    before: int = 0
    after: int = 0
    not_reached: int = 0


def try_call(
    fitted: Any,
    questions: Any,
    call: Callable[[Any], object],
    interrupt: Callable[[int, Callable[[], object]], bool],
    n_times: int,
) -> Count:
    """Interrupt a call on copies of a learner, and assert that each copy is in the state before or after it.

    ``interrupt`` is called with the number of the trial and the call. It runs the call and returns whether
    the call was interrupted.
    """
    fitted.decision_function(questions)  # ProximalSVC(C="auto") selects C at the first prediction
    count, before = Count(), comparable_bytes(fitted)
    done = copy.deepcopy(fitted)
    call(done)
    after = comparable_bytes(done)
    reference = {before: fitted, after: done}
    # For each state of the learner: rows with as many features, and the scores of a loaded learner.
    answers: dict[bytes, tuple[Any, Any]] = {}
    for number in range(n_times):
        model = copy.deepcopy(fitted)
        model.decision_function(questions)  # fills caches that could become stale
        if not interrupt(number, lambda: call(model)):  # noqa: B023 - called immediately
            count.not_reached += 1
            if count.not_reached > 3:  # moments are tried in order, so later moments are not reached either
                break
        state = comparable_bytes(model)
        assert state in {before, after}, (
            f"the saved state after trial {number} is neither that before nor that after the call: parts "
            "were not changed together (VersionedValue), or equal calls give different states (random_state)"
        )
        count.before += state == before
        count.after += state == after
        if state not in answers:
            test_rows = padded(questions, model.n_features_in_)
            answers[state] = test_rows, from_bytes(to_bytes(reference[state])).decision_function(test_rows)
        test_rows, expected = answers[state]
        assert np.array_equal(model.decision_function(test_rows), expected), (
            f"stale scores after trial {number}"
        )
        assert lock_is_free(model), f"the lock is held after trial {number}"
    return count


def padded(questions: Any, width: int) -> Any:
    """Return rows padded with zeros to ``width`` features, because the learner may have grown."""
    if isinstance(questions, list) or questions.shape[1] == width:
        return questions
    return np.pad(questions, ((0, 0), (0, width - questions.shape[1])))
