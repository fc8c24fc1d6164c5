"""Address, Source and Sink: the interface of all brokers."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from steelyard.exceptions import ParameterError, SteelyardError

_MODULES = {
    "kafka": "steelyard.brokers.kafka",
    "nats": "steelyard.brokers.jetstream",
    "redis": "steelyard.brokers.redis_streams",
    "mqtt": "steelyard.brokers.mqtt",
}
# Default port of each broker, and the address options that only this broker accepts.
SCHEMES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "kafka": (9092, ("group",)),
    "nats": (4222, ("tls", "stream")),
    "redis": (6379, ("tls", "db", "field")),
    "mqtt": (1883, ("tls", "client")),
}
_OPTIONS = ("start", "until", "columns")
_STARTS = ("first", "end")
_USER = re.compile(r"^(\w+:/+)[^/]*@")
_REFUSAL_WORDS = ("authori", "authenti", "password", "sasl")  # parts of messages about refused credentials


@dataclass(frozen=True)
class Address:
    """Address of a topic. The results of ``str()`` and ``repr()`` contain no credentials.

    Examples
    --------
    >>> from steelyard.brokers import Address
    >>> address = Address.parse("nats://reader:secret@broker.example/payments?start=end")
    >>> print(address, address.topic, address.options)
    nats://broker.example:4222/payments payments {'start': 'end'}
    """

    scheme: str
    host: str
    port: int
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address. A password ``$NAME`` is read from the environment variable NAME."""
        scheme = text.partition("://")[0]
        if scheme not in SCHEMES or "://" not in text:
            raise _error(f"the address of a topic must begin with {':// or '.join(SCHEMES)}://.")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise _error("the host or port of the address is not valid.") from error
        topic = unquote(parts.path.removeprefix("/"))
        if not parts.hostname or not topic:
            raise _error(f"an address needs a host and a topic: {scheme}://HOST/TOPIC.")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        known = (*SCHEMES[scheme][1], *_OPTIONS)
        unknown = [name for name in options if name not in known and not (scheme == "kafka" and "." in name)]
        if unknown:
            raise _error(f"there is no option {unknown[0]!r}; the options are {', '.join(known)}.")
        if options.get("start", "first") not in _STARTS or options.get("until", "end") != "end":
            raise _error("start must be first or end, and until must be end.")
        return cls(
            scheme,
            parts.hostname,
            port or SCHEMES[scheme][0],
            topic,
            options,
            None if parts.username is None else unquote(parts.username),
            _password(parts.password),
        )

    @property
    def name(self) -> str:
        """Name of the topic in the store, without the host, which may change."""
        return f"{self.scheme}:{self.topic}"

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.options.get("tls", "false").lower() in {"1", "true", "yes"}

    def hide(self, text: str) -> str:
        """Replace the credentials in a text, for example in an error message of a client library."""
        secrets = (self.password, self.username, *(v for k, v in self.options.items() if "password" in k))
        for secret in secrets:
            if secret:
                text = text.replace(secret, "***")
        return text

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.topic}"


def is_address(text: object) -> bool:
    """Return whether a text is the address of a topic."""
    return isinstance(text, str) and "://" in text and text.partition("://")[0] in SCHEMES


def without_credentials(text: str) -> str:
    """Return an address without user and password, for display."""
    return str(Address.parse(text)) if is_address(text) else _USER.sub(r"\1", text)


def _password(text: str | None) -> str | None:
    if text is None:
        return None
    password = unquote(text)
    if not password.startswith("$"):
        return password
    try:
        return os.environ[password[1:]]
    except KeyError:
        raise _error(f"the environment variable {password[1:]!r} of the password is not set.") from None


def _error(message: str) -> ParameterError:
    return ParameterError(
        message, source="the address", hint="for example nats://127.0.0.1:4222/payments?start=first"
    )


class BrokerError(SteelyardError, OSError):
    """A broker is unreachable or does not have the topic."""


class Message(NamedTuple):
    """One message of a topic."""

    payload: bytes
    id: str  # topic, partition and offset; except with MQTT, it is the same if the message is read again
    part: str = ""  # partition of the message, if the topic has partitions
    position: str = ""  # position after this message; empty if the broker has no positions


class Connection:
    """Connection to a topic, the base of sources and sinks."""

    errors: tuple[type[BaseException], ...]  # errors of the client library, which become BrokerError

    def __init__(self, address: Address) -> None:
        self._address = address
        with client_errors(address, *self.errors):
            self._client = self._connect(address)

    def _connect(self, address: Address) -> Any:
        """Return a connected client of the library of the broker."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Source(Connection):
    """Reader of a topic, the base of the readers of all brokers."""

    # Whether a topic can be read again from a stored position. If not, a message that was not acknowledged is
    # delivered again, even if it has been learned.
    has_positions = True
    missed: str | None = None  # text that says which messages the broker deleted before they were read

    def __init__(self, address: Address, positions: Mapping[str, str]) -> None:
        """Connect, and open the topic at the positions given for its partitions."""
        super().__init__(address)
        try:
            with client_errors(address, *self.errors):
                self._open(positions)
        except BaseException:
            self.close()
            raise

    def read(self, max_messages: int, seconds: float) -> list[Message]:
        """Return the next messages, or an empty list if none arrives within ``seconds``."""
        with client_errors(self._address, *self.errors):
            return self._read(max_messages, seconds)

    def lag(self) -> int | None:
        """Return the number of unread messages in the topic, or None if it is unknown."""
        with client_errors(self._address, *self.errors):
            return self._lag()

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages whose effect is durable, if the service does not store the position itself."""

    def _open(self, positions: Mapping[str, str]) -> None:
        raise NotImplementedError

    def _read(self, max_messages: int, seconds: float) -> list[Message]:
        raise NotImplementedError

    def _lag(self) -> int | None:
        raise NotImplementedError

    def _recreated(self, what: str, end: str, position: str) -> BrokerError:
        """Return the error for a topic that ends before the stored position."""
        return BrokerError(
            f"{what} ends at {end}, before the stored position {position}: it was created again.",
            source=str(self._address),
            hint="give the new topic another name, or create the model again",
        )


class Sink(Connection):
    """Writer of a topic, the base of the writers of all brokers."""

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages with stable ids; return when the broker has accepted all of them."""
        with client_errors(self._address, *self.errors):
            self._send(messages)

    def _send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        raise NotImplementedError


def open_source(address: Address, positions: Mapping[str, str] | None = None) -> Source:
    """Open a topic for reading.

    Reading starts at the position given for each partition, or without ``positions`` where the option
    ``start`` of the address says.
    """
    return _module(address).open_source(address, dict(positions or {}))


def open_sink(address: Address) -> Sink:
    """Open a topic for sending."""
    return _module(address).open_sink(address)


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
