"""Tables [source], [labels], [sink] and [dead_letter] in the configuration file of a served model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from steelyard.brokers.address import Address
from steelyard.exceptions import ParameterError
from steelyard.service.spec import Spec
from steelyard.windowing.sliding import window_size

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "source": ("address", "batch"),
    "labels": ("address", "wait"),
    "sink": ("address", "only"),
    "dead_letter": ("address",),
}
_MAX_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class Feed:
    """Topics of one model."""

    source: Address  # topic that contains the rows
    # Topic that contains labels. They are joined to the rows by the ``id`` column of the model.
    labels: Address | None = None
    sink: Address | None = None  # topic to which predictions are sent
    # Topic to which unusable messages are sent. Without this topic, an unusable message stops the feed.
    dead_letter: Address | None = None
    batch: int = 5_000  # maximum number of messages in one transaction
    # Time that a label waits for its row before the label is sent to the dead-letter topic.
    wait_seconds: float = 86_400.0
    alarms_only: bool = False  # whether to send only predictions of classes other than the most frequent one


def split_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], Feed | None]:
    """Separate the topics from the other settings of a model.

    Addresses may contain credentials, so they are not part of the spec, which is kept in the store and
    returned by the service.
    """
    rest = {name: value for name, value in values.items() if name not in _OPTIONS}
    tables = {name: values[name] for name in _OPTIONS if name in values}
    if not tables:
        return rest, None
    if "source" not in tables:
        raise _error(f"[{next(iter(tables))}] needs a [source] with the address of the rows.")
    addresses = {name: _address(name, table) for name, table in tables.items()}
    batch = tables["source"].get("batch", Feed.batch)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= _MAX_BATCH_ROWS:
        raise _error(f"batch must be a number of messages up to {_MAX_BATCH_ROWS:,}; got {batch!r}.")
    wait = tables.get("labels", {}).get("wait", "1d")
    size = window_size(wait) if isinstance(wait, str) else None
    if not isinstance(size, timedelta):
        raise _error(f'wait must be a time such as "1d" or "12h"; got {wait!r}.')
    only = tables.get("sink", {}).get("only", "predictions")
    if only not in {"predictions", "alarms"}:
        raise _error(f'only must be "predictions" or "alarms"; got {only!r}.')
    feed = Feed(**addresses, batch=batch, wait_seconds=size.total_seconds(), alarms_only=only == "alarms")
    if feed.labels is not None:
        spec = Spec.from_mapping(rest)
        if spec.id is None or spec.rows == "none":
            raise _error(
                "[labels] needs the setting id, the column by which labels are joined, and stored rows."
            )
    return rest, feed


def _address(name: str, table: Any) -> Address:
    if not isinstance(table, Mapping) or not isinstance(table.get("address"), str):
        raise _error(f"[{name}] needs the address of a topic.")
    unknown = [key for key in table if key not in _OPTIONS[name]]
    if unknown:
        raise _error(f"[{name}] has no setting {unknown[0]!r}; it has {', '.join(_OPTIONS[name])}.")
    return Address.parse(table["address"])


def _error(message: str) -> ParameterError:
    return ParameterError(message, source="the file of the model")
