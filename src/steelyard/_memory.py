"""Checks of the available memory before large allocations."""

from __future__ import annotations

from pathlib import Path

from steelyard.exceptions import MemoryLimitError

__all__ = ["available_bytes", "check_fits_memory"]

_MEMINFO = Path("/proc/meminfo")
_MIN_CHECKED_BYTES = 64 << 20  # smaller allocations are not checked


def available_bytes() -> int | None:
    """Return the bytes that can be allocated without swapping; None if the system does not report them."""
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def check_fits_memory(n_bytes: int, what: str, hint: str) -> None:
    """Raise :class:`MemoryLimitError` if ``n_bytes`` exceed the available memory."""
    if n_bytes <= _MIN_CHECKED_BYTES:
        return
    available = available_bytes()
    if available is not None and n_bytes > available:
        raise MemoryLimitError(
            f"{what} would take {n_bytes:,} bytes ({n_bytes / 2**30:,.1f} GiB), but only {available:,} bytes "
            f"({available / 2**30:,.1f} GiB) are free; nothing was allocated.",
            hint=hint,
        )
