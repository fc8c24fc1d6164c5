"""Federated learning over Flower: one round gives the exact pooled model.

Every node answers one query with its site update, and the server passes the updates to a hub. No weights are
averaged and no second round is needed. Flower pins versions of other packages, so it is a separate extra:
``pip install "steelyard[flower]"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataError, ParameterError
from steelyard.federated.hub import Hub
from steelyard.federated.site_update import SiteUpdate

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

_RECORD, _FIELD = "steelyard", "bulletin"
_POLL_SECONDS = 0.1


def client_app(publish: Callable[[Context], SiteUpdate]) -> ClientApp:
    """Return the Flower app of a site.

    Parameters
    ----------
    publish : callable
        Called with Flower's context of the node (``context.node_config["partition-id"]`` in a simulation).
        Returns the update of the node's site, usually from :meth:`Site.publish`.
    """
    flower = _flower()
    app = flower.ClientApp()

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def answer(message: Any, context: Any) -> Any:
        record = flower.ConfigRecord({_FIELD: publish(context).to_bytes()})
        return flower.Message(flower.RecordDict({_RECORD: record}), reply_to=message)

    return app  # type: ignore[no-any-return, unused-ignore]


def server_app(
    done: Callable[[Hub], None], *, sites: int, hub: Hub | None = None, timeout: float = 600.0
) -> ServerApp:
    """Return the Flower app of the hub.

    Parameters
    ----------
    done : callable
        Called with the hub after all updates were received.
    sites : int
        Number of nodes to wait for.
    hub : Hub, optional
        The hub. By default a new one with default parameters.
    timeout : float, default=600.0
        Seconds to wait for the nodes to connect, and then again for their updates.
    """
    app = _flower().ServerApp()
    target = hub or Hub()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Any, _context: Any) -> None:
        collect(grid, target, sites=sites, timeout=timeout)
        done(target)

    return app  # type: ignore[no-any-return, unused-ignore]


def collect(grid: Grid, hub: Hub, *, sites: int, timeout: float = 600.0) -> int:
    """Request one update from every node; return the number of updates that changed the hub.

    Raises
    ------
    DataError
        If there are too few nodes, a node fails or does not respond, or an update is incompatible. Updates
        received before the error are kept. The call can be repeated.
    """
    flower, source = _flower(), "federated.flower.collect"
    deadline = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) < sites:
        if time.monotonic() > deadline:
            raise DataError(f"only {len(nodes)} of {sites} nodes are connected.", source=source)
        time.sleep(_POLL_SECONDS)
    queries = [
        flower.Message(flower.RecordDict(), dst_node_id=node, message_type=flower.MessageType.QUERY)
        for node in nodes
    ]
    replies = list(grid.send_and_receive(queries, timeout=timeout))
    failed = [reply for reply in replies if reply.has_error()]
    n_changed = 0
    for reply in replies:
        if reply.has_error():
            continue
        try:
            data = bytes(reply.content[_RECORD][_FIELD])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"node {reply.metadata.src_node_id} returned no site update.", source=source
            ) from error
        n_changed += hub.receive(data)
    if failed:
        raise DataError(
            f"{len(failed)} of {len(nodes)} nodes failed, the first with: {failed[0].error.reason}.",
            source=source,
        )
    if len(replies) < len(nodes):
        raise DataError(f"{len(nodes) - len(replies)} of {len(nodes)} nodes did not answer.", source=source)
    return n_changed


def _flower() -> Any:
    """Return a namespace with the classes of Flower."""
    try:
        from flwr.app import ConfigRecord, Message, MessageType, RecordDict
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
    except ImportError as error:
        raise ParameterError(
            "this needs the package flwr.", source="federated.flower", hint='pip install "steelyard[flower]"'
        ) from error
    names = ConfigRecord, Message, MessageType, RecordDict, ClientApp, ServerApp
    return SimpleNamespace(**{name.__name__: name for name in names})
