"""Interrupts a call at a moment of one's choice, as a signal handler that raises would.

The interpreter runs signal handlers between instructions: when a function begins, and when a call of native
code has returned. These are the moments at which a profiler is called, so one that raises is such a handler,
with the advantage that every moment can be tried, one after the other.
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
from steelyard.persistence import encode, from_bytes, to_bytes

__all__ = ["Count", "Interrupted", "interrupt_at", "interrupt_by_signal", "lock_is_free", "try_call"]


class Interrupted(BaseException):
    """What the handler raises; no code has a reason to catch it."""


def interrupt_at(moment: int, call: Callable[[], object]) -> bool:
    """Run a call and interrupt it at its so-and-so-manieth moment; whether it was, or had ended before."""
    left = moment

    def profiler(_frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if event in {"call", "return", "c_return"} and argument is not sys.setprofile:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise Interrupted

    # What strikes while a generator is put away is only printed; the call then comes to its end.
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        sys.setprofile(profiler)
        call()
    except BaseException:
        if left >= 0:
            raise
        return True  # NumPy makes errors of its own of what interrupts it
    finally:
        sys.setprofile(None)
        sys.unraisablehook = before
    return left < 0


def interrupt_by_signal(longest: float, call: Callable[[], object], random_: random.Random) -> bool:
    """Run a call and let a timer's signal interrupt it after a random time; whether it did."""

    fired = over = False

    def handler(_number: int, _frame: Any) -> None:
        nonlocal fired
        fired = True
        if not over:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, random_.uniform(0.0, longest)))
        call()
        over = True  # a signal that comes from here on is nobody's
    except BaseException:
        over = True
        if not fired:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    return fired


def lock_is_free(model: Any) -> bool:
    """Whether another thread could go on with the learner."""
    lock = model.__dict__.get("_lock")
    if lock is None:
        return True
    found: list[bool] = []

    def other() -> None:
        found.append(lock.acquire(timeout=5.0))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return found[0]


def essence(model: Any) -> bytes:
    """The learner's bytes, but for what an exact solver keeps only to be faster.

    An interrupted one may keep other rows of the kernel matrix than before, and a factor of the same matrix
    that it has worked out anew, with other last digits. What answers come from is the same, bit for bit.
    """
    learner = getattr(model, "learner_", None) or getattr(model, "estimator_", model)
    if isinstance(model, StreamClassifier):
        return _committee_essence(model)
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


def _committee_essence(model: StreamClassifier) -> bytes:
    """The committee's bytes, but for how far its kernel machine has been solved.

    One that a call has changed before it was interrupted is made anew of the rows that are its own, and then
    agrees up to its tolerance. What answers now is the same, bit for bit.
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
    """How interrupted calls left their learners."""

    before: int = 0
    after: int = 0
    not_reached: int = 0


def try_call(
    taught: Any,
    questions: Any,
    call: Callable[[Any], object],
    interrupt: Callable[[int, Callable[[], object]], bool],
    n_times: int,
) -> Count:
    """Interrupt a call on copies of a learner again and again; it must be before or after it every time.

    ``interrupt`` gets a number from 0 on and the call, and says whether it interrupted it.
    """
    taught.decision_function(questions)  # ProximalSVC(C="auto") chooses when it is first asked
    count, before = Count(), essence(taught)
    done = copy.deepcopy(taught)
    call(done)
    after = essence(done)
    reference = {before: taught, after: done}
    # Of each state: questions of its width, and what a learner that was loaded says to them.
    answers: dict[bytes, tuple[Any, Any]] = {}
    for number in range(n_times):
        model = copy.deepcopy(taught)
        model.decision_function(questions)  # so that there is something remembered that could be stale
        if not interrupt(number, lambda: call(model)):  # noqa: B023 - called at once
            count.not_reached += 1
            if count.not_reached > 3:  # moments are tried in order: no more of them are to come
                break
        state = essence(model)
        assert state in {before, after}, f"neither before nor after, at moment {number}"
        count.before += state == before
        count.after += state == after
        if state not in answers:
            asked = padded(questions, model.n_features_in_)
            answers[state] = asked, from_bytes(to_bytes(reference[state])).decision_function(asked)
        asked, expected = answers[state]
        assert np.array_equal(model.decision_function(asked), expected), f"stale at moment {number}"
        assert lock_is_free(model), f"the lock is not free after moment {number}"
    return count


def padded(questions: Any, width: int) -> Any:
    """Questions for a learner that may have grown meanwhile."""
    if isinstance(questions, list) or questions.shape[1] == width:
        return questions
    return np.pad(questions, ((0, 0), (0, width - questions.shape[1])))
