"""MQTT 5 with quality of service 1: the broker keeps messages of a session until they are acknowledged.

There are no positions. Messages are acknowledged when their effect is durable; the others are redelivered.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source

_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 30.0
_SESSION_SECONDS = 7 * 86_400  # time for which the broker keeps messages of a disconnected client
_MAX_UNACKNOWLEDGED = 1_000  # prefetch limit of this client; many brokers have a lower limit
_QOS = 1


class _Client:
    """MQTT client with its network thread.

    If a function ``on_message`` is given, it is called for each message, and the broker keeps the session.
    """

    def __init__(
        self, address: Address, client_id: str = "", on_message: Callable[[Any], None] | None = None
    ) -> None:
        self.address, self.lost = address, ""
        keeps_session = on_message is not None
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=keeps_session,
            reconnect_on_failure=False,  # the consumer reconnects with backoff
        )
        if address.username is not None:
            self.paho.username_pw_set(address.username, address.password)
        if address.uses_tls:
            self.paho.tls_set()
        self._answers: queue.Queue[Any] = queue.Queue()
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self._answers.put(reason)
        self.paho.on_disconnect = self._disconnected
        self.paho.on_subscribe = lambda _c, _u, _m, reasons, _p: self._answers.put(reasons[0])
        properties = Properties(PacketTypes.CONNECT)
        if keeps_session:
            properties.SessionExpiryInterval = _SESSION_SECONDS
            properties.ReceiveMaximum = _MAX_UNACKNOWLEDGED
        if on_message is not None:
            self.paho.on_message = lambda _client, _data, message: on_message(message)
        self.paho.connect(address.host, address.port, clean_start=not keeps_session, properties=properties)
        self.paho.loop_start()
        self.check_answer()

    def check_answer(self) -> None:
        """Wait for the reply of the broker; raise BrokerError if the broker refuses."""
        try:
            reason = self._answers.get(timeout=_CONNECT_SECONDS)
        except queue.Empty:
            self.close()
            raise BrokerError("the broker does not answer.", source=str(self.address)) from None
        if reason.is_failure:
            self.close()
            raise BrokerError(f"the broker refused the request: {reason}.", source=str(self.address))

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.lost = str(reason)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


class MqttSource(Source):
    """Subscriber of a topic filter with a session that outlives the connection."""

    has_positions = False
    errors = (OSError, ValueError)

    def _connect(self, address: Address) -> _Client:
        self._queue: queue.Queue[Any] = queue.Queue()  # _MAX_UNACKNOWLEDGED limits the length
        self._unacknowledged: dict[str, int] = {}
        self._n_read = 0
        client_id = address.options.get("client", f"steelyard-{address.topic.replace('/', '-')}")
        return _Client(address, client_id, self._queue.put)

    def _open(self, _positions: Mapping[str, str]) -> None:
        self._client.paho.subscribe(self._address.topic, qos=_QOS)
        self._client.check_answer()

    def _read(self, max_messages: int, seconds: float) -> list[Message]:
        messages: list[Message] = []
        end = time.monotonic() + seconds
        while len(messages) < max_messages:
            try:
                wait = 0.0 if messages else max(0.0, end - time.monotonic())
                one = self._queue.get(wait > 0, wait or None)
            except queue.Empty:
                break
            self._n_read += 1
            name = f"{one.topic}/{self._n_read}-{one.mid}"
            self._unacknowledged[name] = one.mid
            messages.append(Message(one.payload, name))
        if not messages and self._client.lost:
            raise BrokerError(f"the connection was lost: {self._client.lost}.", source=str(self._address))
        return messages

    def _lag(self) -> int | None:
        return None  # an MQTT broker does not report the number of messages in a session

    def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._client.paho.ack(self._unacknowledged.pop(message.id), _QOS)


class MqttSink(Sink):
    """Publisher to a topic; the id of a message is sent as the user property ``id``."""

    errors = (OSError, ValueError, RuntimeError)

    def _connect(self, address: Address) -> _Client:
        return _Client(address)

    def _send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        sent = []
        for name, payload in messages:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("id", name)
            sent.append(
                self._client.paho.publish(self._address.topic, payload, qos=_QOS, properties=properties)
            )
        end = time.monotonic() + _SEND_SECONDS
        for one in sent:
            one.wait_for_publish(max(0.0, end - time.monotonic()))
        if not all(one.is_published() for one in sent):
            raise BrokerError("the broker did not accept the messages in time.", source=str(self._address))


open_source, open_sink = MqttSource, MqttSink
