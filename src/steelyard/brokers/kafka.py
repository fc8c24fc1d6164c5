"""Kafka: a topic has partitions, and the position of a partition is the next offset.

One process reads all partitions. With the option ``group``, offsets that are durable in the store are also
committed to that consumer group, for monitoring tools.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source, client_errors

_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 30.0
_MORE_SECONDS = 0.02  # maximum time that a read waits for more messages after the first one
_QUEUED_KILOBYTES = 16_384  # maximum size of the messages that the client library prefetches
_PARTITIONS_SECONDS = 60.0  # interval at which the source checks for new partitions
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_IGNORED = (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def _config(address: Address, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": f"{address.host}:{address.port}",
        "socket.connection.setup.timeout.ms": int(1000 * _CONNECT_SECONDS),
        "log_level": 0,  # errors are raised, and log messages of the client library could contain user names
        **{name: value for name, value in address.options.items() if "." in name},
        **more,
    }
    if address.username is not None:
        config |= {"sasl.username": address.username, "sasl.password": address.password or ""}
        config.setdefault("sasl.mechanism", "PLAIN")
        config.setdefault("security.protocol", "SASL_SSL")
    return config


class KafkaSource(Source):
    """Reader of all partitions of a topic."""

    errors = (KafkaException,)

    def _connect(self, address: Address) -> Consumer:
        settings = {
            "group.id": address.options.get("group", "steelyard"),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
        }
        return Consumer(_config(address, **settings))

    def _open(self, positions: Mapping[str, str]) -> None:
        default = OFFSET_END if self._address.options.get("start") == "end" else OFFSET_BEGINNING
        if positions:  # a partition that was added after the first start is read from its beginning
            default = OFFSET_BEGINNING
        self._ends: dict[int, int] = {}
        self._next = {
            number: self._checked(number, int(positions.get(str(number), default)))
            for number in self._partitions()
        }
        assigned = [TopicPartition(self._address.topic, *position) for position in self._next.items()]
        self._next_check = time.monotonic() + _PARTITIONS_SECONDS
        self._client.assign(assigned)

    def _partitions(self) -> list[int]:
        name = self._address.topic
        topic = self._client.list_topics(name, timeout=_CONNECT_SECONDS).topics[name]
        if topic.error is not None and topic.error.code() in _UNKNOWN_TOPIC:
            raise BrokerError(
                "this topic does not exist.", source=str(self._address), hint="kafka-topics --create"
            )
        if topic.error is not None:
            raise KafkaException(topic.error)
        return sorted(topic.partitions)

    def _checked(self, number: int, offset: int) -> int:
        """Return ``offset``, or the nearest offset that still exists; set ``missed`` for deleted messages."""
        partition = TopicPartition(self._address.topic, number)
        low, high = self._client.get_watermark_offsets(partition, timeout=_CONNECT_SECONDS)
        self._ends[number] = high
        if offset in {OFFSET_BEGINNING, OFFSET_END}:
            return low if offset == OFFSET_BEGINNING else high
        if offset > high:
            raise self._recreated(f"partition {number}", f"offset {high:,}", f"{offset:,}")
        if offset < low:
            self.missed = (
                f"offsets {offset:,} to {low - 1:,} of partition {number} of {self._address} were deleted "
                "before they were read"
            )
        return max(offset, low)

    def _read(self, max_messages: int, seconds: float) -> list[Message]:
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _PARTITIONS_SECONDS
            if len(self._partitions()) != len(self._next):
                raise BrokerError("the topic has new partitions.", source=str(self._address))
        found = self._client.consume(1, timeout=seconds)
        if found and max_messages > 1:  # consume() waits for all messages, so the timeout is short
            found += self._client.consume(max_messages - 1, timeout=_MORE_SECONDS)
        messages = []
        for one in found:
            error = one.error()
            if error is not None:
                if error.code() in _IGNORED:
                    continue  # the client library reconnects by itself, with backoff
                raise BrokerError(f"{error.str()}.", source=str(self._address))
            number, offset = one.partition(), one.offset()
            self._next[number] = offset + 1
            name = f"{self._address.topic}/{number}/{offset}"
            messages.append(Message(one.value() or b"", name, str(number), str(offset + 1)))
        return messages

    def _lag(self) -> int | None:
        return sum(max(0, self._end(number) - offset) for number, offset in self._next.items())

    def _end(self, number: int) -> int:
        """Return the end of a partition as of the last fetch.

        The end is not queried, because a query would wait for a fetch in progress.
        """
        partition = TopicPartition(self._address.topic, number)
        known = self._client.get_watermark_offsets(partition, cached=True)
        self._ends[number] = max(self._ends[number], known[1] if known else 0)
        return self._ends[number]

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Commit the offsets to the consumer group given in the address, if any."""
        if "group" not in self._address.options or not messages:
            return
        offsets = {message.part: message.position for message in messages}
        topic = self._address.topic
        with client_errors(self._address, *self.errors):
            self._client.commit(
                offsets=[TopicPartition(topic, int(part), int(offset)) for part, offset in offsets.items()],
                asynchronous=True,
            )


class KafkaSink(Sink):
    """Sender to a topic. Retries create no duplicates, and the key of a message is its id."""

    errors = (KafkaException, BufferError)

    def _connect(self, address: Address) -> Producer:
        settings = {"enable.idempotence": True, "linger.ms": 5}
        return Producer(_config(address, **settings))

    def _send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        errors: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        produce, topic = self._client.produce, self._address.topic
        for name, payload in messages:
            while True:
                try:
                    produce(topic, payload, key=name, on_delivery=delivered)
                    break
                except BufferError:  # the queue of the client library is full
                    self._client.poll(0.1)
        n_left = self._client.flush(_SEND_SECONDS)
        if errors or n_left:
            reason = errors[0].str() if errors else f"{n_left} messages were not accepted in time"
            raise BrokerError(f"{reason}.", source=str(self._address))

    def close(self) -> None:
        self._client.purge()
        self._client.flush(1.0)


open_source, open_sink = KafkaSource, KafkaSink
