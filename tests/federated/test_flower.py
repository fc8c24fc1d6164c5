"""Federated learning over Flower: one round gives the exact pooled model."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from steelyard.exceptions import DataError, ParameterError
from steelyard.federated import Hub
from steelyard.federated import flower as adapter
from tests.federated.data import agreed_site, numbers

HAS_FLOWER = find_spec("flwr") is not None
# Warnings of Flower and its dependencies are not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")
needs_flower = pytest.mark.skipif(
    not HAS_FLOWER, reason="Flower is a separate extra because of its version pins"
)
N_SITES = 4


def frames():
    return [numbers(60 + 10 * k, k) for k in range(N_SITES)]


def pooled():
    hub = Hub()
    for k, frame in enumerate(frames()):
        hub.receive(agreed_site(f"s{k}", frame).publish())
    return hub


def publish(context):
    k = int(context.node_config["partition-id"])
    return agreed_site(f"s{k}", frames()[k]).publish()


@pytest.fixture
def task():
    """Set the task identity as Flower's processes do before they run an app."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    yield
    TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = None


class InProcess:
    """Flower grid without a network: each node calls a client app in this process."""

    def __init__(self, app, n=N_SITES, silent=()):
        self.app, self.n, self.silent, self.n_rounds = app, n, silent, 0

    def get_node_ids(self):
        return list(range(1, self.n + 1))

    def send_and_receive(self, messages, *, timeout):
        from flwr.app import Context, Error, Message, RecordDict

        self.n_rounds += 1
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata._message_id = f"m{node}"
            context = Context(
                run_id=1,
                node_id=node,
                node_config={"partition-id": node - 1},
                state=RecordDict(),
                run_config={},
            )
            if node in self.silent:
                continue
            try:
                yield self.app(message, context)
            except Exception as error:  # noqa: BLE001  Flower reports any error as a message
                yield Message(Error(code=0, reason=str(error)), reply_to=message)


@needs_flower
@pytest.mark.usefixtures("task")
def test_collect_over_flower_equals_digest_of_all_rows():
    hub, grid = Hub(), InProcess(adapter.client_app(publish))
    assert adapter.collect(grid, hub, sites=N_SITES) == N_SITES
    assert grid.n_rounds == 1
    assert hub.digest() == pooled().digest()
    np.testing.assert_array_equal(hub.model().estimator.coef_, pooled().model().estimator.coef_)
    assert adapter.collect(grid, hub, sites=N_SITES) == 0, "a repeated call changes nothing"


@needs_flower
@pytest.mark.usefixtures("task")
def test_collect_with_failed_or_missing_nodes_raises_and_keeps_other_updates():
    def failing(context):
        if context.node_config["partition-id"] == 2:
            raise DataError("nothing is published: no class has enough rows yet.")
        return publish(context)

    hub = Hub()
    with pytest.raises(DataError, match=r"1 of 4 nodes failed, the first with: .*enough rows"):
        adapter.collect(InProcess(adapter.client_app(failing)), hub, sites=N_SITES)
    assert hub.sites == ["s0", "s1", "s3"]
    with pytest.raises(DataError, match="1 of 4 nodes did not answer"):
        adapter.collect(InProcess(adapter.client_app(publish), silent=(3,)), hub, sites=N_SITES)
    with pytest.raises(DataError, match="only 4 of 5 nodes are connected"):
        adapter.collect(InProcess(adapter.client_app(publish)), hub, sites=5, timeout=0.2)


@needs_flower
def test_flower_simulation_equals_digest_of_all_rows():
    pytest.importorskip("ray", reason="Flower's simulation engine needs ray")
    from flwr.simulation import run_simulation

    found = []
    run_simulation(
        server_app=adapter.server_app(lambda hub: found.append(hub.digest()), sites=N_SITES, timeout=120.0),
        client_app=adapter.client_app(publish),
        num_supernodes=N_SITES,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    assert found == [pooled().digest()]


@pytest.mark.skipif(HAS_FLOWER, reason="tests the message without Flower")
def test_apps_without_flower_raise_with_package_name():
    with pytest.raises(ParameterError, match="needs the package flwr"):
        adapter.client_app(publish)
    with pytest.raises(ParameterError, match="needs the package flwr"):
        adapter.server_app(print, sites=1)
