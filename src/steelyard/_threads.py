"""Number of threads of native loops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any

from steelyard.exceptions import ParameterError

__all__ = ["check_threads", "num_threads", "one_thread", "reserve_core"]

_single_threaded: ContextVar[bool] = ContextVar("_single_threaded", default=False)
_reserved_cores: ContextVar[int] = ContextVar("_reserved_cores", default=0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit native loops in this context to one thread, for callers that run such loops in parallel."""
    token = _single_threaded.set(True)
    try:
        yield
    finally:
        _single_threaded.reset(token)


@contextmanager
def reserve_core() -> Iterator[None]:
    """Limit native loops in this context to all cores except one, which remains free for other threads."""
    token = _reserved_cores.set(1)
    try:
        yield
    finally:
        _reserved_cores.reset(token)


def num_threads() -> int:
    """Return the number of usable cores, at most ``STEELYARD_NUM_THREADS`` if this variable is set."""
    if _single_threaded.get():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(cores - _reserved_cores.get(), 1)
    limit = os.environ.get("STEELYARD_NUM_THREADS", "").strip()
    if not limit:
        return cores
    if not limit.isdecimal() or int(limit) == 0:
        raise ParameterError(
            f"STEELYARD_NUM_THREADS must be a positive integer; got {limit!r}.",
            source="num_threads",
            hint="set the environment variable to a number, or unset it to use all cores",
        )
    return min(cores, int(limit))


def check_threads(n_threads: Any, source: str) -> int:
    """Return `n_threads`, or :func:`num_threads` if it is None."""
    if n_threads is None:
        return num_threads()
    if isinstance(n_threads, bool) or not isinstance(n_threads, Integral) or int(n_threads) < 1:
        raise ParameterError(
            f"n_threads must be a positive integer or None; got {n_threads!r}.", source=source
        )
    return int(n_threads)
