"""Return of unused memory to the operating system after large requests."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from contextlib import suppress

_LARGE_BYTES = 4 << 20  # requests with smaller bodies leave little unused memory
_MIN_SECONDS = 1.0  # minimum interval between releases, which take some milliseconds in a large process


class MemoryReturner:
    """Releases the memory that allocators keep after large requests.

    A parsed body can take fifty times its size. Python, Arrow and the C library keep such memory for later
    requests, so one large request would permanently increase the memory of the process.
    """

    def __init__(self) -> None:
        self._last = -_MIN_SECONDS
        self._is_due = False
        self._trim = None
        with suppress(OSError, AttributeError):  # only glibc has malloc_trim
            self._trim = ctypes.CDLL(None).malloc_trim

    def is_due_after(self, n_bytes: int) -> bool:
        """Return whether to call :meth:`release` after a request with a body of this size."""
        self._is_due = self._is_due or n_bytes >= _LARGE_BYTES
        return self._is_due and time.monotonic() - self._last >= _MIN_SECONDS

    def release(self) -> None:
        """Return unused memory to the operating system.

        Call this in a thread, because it takes milliseconds.
        """
        self._last, self._is_due = time.monotonic(), False
        gc.collect()  # the exception of a refused request and the frames with its rows form reference cycles
        arrow = sys.modules.get("pyarrow")
        if arrow is not None:
            arrow.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(0)
