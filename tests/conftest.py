"""Shared fixtures: one seed, so that a sweep over seeds is one option away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from steelyard import _native
from tests.postgres import postgres, postgres_server  # noqa: F401  fixtures for whoever asks for them

settings.register_profile(
    "steelyard",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steelyard")


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="seed of the random data in the tests")


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture(params=_native.simd_levels())
def level(request):
    """Every kind of vector instructions that this processor has, one after the other."""
    before = _native.simd_level()
    _native.use_simd_level(request.param)
    yield request.param
    _native.use_simd_level(before)
