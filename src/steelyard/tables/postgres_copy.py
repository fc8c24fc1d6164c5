"""Decoder for the binary COPY format of PostgreSQL.

A message is a row: the number of columns in two bytes, then for each column the length of its value in four
bytes (-1 for NULL) and the value, all in big-endian order. If all columns are numeric and no value is NULL, a
batch of rows is read as one structured array. Otherwise columns are decoded one after the other, each for all
rows of the batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# NumPy type of each PostgreSQL type OID.
_NUMBERS = {16: "?", 20: ">i8", 21: ">i2", 23: ">i4", 700: ">f4", 701: ">f8"}
_TEXTS = (19, 25, 1042, 1043)
_HEADER_BYTES = 15  # length of signature and flags, which precede the length of the header extension
_END = b"\xff\xff"

Column = tuple[Any, NDArray[np.bool_]]  # values, and a mask of the NULLs


def can_copy(types: Iterable[int]) -> bool:
    """Return whether columns of the given types can be decoded."""
    return all(kind in _NUMBERS or kind in _TEXTS for kind in types)


def arrays_of(
    messages: Iterable[Any], types: Sequence[int], encoding: str, batch: int
) -> Generator[list[Column], None, None]:
    """Yield the columns of each batch of rows of a COPY; ``types`` are the OIDs of the columns."""
    rows: list[bytes] = []
    for number, message in enumerate(messages):
        row = bytes(message)
        if not number:  # the first message begins with a header
            extension = int.from_bytes(row[_HEADER_BYTES : _HEADER_BYTES + 4], "big")
            row = row[_HEADER_BYTES + 4 + extension :]
        if row and not row.startswith(_END):
            rows.append(row)
        if len(rows) == batch:
            yield _columns(rows, types, encoding)
            rows = []
    if rows:
        yield _columns(rows, types, encoding)


def _columns(rows: list[bytes], types: Sequence[int], encoding: str) -> list[Column]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    data = b"".join(rows)
    if not any(kind in _TEXTS for kind in types):
        record = np.dtype([("", ">i2"), *(("", f) for kind in types for f in (">i4", _NUMBERS[kind]))])
        if (lengths == record.itemsize).all():
            records = np.frombuffer(data, dtype=record)
            present = np.zeros(len(rows), dtype=bool)
            return [(records[f"f{2 * k + 2}"], present) for k in range(len(types))]
    return _decode_columns(data, np.cumsum(lengths) - lengths + 2, types, encoding)


def _decode_columns(
    data: bytes, offsets: NDArray[np.int64], types: Sequence[int], encoding: str
) -> list[Column]:
    """Decode rows of different lengths; ``offsets`` contains the start of the first column of each row."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    found: list[Column] = []
    for kind in types:
        sizes = _numbers_at(buffer, offsets, ">i4")
        offsets = offsets + 4
        missing = sizes < 0
        ends = offsets + np.maximum(sizes, 0)
        values: Any
        if kind in _TEXTS:
            values = np.empty(len(offsets), dtype=object)
            spans = zip(offsets.tolist(), ends.tolist(), strict=True)
            values[:] = [data[begin:end].decode(encoding) for begin, end in spans]
        else:
            values = np.zeros(len(offsets), dtype=_NUMBERS[kind])
            values[~missing] = _numbers_at(buffer, offsets[~missing], _NUMBERS[kind])
        found.append((values, missing))
        offsets = ends
    return found


def _numbers_at(buffer: NDArray[np.uint8], offsets: NDArray[np.int64], kind: str) -> Any:
    """Return the numbers of NumPy type ``kind`` at the given offsets of a buffer."""
    picked = buffer[offsets[:, None] + np.arange(np.dtype(kind).itemsize)]
    return picked.view(kind).ravel()
