"""Stores of both kinds for the trials of the service."""

from __future__ import annotations

import pytest

from steelyard.service import open_store
from tests.postgres import running
from tests.service.sessions import ModelSession


@pytest.fixture(scope="session")
def cluster():
    """A PostgreSQL server of one's own; what needs it is skipped where there is none."""
    with running(safe=True) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """The address of an empty store, in one database after the other."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("cluster").empty()


@pytest.fixture(autouse=True)
def _closed():
    """What a trial has opened is closed after it."""
    yield
    while ModelSession.opened:
        ModelSession.opened.pop().close()


@pytest.fixture
def store(where):
    store = open_store(where)
    store.claim()
    yield store
    store.close()
