"""Files and standard input as bytes: opened, unpacked and recognised by their content, not their name."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from steelyard.exceptions import DataError, DataTypeError, FileAccessError

__all__ = ["ByteSource", "open_bytes", "without_header"]

_HEAD_BYTES = 1 << 18  # enough for about a thousand rows, by which columns are judged
_HEAD_LINES = 200  # a live feed is not waited for any longer
_LONGEST_LINE = 1 << 26
_GZIP = b"\x1f\x8b"


class ByteSource(io.RawIOBase):
    """Bytes with their beginning known in advance.

    Attributes
    ----------
    name : str
        For sentences.
    head : bytes
        The beginning of the content, unpacked.
    whole_in_head : bool
        Whether the head is all there is.
    path : Path or None
        Where the file is, when it is a plain file that can be read at any place.
    """

    def __init__(self, raw: IO[bytes], name: str, path: Path | None) -> None:
        super().__init__()
        self.name = name
        self._raw = raw
        self.owned = path is not None  # who opened it closes it
        self._size = os.fstat(raw.fileno()).st_size if path is not None else None
        packed = path is not None and raw.read(2) == _GZIP
        if path is not None:
            raw.seek(0)
        content: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        self._content = content
        self.path = None if packed else path
        self._position = 0
        self._fraction = 0.0
        try:
            self.head, self.whole_in_head = self._read_head()
        except DataError:
            self.close()
            raise

    def _read_head(self) -> tuple[bytes, bool]:
        read = getattr(self._content, "read1", self._content.read)
        if isinstance(self._content, io.TextIOBase):
            raise DataTypeError(
                "expected a file opened in binary mode; got one of text.",
                who=self.name,
                hint="open it with mode 'rb', or wrap the bytes in io.BytesIO",
            )
        head, n_lines = bytearray(), 0
        while self._wants_more(head, n_lines):
            more = self._checked(read, 1 << 16)
            if not more:
                return bytes(head), True
            head += more
            n_lines += more.count(b"\n")
        return bytes(head), False

    def _wants_more(self, head: bytearray, n_lines: int) -> bool:
        """Enough to judge columns by; at least a header and a row, be they ever so long."""
        if len(head) < _HEAD_BYTES:
            return self._size is not None or n_lines < _HEAD_LINES
        if n_lines >= 2 or b"\0" in head[:_HEAD_BYTES]:  # Parquet, Arrow and the like have no lines
            return False
        if len(head) > _LONGEST_LINE:
            raise self._too_long(n_lines + 1)
        return True

    def _too_long(self, line: int) -> DataError:
        return DataError(
            f"line {line:,} is longer than {_LONGEST_LINE:,} bytes.",
            who=self.name,
            hint="is this a table? Every row must be a line",
        )

    def _checked(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, OSError, ValueError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise DataError(f"the content is damaged or cut short: {error}.", who=self.name) from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if self._position < len(self.head):
            data = self.head[self._position : self._position + len(view)]
        else:
            read = getattr(self._content, "read1", self._content.read)
            data = self._checked(read, len(view))
        self._position += len(data)
        view[: len(data)] = data
        return len(data)

    def blocks(self, size: int = 1 << 19, *, quotes: bool = True) -> Iterator[bytes]:
        """Whole lines, about ``size`` bytes at a time; fewer from a pipe that has no more yet.

        With ``quotes`` a line break between quotes ends no line.
        """
        rest, n_lines = b"", 0
        while data := self._read_some(size):
            rest += data
            if b"\n" not in data and len(rest) <= _LONGEST_LINE:
                continue
            end = _end_of_lines(rest) if quotes else rest.rfind(b"\n") + 1
            if end:
                n_lines += rest.count(b"\n", 0, end)
                yield rest[:end]
                rest = rest[end:]
            elif len(rest) > _LONGEST_LINE:
                raise self._too_long(n_lines + 1)
        if rest:
            yield rest

    def _read_some(self, size: int) -> bytes:
        data = self.read(size) or b""
        while self._size is not None and 0 < len(data) < size:
            more = self.read(size - len(data))
            if not more:
                break
            data += more
        return data

    def fraction_read(self) -> float | None:
        """How much of the file has been read; a closed one tells how far it had come."""
        if not self._size:
            return None
        if not self._raw.closed:
            at = self._raw.tell()
            self._fraction = min(1.0, (at if self.path is None else min(self._position, at)) / self._size)
        return self._fraction

    def close(self) -> None:
        if not self.closed and self.owned:
            self.fraction_read()
            self._raw.close()
        super().close()


def _end_of_lines(data: bytes) -> int:
    """Where the last whole line ends; a line break between quotes ends no line. 0 if there is none."""
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    n_quotes = data.count(b'"', 0, end)
    while end and n_quotes % 2:
        shorter = data.rfind(b"\n", 0, end - 1) + 1
        n_quotes -= data.count(b'"', shorter, end)
        end = shorter
    return end


def without_header(block: bytes) -> bytes:
    """The lines after the first one that is not empty; a name in quotes may hold line breaks."""
    begin = len(block) - len(block.lstrip(b"\xef\xbb\xbf\r\n"))
    end = block.find(b"\n", begin)
    while end >= 0 and block.count(b'"', begin, end) % 2:
        end = block.find(b"\n", end + 1)
    return block[end + 1 :] if end >= 0 else b""


def open_bytes(source: str | os.PathLike[str] | IO[bytes]) -> ByteSource:
    """Open a path, ``-`` for standard input, or a binary file; gzip is unpacked.

    Standard input may be packed too.
    """
    if not isinstance(source, str | os.PathLike):
        return ByteSource(source, getattr(source, "name", "input"), None)
    if str(source) == "-":
        return ByteSource(_unpacked(sys.stdin.buffer), "standard input", None)
    path = Path(source)
    try:
        return ByteSource(path.open("rb"), str(path), path)
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", who=str(path)) from error


def _unpacked(pipe: IO[bytes]) -> IO[bytes]:
    beginning = pipe.peek(2)[:2] if hasattr(pipe, "peek") else b""
    return gzip.GzipFile(fileobj=pipe) if beginning == _GZIP else pipe  # type: ignore[return-value]
