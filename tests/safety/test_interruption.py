"""An exception from a signal handler leaves a learner in the state before the call or after it."""

from __future__ import annotations

import copy
import random
import time

import pytest

from steelyard import ProximalSVC
from steelyard.windowing import SlidingWindow
from tests.safety.interruption import interrupt_at, interrupt_by_signal, try_call
from tests.safety.subjects import SUBJECTS

CASES = [
    pytest.param(subject, name, call, id=f"{subject.name}-{name}")
    for subject in SUBJECTS
    for name, call in subject.calls()
]
MAX_MOMENTS = 14  # moments of interruption per call; `make torture` tries all of them


@pytest.mark.parametrize(("subject", "name", "call"), CASES)
def test_interrupted_call_leaves_learner_in_state_before_or_after_call(subject, name, call):
    fitted = subject.fitted()
    length = _n_moments(subject, call)
    seed = random.Random(f"{subject.name} {name}")
    # The state changes in the last moments, so more of them are tested.
    early = sorted(seed.sample(range(length), min(MAX_MOMENTS, length)))
    moments = sorted({*early, *range(max(0, length - 6), length)})
    count = try_call(
        fitted, subject.questions, call, lambda number, run: interrupt_at(moments[number], run), len(moments)
    )
    assert count.before > 0


def _n_moments(subject, call):
    """Return the number of moments at which a call can be interrupted, found by bisection."""
    low, high = 0, 1
    while _reaches(subject, call, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _reaches(subject, call, middle) else (low, middle)
    return high


def _reaches(subject, call, moment):
    model = subject.fitted_copy()
    return interrupt_at(moment, lambda: call(model))


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_signal_at_random_time_leaves_learner_in_state_before_or_after_call(subject):
    random_ = random.Random(subject.name)
    _, call = list(subject.calls())[-1]
    model = subject.fitted_copy()
    begin = time.perf_counter()
    call(model)
    longest = 1.2 * (time.perf_counter() - begin)
    try_call(
        subject.fitted_copy(),
        subject.questions,
        call,
        lambda _, run: interrupt_by_signal(longest, run, random_) or True,
        25,
    )


def test_interruption_harness_detects_non_atomic_update():
    class TwoSteps(SlidingWindow):
        def partial_fit(self, X, y, classes=None, *, time=None):
            self.estimator_.partial_fit(X, y)
            self.n_rebuilt_ = 1
            return self

    subject = next(subject for subject in SUBJECTS if subject.name == "SlidingWindow of ProximalSVC")
    fitted = TwoSteps(ProximalSVC(), size=50)
    fitted.__dict__.update(subject.fitted().__dict__)
    found = set()
    for moment in range(400):
        model = copy.deepcopy(fitted)
        rows = subject.rows(40, 45, two_classes=True)
        if not interrupt_at(moment, lambda: model.partial_fit(*rows)):  # noqa: B023
            break
        found.add((float(model.estimator_.class_count_.sum()), model.n_rows_))
    assert (45.0, 40) in found  # the estimator has learned rows that are not in the window
