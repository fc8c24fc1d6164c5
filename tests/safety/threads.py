"""Several threads use one learner: every prediction belongs to one state, and updates are serialized."""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.safety.subjects import Subject

__all__ = ["Count", "learn_concurrently", "predict_while_learning", "switching_often"]


@dataclass
class Count:
    """Numbers of predictions and updates."""

    predictions: int = 0
    updates: int = 0


@contextmanager
def switching_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def predict_while_learning(subject: Subject, seconds: float, n_readers: int = 3) -> Count:
    """Predict in several threads while one learns, and compare with the scores of all possible states.

    Learning continues until at least one prediction was made, because threads may start late on a busy
    machine.
    """
    model = subject.fitted_copy()
    updates = _updates(subject)
    states = _states(copy.deepcopy(model), updates, subject.questions)
    count, wrong, stop, has_predicted = Count(), [], threading.Event(), threading.Event()
    lock = threading.Lock()

    def reader() -> None:
        n_predictions = 0
        while not stop.is_set():
            try:
                scores = _score_bytes(model, subject.questions)
                model.classes_
            except Exception as error:  # noqa: BLE001 - any exception is a failure
                wrong.append(repr(error))
                continue
            n_predictions += 1
            has_predicted.set()
            if scores not in states:
                wrong.append("scores that belong to no state")
        with lock:
            count.predictions += n_predictions

    threads = [threading.Thread(target=reader) for _ in range(n_readers)]
    with switching_often():
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end or (not has_predicted.is_set() and time.monotonic() < end + 60):
                for update in updates:
                    update(model)
                    count.updates += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not wrong, (
        f"{len(wrong)} of {count.predictions} predictions: {sorted(set(wrong))[:3]}; a learner with a "
        "random_state needs a number there, so that the same rows give the same scores"
    )
    return count


def _updates(subject: Subject) -> list[Callable[[Any], object]]:
    """Return updates that end in the initial state, including one that raises."""
    start = subject.start()
    if not hasattr(subject.learner, "partial_fit"):
        other = subject.rows(0, 36, two_classes=True)
        return [lambda m: m.fit(*other), lambda m: m.fit(*start)]
    rows = [subject.rows(k, k + 3) for k in range(0, min(30, len(subject.X) - 3), 3)]
    return [
        *[lambda m, part=part: m.partial_fit(*part) for part in rows],
        _raising_update,
        lambda m: m.fit(*start),
    ]


def _raising_update(model: Any) -> None:
    try:
        model.partial_fit([[np.nan] * 9], [0])
    except (ValueError, TypeError):
        return
    raise AssertionError("a row with NaN was accepted")


def _states(model: Any, updates: list[Callable[[Any], object]], questions: Any) -> set[bytes]:
    states = {_score_bytes(model, questions)}
    for update in updates:
        update(model)
        states.add(_score_bytes(model, questions))
    return states


def _score_bytes(model: Any, questions: Any) -> bytes:
    return np.asarray(model.decision_function(questions)).tobytes()


def learn_concurrently(subject: Subject, n_threads: int = 3, n_updates: int = 8) -> tuple[Any, list[Any]]:
    """Learn single rows in several threads; return the learner and the rows."""
    model = subject.fitted_copy()
    failures: list[BaseException] = []
    rows = [subject.rows(k, k + 1, two_classes=True) for k in range(n_threads * n_updates)]

    def learn(own_rows: list[Any]) -> None:
        try:
            for row in own_rows:
                model.partial_fit(*row)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=learn, args=(rows[k::n_threads],)) for k in range(n_threads)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    return model, rows
