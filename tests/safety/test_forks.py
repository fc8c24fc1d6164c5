"""A process that forks while another of its threads learns: the child can learn, and its models are whole."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from steelyard import IncrementalSVC, ProximalSVC, StreamClassifier, _concurrency
from tests.safety.subjects import X, Y

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def _in_a_child(task, seconds=20):
    """The exit status of a task in a forked process; a child that hangs is ended by its alarm."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            os._exit(0 if task() else 1)
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on with the suite
            os._exit(2)
    return os.waitpid(child, 0)[1]


@needs_fork
@pytest.mark.parametrize(
    "learner", [ProximalSVC(), IncrementalSVC(gamma=0.4), StreamClassifier()], ids=lambda x: type(x).__name__
)
def test_a_child_of_a_process_that_learns_can_learn(learner):
    model = learner.fit(X[:40], Y[:40])
    stop = threading.Event()

    def teach():
        while not stop.is_set():
            model.partial_fit(X[40:44], Y[40:44])
            if hasattr(model, "forget"):
                model.forget(X[40:44], Y[40:44])

    def learn():
        model.partial_fit(X[44:48], Y[44:48])
        return np.isfinite(model.decision_function(X[:5])).all()

    teacher = threading.Thread(target=teach)
    teacher.start()
    try:
        statuses = [_in_a_child(learn) for _ in range(20)]
    finally:
        stop.set()
        teacher.join()
    assert statuses == [0] * 20


@needs_fork
def test_a_process_may_fork_inside_of_a_call_that_learns():
    lock = _concurrency.Lock()
    with lock:
        assert _in_a_child(lambda: lock.acquire(blocking=False)) == 0
    assert lock.acquire(blocking=False)
    lock.release()


@needs_fork
def test_a_lock_that_is_never_released_does_not_reach_the_child(monkeypatch):
    monkeypatch.setattr(_concurrency._fork_guard, "timeout_seconds", 0.05)
    lock = _concurrency.Lock()
    taken, stop = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            stop.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    try:
        assert _in_a_child(lambda: lock.acquire(blocking=False)) == 0
        assert not lock.acquire(blocking=False)
    finally:
        stop.set()
        holder.join()
