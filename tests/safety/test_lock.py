"""The lock of a learner is re-entrant, interruptible by signals, not shared by copies, free after a fork."""

import copy
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from steelyard import KOIL, ProximalSVC
from steelyard._concurrency import lock_of
from steelyard.distributed.files import StatisticsPart
from steelyard.federated.hub import Hub
from steelyard.sql.cube import StatisticsCube
from tests.safety.subjects import X, Y


def _in_other_thread(task):
    results = []
    thread = threading.Thread(target=lambda: results.append(task()))
    thread.start()
    thread.join()
    return results[0]


def test_reentrant_lock_is_free_after_the_same_number_of_releases():
    owner = ProximalSVC()
    lock = lock_of(owner)
    with lock, lock:
        assert not _in_other_thread(lambda: lock.acquire(blocking=False))
    assert _in_other_thread(lambda: lock.acquire(timeout=60.0))


def test_signal_handler_interrupts_a_thread_that_waits_for_the_lock():
    lock, is_held, stop = lock_of(ProximalSVC()), threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            stop.wait(300.0)

    def handler(_number, _frame):
        raise InterruptedError

    def acquire_with_alarm():
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        lock.acquire()

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        with pytest.raises(InterruptedError):
            acquire_with_alarm()
    finally:
        signal.signal(signal.SIGALRM, before)
        stop.set()
        thread.join()
    assert lock.acquire(timeout=60.0)


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize(
    "owner", [ProximalSVC(), StatisticsPart(ProximalSVC()), StatisticsCube(by=["a"], target="y"), Hub()]
)
def test_copy_of_learner_has_a_separate_lock(owner, make_copy):
    with lock_of(owner):
        assert lock_of(make_copy(owner)) is not lock_of(owner)


@pytest.mark.parametrize("learner", [ProximalSVC(C="auto"), KOIL(random_state=0)], ids=repr)
def test_predict_is_not_starved_by_a_thread_that_learns_continuously(learner):
    """Both learners predict under the lock: one computes its hyperplanes, the other is changed in place."""
    model = learner.fit(X[:40], np.minimum(Y[:40], 1))
    stop = threading.Event()

    def learn():
        while not stop.is_set():
            model.partial_fit(X[40:60], np.minimum(Y[40:60], 1))

    thread = threading.Thread(target=learn)
    thread.start()
    waits = []
    try:
        for _ in range(30):
            begin = time.monotonic()
            model.predict(X[:2])
            waits.append(time.monotonic() - begin)
    finally:
        stop.set()
        thread.join()
    assert max(waits) < 10.0
    assert np.median(waits) < 1.0
