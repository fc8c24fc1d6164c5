"""The lock by which calls take turns: one at a time, re-entrant, fair enough, interruptible."""

from __future__ import annotations

import pickle
import signal
import threading
import time

import pytest

from steelyard._concurrency import Lock
from tests.safety.threads import switching_often


def _in_another_thread(task):
    found = []
    thread = threading.Thread(target=lambda: found.append(task()))
    thread.start()
    thread.join(timeout=30.0)
    return found[0]


def test_one_thread_at_a_time_holds_it():
    lock, inside, n = Lock(), [], 0

    def work():
        nonlocal n
        for _ in range(300):
            with lock:
                inside.append(1)
                assert len(inside) == 1
                before = n
                time.sleep(0)  # others may run
                n = before + 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert n == 4 * 300


def test_it_is_taken_and_given_back_as_often():
    lock = Lock()
    with lock, lock:
        assert not _in_another_thread(lambda: lock.acquire(blocking=False))
    assert _in_another_thread(lambda: lock.acquire(timeout=1.0))  # and never given back
    begin = time.monotonic()
    assert not lock.acquire(timeout=0.1)
    assert time.monotonic() - begin >= 0.1


def test_only_who_holds_it_gives_it_back():
    lock = Lock()
    with pytest.raises(RuntimeError, match="not held"):
        lock.release()
    with lock:
        assert "not held" in _in_another_thread(lambda: _error_of(lock.release))


def _error_of(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def test_who_waits_gets_in_although_another_takes_it_again_and_again():
    lock, stop = Lock(), threading.Event()

    def hog():
        while not stop.is_set():
            with lock:
                time.sleep(0.002)

    thread = threading.Thread(target=hog)
    thread.start()
    try:
        for _ in range(5):
            assert lock.acquire(timeout=3.0)
            lock.release()
    finally:
        stop.set()
        thread.join()


def test_a_signal_reaches_who_waits():
    lock, held, done = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(30.0)

    def handler(_number, _frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(InterruptedError):
            lock.acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
        done.set()
        thread.join()
    assert lock.acquire(timeout=5.0)


def test_after_a_fork_the_child_keeps_what_is_its_own_and_nothing_of_others():
    mine, theirs = Lock(), Lock()
    _in_another_thread(theirs.acquire)  # by a thread that is no more, as in a child
    with mine:
        for lock in (mine, theirs):
            lock.start_anew_after_fork()
        assert not _in_another_thread(lambda: mine.acquire(blocking=False))
        assert _in_another_thread(lambda: theirs.acquire(blocking=False))
    assert _in_another_thread(lambda: mine.acquire(blocking=False))


def test_a_copy_is_another_lock():
    lock = Lock()
    with lock:
        twin = pickle.loads(pickle.dumps(lock))
        assert _in_another_thread(lambda: twin.acquire(blocking=False))


def test_who_waits_gets_its_turn_although_another_takes_many_short_ones():
    """Its turns are far shorter than the time after which those who wait go first."""
    lock, stop, n_turns = Lock(), threading.Event(), 0

    def take_turns():
        nonlocal n_turns
        while not stop.is_set():
            with lock:
                time.sleep(0.0005)
                n_turns += 1

    busy = threading.Thread(target=take_turns)
    busy.start()
    try:
        for _ in range(5):
            before = n_turns
            while n_turns < before + 3:
                time.sleep(0.001)
            assert lock.acquire(timeout=3.0)
            lock.release()
    finally:
        stop.set()
        busy.join()
