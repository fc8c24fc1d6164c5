"""Addresses of topics, such as ``nats://127.0.0.1:4222/payments``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from steelyard.exceptions import ParameterError

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
