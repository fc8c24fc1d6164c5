"""Deferred fits of boosted trees: bits do not depend on threads, copies or files."""

from __future__ import annotations

import copy
import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import StreamClassifier, _threads
from steelyard._threads import BackgroundTask, run_tasks
from steelyard.ensemble import expert_ensemble
from steelyard.ensemble.experts import EXPERTS, boosting
from steelyard.persistence import from_bytes, to_bytes
from tests.safety.interruption import comparable_bytes

LONGEST = [config.name for config in EXPERTS].index("trees all")
N_FIRST = 900  # after this number of rows, a fit is pending


def _stream(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, ((X[:, 0] * X[:, 1] > 0.4) ^ (rng.random(n) < 0.05)).astype(np.int64)


X, Y = _stream(4000)


@pytest.fixture
def threads(monkeypatch):
    """Set the number of available threads."""
    return lambda n: monkeypatch.setattr(_threads, "num_threads", lambda: n)


@pytest.fixture
def deferred(monkeypatch):
    """Defer fits early and for long, so that short streams test them."""
    monkeypatch.setattr(boosting, "_DEFER_AFTER_ROWS", 600)
    monkeypatch.setattr(boosting, "_DEFERRED_SHARE", 0.7)


def _learned(n=N_FIRST, size=60, **options):
    model = StreamClassifier(**options)
    for begin in range(0, n, size):
        model.partial_fit(X[begin : begin + size], Y[begin : begin + size])
    return model


def _longest(model):
    return model._ensemble.experts[LONGEST]


# -- background tasks -------------------------------------------------------------------------------------


def test_background_task_runs_while_the_caller_goes_on_and_result_waits(threads):
    threads(2)
    begin = threading.Event()

    def run():
        assert begin.wait(60)
        return threading.current_thread()

    task = BackgroundTask(run)
    begin.set()
    assert task.result() is not threading.current_thread()


def test_background_task_runs_at_once_on_one_thread_and_later_if_it_does_not_start(threads):
    calls = []
    threads(1)
    task = BackgroundTask(lambda: calls.append(threading.current_thread()))
    assert calls == [threading.current_thread()]
    task.result()
    threads(2)
    later = BackgroundTask(lambda: calls.append("later"), starts=False)
    assert len(calls) == 1
    later.result()
    later.result()
    assert calls[1:] == ["later"]


def test_error_of_background_task_is_raised_by_every_call_of_result(threads):
    threads(2)
    task = BackgroundTask(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            task.result()


def test_pickled_background_task_has_the_result(threads):
    threads(2)
    task = BackgroundTask(lambda: [1, 2])  # a function that cannot be pickled
    assert pickle.loads(pickle.dumps(task)).result() == [1, 2]
    assert copy.deepcopy(task).result() == [1, 2]


def test_tasks_do_not_use_the_core_of_a_background_task(threads):
    threads(2)
    end = threading.Event()
    task = BackgroundTask(lambda: end.wait(60))

    def users():
        return set(run_tasks([threading.current_thread] * 2, parallel=True))

    assert users() == {threading.current_thread()}
    end.set()
    assert task.result()
    assert not _threads._running()


def test_thread_of_ended_background_task_runs_tasks_of_a_call_that_has_begun(threads):
    threads(2)
    end, begun = threading.Event(), threading.Event()
    BackgroundTask(lambda: end.wait(60))

    def first():
        end.set()
        return begun.wait(60)

    def second():
        begun.set()
        return threading.current_thread()

    has_begun, helper = run_tasks([first, second], parallel=True)
    assert has_begun
    assert helper is not threading.current_thread()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_waits_for_background_tasks(threads):
    threads(2)
    begin = threading.Event()

    def run():
        assert begin.wait(60)
        return 3

    task = BackgroundTask(run)
    threading.Timer(0.05, begin.set).start()
    child = os.fork()
    if child == 0:
        os._exit(task.result())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


# -- deferred fits of an expert ---------------------------------------------------------------------------


def test_deferred_trees_replace_the_earlier_ones_at_a_known_row(threads, deferred):
    threads(2)
    model = _learned()
    expert = _longest(model)
    fit, trees = expert.next_fit, expert.trees
    assert expert.n_seen_at_update < fit.n_seen <= N_FIRST
    assert fit.ends_at > N_FIRST
    n = N_FIRST
    while n < fit.ends_at:
        assert _longest(model).trees is trees
        model.partial_fit(X[n : n + 60], Y[n : n + 60])
        n += 60
    expert = _longest(model)
    assert expert.trees is fit.task.result().trees
    assert expert.rule.forest is expert.trees.forest
    np.testing.assert_array_equal(expert.held, fit.held)
    assert expert.n_seen_at_update == fit.n_seen


def test_update_that_waits_for_a_deferred_fit_is_the_last_task(threads, deferred, monkeypatch):
    threads(2)
    model, calls = _learned(), []

    def record(tasks, *, parallel):
        calls.append(tasks)
        return run_tasks(tasks, parallel=parallel)

    monkeypatch.setattr(expert_ensemble, "run_tasks", record)
    n = _longest(model).next_fit.ends_at - N_FIRST
    model.partial_fit(X[N_FIRST : N_FIRST + n], Y[N_FIRST : N_FIRST + n])
    assert calls[-1][-1].args == ([_longest(model)],)


def test_fits_are_not_deferred_in_the_first_rows_and_in_a_call_of_several_blocks():
    assert boosting._DEFER_AFTER_ROWS >= 2000
    assert _longest(_learned()).next_fit is None
    assert _longest(StreamClassifier().fit(X, Y)).next_fit is None


def test_new_class_is_fitted_at_once(threads, deferred):
    threads(2)
    model = _learned()
    assert _longest(model).next_fit is not None
    model.partial_fit(X[N_FIRST : N_FIRST + 60], np.r_[np.full(20, 2), Y[N_FIRST : N_FIRST + 40]])
    assert _longest(model).next_fit is None
    assert _longest(model).trees.classes == [0, 1, 2]


@pytest.mark.parametrize("gone", [slice(100, 104), slice(-3, None)])
def test_forgotten_row_is_in_no_trees_and_in_no_deferred_fit(threads, deferred, gone):
    threads(2)
    model = _learned()
    numbers = _longest(model).next_fit.held[gone]
    model.forget(X[numbers], Y[numbers])
    expert = _longest(model)
    assert expert.next_fit is None
    assert not np.isin(numbers, expert.held).any()
    fresh = expert._fitted(expert.held, model._ensemble.stream(), is_sampled=expert.is_sampled)
    for ours, theirs in zip(expert.trees.forest, fresh.trees.forest, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_failed_fit_raises_and_leaves_the_model_as_it_was(threads, deferred, monkeypatch):
    threads(2)
    model = _learned()
    fit, before = _longest(model).next_fit, comparable_bytes(model)
    n = fit.ends_at - N_FIRST
    assert n <= 1000

    def fails():
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setitem(fit.__dict__, "task", BackgroundTask(fails))  # the class is frozen
        with pytest.raises(MemoryError):
            model.partial_fit(X[N_FIRST : N_FIRST + n], Y[N_FIRST : N_FIRST + n])
    assert comparable_bytes(model) == before
    model.partial_fit(X[N_FIRST : N_FIRST + n], Y[N_FIRST : N_FIRST + n])
    assert _longest(model).n_seen_at_update == fit.n_seen


def test_window_is_respected_by_deferred_fits(threads, deferred):
    threads(2)
    model = _learned(1500, 20, window=700)
    # Trees are replaced at the latest when a tenth of their rows has left the window.
    assert _longest(model).held.min() >= 800 - 90


def test_file_with_rows_that_are_not_in_the_buffer_is_refused(threads, deferred):
    threads(1)
    state = _learned()._get_state()
    next_fit = state["experts"][LONGEST]["next_fit"]
    next_fit["held"] = next_fit["held"] + 10_000
    with pytest.raises(ValueError, match="not in the buffer"):
        StreamClassifier()._set_state(state)


# -- histories --------------------------------------------------------------------------------------------


def _pickled(model):
    return pickle.loads(pickle.dumps(model))


def _loaded(model):
    return from_bytes(to_bytes(model))


def _forgotten(model, first, n):
    return model.forget(X[first : first + n], Y[first : first + n])


_STEPS = st.one_of(
    st.tuples(st.just("learn"), st.integers(1, 120)),
    st.tuples(st.just("forget"), st.integers(1, 40)),
    st.sampled_from([("copy", copy.deepcopy), ("pickle", _pickled), ("file", _loaded)]),
)


def _run(base, steps, *, n_threads, with_copies):
    """Return the bytes of the model and its scores after every step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_threads, "num_threads", lambda: n_threads)
        model, n, n_forgotten, kept = from_bytes(base), N_FIRST, 0, []
        for name, value in steps:
            if name == "learn":
                model.partial_fit(X[n : n + value], Y[n : n + value])
                n += value
            elif name == "forget":
                _forgotten(model, 500 + n_forgotten, value)
                n_forgotten += value
            elif with_copies:
                model = value(model)
            kept.append((to_bytes(model), model.decision_function(X[-50:]).tobytes()))
        return kept


def test_history_has_the_same_bits_for_any_threads_copies_and_files(deferred):
    base = to_bytes(_learned())
    assert _longest(from_bytes(base)).next_fit is not None

    @settings(max_examples=12, deadline=None)
    @given(st.lists(_STEPS, min_size=2, max_size=8))
    def check(steps):
        expected = _run(base, steps, n_threads=1, with_copies=False)
        assert _run(base, steps, n_threads=2, with_copies=True) == expected

    check()
