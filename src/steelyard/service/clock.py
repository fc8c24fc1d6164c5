"""Wall clock that ignores sudden jumps of the system time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

_log = logging.getLogger("steelyard.service")
_MAX_DRIFT_SECONDS = 60.0  # a larger difference between wall clock and monotonic clock counts as a jump
_MAX_JUMP_SECONDS = 3_600.0  # a jump that lasts longer counts as a correction of the wall clock


# Monotonic time, which also advances during suspend if the operating system supports it.
_seconds_since_boot: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class SteadyClock:
    """Wall clock that is checked against a monotonic clock.

    The service deletes rows and stored responses by age, but not because the system clock is set ahead by
    mistake. If the wall clock jumps by more than a minute compared with the monotonic clock, this clock
    ignores the jump and logs a warning. If the jump lasts for an hour, the new wall clock time is accepted.

    Parameters
    ----------
    wall, monotonic : callable
        Functions that return a time in seconds.
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
