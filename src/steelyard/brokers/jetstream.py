"""NATS JetStream: a topic is a subject of a stream, and a position is a sequence number of the stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source

T = TypeVar("T")
_CONNECT_SECONDS = 5.0
_INACTIVE_SECONDS = 120.0  # time of inactivity after which the server deletes the consumer of a client
_ANSWER_SECONDS = 5.0  # maximum delay of a response after the request for messages has expired
_NO_MESSAGES = ("404", "408")  # status codes for "no messages" and "no messages in time"
_ERRORS = (nats.errors.Error, OSError, asyncio.TimeoutError)


class _Client:
    """NATS connection with its own event loop, which runs only during calls."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_done = asyncio.Event()  # set when the expected response has arrived or the connection is lost
        self._loop = asyncio.new_event_loop()
        try:
            self.nats = self.run(self._connect(address))
        except BaseException:
            self._loop.close()
            raise
        self.stream = self.nats.jetstream(timeout=_CONNECT_SECONDS)

    async def _connect(self, address: Address) -> Any:
        return await nats.connect(
            f"{'tls' if address.uses_tls else 'nats'}://{address.host}:{address.port}",
            user=address.username,
            password=address.password,
            connect_timeout=int(_CONNECT_SECONDS),
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            allow_reconnect=False,  # the consumer itself reconnects at the stored position
            error_cb=_ignore,
            closed_cb=self._closed,
        )

    async def _closed(self) -> None:
        self.is_done.set()

    def check(self) -> None:
        """Raise BrokerError if the connection is lost."""
        if not self.nats.is_connected:
            raise BrokerError("the connection was lost.", source=str(self.address))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def close(self) -> None:
        with closing(self._loop), suppress(*_ERRORS):
            self.run(self.nats.close())


async def _ignore(_error: Exception) -> None:
    """Suppress logging of errors by the client library, because every call raises its own errors."""


class JetStreamSource(Source):
    """Reader of one subject of a stream, with a temporary pull consumer."""

    errors = _ERRORS

    def _connect(self, address: Address) -> _Client:
        return _Client(address)

    def _open(self, positions: Mapping[str, str]) -> None:
        self._arrived: list[Any] = []  # messages that have arrived but were not yet returned by read()
        self._status: str | None = None  # status with which the server ended the last request
        self._n_wanted = 0
        self._client.run(self._subscribe(positions.get("")))

    async def _subscribe(self, position: str | None) -> None:
        address, stream = self._address, self._client.stream
        try:
            name = address.options.get("stream") or await stream.find_stream_name_by_subject(address.topic)
            state = (await stream.stream_info(name)).state
        except nats.js.errors.NotFoundError:
            raise BrokerError(
                "no JetStream stream has this subject.",
                source=str(address),
                hint=f"nats stream add --subjects {address.topic}",
            ) from None
        self._stream_name = name
        sequence = state.last_seq if address.options.get("start") == "end" else state.first_seq - 1
        if position is not None:
            sequence = int(position)
            if sequence > state.last_seq:
                raise self._recreated("the stream", f"message {state.last_seq:,}", f"{sequence:,}")
            if state.first_seq > sequence + 1:
                self.missed = (
                    f"messages {sequence + 1:,} to {state.first_seq - 1:,} of {address} were deleted "
                    "before they were read"
                )
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(sequence, 0) + 1,
            ack_policy=AckPolicy.NONE,
            filter_subject=address.topic,
            inactive_threshold=_INACTIVE_SECONDS,
        )
        self._consumer = (await stream.add_consumer(name, config)).name
        self._inbox = self._client.nats.new_inbox()
        await self._client.nats.subscribe(self._inbox, cb=self._receive)

    def _read(self, max_messages: int, seconds: float) -> list[Message]:
        self._client.run(self._fetch(max_messages, seconds))
        found, self._arrived = self._arrived[:max_messages], self._arrived[max_messages:]
        messages = []
        for one in found:
            sequence = _sequence(one.reply)
            messages.append(Message(one.data, f"{self._stream_name}/{sequence}", "", str(sequence)))
        return messages

    async def _fetch(self, max_messages: int, seconds: float) -> None:
        """Fetch the available messages into ``_arrived``; if there are none, wait for the first one.

        PullSubscription.fetch would wait until all requested messages have arrived or the time is over.
        """
        await self._request(max_messages, {"no_wait": True}, 0.0)
        if not self._arrived and seconds > 0:
            await self._request(1, {"expires": int(1e9 * seconds)}, seconds)

    async def _request(self, n_messages: int, options: Mapping[str, Any], seconds: float) -> None:
        """Request messages; return when all have arrived or the server reports that there are no more."""
        client = self._client
        client.check()
        client.is_done.clear()
        self._n_wanted, self._status = n_messages, None
        await client.nats.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream_name}.{self._consumer}",
            json.dumps({"batch": n_messages, **options}).encode(),
            reply=self._inbox,
        )
        try:
            await asyncio.wait_for(client.is_done.wait(), seconds + _ANSWER_SECONDS)
        except TimeoutError:
            raise BrokerError("the server does not answer.", source=str(self._address)) from None
        client.check()
        if self._status is not None and not self._status.startswith(_NO_MESSAGES):
            raise BrokerError(f"the server responded with status {self._status}.", source=str(self._address))

    async def _receive(self, message: Any) -> None:
        status = (message.headers or {}).get("Status")
        if status is None or message.data:
            self._arrived.append(message)
        else:
            self._status = f"{status} {message.headers.get('Description', '')}".strip()
        if self._status is not None or len(self._arrived) >= self._n_wanted:
            self._client.is_done.set()

    def _lag(self) -> int | None:
        info = self._client.run(self._client.stream.consumer_info(self._stream_name, self._consumer))
        return int(info.num_pending) + len(self._arrived)


def _sequence(reply: str) -> int:
    """Return the sequence number of a message, the sixth part of its reply subject.

    The subject is $JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE...; a domain and an account, if present, are two
    additional parts before the name of the stream.
    """
    parts = reply.split(".")
    return int(parts[5] if len(parts) == 9 else parts[7])


class JetStreamSink(Sink):
    """Sender to a subject. The server drops messages whose ids it has seen in the last minutes."""

    errors = _ERRORS

    def _connect(self, address: Address) -> _Client:
        return _Client(address)

    def _send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        self._client.run(self._publish(messages))

    async def _publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        publish, topic = self._client.stream.publish, self._address.topic
        try:
            await asyncio.gather(
                *(publish(topic, payload, headers={"Nats-Msg-Id": name}) for name, payload in messages)
            )
        except nats.js.errors.NoStreamResponseError:
            raise BrokerError(
                "no JetStream stream has this subject, so nothing would keep the messages.",
                source=str(self._address),
                hint=f"nats stream add --subjects {topic}",
            ) from None


open_source, open_sink = JetStreamSource, JetStreamSink
