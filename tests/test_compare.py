"""The regression benchmark of benchmarks/speed: confidence interval and detection of slower builds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

SPEED = Path(__file__).parents[1] / "benchmarks" / "speed"


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    import compare as module

    yield module
    for name in ("compare", "jobs"):
        sys.modules.pop(name, None)


class Scripted:
    """Build whose jobs take the times given by the test."""

    def __init__(self, times):
        self._times = iter(times)

    def run(self, name):
        return next(self._times)


def test_confidence_interval_covers_median_at_its_level(compare):
    rng = np.random.default_rng(0)
    for n in (6, 15, 40):
        held = 0
        for _ in range(2_000):
            low, high = compare.median_interval(list(rng.exponential(size=n)))
            held += low <= np.log(2.0) <= high
        assert held / 2_000 >= 0.94, n


def test_too_few_values_give_no_interval(compare):
    assert compare.median_interval([1.0] * 5) == (-np.inf, np.inf)


def test_slower_build_is_reported_and_noise_is_not(compare, capsys):
    rng = np.random.default_rng(1)
    noise = rng.lognormal(sigma=0.05, size=(4, 15))
    assert compare.compare("job", Scripted(noise[0]), Scripted(1.3 * noise[1]), 15, 1.05)
    assert not compare.compare("job", Scripted(noise[2]), Scripted(noise[3]), 15, 1.05)
    first, second = capsys.readouterr().out.splitlines()
    assert "SLOWER" in first
    assert "SLOWER" not in second


def test_benchmark_job_missing_in_one_build_is_reported(compare, capsys):
    assert not compare.compare("job", Scripted(["missing: no such name"]), Scripted([1.0]), 15, 1.05)
    assert "no such name (in BASE)" in capsys.readouterr().out


def test_every_benchmark_job_runs_on_current_build(compare):
    for make in compare.JOBS.values():
        make()()
