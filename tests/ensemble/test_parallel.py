"""Parallel tasks: results are bit-identical for any number of threads; errors reach the calling thread."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard import _threads as module
from steelyard._threads import run_tasks
from steelyard.ensemble import mixing
from steelyard.ensemble.expert_ensemble import ExpertEnsemble
from steelyard.persistence import to_bytes
from steelyard.streams import ImbalanceSchedule, KOILMixture


@pytest.fixture
def threads(monkeypatch):
    """Set the number of available threads."""
    return lambda n: monkeypatch.setattr(module, "num_threads", lambda: n)


def test_first_task_runs_in_calling_thread_and_others_in_new_threads(threads):
    threads(3)
    meet, done = threading.Barrier(3, timeout=60), {}

    def task(name):
        def run():
            if name < 3:  # the barrier opens only when three tasks run at the same time
                meet.wait()
            done[name] = threading.current_thread()

        return run

    run_tasks([task(name) for name in range(6)], parallel=True)
    assert sorted(done) == list(range(6))
    assert done[0] is threading.current_thread()
    assert len({done[0], done[1], done[2]}) == 3


@pytest.mark.parametrize("n", [1, 2, 5])
def test_run_tasks_returns_results_in_the_order_of_the_tasks(threads, n):
    threads(n)
    tasks = [partial(pow, base, 2) for base in range(8)]
    assert run_tasks(tasks, parallel=True) == [base**2 for base in range(8)]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_run_tasks_raises_first_of_several_errors_and_leaves_no_thread(threads, n):
    threads(n)
    before = threading.active_count()

    def fails(error):
        def run():
            raise error

        return run

    with pytest.raises(KeyError):
        run_tasks([fails(KeyError("first")), fails(ValueError("second")), lambda: None], parallel=True)
    assert threading.active_count() == before


def test_stream_classifier_is_bit_identical_with_1_2_and_4_threads(threads):
    X, y = KOILMixture(2400, schedule=ImbalanceSchedule.constant(0.1), seed=4).rows(0, 2400)
    y[1500:1600:7] = 2  # a class that appears late
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
    assert len({np.ndim(part) for part in answers}) == 2  # scores of two classes and of three classes


@pytest.mark.parametrize("n", [99, 100, 533, 1000])
def test_scores_of_a_chunk_are_bit_identical_with_1_2_and_5_threads_and_row_by_row(monkeypatch, n):
    X, y = KOILMixture(2000, schedule=ImbalanceSchedule.constant(0.1), seed=4).rows(0, 2000)
    snapshot = StreamClassifier().partial_fit(X[:1000], y[:1000])._ensemble.snapshot
    rows = X[1000 : 1000 + n]
    expected = np.concatenate([snapshot.raw_scores(row[None]) for row in rows])
    for n_threads in (1, 2, 5):
        monkeypatch.setattr(mixing, "num_threads", lambda n_threads=n_threads: n_threads)
        np.testing.assert_array_equal(snapshot.raw_scores(rows), expected)


def test_weights_computed_during_updates_equal_weights_computed_afterwards(threads, monkeypatch):
    update_and_weigh = ExpertEnsemble._update_and_weigh

    def update_then_weigh(ensemble, stream, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(ExpertEnsemble, "_weigh", lambda *_: None)
            update_and_weigh(ensemble, stream, *arguments)
        return ensemble._weigh(stream, ensemble._has_rule())

    X, y = KOILMixture(1200, schedule=ImbalanceSchedule.constant(0.1), seed=4).rows(0, 1200)
    y[900:1000:7] = 2
    threads(2)
    kept = []
    for replaced in (None, update_then_weigh):
        if replaced is not None:
            monkeypatch.setattr(ExpertEnsemble, "_update_and_weigh", replaced)
        model = StreamClassifier()
        for begin in range(0, 1200, 60):  # experts are first fitted after different numbers of rows
            model.partial_fit(X[begin : begin + 60], y[begin : begin + 60])
        kept.append(to_bytes(model))
    assert kept[0] == kept[1]
