"""Forks while another thread learns: the child can learn, and its models are consistent."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from steelyard import IncrementalSVC, ProximalSVC, StreamClassifier, _concurrency, _threads
from tests.safety.subjects import X, Y

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


class Owner:
    """Object to which a lock can be attached."""


def _in_child(task, seconds=120):
    """Return the exit status of a task in a forked process. An alarm ends a child that hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            os._exit(0 if task() else 1)
        except BaseException:  # noqa: BLE001 - the child must not continue the test suite
            os._exit(2)
    return os.waitpid(child, 0)[1]


@needs_fork
@pytest.mark.parametrize(
    "learner", [ProximalSVC(), IncrementalSVC(gamma=0.4), StreamClassifier()], ids=lambda x: type(x).__name__
)
def test_child_process_forked_during_learning_can_learn(learner):
    model = learner.fit(X[:40], Y[:40])
    stop = threading.Event()

    def learn_continuously():
        while not stop.is_set():
            model.partial_fit(X[40:44], Y[40:44])
            if hasattr(model, "forget"):
                model.forget(X[40:44], Y[40:44])

    def learn():
        model.partial_fit(X[44:48], Y[44:48])
        return np.isfinite(model.decision_function(X[:5])).all()

    thread = threading.Thread(target=learn_continuously)
    thread.start()
    try:
        statuses = [_in_child(learn) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert statuses == [0] * 20


@needs_fork
def test_fork_while_holding_the_lock_keeps_the_lock_usable():
    owner = Owner()
    lock = _concurrency.lock_of(owner)
    with lock:
        assert _in_child(lambda: lock.acquire(blocking=False)) == 0
    assert lock.acquire(blocking=False)
    lock.release()


@needs_fork
def test_lock_held_longer_than_the_fork_timeout_is_free_in_the_child(monkeypatch):
    monkeypatch.setattr(_concurrency._fork_guard, "timeout_seconds", 0.05)
    owner = Owner()
    lock = _concurrency.lock_of(owner)
    is_held, stop = threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            stop.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    try:
        assert _in_child(lambda: lock.acquire(blocking=False)) == 0
        assert not lock.acquire(blocking=False)
    finally:
        stop.set()
        holder.join()


@needs_fork
def test_background_task_of_a_child_runs_no_tasks_of_a_call_in_the_parent(monkeypatch):
    monkeypatch.setattr(_threads, "num_threads", lambda: 2)
    begun, goes_on = threading.Event(), threading.Event()

    def wait():
        begun.set()
        goes_on.wait(60)

    def result_of_background_task():
        return _threads.BackgroundTask(lambda: True).result()

    calls = []
    tasks = [wait, wait, lambda: calls.append(os.getpid())]
    caller = threading.Thread(target=_threads.run_tasks, args=[tasks], kwargs={"parallel": True})
    caller.start()
    begun.wait(60)
    assert _in_child(lambda: result_of_background_task() and not _threads._open_queues and not calls) == 0
    goes_on.set()
    caller.join()
    assert calls == [os.getpid()]
