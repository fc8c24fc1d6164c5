"""Files and standard input as bytes: opened, unpacked and recognised by their content, not their name."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from steelyard.exceptions import DataError, DataTypeError, FileAccessError

__all__ = ["ByteSource", "open_bytes", "without_header"]

_HEAD_BYTES = 1 << 18  # enough for about a thousand rows, by which columns are judged
_HEAD_LINES = 200  # a live feed is not waited for any longer
_LONGEST_LINE = 1 << 26
_GZIP = b"\x1f\x8b"
_PATIENCE = 0.1  # seconds until a reader that waits for a pipe sees that it is to stop
_LAST_SECONDS = 0.5  # in which a pipe that is stopped gives what it holds; it may be filled faster than read
_HEAD_SECONDS = 0.3  # a live feed is not waited for any longer, once it has brought a header and a row


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
        self._pipe: _Pipe | None = getattr(raw, "pipe", None)
        self._digest = None if path is not None else hashlib.sha256()
        self._file = path
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
                source=self.name,
                hint="open it with mode 'rb', or wrap the bytes in io.BytesIO",
            )
        head, n_lines = bytearray(), 0
        begun = time.monotonic()
        while self._wants_more(head, n_lines) and not self._is_waiting(head, n_lines, begun):
            more = self._checked(read, 1 << 16)
            if not more:
                return bytes(head), True
            if self._digest is not None:
                self._digest.update(more)
            head += more
            n_lines += more.count(b"\n")
        return bytes(head), False

    def _is_waiting(self, head: bytearray, n_lines: int, begun: float) -> bool:
        """Whether a live feed has brought enough to begin with, and no more for now."""
        if self._pipe is None or n_lines < (1 if head.lstrip().startswith(b"{") else 2):
            return False
        return not self._pipe.comes_within(max(0.0, begun + _HEAD_SECONDS - time.monotonic()))

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
            f"{'a line' if self._file is None else f'line {line:,}'} is longer than {_LONGEST_LINE:,} bytes.",
            source=self.name,
            hint="is this a table? Every row must be a line",
        )

    def _checked(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, OSError, ValueError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise DataError(f"the content is damaged or cut short: {error}.", source=self.name) from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if self._position < len(self.head):
            data = self.head[self._position : self._position + len(view)]
        else:
            read = getattr(self._content, "read1", self._content.read)
            data = self._checked(read, len(view))
            if self._digest is not None:
                self._digest.update(data)
        self._position += len(data)
        view[: len(data)] = data
        return len(data)

    def blocks(self, size: int = 1 << 19, *, quotes: bool = True) -> Iterator[bytes]:
        """Whole lines, about ``size`` bytes at a time; fewer from a pipe that has no more yet.

        With ``quotes`` a line break between quotes ends no line.
        """
        rest, n_bytes = b"", 0
        while data := self._read_some(size):
            if quotes and (b'"' in data or b'"' in rest):
                whole = rest + data
                end = _end_of_lines(whole)
                block, rest = whole[:end], whole[end:]
            else:
                end = data.rfind(b"\n") + 1
                block = b"".join((rest, memoryview(data)[:end])) if end else b""
                rest = data[end:] if end else rest + data
            if block:
                n_bytes += len(block)
                yield block
            elif len(rest) > _LONGEST_LINE:
                raise self._too_long(self._n_lines(n_bytes) + 1)
        if rest:
            yield rest

    def _read_some(self, size: int) -> bytes:
        """The next bytes: as many as asked for from a file, from a pipe those that have come."""
        if self._position < len(self.head):
            data = self.head[self._position : self._position + size]
        elif self._size is not None:
            data = self._checked(self._content.read, size)
        else:
            data = self._checked(getattr(self._content, "read1", self._content.read), size)
            if self._digest is not None:
                self._digest.update(data)
        self._position += len(data)
        return data

    def _n_lines(self, n_bytes: int) -> int:
        """Lines in the first bytes, to name a place; what came through a pipe is not there any more."""
        if self._file is None:
            return 0
        with self._file.open("rb") as file:
            content = gzip.GzipFile(fileobj=file) if self.path is None else file
            return content.read(n_bytes).count(b"\n")

    def fraction_read(self) -> float | None:
        """How much of the file has been read; a closed one tells how far it had come."""
        if not self._size:
            return None
        try:
            at = self._raw.tell()
        except ValueError:  # it is closed, maybe this moment
            return self._fraction
        self._fraction = min(1.0, (at if self.path is None else min(self._position, at)) / self._size)
        return self._fraction

    @property
    def live(self) -> bool:
        """Whether this is a pipe, which may bring more at any time."""
        return self._pipe is not None

    def stop(self) -> None:
        """Let a live feed end here: what has come is read, and nothing is waited for."""
        if self._pipe is not None:
            self._pipe.stop()

    def fingerprint(self) -> str | None:
        """SHA-256 of the file, or of what a pipe has brought so far; None where the file is gone."""
        if self._digest is not None:
            return self._digest.hexdigest()
        try:
            with self._file.open("rb") as file:  # type: ignore[union-attr]
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None

    def close(self) -> None:
        if not self.closed and self.owned:
            self.fraction_read()
            self._raw.close()
        super().close()


class _Pipe(io.RawIOBase):
    """A pipe or terminal, read as bytes come; a reader that waits can be told to stop.

    Nothing is buffered: a thread that waits in here holds no lock that the end of the program needs.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._stopped = threading.Event()
        self._last_read = 0.0

    def readable(self) -> bool:
        return True

    def stop(self) -> None:
        """From now on nothing is waited for: there is what has come, and then the end."""
        self._last_read = time.monotonic() + _LAST_SECONDS
        self._stopped.set()

    def comes_within(self, seconds: float) -> bool:
        """Whether there is something to read, or the end, within this time."""
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def read1(self, size: int) -> bytes:
        while not self._stopped.is_set():
            if self.comes_within(_PATIENCE):
                return os.read(self._descriptor, size)
        if time.monotonic() < self._last_read and self.comes_within(0.0):
            return os.read(self._descriptor, size)
        return b""

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)


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
        return ByteSource(_unpacked(_standard_input()), "standard input", None)
    path = Path(source)
    try:
        return ByteSource(path.open("rb"), str(path), path)
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error


def _standard_input() -> IO[bytes]:
    try:
        descriptor = sys.stdin.fileno()
        select.select([descriptor], [], [], 0.0)
    except (OSError, ValueError, AttributeError):  # no pipe of the system, or one that cannot be waited for
        return sys.stdin.buffer
    return _Pipe(descriptor)  # type: ignore[return-value]


def _unpacked(pipe: IO[bytes]) -> IO[bytes]:
    """What a pipe brings, unpacked if it begins as packed data does."""
    if isinstance(pipe, _Pipe):
        beginning = pipe.read1(2)
        if beginning == _GZIP[:1]:
            beginning += pipe.read1(1)
        pipe = _Begun(beginning, pipe)  # type: ignore[assignment]
    else:
        beginning = pipe.peek(2)[:2] if hasattr(pipe, "peek") else b""
    if beginning != _GZIP:
        return pipe
    packed = gzip.GzipFile(fileobj=pipe)
    packed.pipe = getattr(pipe, "pipe", None)  # type: ignore[attr-defined]
    return packed  # type: ignore[return-value]


class _Begun(io.RawIOBase):
    """A pipe of which the first bytes have been read already."""

    def __init__(self, beginning: bytes, pipe: _Pipe) -> None:
        super().__init__()
        self._beginning = beginning
        self.pipe = pipe

    def readable(self) -> bool:
        return True

    def read1(self, size: int) -> bytes:
        if self._beginning:
            data, self._beginning = self._beginning[:size], self._beginning[size:]
            return data
        return self.pipe.read1(size)

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)
