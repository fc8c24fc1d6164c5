"""Source and Sink: the interface of all brokers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from steelyard.brokers.address import Address
from steelyard.exceptions import ParameterError, SteelyardError

_MODULES = {
    "kafka": "steelyard.brokers.kafka",
    "nats": "steelyard.brokers.jetstream",
    "redis": "steelyard.brokers.redis_streams",
    "mqtt": "steelyard.brokers.mqtt",
}
_REFUSAL_WORDS = ("authori", "authenti", "password", "sasl")  # parts of messages about refused credentials


class BrokerError(SteelyardError, OSError):
    """A broker is unreachable or does not have the topic."""


class Message(NamedTuple):
    """One message of a topic."""

    payload: bytes
    id: str  # topic, partition and offset; except with MQTT, it is the same if the message is read again
    part: str = ""  # partition of the message, if the topic has partitions
    position: str = ""  # position after this message; empty if the broker has no positions


class Source:
    """Reader of a topic, the base of the readers of all brokers."""

    # Whether a topic can be read again from a stored position. If not, a message that was not acknowledged is
    # delivered again, even if it has been learned.
    has_positions = True
    missed: str | None = None  # text that says which messages the broker deleted before they were read
    errors: tuple[type[BaseException], ...]  # errors of the client library

    def __init__(self, address: Address, positions: Mapping[str, str]) -> None:
        """Connect, and open the topic at the positions given for its partitions."""
        self._address = address
        with client_errors(address, *self.errors):
            self._connect()
            try:
                self._open(positions)
            except BaseException:
                self.close()
                raise

    def _connect(self) -> None:
        raise NotImplementedError

    def _open(self, positions: Mapping[str, str]) -> None:
        raise NotImplementedError

    def _recreated(self, what: str, end: str, position: str) -> BrokerError:
        """Return the error for a topic that ends before the stored position."""
        return BrokerError(
            f"{what} ends at {end}, before the stored position {position}: it was created again.",
            source=str(self._address),
            hint="give the new topic another name, or create the model again",
        )

    def read(self, max_messages: int, seconds: float) -> list[Message]:
        """Return the next messages, or an empty list if none arrives within ``seconds``."""
        raise NotImplementedError

    def lag(self) -> int | None:
        """Return the number of unread messages in the topic, or None if it is unknown."""
        raise NotImplementedError

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages whose effect is durable, if the service does not store the position itself."""

    def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError


class Sink(Protocol):
    """Writer of a topic."""

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages with stable ids; return when the broker has accepted all of them."""

    def close(self) -> None:
        """Close the connection."""


def open_source(address: Address, positions: Mapping[str, str] | None = None) -> Source:
    """Open a topic for reading.

    Reading starts at the position given for each partition, or without ``positions`` where the option
    ``start`` of the address says.
    """
    source: Source = _module(address).open_source(address, dict(positions or {}))
    return source


def open_sink(address: Address) -> Sink:
    """Open a topic for sending."""
    sink: Sink = _module(address).open_sink(address)
    return sink


@contextmanager
def client_errors(address: Address, *kinds: type[BaseException]) -> Iterator[None]:
    """Context manager that converts errors of a client library to BrokerError, without credentials."""
    try:
        yield
    except BrokerError:
        raise
    except kinds as error:
        text = address.hide(str(error) or type(error).__name__).strip().rstrip(".")
        is_refused = any(word in text.lower() for word in _REFUSAL_WORDS)
        hint = "check the user and the password of the address" if is_refused else "is the broker running?"
        raise BrokerError(f"{text[:300]}.", source=str(address), hint=hint) from None


def _module(address: Address) -> Any:
    try:
        return importlib.import_module(_MODULES[address.scheme])
    except ImportError as error:
        raise ParameterError(
            f"{address.scheme}:// needs the package {error.name!r}, which is not installed.",
            hint=f'pip install "steelyard[service,{address.scheme}]"',
        ) from error
