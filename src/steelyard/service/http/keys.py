"""Keys: random, shown once, stored hashed, each for some verbs and some models."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError

__all__ = ["SCOPES", "Key", "Keys"]

SCOPES = ("predict", "learn", "forget", "site", "admin")
_PREFIX = "sy"


@dataclass(frozen=True)
class Key:
    """Who may do what; the secret itself is not kept."""

    id: str
    hash: str
    scopes: tuple[str, ...]
    models: tuple[str, ...] = ("*",)
    note: str = ""
    sites: tuple[str, ...] = ("*",)

    def allows(self, scope: str, model: str | None, site: str | None = None) -> bool:
        """Whether this key may use a verb on a model, and speak for a site; admin may do everything there."""
        may = scope in self.scopes or "admin" in self.scopes
        here = model is None or "*" in self.models or model in self.models
        return may and here and (site is None or "*" in self.sites or site in self.sites)


class Keys:
    """The keys of a file.

    Parameters
    ----------
    path : path
        A TOML file, made by ``steelyard serve keys add``; read again when it changes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._keys: dict[str, Key] = {}
        self._refresh()

    def find(self, token: str) -> Key | None:
        """The key behind a bearer token, compared in constant time."""
        self._refresh()
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        key = self._keys.get(key_id) if prefix == _PREFIX else None
        # An unknown id costs the same comparison as a known one.
        expected = _hash("nobody") if key is None else key.hash
        same = hmac.compare_digest(_hash(secret).encode(), expected.encode())
        return key if same else None

    def all(self) -> list[Key]:
        """Every key, without its secret."""
        self._refresh()
        return list(self._keys.values())

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
            now = (status.st_mtime_ns, status.st_size)
            if now == self._seen:
                return
            text = self.path.read_text("utf-8")
        except OSError as error:
            raise FileAccessError(
                f"cannot be read: {error.strerror or error}.",
                source=str(self.path),
                hint="steelyard serve keys add makes it",
            ) from error
        self._keys = _parsed(text, str(self.path))
        self._seen = now

    @classmethod
    def add(
        cls,
        path: Path,
        scopes: Sequence[str],
        models: Sequence[str] = ("*",),
        note: str = "",
        sites: Sequence[str] = ("*",),
    ) -> tuple[Key, str]:
        """Make a key and write its hash; returns the key and the token, which is shown only now."""
        strange = [scope for scope in scopes if scope not in SCOPES]
        if strange or not scopes:
            raise ParameterError(
                f"a key's scopes are out of {', '.join(SCOPES)}; got {', '.join(scopes) or 'none'}."
            )
        known = _parsed(path.read_text("utf-8"), str(path)) if path.exists() else {}
        secret, key_id = secrets.token_urlsafe(32), secrets.token_hex(4)
        key = Key(key_id, _hash(secret), tuple(scopes), tuple(models), note, tuple(sites))
        _write(path, [*known.values(), key])
        return key, f"{_PREFIX}_{key_id}_{secret}"

    @classmethod
    def revoke(cls, path: Path, key_id: str) -> Key:
        """Take a key away."""
        known = cls(path)._keys
        if key_id not in known:
            raise ParameterError(f"there is no key {key_id!r} in {path}.", hint="steelyard serve keys list")
        gone = known.pop(key_id)
        _write(path, list(known.values()))
        return gone


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so that a plain hash of it cannot be guessed backwards.
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def _parsed(text: str, name: str) -> dict[str, Key]:
    try:
        entries = tomllib.loads(text).get("keys", [])
        keys = [
            Key(
                str(e["id"]),
                str(e["hash"]),
                tuple(map(str, e["scopes"])),
                tuple(map(str, e.get("models", ["*"]))),
                str(e.get("note", "")),
                tuple(map(str, e.get("sites", ["*"]))),
            )
            for e in entries
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"this is no file of keys: {error}.", source=name) from error
    return {key.id: key for key in keys}


def _write(path: Path, keys: Sequence[Key]) -> None:
    lines = ["# Keys of a steelyard service: hashes only. Change it with `steelyard serve keys`.\n"]
    for key in keys:
        lines += [
            "[[keys]]",
            f"id = {_toml(key.id)}",
            f"hash = {_toml(key.hash)}",
            f"scopes = [{', '.join(map(_toml, key.scopes))}]",
            f"models = [{', '.join(map(_toml, key.models))}]",
            f"sites = [{', '.join(map(_toml, key.sites))}]",
            f"note = {_toml(key.note)}\n",
        ]
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}.tmp")
    # Nobody else may read it, not even for a moment.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write("\n".join(lines).encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _toml(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 else c for c in text) + '"'
