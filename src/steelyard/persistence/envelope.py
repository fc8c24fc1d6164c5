"""Bytes of a file: magic bytes, format number, lengths, checksum, JSON header, arrays.

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

The header describes the arrays. Every array begins directly after the previous one, padded with zeros to the
next multiple of 64. The reader computes this position and rejects any other, so arrays cannot overlap, hide
bytes between them or extend past the end.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import reprlib
import struct
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import sklearn
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError, FileFormatError, SteelyardError

if TYPE_CHECKING:
    from collections.abc import Iterable

AnyArray = NDArray[Any]

MAGIC = b"\x93STEELYARD"
FORMAT = 1
_START = struct.Struct("<10sHQQ")
_DIGEST_SIZE = 36
PRELUDE_SIZE = _START.size + _DIGEST_SIZE
_COPY_HINT = "take the file from a backup, or save the model again"
_HEADER_FIELDS = {"format", "written_by", "content", "arrays"}
_MAX_INT_DIGITS = 20
_MAX_REASON_CHARACTERS = 500
ALIGNMENT = 64
MAX_DIMENSIONS = 32
# The file size does not limit the dimensions of an array without elements, which takes no bytes.
MAX_EMPTY_DIMENSION = 2**31
MAX_CODE_POINT = 0x10FFFF

# Object arrays are not allowed, nor is long double, whose padding is undefined and whose size varies.
_DTYPE = re.compile(
    r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]c(8|16)|\|S[1-9]\d{0,6}|[<>]U[1-9]\d{0,5}"
    r"|[<>][mM]8(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?",
    re.ASCII,
)
_FIELDS = {"dtype", "order", "shape", "offset", "length"}


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


# -- arrays ----------------------------------------------------------------------------------------


class ArrayWriter:
    """Writer of arrays: ``descriptors`` belong to the header, ``blocks`` to the bytes after it."""

    def __init__(self) -> None:
        self.descriptors: list[dict[str, Any]] = []
        self.blocks: list[bytes | memoryview] = []
        self._end = 0

    def add(self, array: AnyArray, where: str) -> int:
        """Append an array, if possible without a copy, and return its index."""
        if not _DTYPE.fullmatch(array.dtype.str) or array.dtype.fields is not None:
            raise DataTypeError(
                f"{where} is an array of type {array.dtype}, which cannot be saved.",
                source="save",
                hint="arrays of bool, int, uint, float, complex, str, bytes and dates can be saved",
            )
        if array.ndim > MAX_DIMENSIONS:
            raise DataError(
                f"{where} has {array.ndim} dimensions; at most {MAX_DIMENSIONS} can be saved.", source="save"
            )
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1)
        if fault := _content_fault(flat):
            raise DataError(f"{where} contains {fault}.", source="save")
        gap = -self._end % ALIGNMENT
        offset = self._end + gap
        self._end = offset + flat.nbytes
        self.blocks += [bytes(gap), flat.view(np.uint8).data]
        self.descriptors.append(
            {
                "dtype": array.dtype.str,
                "order": order,
                "shape": list(array.shape),
                "offset": offset,
                "length": flat.nbytes,
            }
        )
        return len(self.descriptors) - 1


def read_arrays(descriptors: object, body: memoryview) -> list[AnyArray]:
    """Return copies of all arrays in `body`; raise FileFormatError for bytes that no array uses."""
    if type(descriptors) is not list:
        raise FileFormatError("The header's list of arrays is not a list.")
    arrays: list[AnyArray] = []
    end = 0
    for number, descriptor in enumerate(descriptors):
        begin, offset = end, end + -end % ALIGNMENT
        dtype, order, shape, length = _check_descriptor(descriptor, number, offset)
        end = offset + length
        if end > len(body):
            raise FileFormatError(
                f"Array {number} must end at byte {end} of the data, which has {len(body)} bytes."
            )
        if any(body[begin:offset]):
            raise FileFormatError(f"There are stray bytes before array {number}.")
        flat = np.frombuffer(body[offset:end], dtype) if length else np.empty(shape, dtype).ravel()
        if fault := _content_fault(flat):
            raise FileFormatError(f"Array {number} contains {fault}.")
        # The copy is writable and aligned, and does not keep the file in memory.
        arrays.append(flat.reshape(shape[::-1]).copy().T if order == "F" else flat.reshape(shape).copy())
    if end != len(body):
        raise FileFormatError(f"The arrays end at byte {end} of the data, which has {len(body)} bytes.")
    return arrays


def parse_dtype(text: object) -> np.dtype[Any]:
    """Return the dtype with the given name; raise FileFormatError if a file may not contain it."""
    if type(text) is str and _DTYPE.fullmatch(text):
        try:
            dtype = np.dtype(text)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if dtype.str == text:
                return dtype
    raise FileFormatError(f"{quote(text)} is not an array type that a file may contain.")


def check_shape(shape: object, itemsize: int) -> tuple[int, ...]:
    """Return the shape as a tuple; raise FileFormatError if it is invalid. No memory is allocated."""
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise FileFormatError(f"{quote(shape)} is not the shape of an array.")
    for n in shape:
        if type(n) is not int or n < 0:
            raise FileFormatError(f"{quote(shape)} is not the shape of an array.")
    if 0 in shape and (
        max(shape) > MAX_EMPTY_DIMENSION or math.prod(n for n in shape if n) * itemsize >= 2**62
    ):
        raise FileFormatError(f"{quote(shape)} is too large a shape for an array without elements.")
    return tuple(shape)


def _check_descriptor(
    descriptor: object, number: int, offset: int
) -> tuple[np.dtype[Any], str, tuple[int, ...], int]:
    if type(descriptor) is not dict or set(descriptor) != _FIELDS:
        raise FileFormatError(
            f"The description of array {number} must have the fields {', '.join(sorted(_FIELDS))}; "
            f"got {quote(descriptor)}."
        )
    dtype = parse_dtype(descriptor["dtype"])
    shape = check_shape(descriptor["shape"], dtype.itemsize)
    order, length = descriptor["order"], descriptor["length"]
    if order not in ("C", "F"):
        raise FileFormatError(f"The order of array {number} must be 'C' or 'F'; got {quote(order)}.")
    if type(descriptor["offset"]) is not int or descriptor["offset"] != offset:
        raise FileFormatError(f"Array {number} must start at byte {offset} of the data.")
    expected = math.prod(shape) * dtype.itemsize
    if type(length) is not int or length != expected:
        raise FileFormatError(
            f"Array {number} of shape {quote(shape)} and type {dtype.str} cannot have {quote(length)} bytes."
        )
    return dtype, order, shape, length


def _content_fault(flat: AnyArray) -> str | None:
    """Return a description of values that are invalid for the array's type, or None if there are none."""
    if flat.dtype.kind == "b" and flat.view(np.uint8).max(initial=0) > 1:
        return "booleans other than 0 and 1"
    if flat.dtype.kind == "U" and flat.view(flat.dtype.str[0] + "u4").max(initial=0) > MAX_CODE_POINT:
        return "numbers that are not characters"
    return None


# -- short, safe representations of untrusted values for error messages --------------------------------


def quote(value: object) -> str:
    """Return a short representation of a value."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001  # Python refuses to format integers of thousands of digits
        return f"a {type(value).__name__} that cannot be displayed"


def reason(error: Exception) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, SteelyardError):
        return error.summary[:_MAX_REASON_CHARACTERS]
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARACTERS]
    except Exception:  # noqa: BLE001  # the message may contain an integer that Python refuses to format
        return type(error).__name__
