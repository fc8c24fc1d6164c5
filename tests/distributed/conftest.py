"""Fixture: the Spark sessions that all tests of a process share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sessions():
    """Yield a classic session and a Spark Connect session of the same Spark application."""
    from tests.distributed import spark_sessions

    started = spark_sessions.start()
    yield started
    spark_sessions.stop(started)
