"""Experts at work side by side: the same bits however many threads there are, and errors that are told."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.ensemble import side_by_side as module
from steelyard.ensemble.side_by_side import side_by_side
from steelyard.persistence import to_bytes
from steelyard.streams import ImbalanceSchedule, KOILMixture


@pytest.fixture
def threads(monkeypatch):
    """Sets how many threads there are, whatever the machine has."""
    return lambda n: monkeypatch.setattr(module, "num_threads", lambda: n)


def test_the_first_task_is_done_here_and_the_others_elsewhere(threads):
    threads(3)
    meet, done = threading.Barrier(3, timeout=60), {}

    def task(name):
        def run():
            if name < 3:  # three at the same time, or nobody comes through
                meet.wait()
            done[name] = threading.current_thread()

        return run

    side_by_side([task(name) for name in range(6)], worth_it=True)
    assert sorted(done) == list(range(6))
    assert done[0] is threading.current_thread()
    assert len({done[0], done[1], done[2]}) == 3


@pytest.mark.parametrize("n", [1, 2, 5])
def test_of_several_errors_the_first_is_raised_and_nobody_is_left_at_work(threads, n):
    threads(n)
    before = threading.active_count()

    def fails(error):
        def run():
            raise error

        return run

    with pytest.raises(KeyError):
        side_by_side([fails(KeyError("first")), fails(ValueError("second")), lambda: None], worth_it=True)
    assert threading.active_count() == before


def test_a_committee_has_the_same_bits_on_one_thread_and_on_several(threads):
    X, y = KOILMixture(2400, schedule=ImbalanceSchedule.constant(0.1), seed=4).rows(0, 2400)
    y[1500:1600:7] = 2  # a late class
    kept = []
    for n in (1, 2, 4):
        threads(n)
        model, answers = StreamClassifier(), []
        for begin in range(0, 2400, 120):
            part = slice(begin, begin + 120)
            if begin:
                answers.append(model.decision_function(X[part]))
            model.partial_fit(X[part], y[part])
        model.forget(X[2300:2310], y[2300:2310])
        kept.append((to_bytes(model), [part.tobytes() for part in answers]))
    assert kept[0] == kept[1] == kept[2]
    assert len({np.ndim(part) for part in answers}) == 2  # of two classes and of three
