"""API keys (random tokens, stored as hashes, with scopes, models and rates) and rate limits."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import stat
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError, SteelyardError
from steelyard.service.errors import QueueFullError

SCOPES = ("predict", "learn", "forget", "site", "admin")
_PREFIX = "sy"
_LISTS = ("scopes", "models", "sites")  # settings of a key that are lists of texts
_log = logging.getLogger("steelyard.service")


@dataclass(frozen=True)
class Key:
    """API key with its scopes and models. Only a hash of the secret is stored."""

    id: str
    hash: str
    scopes: tuple[str, ...]
    models: tuple[str, ...] = ("*",)
    note: str = ""
    sites: tuple[str, ...] = ("*",)
    expires: float | None = None  # expiry time in seconds since 1970
    rate: float | None = None  # maximum number of requests per second

    def has_expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires

    def allows(self, scope: str, model: str | None, site: str | None = None) -> bool:
        """Return whether this key has the scope, or the scope admin, for a model and a site."""
        has_scope = scope in self.scopes or "admin" in self.scopes
        has_model = model is None or "*" in self.models or model in self.models
        has_site = site is None or "*" in self.sites or site in self.sites
        return has_scope and has_model and has_site


class Keys:
    """API keys in a TOML file written by ``steelyard serve keys add``; it is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problem: str | None = None
        # Mtime, ctime and size of the file when it was last read.
        self._loaded: tuple[int, int, int] | None = None
        self._keys: dict[str, Key] = {}
        self._refresh()

    def find(self, token: str) -> Key | None:
        """Return the key of a bearer token, compared in constant time, or None if no key matches."""
        self._refresh()
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        key = self._keys.get(key_id) if prefix == _PREFIX else None
        # Unknown ids are also compared, so that they take the same time as known ids.
        expected = _hash("unknown") if key is None else key.hash
        same = hmac.compare_digest(_hash(secret).encode(), expected.encode())
        return key if same else None

    def problem(self) -> str | None:
        """Return the reason why the file cannot be read, or None if it can. A new problem is logged."""
        problem = None
        try:
            self._refresh()
        except SteelyardError as error:
            problem = str(error)
        if problem is not None and problem != self._problem:
            _log.error("requests are refused: %s", problem)
        self._problem = problem
        return problem

    def all(self) -> list[Key]:
        self._refresh()
        return list(self._keys.values())

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
            state = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            if state == self._loaded:
                return
            text = self.path.read_text("utf-8")
        except OSError as error:
            raise FileAccessError(
                f"cannot be read: {error.strerror or error}.",
                source=str(self.path),
                hint="steelyard serve keys add creates it",
            ) from error
        try:
            entries = tomllib.loads(text).get("keys", [])
            values = [{**entry, "expires": _seconds(entry.get("expires"))} for entry in entries]
            keys = msgspec.convert(values, list[Key])
        except (TypeError, AttributeError, ValueError, msgspec.ValidationError) as error:
            raise FileFormatError(f"this is not a file of keys: {error}.", source=str(self.path)) from error
        self._keys, self._loaded = {key.id: key for key in keys}, state

    @classmethod
    def add(
        cls,
        path: Path,
        scopes: Sequence[str],
        models: Sequence[str] = ("*",),
        note: str = "",
        sites: Sequence[str] = ("*",),
        *,
        expires: float | None = None,
        rate: float | None = None,
    ) -> tuple[Key, str]:
        """Create a key and store its hash; return the key and its token, which is not stored."""
        unknown = [scope for scope in scopes if scope not in SCOPES]
        if unknown or not scopes:
            raise ParameterError(
                f"the scopes of a key must be among {', '.join(SCOPES)}; got {', '.join(scopes) or 'none'}."
            )
        if rate is not None and not 0 < rate < math.inf:
            raise ParameterError(f"the rate of a key must be positive; got {rate!r}.")
        key, token = _new(Key("", "", tuple(scopes), tuple(models), note, tuple(sites), expires, rate))
        with _changed(path) as known:
            known[key.id] = key
        return key, token

    @classmethod
    def rotate(cls, path: Path, key_id: str, until: float, expires: float | None = None) -> tuple[Key, str]:
        """Create a new key with the rights of an old key, which then expires no later than ``until``."""
        with _changed(path, key_id) as known:
            old = known[key_id]
            known[key_id] = replace(old, expires=min(until, old.expires or math.inf))
            key, token = _new(replace(old, expires=expires))
            known[key.id] = key
        return key, token

    @staticmethod
    def revoke(path: Path, key_id: str) -> Key:
        with _changed(path, key_id) as known:
            return known.pop(key_id)


def _new(key: Key) -> tuple[Key, str]:
    """Return a key with a new id and secret, and its token."""
    secret, key_id = secrets.token_urlsafe(32), secrets.token_hex(4)
    return replace(key, id=key_id, hash=_hash(secret)), f"{_PREFIX}_{key_id}_{secret}"


@contextmanager
def _changed(path: Path, key_id: str | None = None) -> Iterator[dict[str, Key]]:
    """Yield the keys of a file by id, and write them back. With ``key_id``, this key must exist.

    The folder is locked, so that concurrent changes do not undo each other. The file itself cannot be locked
    for this, because every change replaces the file by a new one.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise FileAccessError(f"{error.strerror or error}.", source=str(path.parent)) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        known = {key.id: key for key in Keys(path).all()} if path.exists() or key_id is not None else {}
        if key_id is not None and key_id not in known:
            raise ParameterError(f"there is no key {key_id!r} in {path}.", hint="steelyard serve keys list")
        yield known
        _write(path, list(known.values()))
    finally:
        os.close(folder)


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be inverted by guessing.
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def _seconds(value: Any) -> float | None:
    """Return the seconds since 1970 of a TOML date or date-time. Times without an offset are UTC."""
    if value is None:
        return None
    moment = datetime.fromisoformat(value.isoformat())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _write(path: Path, keys: Sequence[Key]) -> None:
    lines = ["# Keys of a steelyard service: hashes only. Change it with `steelyard serve keys`.\n"]
    for key in keys:
        lines.append("[[keys]]")
        values = {name: getattr(key, name) for name in ("id", "hash", "note", *_LISTS)}
        # Texts and lists are written in TOML as in JSON.
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
        if key.expires is not None:
            lines.append(f"expires = {datetime.fromtimestamp(key.expires, UTC).isoformat()}")
        if key.rate is not None:
            lines.append(f"rate = {key.rate!r}")
        lines.append("")
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    # The file is created with mode 600, so that no other user can ever read it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        _set_owner(path, descriptor)
        file.write("\n".join(lines).encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _set_owner(path: Path, descriptor: int) -> None:
    """Keep the owner and the mode of a rewritten file. A new file gets the owner of its folder.

    An administrator who adds a key with sudo must not make the file unreadable for the service.
    """
    is_new = not path.exists()
    model = (path.parent if is_new else path).stat()
    if os.geteuid() == 0:
        os.fchown(descriptor, model.st_uid, model.st_gid)
    if not is_new:
        os.fchmod(descriptor, stat.S_IMODE(model.st_mode))


class RateLimits:
    """Token buckets: a rate of r allows r requests per second and bursts of up to r requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Remaining requests and time of the last update, by (kind, name).
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def check(self, kind: str, name: str, rate: float) -> None:
        """Count one request; raise QueueFullError if the rate is exceeded."""
        now, burst = self._clock(), max(rate, 1.0)
        left, then = self._buckets.get((kind, name), (burst, now))
        left = min(burst, left + (now - then) * rate)
        self._buckets[kind, name] = (max(left - 1.0, 0.0) if left >= 1.0 else left, now)
        if left < 1.0:
            raise QueueFullError(
                f"the rate limit of this {kind} is {rate:g} requests per second; nothing was changed.",
                hint="send rows in batches, or ask an administrator for a higher rate",
            )
