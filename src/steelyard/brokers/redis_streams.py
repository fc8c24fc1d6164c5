"""Redis streams: a topic is a key, and a position is an entry id with the number of entries up to that id.

The number of entries is needed for the lag, because Redis does not count the entries after an id.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source

_CONNECT_SECONDS = 5.0
_FIELD = "payload"
_FIRST = "0-0"
_ERRORS = (redis.RedisError, OSError)


def _client(address: Address) -> Any:
    return redis.Redis(
        host=address.host,
        port=address.port,
        db=int(address.options.get("db", "0")),
        username=address.username,
        password=address.password,
        ssl=address.uses_tls,
        socket_connect_timeout=_CONNECT_SECONDS,
        health_check_interval=30,
        retry=Retry(NoBackoff(), 0),  # the consumer opens the topic again with backoff
    )


class RedisSource(Source):
    """Reader of a stream.

    The payload of a message is the field ``payload`` of the entry; the address option ``field`` names another
    field. An entry without that field is a row whose columns are the fields.
    """

    errors = _ERRORS

    def _connect(self, address: Address) -> Any:
        return _client(address)

    def _open(self, positions: Mapping[str, str]) -> None:
        address = self._address
        self._field = address.options.get("field", _FIELD).encode()
        if not self._client.exists(address.topic):
            raise BrokerError(
                "this stream does not exist.",
                source=str(address),
                hint="XADD creates a stream with its first message",
            )
        info = self._client.xinfo_stream(address.topic)
        last, n_added = _text(info["last-generated-id"]), int(info.get("entries-added", info["length"]))
        is_end = address.options.get("start") == "end"
        self._entry = last if is_end else _FIRST
        # Number of entries that were read or deleted.
        self._n_entries = n_added if is_end else n_added - int(info["length"])
        if "" not in positions:
            return
        self._entry, _, count = positions[""].partition("/")
        self._n_entries = int(count)
        if _order(self._entry) > _order(last):
            raise self._recreated("the stream", last, self._entry)
        deleted = _text(info.get("max-deleted-entry-id", _FIRST))  # reported by Redis 7 and later
        if _order(deleted) > _order(self._entry):
            self.missed = f"messages of {address} after {self._entry} were deleted before they were read"

    def _read(self, max_messages: int, seconds: float) -> list[Message]:
        found = self._client.xread(
            {self._address.topic: self._entry}, count=max_messages, block=max(1, int(1000 * seconds))
        )
        if not found:
            return []
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))
        messages = []
        for entry, fields in entries:
            name, payload = _text(entry), fields.get(self._field)
            self._entry, self._n_entries = name, self._n_entries + 1
            payload = _row(fields) if payload is None else payload
            messages.append(
                Message(payload, f"{self._address.topic}/{name}", "", f"{name}/{self._n_entries}")
            )
        return messages

    def _lag(self) -> int | None:
        info = self._client.xinfo_stream(self._address.topic)
        if _text(info["last-generated-id"]) == self._entry:
            return 0
        return max(0, int(info.get("entries-added", info["length"])) - self._n_entries)


class RedisSink(Sink):
    """Sender to a stream; each entry has the fields ``id`` and ``payload``."""

    errors = _ERRORS

    def _connect(self, address: Address) -> Any:
        client = _client(address)
        client.ping()
        return client

    def _send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        field = self._address.options.get("field", _FIELD)
        batch = self._client.pipeline(transaction=False)
        for name, payload in messages:
            batch.xadd(self._address.topic, {"id": name, field: payload})
        batch.execute()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _order(position: str) -> tuple[int, int]:
    time, _, number = position.partition("-")
    return int(time), int(number or 0)


def _row(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the fields of an entry as CSV, so that the CSV reader infers numeric columns."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([name.decode(errors="replace") for name in fields])
    writer.writerow([value.decode(errors="replace") for value in fields.values()])
    return text.getvalue().encode()


open_source, open_sink = RedisSource, RedisSink
