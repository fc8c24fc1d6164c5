"""Number of threads: quotas of containers, and the shared limit of BLAS."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from steelyard import ProximalSVC, RandomFeatures, _threads
from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.commands import Put


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", 1 << 16),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("400000 100000", 4),
        ("broken", 1 << 16),
    ],
)
def test_cpu_quota_of_cgroup_v2_is_rounded_up(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert _threads.cgroup_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 1 << 16), ("250000", 3)])
def test_cpu_quota_of_cgroup_v1_is_rounded_up(tmp_path, quota, cores):
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert _threads.cgroup_quota(tmp_path) == cores


def test_cpu_quota_without_cgroup_is_unlimited(tmp_path):
    assert _threads.cgroup_quota(tmp_path) == 1 << 16


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_overlapping_blas_thread_limits_are_lifted_when_the_last_one_ends(monkeypatch):
    if os.cpu_count() < 2:
        pytest.skip("BLAS has one thread on one core, so there is nothing to limit")
    first_may_end, second_is_inside = threading.Event(), threading.Event()
    with threadpool_limits(2, user_api="blas"):

        def first():
            with _threads.limit_blas(1000):
                second_is_inside.wait(60)
            first_may_end.set()

        thread = threading.Thread(target=first)
        thread.start()
        with _threads.limit_blas(500):
            second_is_inside.set()
            first_may_end.wait(60)
            assert blas_threads() == {1}  # the first user has left, the second is still inside
        thread.join()
        assert blas_threads() == {2}


@pytest.mark.parametrize("order", [10, 5000])
def test_blas_threads_are_not_limited_for_tiny_or_large_matrices(order):
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with _threads.limit_blas(order):
            assert blas_threads() == before


def test_selected_C_is_bit_identical_for_any_number_of_blas_threads(rng):
    X, y = rng.normal(size=(300, 5)), (rng.random(300) < 0.2).astype(int)
    coefs = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            model = ProximalSVC(C="auto", feature_map=RandomFeatures(400)).fit(X, y)
            coefs.append((model.C_, model.coef_))
    assert coefs[0][0] == coefs[1][0]
    np.testing.assert_array_equal(coefs[0][1], coefs[1][1])


def test_running_writer_of_service_limits_blas_to_one_thread():
    if os.cpu_count() < 2:
        pytest.skip("BLAS has one thread on one core, so there is nothing to limit")
    writer = Writer(SQLiteStore(":memory:"))
    with threadpool_limits(2, user_api="blas"):
        writer.start()
        writer.submit(put := Put("m", Spec.from_mapping({"target": "y"})))
        put.future.result(60)
        assert blas_threads() == {1}
        writer.close()
        assert blas_threads() == {2}


def test_no_task_goes_on_after_a_thread_could_not_be_started(monkeypatch):
    start, running = threading.Thread.start, []

    def start_only_one(thread):
        if running:
            raise RuntimeError("can't start new thread")
        running.append(thread)
        start(thread)

    monkeypatch.setattr(_threads, "num_threads", lambda: 3)
    monkeypatch.setattr(threading.Thread, "start", start_only_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        _threads.run_tasks([lambda: time.sleep(0.2)] * 4, parallel=True)
    assert [thread.is_alive() for thread in running] == [False]
