"""Adapters to the system: addresses, steady clock, systemd messages, log lines, return of unused memory."""

from __future__ import annotations

import ctypes
import gc
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial

import msgspec

_log = logging.getLogger("steelyard.service")
_MAX_DRIFT_SECONDS = 60.0  # a larger difference between wall clock and monotonic clock counts as a jump
_MAX_JUMP_SECONDS = 3_600.0  # a jump that lasts longer counts as a correction of the wall clock
_LARGE_BYTES = 4 << 20  # requests with smaller bodies leave little unused memory
_MIN_RELEASE_SECONDS = 1.0  # minimum interval between releases, which take milliseconds in a large process
# Monotonic time, which also advances during suspend if the operating system supports it.
_seconds_since_boot: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


@lru_cache(maxsize=64)
@lru_cache(maxsize=64)  # called for every request
def is_local(host: str) -> bool:
    """Return whether a host is "localhost" or a loopback address, which only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SteadyClock:
    """Wall clock that is checked against a monotonic clock.

    Rows and stored responses must not be deleted because the system clock is set ahead by mistake. A jump by
    more than a minute is ignored and logged. If it lasts for an hour, the new wall clock time is accepted.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = _seconds_since_boot,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._offset = wall() - monotonic()
        self._jumped_at: float | None = None  # monotonic time at which the current jump was noticed

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        with self._lock:
            elapsed = self._monotonic()
            difference = self._wall() - elapsed - self._offset
            if abs(difference) <= _MAX_DRIFT_SECONDS:
                if self._jumped_at is not None:
                    self._jumped_at = None
                    _log.warning("the system clock is back to normal")
                self._offset += difference
            elif self._jumped_at is None:
                self._jumped_at = elapsed
                _log.warning("the system clock jumped by %+.0f seconds; the jump is ignored", difference)
            elif elapsed - self._jumped_at >= _MAX_JUMP_SECONDS:
                self._jumped_at = None
                self._offset += difference
                _log.warning("the system clock jumped by %+.0f seconds an hour ago; accepted", difference)
            return elapsed + self._offset


class MemoryReturner:
    """Releases the memory that allocators keep after large requests.

    A parsed body can take fifty times its size, which would permanently increase the memory of the process.
    """

    def __init__(self) -> None:
        self._last = -_MIN_RELEASE_SECONDS
        self._is_due = False
        self._trim = None
        with suppress(OSError, AttributeError):  # only glibc has malloc_trim
            self._trim = ctypes.CDLL(None).malloc_trim

    def is_due_after(self, n_bytes: int) -> bool:
        """Return whether to call :meth:`release` after a request with a body of this size."""
        self._is_due = self._is_due or n_bytes >= _LARGE_BYTES
        return self._is_due and time.monotonic() - self._last >= _MIN_RELEASE_SECONDS

    def release(self) -> None:
        """Return unused memory to the operating system, which takes milliseconds."""
        self._last, self._is_due = time.monotonic(), False
        gc.collect()  # the exception of a refused request and the frames with its rows form reference cycles
        arrow = sys.modules.get("pyarrow")
        if arrow is not None:
            arrow.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(0)


class JsonFormatter(logging.Formatter):
    """Formatter for structured logs: time, level, message, and the id of the request if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.levelno <= logging.INFO and message.startswith("{"):
            return message
        head, _, details = message.partition("\n")
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": head,
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            line["request_id"] = request_id
        if details:
            line["details"] = details
        return msgspec.json.encode(line).decode()


# -- messages to systemd: ready, stopping and watchdog (the protocol of sd_notify) -------------------


def notify(state: str) -> bool:
    """Send a state such as ``READY=1``; return False if there is no systemd that can receive it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.sendto(state.encode(), address)
        return True
    return False


def watchdog_seconds() -> float | None:
    """Return the interval between messages, half of the watchdog timeout, or None without a watchdog."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (process and process != str(os.getpid())):
        return None
    return int(microseconds) / 1e6 / 2
