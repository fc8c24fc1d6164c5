"""Shared fixtures. ``--seed`` sets the seed of all random test data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from steelyard import _native
from tests.postgres import postgres, postgres_server  # noqa: F401  fixtures

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
    """Run the test with every SIMD level of this processor."""
    before = _native.simd_level()
    _native.use_simd_level(request.param)
    yield request.param
    _native.use_simd_level(before)
