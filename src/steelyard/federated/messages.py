"""Binary format of site updates: a checksum, a compressed header and bit-packed sums.

==========  =====  ===============================================================
bytes       type   meaning
==========  =====  ===============================================================
0 to 3      bytes  ``\\x93SYB``
4           u8     format version
5 to 20     bytes  BLAKE2b digest of the remaining bytes
21 to 24    u32    length of the header
25 onward   bytes  the header: JSON in UTF-8, compressed with zlib
then        bytes  for the quantizer and for each class: a length (u32) and numbers
==========  =====  ===============================================================

Reading a message executes no code. The memory for its sums is limited to
:data:`~steelyard.federated.packing.MAX_EXPANSION` times its length. The checksum detects accidental damage.
It does not authenticate the sender, so all contents are validated too. Statistics that this format cannot
represent, for example with labels that are not JSON types, are written as version 1, the format of release
0.2.
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
    MAX_EXPANSION,
    decimals,
    pack_numbers,
    pack_triangle,
    unpack_columns,
    unpack_triangle,
)
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics
from steelyard.proximal.serialization import from_state, get_state, unknown_version, unpack_integers

_MAGIC = b"\x93SYB"
_VERSION = 2
_START = struct.Struct("<4sB16s")
_LENGTH = struct.Struct("<I")
_FORMAT = "steelyard bulletin"  # name of message format version 1
_OLD_VERSION = 1
_QUANTIZER_FIELDS = ("exponents", "origins", "rounds", "mixed")
_MAX_EXPONENT = 1100  # limit of the absolute exponent of a quantization step; doubles need at most 1074
_MAX_SUM_BYTES = 1024
_SOURCE = "SiteUpdate.from_bytes"


def to_bytes(head: Mapping[str, Any], statistics: ClassStatistics) -> bytes:
    """Encode header fields and statistics as a message. Buffered rows are first added to the sums."""
    statistics = statistics.copy().fold()
    state = get_state(statistics)
    packed = _packed(state) if _is_packable(state) else None
    if packed is None:
        return encode(
            {"format": _FORMAT, "version": _OLD_VERSION, **head, "statistics": statistics.to_bytes()}
        )
    fields, parts = packed
    text = json.dumps({**head, **fields}, ensure_ascii=False, separators=(",", ":")).encode()
    header = zlib.compress(text, 9)
    body = b"".join([_LENGTH.pack(len(header)), header, *(_LENGTH.pack(len(p)) + p for p in parts)])
    return _START.pack(_MAGIC, _VERSION, _digest(body)) + body


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _is_packable(state: Mapping[str, Any]) -> bool:
    """Return whether the statistics are quantized sums and all labels are JSON types."""
    classes = state["classes"]
    is_quantized = state["grid"] is not None and not len(state["early"]["weights"])
    return (
        is_quantized
        and not state["from_floats"]
        and all(
            type(entry["label"]) in {str, int, bool}
            and entry["fold"] is None
            and entry["sums"] is not None
            and not len(entry["rows"])
            for entry in classes
        )
    )


def _packed(state: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return header fields, packed quantizer and classes, or None if this format cannot represent them."""
    quantizer, classes = state["grid"], state["classes"]
    exponents = [int(exponent) for exponent in quantizer["exponents"]]
    if not all(float(origin).is_integer() for origin in quantizer["origins"]):
        return None
    triangles = [unpack_integers(entry["sums"].tobytes(), int(entry["each"])) for entry in classes]
    digits = decimals(triangles, exponents)
    columns = (*map(quantizer.get, _QUANTIZER_FIELDS), digits)
    packed_quantizer = b"".join(pack_numbers([int(n) for n in column]) for column in columns)
    parts = [pack_triangle(numbers, exponents, digits) for numbers in triangles]
    for entry, part in zip(classes, parts, strict=True):
        if len(entry["sums"]) > MAX_EXPANSION * len(part):
            return None
    fields = {
        "weight_exponent": int(state["weight_exponent"]),
        "labels": [entry["label"] for entry in classes],
        "each": [int(entry["each"]) for entry in classes],
    }
    return fields, [packed_quantizer, *parts]


# -- reading of messages ----------------------------------------------------------------------------------


def from_bytes(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    """Return header fields and statistics of a message.

    Raise FileFormatError for other data; damaged data may raise any error.
    """
    data = bytes(data)
    if data[:4] != _MAGIC:
        return _from_old_bytes(data)
    if len(data) < _START.size + _LENGTH.size:
        raise FileFormatError("the site update is truncated.", source=_SOURCE)
    _, version, digest = _START.unpack_from(data)
    if version != _VERSION:
        raise unknown_version("site update", version, _VERSION, _SOURCE)
    body = data[_START.size :]
    if _digest(body) != digest:
        raise FileFormatError("the site update is damaged: its checksum does not match.", source=_SOURCE)
    header, *parts = _pieces(body)
    tree = _header(header)
    return tree, _statistics(tree, parts)


def _pieces(body: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body.ljust(at + _LENGTH.size, b"\xff"), at)
        at += _LENGTH.size
        if at + length > len(body):
            raise ValueError("a part of the message is truncated")
        pieces.append(body[at : at + length])
        at += length
    return pieces


def _header(packed: bytes) -> dict[str, Any]:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MAX_EXPANSION * len(packed) + 1024)
    except zlib.error as error:
        raise ValueError(f"the header cannot be decompressed: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the header is too long")
    tree = json.loads(text)
    if not isinstance(tree, dict):
        raise TypeError("the header is not a JSON object")
    return tree


def _statistics(tree: Mapping[str, Any], parts: Sequence[bytes]) -> ClassStatistics:
    n_features = len(tree["numeric"]) + len(tree["categories"])
    packed_quantizer, *triangles = parts
    *columns, digits = unpack_columns(packed_quantizer, len(_QUANTIZER_FIELDS) + 1, n_features)
    exponents, quantizer = columns[0], dict(zip(_QUANTIZER_FIELDS, columns, strict=True))
    if max(map(abs, exponents), default=0) > _MAX_EXPONENT:
        raise ValueError("the exponent of a quantization step is out of range")
    classes = []
    for label, n_bytes, part in zip(tree["labels"], tree["each"], triangles, strict=True):
        if type(label) not in {str, int, bool}:
            raise TypeError("a label is not a string, an integer or a boolean")
        if type(n_bytes) is not int or not 0 < n_bytes <= _MAX_SUM_BYTES:
            raise ValueError(f"a sum has 1 to {_MAX_SUM_BYTES} bytes; got {n_bytes!r}")
        sums = np.frombuffer(unpack_triangle(part, exponents, digits, n_bytes), np.uint8)
        no_rows = {"rows": np.empty(0), "weights": np.empty(0, np.int64)}
        classes.append({"label": label, "fold": None, "sums": sums, "each": n_bytes, **no_rows})
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


def _from_old_bytes(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    tree: Any = decode(data)
    if not isinstance(tree, Mapping) or tree.get("format") != _FORMAT:
        raise FileFormatError("these bytes do not contain a site update.", source=_SOURCE)
    if tree.get("version") != _OLD_VERSION:
        raise unknown_version("site update", tree.get("version"), _VERSION, _SOURCE)
    if not isinstance(tree.get("statistics"), bytes):
        raise FileFormatError("the site update is damaged (it has no statistics).", source=_SOURCE)
    return dict(tree), ClassStatistics.from_bytes(tree["statistics"])
