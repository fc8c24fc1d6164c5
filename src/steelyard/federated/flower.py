"""The same over Flower, for those who have it: one round, and the pooled model is exact.

Every node answers one query with its bulletin; the server gives them to a hub. There are no weights to
average and no second round. Flower's own pins do not suit everybody, so it is an extra of its own:
``pip install "steelyard[flower]"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataError, ParameterError
from steelyard.federated.hub import Hub
from steelyard.federated.site_update import SiteUpdate

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Quantizer, ServerApp

__all__ = ["client_app", "collect", "server_app"]

_RECORD, _FIELD = "steelyard", "bulletin"
_PAUSE = 0.1


def client_app(publish: Callable[[Context], SiteUpdate]) -> ClientApp:
    """What runs at a site.

    Parameters
    ----------
    publish : callable
        Gets Flower's context of the node (``context.node_config["partition-id"]`` in a simulation) and
        returns the bulletin of its site; the release policy is that of the :class:`Site` that made it.
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
    """What runs at the hub.

    Parameters
    ----------
    done : callable
        Gets the hub when all bulletins are in: to save its model, to compare, to go on.
    sites : int
        How many nodes to wait for.
    hub : Hub, optional
        The hub; one with default parameters otherwise.
    timeout : float, default=600.0
        Seconds to wait for nodes and again for their bulletins.
    """
    app = _flower().ServerApp()
    own = hub or Hub()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(quantizer: Any, _context: Any) -> None:
        collect(quantizer, own, sites=sites, timeout=timeout)
        done(own)

    return app  # type: ignore[no-any-return, unused-ignore]


def collect(quantizer: Quantizer, hub: Hub, *, sites: int, timeout: float = 600.0) -> int:
    """Ask every node of a grid for its bulletin, once; returns how many were news.

    Raises
    ------
    DataError
        If too few nodes are there, one fails or does not answer, or a bulletin does not fit; those that came
        before are kept, and asking again harms nobody.
    """
    flower, source = _flower(), "sites.flower.collect"
    until = time.monotonic() + timeout
    while len(nodes := sorted(quantizer.get_node_ids())) < sites:
        if time.monotonic() > until:
            raise DataError(f"{len(nodes)} of {sites} nodes are there.", source=source)
        time.sleep(_PAUSE)
    questions = [
        flower.Message(flower.RecordDict(), dst_node_id=node, message_type=flower.MessageType.QUERY)
        for node in nodes
    ]
    replies = list(quantizer.send_and_receive(questions, timeout=timeout))
    failed = [reply for reply in replies if reply.has_error()]
    news = sum(hub.receive(_site_update(reply)) for reply in replies if not reply.has_error())
    if failed:
        raise DataError(
            f"{len(failed)} of {len(nodes)} nodes failed, the first with: {failed[0].error.reason}.",
            source=source,
        )
    if len(replies) < len(nodes):
        raise DataError(f"{len(nodes) - len(replies)} of {len(nodes)} nodes did not answer.", source=source)
    return news


def _site_update(reply: Any) -> SiteUpdate:
    try:
        data = bytes(reply.content[_RECORD][_FIELD])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"node {reply.metadata.src_node_id} answered something else than a bulletin.",
            source="sites.flower.collect",
        ) from error
    return SiteUpdate.from_bytes(data)


class _Flower:
    """Flower's names that are used here."""

    def __init__(self) -> None:
        from flwr.app import ConfigRecord, Message, MessageType, RecordDict
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp

        self.ConfigRecord, self.Message, self.RecordDict = ConfigRecord, Message, RecordDict
        self.MessageType, self.ClientApp, self.ServerApp = MessageType, ClientApp, ServerApp


def _flower() -> Any:
    try:
        return _Flower()
    except ImportError as error:
        raise ParameterError(
            "this needs the package flwr.", source="sites.flower", hint='pip install "steelyard[flower]"'
        ) from error
