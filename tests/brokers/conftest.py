"""Fixtures: one server of each broker for all tests, and models fed from it."""

from __future__ import annotations

import pytest

from tests.brokers import feeding, servers


@pytest.fixture(scope="session")
def brokers(tmp_path_factory):
    """Yield a function that returns the running server of a kind of broker and starts it at its first use."""
    started, contexts = {}, []

    def server(kind):
        if kind not in started:
            context = servers.running(kind, tmp_path_factory.mktemp(kind))
            started[kind] = context.__enter__()
            contexts.append(context)
        return started[kind]

    yield server
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture(params=servers.KINDS)
def broker(request, brokers):
    return brokers(request.param)


@pytest.fixture(params=["nats", "redis", "kafka"])
def positioned(request, brokers):
    """Return a broker whose topics can be read again from a position."""
    return brokers(request.param)


@pytest.fixture
def fed(tmp_path):
    """Yield a function that starts models with topics in a store of this test. They stop with the test."""
    models = []

    def start(settings, **options):
        models.append(feeding.FedModel(tmp_path / "store.db", settings, **options))
        return models[-1]

    yield start
    for model in models:
        model.stop()
