"""Byte streams of files, pipes and standard input. Compression by gzip is recognised by content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from steelyard.exceptions import DataError, DataTypeError, FileAccessError

_HEAD_BYTES = 1 << 18  # enough for about a thousand rows, from which the column kinds are inferred
_LIVE_HEAD_LINES = 200  # number of lines in the complete head of a live feed
_LIVE_HEAD_SECONDS = 0.3  # time to wait for more lines after the header and one row have arrived
_MAX_LINE_BYTES = 1 << 26
_GZIP_MAGIC = b"\x1f\x8b"
_STOP_POLL_SECONDS = 0.1  # interval at which a waiting reader checks whether it was stopped
_DRAIN_SECONDS = 0.5  # time limit after stop(), because a pipe can be filled faster than it is read


class ByteSource(io.RawIOBase):
    """Byte stream whose beginning is read in advance."""

    head: bytes  # the beginning of the decompressed content
    whole_in_head: bool  # whether the head is the complete content
    path: Path | None  # set for an uncompressed regular file, which supports random access

    def __init__(self, raw: IO[bytes], name: str, path: Path | None) -> None:
        super().__init__()
        self.name = name  # name of the source in error messages
        self._raw = raw
        self.owned = path is not None  # whether close() closes the file
        self._size = os.fstat(raw.fileno()).st_size if path is not None else None
        self._content = raw if path is None else _decompressed(raw)
        self.path = path if self._content is raw else None
        self._position = 0
        self._fraction = 0.0
        self._pipe: _Pipe | None = raw if isinstance(raw, _Pipe) else getattr(raw, "pipe", None)
        self.live = self._pipe is not None  # whether bytes arrive while the source is read
        self._digest = None if path is not None else hashlib.sha256()
        self._file = path
        try:
            self.head, self.whole_in_head = self._read_head()
        except DataError:
            self.close()
            raise

    def _read_head(self) -> tuple[bytes, bool]:
        if isinstance(self._content, io.TextIOBase):
            raise DataTypeError(
                "expected a file opened in binary mode; got a text file.",
                source=self.name,
                hint="open it with mode 'rb', or wrap the bytes in io.BytesIO",
            )
        head, n_lines = bytearray(), 0
        begun = time.monotonic()
        while self._wants_more(head, n_lines) and not self._is_idle(head, n_lines, begun):
            more = self._read(1 << 16)
            if not more:
                return bytes(head), True
            head += more
            n_lines += more.count(b"\n")
        return bytes(head), False

    def _is_idle(self, head: bytearray, n_lines: int, begun: float) -> bool:
        """Return whether a live feed has sent its first row and nothing since then."""
        if self._pipe is None or n_lines < (1 if head.lstrip().startswith(b"{") else 2):
            return False
        return not self._pipe.is_readable_within(max(0.0, begun + _LIVE_HEAD_SECONDS - time.monotonic()))

    def _wants_more(self, head: bytearray, n_lines: int) -> bool:
        """Return whether more bytes are needed. The head must contain at least a header and a row."""
        if len(head) < _HEAD_BYTES:
            return self._size is not None or n_lines < _LIVE_HEAD_LINES
        if n_lines >= 2 or b"\0" in head[:_HEAD_BYTES]:  # binary files have no lines
            return False
        if len(head) > _MAX_LINE_BYTES:
            raise self._too_long(n_lines + 1)
        return True

    def _too_long(self, line: int) -> DataError:
        where = "a line" if self._file is None else f"line {line:,}"
        return DataError(
            f"{where} is longer than {_MAX_LINE_BYTES:,} bytes.",
            source=self.name,
            hint="check that this is a table with one row per line",
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)

    def read1(self, size: int) -> bytes:
        """Return the next bytes: at most ``size``, and no more than have arrived."""
        if self._position < len(self.head):
            data = self.head[self._position : self._position + size]
        else:
            data = self._read(size)
        self._position += len(data)
        return data

    def _read(self, size: int, *, fully: bool = False) -> bytes:
        """Read from the file. With ``fully``, fewer than ``size`` bytes are returned only at the end."""
        read = self._content.read if fully else getattr(self._content, "read1", self._content.read)
        try:
            data: bytes = read(size)
        except (EOFError, OSError, ValueError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise DataError(f"the content is damaged or cut short: {error}.", source=self.name) from error
        if self._digest is not None:
            self._digest.update(data)
        return data

    def blocks(self, size: int = 1 << 19, *, quotes: bool = True) -> Iterator[bytes]:
        """Yield complete lines in blocks of about ``size`` bytes. Blocks of a live feed may be smaller.

        With ``quotes``, a line break between quotes does not end a line.
        """
        rest, n_bytes = b"", 0
        while data := self._next_bytes(size):
            if quotes and (b'"' in data or b'"' in rest):
                data = rest + data
                end = _end_of_lines(data)
                block, rest = data[:end], data[end:]
            else:
                end = data.rfind(b"\n") + 1
                block = b"".join((rest, memoryview(data)[:end])) if end else b""
                rest = data[end:] if end else rest + data
            if block:
                n_bytes += len(block)
                yield block
            elif len(rest) > _MAX_LINE_BYTES:
                raise self._too_long(self._n_lines(n_bytes) + 1)
        if rest:
            yield rest

    def _next_bytes(self, size: int) -> bytes:
        """Return the next bytes: ``size`` bytes of a file, or the bytes that have arrived in a pipe."""
        if self._position < len(self.head) or self._size is None:
            return self.read1(size)
        data = self._read(size, fully=True)
        self._position += len(data)
        return data

    def _n_lines(self, n_bytes: int) -> int:
        """Return the number of lines in the first ``n_bytes`` bytes. A pipe cannot be reread and gives 0."""
        if self._file is None:
            return 0
        with self._file.open("rb") as file:
            content = gzip.GzipFile(fileobj=file) if self.path is None else file
            return content.read(n_bytes).count(b"\n")

    def fraction_read(self) -> float | None:
        """Return the fraction of the file that has been read, even after it was closed."""
        if not self._size:
            return None
        try:
            at = self._raw.tell()
        except ValueError:  # the file was closed, possibly by another thread
            return self._fraction
        self._fraction = min(1.0, (at if self.path is None else min(self._position, at)) / self._size)
        return self._fraction

    def stop(self) -> None:
        """End a live feed: return the bytes that have already arrived, but do not wait for more."""
        if self._pipe is not None:
            self._pipe.stop()

    def fingerprint(self) -> str | None:
        """Return the SHA-256 of the file or of the bytes from a pipe, or None if the file was deleted."""
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
        if self._pipe is not None:
            self._pipe.close()
        super().close()


class _Pipe(io.FileIO):
    """Unbuffered reader of a pipe, socket or terminal, which another thread can stop.

    Unlike a buffered reader, a waiting thread holds no lock that the interpreter needs at exit.
    """

    def __init__(self, descriptor: int, *, owned: bool = False) -> None:
        super().__init__(descriptor, closefd=owned)
        self._stopped = threading.Event()
        self._drain_until = 0.0
        self.beginning = b""  # bytes that are read next

    def stop(self) -> None:
        """Make the reader return the bytes that have already arrived, and then the end of the file."""
        self._drain_until = time.monotonic() + _DRAIN_SECONDS
        self._stopped.set()

    def is_readable_within(self, seconds: float) -> bool:
        """Return whether bytes or the end of the file arrive within ``seconds``."""
        return bool(select.select([self], [], [], seconds)[0])

    def read(self, size: int | None = -1) -> bytes:
        """Return at least one byte, except at the end."""
        if self.beginning:
            data, self.beginning = self.beginning[:size], self.beginning[size:]
            return data
        while not self._stopped.is_set():
            if self.is_readable_within(_STOP_POLL_SECONDS):
                return super().read(size)
        if time.monotonic() < self._drain_until and self.is_readable_within(0.0):
            return super().read(size)
        return b""


def _end_of_lines(data: bytes) -> int:
    """Return the index after the last complete line, or 0. Line breaks inside quotes do not count."""
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
    """Return the lines after the header, whose quoted column names may contain line breaks."""
    begin = len(block) - len(block.lstrip(b"\xef\xbb\xbf\r\n"))
    end = block.find(b"\n", begin)
    while end >= 0 and block.count(b'"', begin, end) % 2:
        end = block.find(b"\n", end + 1)
    return block[end + 1 :] if end >= 0 else b""


def open_bytes(source: str | os.PathLike[str] | IO[bytes]) -> ByteSource:
    """Open a path, ``-`` (standard input) or a binary file. Gzip is decompressed.

    Named pipes and devices are read as live feeds, like standard input.
    """
    if not isinstance(source, str | os.PathLike):
        return ByteSource(source, getattr(source, "name", "input"), None)
    if str(source) == "-":
        try:
            descriptor = sys.stdin.fileno()
            select.select([descriptor], [], [], 0.0)
        except (OSError, ValueError, AttributeError):  # no file descriptor, or one that select() rejects
            return ByteSource(_decompressed(sys.stdin.buffer), "standard input", None)
        return ByteSource(_decompressed(_Pipe(descriptor)), "standard input", None)
    path = Path(source)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            return ByteSource(_decompressed(_Pipe(os.open(path, os.O_RDONLY), owned=True)), str(path), None)
        return ByteSource(path.open("rb"), str(path), path)
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error


def _decompressed(raw: Any) -> IO[bytes]:
    """Return a reader that decompresses the content if it begins like a gzip file."""
    if isinstance(raw, _Pipe):
        beginning = raw.read(2)
        if beginning == _GZIP_MAGIC[:1]:
            beginning += raw.read(1)
        raw.beginning = beginning
    else:
        beginning = raw.peek(2)[:2] if hasattr(raw, "peek") else b""
    if beginning != _GZIP_MAGIC:
        return raw
    packed = gzip.GzipFile(fileobj=raw)
    packed.pipe = raw if isinstance(raw, _Pipe) else None  # type: ignore[attr-defined]
    return packed  # type: ignore[return-value]
