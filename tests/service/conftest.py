"""Fixtures: stores in SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from steelyard.service import open_store
from tests.postgres import running
from tests.service.sessions import ModelSession


@pytest.fixture(scope="session")
def cluster():
    """Yield a temporary PostgreSQL server. Tests that need it are skipped if PostgreSQL is not installed."""
    with running(safe=True) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """Return the address of an empty store. The test runs once for each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("cluster").empty()


@pytest.fixture(autouse=True)
def _closed():
    """Close the stores that a test has opened."""
    yield
    while ModelSession.opened:
        ModelSession.opened.pop().close()


@pytest.fixture
def store(where):
    store = open_store(where)
    store.acquire_write_lock()
    yield store
    store.close()
