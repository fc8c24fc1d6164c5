"""Outer layer of a file: magic bytes, format number, lengths, checksum, JSON header, arrays.

============  =====  =========================================================
bytes         type   meaning
============  =====  =========================================================
0 to 9        bytes  ``\\x93STEELYARD``
10 to 11      u16    format number
12 to 19      u64    length of the header, a multiple of 64
20 to 27      u64    length of the whole file
28 to 63      bytes  BLAKE2b digest of all other bytes of the file
64 onward     text   the header: JSON in UTF-8, padded with spaces
afterwards    bytes  the arrays
============  =====  =========================================================

Numbers are little-endian. The first 64 bytes have the same meaning in every future format, so that the
library can distinguish newer files from damaged ones. The checksum detects accidental damage. It is not a
signature: an attacker can compute it, so everything after it is validated as well.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import struct
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import sklearn

from steelyard.exceptions import FileFormatError
from steelyard.persistence.arrays import ALIGNMENT, AnyArray, ArrayWriter, read_arrays
from steelyard.persistence.quoting import quote, reason

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"\x93STEELYARD"
FORMAT = 1
_START = struct.Struct("<10sHQQ")
_DIGEST_SIZE = 36
PRELUDE_SIZE = _START.size + _DIGEST_SIZE
_COPY_HINT = "take the file from a backup, or save the model again"
_HEADER_FIELDS = {"format", "written_by", "content", "arrays"}
_MAX_INT_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Envelope:
    """Content of a file whose checksum and header are valid; values are not decoded yet."""

    versions: dict[str, str]
    content: Any
    descriptors: list[dict[str, Any]]
    arrays: list[AnyArray]
    n_bytes: int


def pack(content: object, arrays: ArrayWriter) -> list[bytes | memoryview]:
    """Return the bytes of a file as a list of parts."""
    header = {
        "format": FORMAT,
        "written_by": library_versions(),
        "content": content,
        "arrays": arrays.descriptors,
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    n_bytes = PRELUDE_SIZE + len(text) + sum(map(len, arrays.blocks))
    start = _START.pack(MAGIC, FORMAT, len(text), n_bytes)
    return [start, _digest([start, text, *arrays.blocks]), text, *arrays.blocks]


def unpack(data: bytes | bytearray | memoryview) -> Envelope:
    """Validate the bytes of a file and return its content."""
    view = memoryview(data).cast("B")
    check_beginning(view, len(view))
    _, file_format, header_size, _ = _START.unpack_from(view)
    if _digest([view[: _START.size], view[PRELUDE_SIZE:]]) != view[_START.size : PRELUDE_SIZE]:
        raise FileFormatError(
            "The checksum is wrong: the file was changed or damaged after it was written.",
            hint=_COPY_HINT,
        )
    if header_size % ALIGNMENT or header_size > len(view) - PRELUDE_SIZE:
        raise FileFormatError(f"The file of {len(view)} bytes cannot have a header of {header_size} bytes.")
    text = view[PRELUDE_SIZE : PRELUDE_SIZE + header_size]
    if file_format != FORMAT:
        _raise_wrong_format(file_format, text)
    header = _parse_json(text)
    if type(header) is not dict or set(header) != _HEADER_FIELDS or header["format"] != FORMAT:
        raise FileFormatError(
            f"The header must have the fields {', '.join(sorted(_HEADER_FIELDS))} and the format {FORMAT}."
        )
    versions = header["written_by"]
    if (
        type(versions) is not dict
        or "steelyard" not in versions
        or any(type(v) is not str for v in versions.values())
    ):
        raise FileFormatError(f"The header contains no valid library versions: {quote(versions)}.")
    return Envelope(
        versions=versions,
        content=header["content"],
        descriptors=header["arrays"],
        arrays=read_arrays(header["arrays"], view[PRELUDE_SIZE + header_size :]),
        n_bytes=len(view),
    )


def check_beginning(beginning: bytes | memoryview, n_bytes: int | None) -> None:
    """Check magic bytes and length before the rest is read.

    ``n_bytes`` is the file size, or None if it is unknown.
    """
    magic = bytes(beginning[: len(MAGIC)])
    if not magic:
        raise FileFormatError("The file is empty.")
    if not MAGIC.startswith(magic):
        raise FileFormatError(
            "This is not a steelyard file.", hint="steelyard.save writes files that can be loaded"
        )
    if len(beginning) < PRELUDE_SIZE:
        raise FileFormatError(f"The file is truncated after {len(beginning)} bytes.", hint=_COPY_HINT)
    _, _, _, expected = _START.unpack_from(beginning)
    if n_bytes is not None and n_bytes < expected:
        raise FileFormatError(
            f"The file is truncated: it has {n_bytes} of {expected} bytes.", hint=_COPY_HINT
        )
    if n_bytes is not None and n_bytes > expected:
        raise FileFormatError(
            f"The file should end after {expected} bytes; it has {n_bytes}.", hint=_COPY_HINT
        )


@cache
def library_versions() -> dict[str, str]:
    """Return the library versions that are recorded in the header."""
    return {
        "steelyard": metadata.version("steelyard"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _digest(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _raise_wrong_format(file_format: int, text: memoryview) -> NoReturn:
    try:
        writer = _parse_json(text)["written_by"]["steelyard"]
    except (FileFormatError, KeyError, TypeError, IndexError):
        writer = None  # the header of a future version may have another structure
    known = type(writer) is str and writer.isascii() and writer.isprintable() and len(writer) < 50
    by = f"steelyard {writer}" if known else "an unknown version of steelyard"
    raise FileFormatError(
        f"This file was written in format {file_format} by {by}; this library reads up to format {FORMAT}.",
        hint="update steelyard to load this file" if file_format > FORMAT else None,
    )


def _parse_json(text: memoryview) -> Any:
    """Parse strict JSON: NaN, duplicate names and numbers that would be rounded are errors."""
    try:
        return json.loads(
            str(text, "utf-8"),
            object_pairs_hook=_unique,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_raise_constant,
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"The header is not valid JSON ({reason(error)}).") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise FileFormatError("An object in the header has a duplicate name.")
    return result


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_INT_DIGITS:
        raise FileFormatError(f"The header contains an integer of {len(digits)} digits.")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise FileFormatError(f"The header has the number {quote(digits)}, which is too large.")
    return value


def _raise_constant(name: str) -> NoReturn:
    raise FileFormatError(f"The header has {name} instead of a finite number.")
