"""Rate limits per API key and per model."""

from __future__ import annotations

import time
from collections.abc import Callable

from steelyard.service.errors import QueueFullError


class RateLimits:
    """Token buckets: a rate of r allows r requests per second and bursts of up to r requests.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds; it must not go backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Remaining requests and time of the last update, by (kind, name).
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def check(self, kind: str, name: str, rate: float) -> None:
        """Count one request; raise QueueFullError if the rate is exceeded."""
        now, burst = self._clock(), max(rate, 1.0)
        left, then = self._buckets.get((kind, name), (burst, now))
        left = min(burst, left + (now - then) * rate)
        self._buckets[kind, name] = (max(left - 1.0, 0.0) if left >= 1.0 else left, now)
        if left < 1.0:
            raise QueueFullError(
                f"the rate limit of this {kind} is {rate:g} requests per second; nothing was changed.",
                hint="send rows in batches, or ask an administrator for a higher rate",
            )
