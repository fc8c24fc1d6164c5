"""Fixtures: the Spark that all tests of a process share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sessions():
    """A classic session, and a client of the Connect server that runs in the same Spark."""
    from tests.distributed import spark_sessions

    started = spark_sessions.start()
    yield started
    spark_sessions.stop(started)
