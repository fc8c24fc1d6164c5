"""Several threads at one learner: answers must belong to a state, lessons come one after the other."""

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

__all__ = ["Count", "ask_while_one_learns", "learn_at_once", "switching_often"]


@dataclass
class Count:
    """Answers given, lessons learned."""

    answers: int = 0
    lessons: int = 0


@contextmanager
def switching_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def ask_while_one_learns(subject: Subject, seconds: float, n_readers: int = 3) -> Count:
    """Readers compare every answer with those of all states that there can be."""
    model = subject.taught_copy()
    lessons = _lessons(subject)
    states = _states(copy.deepcopy(model), lessons, subject.questions)
    count, wrong, stop = Count(), [], threading.Event()
    lock = threading.Lock()

    def reader() -> None:
        mine = 0
        while not stop.is_set():
            try:
                answer = _answer(model, subject.questions)
                model.classes_
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
                wrong.append(repr(error))
                continue
            mine += 1
            if answer not in states:
                wrong.append("an answer of no state")
        with lock:
            count.answers += mine

    threads = [threading.Thread(target=reader) for _ in range(n_readers)]
    with switching_often():
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                for lesson in lessons:
                    lesson(model)
                    count.lessons += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not wrong, f"{len(wrong)} of {count.answers} answers: {sorted(set(wrong))[:3]}"
    return count


def _lessons(subject: Subject) -> list[Callable[[Any], object]]:
    """A round of lessons that ends where it began, refused ones among them."""
    start = subject.start()
    if not hasattr(subject.learner, "partial_fit"):
        other = subject.rows(0, 36, two_classes=True)
        return [lambda m: m.fit(*other), lambda m: m.fit(*start)]
    rows = [subject.rows(k, k + 3) for k in range(0, min(30, len(subject.X) - 3), 3)]
    return [
        *[lambda m, part=part: m.partial_fit(*part) for part in rows],
        _refused,
        lambda m: m.fit(*start),
    ]


def _refused(model: Any) -> None:
    try:
        model.partial_fit([[np.nan] * 9], [0])
    except (ValueError, TypeError):
        return
    raise AssertionError("a row that is not finite was taken")


def _states(model: Any, lessons: list[Callable[[Any], object]], questions: Any) -> set[bytes]:
    states = {_answer(model, questions)}
    for lesson in lessons:
        lesson(model)
        states.add(_answer(model, questions))
    return states


def _answer(model: Any, questions: Any) -> bytes:
    return np.asarray(model.decision_function(questions)).tobytes()


def learn_at_once(subject: Subject, n_threads: int = 3, n_lessons: int = 8) -> tuple[Any, list[Any]]:
    """Let threads teach one learner; return it, and the lessons that it was given, of one row each."""
    model = subject.taught_copy()
    failures: list[BaseException] = []
    rows = [subject.rows(k, k + 1, two_classes=True) for k in range(n_threads * n_lessons)]

    def teacher(mine: list[Any]) -> None:
        try:
            for row in mine:
                model.partial_fit(*row)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=teacher, args=(rows[k::n_threads],)) for k in range(n_threads)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    return model, rows
