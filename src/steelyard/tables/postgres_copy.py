"""Rows of PostgreSQL as arrays: the messages of a binary COPY, taken apart column by column.

A message is a row: the number of its columns in two bytes, then for each column the length of its value in
four (-1 where there is none) and the value, all with the high byte first. Rows in which nothing is missing
and everything has a fixed length are alike, so that numpy sees them as one array of records; in others the
columns are found one after the other, for all rows of a batch at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["arrays_of", "can_copy"]

_NUMBERS = {16: "?", 20: ">i8", 21: ">i2", 23: ">i4", 700: ">f4", 701: ">f8"}  # by the numbers of types
_TEXTS = (19, 25, 1042, 1043)
_HEADER = 15  # bytes: a signature and some flags, before the length of what else there may be
_END = b"\xff\xff"

Column = tuple[Any, NDArray[np.bool_]]  # values, and where there are none


def can_copy(types: Iterable[int]) -> bool:
    """Whether columns of these types can be taken apart here."""
    return all(kind in _NUMBERS or kind in _TEXTS for kind in types)


def arrays_of(
    messages: Iterable[Any], types: Sequence[int], encoding: str, batch: int
) -> Generator[list[Column], None, None]:
    """The columns of so many rows at a time.

    Parameters
    ----------
    messages : iterable of bytes
        What the server sends; the first has a header before its row, if there is one.
    types : sequence of int
        The numbers of the columns' types.
    encoding : str
        How texts are written.
    batch : int
        How many rows.
    """
    rows: list[bytes] = []
    first = True
    for message in messages:
        row = bytes(message)
        if first:
            row, first = row[_HEADER + 4 + int.from_bytes(row[_HEADER : _HEADER + 4], "big") :], False
        if row and not row.startswith(_END):
            rows.append(row)
        if len(rows) == batch:
            yield _columns(rows, types, encoding)
            rows = []
    if rows:
        yield _columns(rows, types, encoding)


def _columns(rows: list[bytes], types: Sequence[int], encoding: str) -> list[Column]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    whole = b"".join(rows)
    if not any(kind in _TEXTS for kind in types):
        record = np.dtype([("", ">i2"), *(("", f) for kind in types for f in (">i4", _NUMBERS[kind]))])
        if (lengths == record.itemsize).all():
            records = np.frombuffer(whole, dtype=record)
            present = np.zeros(len(rows), dtype=bool)
            return [(records[f"f{2 * k + 2}"], present) for k in range(len(types))]
    return _one_by_one(whole, np.cumsum(lengths) - lengths + 2, types, encoding)


def _one_by_one(whole: bytes, places: NDArray[np.int64], types: Sequence[int], encoding: str) -> list[Column]:
    """Columns of rows that differ in length; `places` is where their first columns begin."""
    buffer = np.frombuffer(whole, dtype=np.uint8)
    found: list[Column] = []
    for kind in types:
        sizes = _gathered(buffer, places, ">i4")
        places = places + 4
        missing = sizes < 0
        ends = places + np.maximum(sizes, 0)
        values: Any
        if kind in _TEXTS:
            values = np.empty(len(places), dtype=object)
            cuts = zip(places.tolist(), ends.tolist(), strict=True)
            values[:] = [whole[begin:end].decode(encoding) for begin, end in cuts]
        else:
            values = np.zeros(len(places), dtype=_NUMBERS[kind])
            values[~missing] = _gathered(buffer, places[~missing], _NUMBERS[kind])
        found.append((values, missing))
        places = ends
    return found


def _gathered(buffer: NDArray[np.uint8], places: NDArray[np.int64], kind: str) -> Any:
    """The numbers that begin at some places of a buffer."""
    picked = buffer[places[:, None] + np.arange(np.dtype(kind).itemsize)]
    return picked.view(kind).ravel()
