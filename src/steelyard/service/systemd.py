"""Messages to systemd: ready, stopping and watchdog (the protocol of sd_notify)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


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
