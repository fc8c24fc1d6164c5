"""Checks of available memory before large allocations."""

from __future__ import annotations

import warnings
from pathlib import Path

from steelyard.exceptions import MemoryLimitError

_MEMINFO = Path("/proc/meminfo")
_MIN_CHECKED_BYTES = 64 << 20  # smaller allocations are not checked
# Up to this size, converting sparse input to dense matrices causes no warning.
_MAX_SILENT_SPARSE_BYTES = 256 << 20
_MAX_SILENT_SHARE = 0.25  # a larger share of the available memory causes a warning


def available_bytes() -> int | None:
    """Return the number of bytes that can be allocated without swapping, or None if it is unknown."""
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


def warn_of_large_memory(n_bytes: int, what: str, hint: str, *, is_sparse: bool = False) -> None:
    """Warn before an allocation of more than a quarter of the available memory.

    For sparse input the limit is 256 MiB, because users do not expect it to become dense.
    """
    available = available_bytes()
    limit = _MAX_SILENT_SPARSE_BYTES if is_sparse else _MAX_SILENT_SHARE * (available or float("inf"))
    if n_bytes <= max(limit, _MIN_CHECKED_BYTES):
        return
    free = "" if available is None else f" of {available / 2**30:,.1f} GiB that are free"
    message = f"{what} will take about {n_bytes / 2**30:,.1f} GiB{free}. hint: {hint}"
    warnings.warn(message, UserWarning, stacklevel=2)
