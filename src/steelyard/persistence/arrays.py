"""Array section of a file: raw arrays with 64-byte alignment, described in the header.

The position of every array is fixed: directly after the previous one, padded with zeros to the next multiple
of 64. The reader computes this position and rejects any other, so arrays cannot overlap, hide bytes between
them or extend past the end.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError, FileFormatError
from steelyard.persistence.quoting import quote

AnyArray = NDArray[Any]

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
        offset = end + -end % ALIGNMENT
        dtype, order, shape, length = _check_descriptor(descriptor, number, offset)
        if offset + length > len(body):
            raise FileFormatError(
                f"Array {number} must end at byte {offset + length} of the data, which has {len(body)} bytes."
            )
        if any(body[end:offset]):
            raise FileFormatError(f"There are stray bytes before array {number}.")
        end = offset + length
        arrays.append(_read_array(body[offset:end], dtype, order, shape, number))
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


def _read_array(
    block: memoryview, dtype: np.dtype[Any], order: str, shape: tuple[int, ...], number: int
) -> AnyArray:
    if not block:
        return np.empty(shape, dtype, order="F" if order == "F" else "C")
    flat = np.frombuffer(block, dtype=dtype)
    if fault := _content_fault(flat):
        raise FileFormatError(f"Array {number} contains {fault}.")
    # The copy is writable and aligned, and does not keep the file in memory.
    if order == "F":
        return flat.reshape(shape[::-1]).copy().T
    return flat.reshape(shape).copy()


def _content_fault(flat: AnyArray) -> str | None:
    """Return a description of values that are invalid for the array's type, or None if there are none."""
    if flat.dtype.kind == "b" and flat.view(np.uint8).max(initial=0) > 1:
        return "booleans other than 0 and 1"
    if flat.dtype.kind == "U" and flat.view(flat.dtype.str[0] + "u4").max(initial=0) > MAX_CODE_POINT:
        return "numbers that are not characters"
    return None
