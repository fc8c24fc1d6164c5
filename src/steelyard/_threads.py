"""How many threads native loops may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any

from steelyard.exceptions import ParameterError

__all__ = ["check_threads", "leaving_a_core", "num_threads", "one_thread"]

_alone: ContextVar[bool] = ContextVar("_alone", default=False)
_leaving: ContextVar[int] = ContextVar("_leaving", default=0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let native loops called from here use one thread: whoever runs many calls at once has the cores."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextmanager
def leaving_a_core() -> Iterator[None]:
    """Let native loops called from here use all cores but one, which is for somebody who must not wait."""
    token = _leaving.set(1)
    try:
        yield
    finally:
        _leaving.reset(token)


def num_threads() -> int:
    """Return the number of cores this process may use, at most ``STEELYARD_NUM_THREADS`` if that is set."""
    if _alone.get():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = max(cores - _leaving.get(), 1)
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
