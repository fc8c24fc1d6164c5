"""An exception from a signal handler, at whatever moment, leaves a learner before the call or after it."""

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
MOMENTS = 14  # of each call, spread over its length; `make torture` tries all of them


@pytest.mark.parametrize(("subject", "name", "call"), CASES)
def test_whatever_interrupts_a_call_finds_the_learner_before_or_after_it(subject, name, call):
    taught = subject.taught()
    length = _n_moments(subject, call)
    seed = random.Random(f"{subject.name} {name}")
    # The last moments are those at which things change, so more of them are tried.
    early = sorted(seed.sample(range(length), min(MOMENTS, length)))
    moments = sorted({*early, *range(max(0, length - 6), length)})
    count = try_call(
        taught, subject.questions, call, lambda number, run: interrupt_at(moments[number], run), len(moments)
    )
    assert count.before > 0


def _n_moments(subject, call):
    """How many moments a call has, by halving."""
    low, high = 0, 1
    while _reaches(subject, call, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _reaches(subject, call, middle) else (low, middle)
    return high


def _reaches(subject, call, moment):
    model = subject.taught_copy()
    return interrupt_at(moment, lambda: call(model))


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_signals_at_random_times_find_it_so_too(subject):
    random_ = random.Random(subject.name)
    _, call = list(subject.calls())[-1]
    model = subject.taught_copy()
    begin = time.perf_counter()
    call(model)
    longest = 1.2 * (time.perf_counter() - begin)
    try_call(
        subject.taught_copy(),
        subject.questions,
        call,
        lambda _, run: interrupt_by_signal(longest, run, random_) or True,
        25,
    )


def test_a_harness_that_finds_nothing_would_find_a_learner_that_changes_in_two_steps():
    class TwoSteps(SlidingWindow):
        def partial_fit(self, X, y, classes=None, *, time=None):
            self.learner_.partial_fit(X, y)
            self.n_rebuilt_ = 1
            return self

    subject = next(subject for subject in SUBJECTS if subject.name == "SlidingWindow of ProximalSVC")
    taught = TwoSteps(ProximalSVC(), size=50)
    taught.__dict__.update(subject.taught().__dict__)
    found = set()
    for moment in range(400):
        model = copy.deepcopy(taught)
        rows = subject.rows(40, 45, two_classes=True)
        if not interrupt_at(moment, lambda: model.partial_fit(*rows)):  # noqa: B023
            break
        found.add((float(model.learner_.class_count_.sum()), model.n_rows_))
    assert (45.0, 40) in found  # rows that the window does not know of
