"""Benchmark of growth: the cost of a point is the mean over the last half of its rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[1] / "benchmarks" / "speed"
THREADS = ("STEELYARD_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
CHUNK_SECONDS = 0.001


class FakeModel:
    """Model for which each chunk takes a millisecond, except the tenth, which takes a second."""

    def __init__(self, clock):
        self.clock, self.n_chunks = clock, 0

    def predict(self, X):
        pass

    def partial_fit(self, X, y):
        self.n_chunks += 1
        self.clock.seconds += 1.0 if self.n_chunks == 10 else CHUNK_SECONDS

    def __reduce__(self):
        return (int, ())


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def growth(monkeypatch):
    for name in THREADS:
        monkeypatch.setenv(name, "1")  # importing growth sets this variable; monkeypatch restores it
    monkeypatch.syspath_prepend(str(SPEED))
    import growth

    yield growth
    sys.modules.pop("growth", None)


@pytest.mark.parametrize(
    ("mark", "expected"),
    [(1_000, CHUNK_SECONDS / 500), (100_000, (1.0 + 4 * CHUNK_SECONDS) / 2_500)],
    ids=["finished", "stopped-before-half-of-the-mark"],
)
def test_cost_of_a_point_is_the_mean_over_the_last_half_of_its_rows(growth, monkeypatch, mark, expected):
    clock = Clock()
    monkeypatch.setattr(growth, "thread_time", clock)
    ((n_rows, cost, _, is_finished),) = growth.run(lambda _: FakeModel(clock), (mark,), 3, 2, 0.5)
    assert (n_rows, is_finished) == (min(mark, 5_000), mark == 1_000)
    assert cost == pytest.approx(1e6 * expected)


def test_point_of_a_single_chunk_has_the_cost_of_this_chunk(growth, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(growth, "thread_time", clock)
    ((n_rows, cost, _, _),) = growth.run(lambda _: FakeModel(clock), (1_000,), 3, 2, 0.0)
    assert n_rows == 500
    assert cost == pytest.approx(1e6 * CHUNK_SECONDS / 500)
