"""Bulletins as bytes: a checksum, a small header, and every sum in about as many bits as it has.

==========  =====  ===============================================================
bytes       type   meaning
==========  =====  ===============================================================
0 to 3      bytes  ``\\x93SYB``
4           u8     version of this form
5 to 20     bytes  BLAKE2b of all that follows
21 to 24    u32    length of the header
25 onward   bytes  the header, JSON in UTF-8, packed by zlib
after that  bytes  for the grid and for each class: a length (u32) and numbers
==========  =====  ===============================================================

Nothing is executed, and no message takes more than :data:`~steelyard.federated.packing.FACTOR` times its
length in memory for its sums. The checksum finds accidents; whoever can write a message can compute it, so
that everything behind it is checked as well. What this form cannot hold, such as labels that JSON has no word
for, is written as version 1, which was the form of 0.2.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from steelyard.exceptions import FileFormatError
from steelyard.federated.packing import (
    FACTOR,
    decimals,
    pack_numbers,
    pack_triangle,
    unpack_columns,
    unpack_triangle,
)
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics
from steelyard.proximal.state.messages import from_state, get_state

__all__ = ["from_bytes", "to_bytes"]

_MAGIC = b"\x93SYB"
_VERSION = 2
_START = struct.Struct("<4sB16s")
_LENGTH = struct.Struct("<I")
_FORMAT = "steelyard bulletin"  # of version 1
_EARLIER = 1
_GRID = ("exponents", "origins", "rounds", "mixed")
_FARTHEST = 1100  # powers of two that a double can have
_LONGEST = 1024  # bytes of a sum
_WHO = "SiteUpdate.from_bytes"


def to_bytes(head: Mapping[str, Any], statistics: ClassStatistics) -> bytes:
    """The message of plain facts and statistics; rows that wait come into the sums, so that none leaves."""
    statistics = statistics.copy().fold()
    state = get_state(statistics)
    packed = _packed(state) if _is_plain(state) else None
    if packed is None:
        return encode({"format": _FORMAT, "version": _EARLIER, **head, "statistics": statistics.to_bytes()})
    facts, parts = packed
    text = json.dumps({**head, **facts}, ensure_ascii=False, separators=(",", ":")).encode()
    header = zlib.compress(text, 9)
    body = b"".join([_LENGTH.pack(len(header)), header, *(_LENGTH.pack(len(p)) + p for p in parts)])
    return _START.pack(_MAGIC, _VERSION, _digest(body)) + body


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _is_plain(state: Mapping[str, Any]) -> bool:
    """Whether the statistics are sums on a grid, of classes that JSON can name."""
    classes = state["classes"]
    settled = state["grid"] is not None and not len(state["early"]["weights"]) and not state["from_floats"]
    return settled and all(
        type(entry["label"]) in {str, int, bool}
        and entry["fold"] is None
        and entry["sums"] is not None
        and not len(entry["rows"])
        for entry in classes
    )


def _packed(state: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Facts for the header, and the numbers of grid and classes; None where too little would be left."""
    quantizer, classes = state["grid"], state["classes"]
    exponents = [int(exponent) for exponent in quantizer["exponents"]]
    if not all(float(origin).is_integer() for origin in quantizer["origins"]):
        return None
    triangles = [_numbers(entry["sums"].tobytes(), int(entry["each"])) for entry in classes]
    digits = decimals(triangles, exponents)
    settled = b"".join(
        pack_numbers([int(n) for n in column]) for column in (*map(quantizer.get, _GRID), digits)
    )
    parts = [pack_triangle(numbers, exponents, digits) for numbers in triangles]
    for entry, part in zip(classes, parts, strict=True):
        if len(entry["sums"]) > FACTOR * len(part):
            return None
    facts = {
        "weight_exponent": int(state["weight_exponent"]),
        "labels": [entry["label"] for entry in classes],
        "each": [int(entry["each"]) for entry in classes],
    }
    return facts, [settled, *parts]


def _numbers(data: bytes, each: int) -> list[int]:
    return [int.from_bytes(data[at : at + each], "little", signed=True) for at in range(0, len(data), each)]


# -- reading ----------------------------------------------------------------------------------------------


def from_bytes(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    """Facts and statistics of a message; anything else is refused with a sentence."""
    data = bytes(data)
    if data[:4] != _MAGIC:
        return _opened_earlier(data)
    if len(data) < _START.size + _LENGTH.size:
        raise FileFormatError("the bulletin is cut off.", source=_WHO)
    _, version, digest = _START.unpack_from(data)
    if version != _VERSION:
        raise _other_version(version)
    body = data[_START.size :]
    if _digest(body) != digest:
        raise FileFormatError("the bulletin is damaged: its checksum is another.", source=_WHO)
    try:
        header, *parts = _pieces(body)
        tree = _header(header)
        return tree, _statistics(tree, parts)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FileFormatError(f"the bulletin is damaged ({error}).", source=_WHO) from error


def _pieces(body: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body.ljust(at + _LENGTH.size, b"\xff"), at)
        at += _LENGTH.size
        if at + length > len(body):
            raise ValueError("a part is cut off")
        pieces.append(body[at : at + length])
        at += length
    return pieces


def _header(packed: bytes) -> dict[str, Any]:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, FACTOR * len(packed) + 1024)
    except zlib.error as error:
        raise ValueError(f"the header cannot be unpacked, {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the header is longer than it can be")
    tree = json.loads(text)
    if not isinstance(tree, dict):
        raise TypeError("the header is no table of facts")
    return tree


def _statistics(tree: Mapping[str, Any], parts: Sequence[bytes]) -> ClassStatistics:
    n_features = len(tree["numeric"]) + len(tree["categories"])
    settled, *triangles = parts
    *columns, digits = unpack_columns(settled, len(_GRID) + 1, n_features)
    exponents, quantizer = columns[0], dict(zip(_GRID, columns, strict=True))
    if max(map(abs, exponents), default=0) > _FARTHEST:
        raise ValueError("a quantum is out of all bounds")
    classes = []
    for label, each, part in zip(tree["labels"], tree["each"], triangles, strict=True):
        if type(label) not in {str, int, bool} or type(each) is not int or not 0 < each <= _LONGEST:
            raise ValueError("a class makes no sense")
        sums = unpack_triangle(part, exponents, digits, each)
        nothing = {"rows": np.empty(0), "weights": np.empty(0, np.int64)}
        classes.append(
            {"label": label, "fold": None, "sums": np.frombuffer(sums, np.uint8), "each": each, **nothing}
        )
    early = {"rows": np.empty(0), "weights": np.empty(0, np.int64), "classes": [], "sparse": False}
    state = {
        "n_features": n_features,
        "grid": quantizer,
        "weight_exponent": tree["weight_exponent"],
        "from_floats": False,
        "early": early,
        "classes": classes,
    }
    return from_state(state, ClassStatistics)


def _opened_earlier(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    tree: Any = decode(data)
    if not isinstance(tree, Mapping) or tree.get("format") != _FORMAT:
        raise FileFormatError("these bytes are not a bulletin.", source=_WHO)
    if tree.get("version") != _EARLIER:
        raise _other_version(tree.get("version"))
    if not isinstance(tree.get("statistics"), bytes):
        raise FileFormatError("the bulletin is damaged (it has no statistics).", source=_WHO)
    return dict(tree), ClassStatistics.from_bytes(tree["statistics"])


def _other_version(version: Any) -> FileFormatError:
    return FileFormatError(
        f"the bulletin has version {version!r}; this library reads version {_VERSION}.",
        source=_WHO,
        hint="update the library on this side",
    )
