"""Durable storage. ``sql`` has the common statements, ``sqlite`` and ``postgres`` those of each database."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DISK_FULL_ERRORS = frozenset({"FullError", "DiskFull"})  # names of exceptions of apsw and psycopg
# Function that is called when a commit begins and returns work to do during the commit, or None.
BackgroundWork = Callable[[], Callable[[], None] | None]
ERASED_RESPONSE = '{"erased": true}'  # replaces a stored response that mentioned a forgotten row
RowReference = tuple[str | None, str | None]  # id and subject of a row that a stored response mentions


class CommitOutcomeUnknown(Exception):  # noqa: N818  a state, not an error of the caller
    """The store failed during a commit, so the transaction may or may not be durable."""


def reason_of(error: BaseException) -> str:
    """Return the reason why a store failed: "disk full", "out of memory", or the type of the first error."""
    while error.__cause__ is not None:
        error = error.__cause__
    is_full = getattr(error, "errno", None) in _DISK_FULL_ERRNOS or type(error).__name__ in _DISK_FULL_ERRORS
    if is_full or "disk is full" in str(error):
        return "disk full"
    return "out of memory" if isinstance(error, MemoryError) else type(error).__name__


class Learners(NamedTuple):
    """Learner processes, and the models of which they hold leases."""

    n_leases: dict[str, int]  # number of leases of each live learner process, by address
    owners: dict[str, str]  # address of the learner process of each model, if it has one


class Event(NamedTuple):
    """One change of a model; events are ordered by version."""

    version: int
    at: float
    kind: str
    body: bytes


class Snapshot(NamedTuple):
    """The complete state of a model at one version."""

    version: int
    at: float
    digest: str
    body: bytes


class PendingRow(NamedTuple):
    """Predicted row that is stored until its label arrives."""

    id: str
    at: float
    subject: str | None
    body: bytes


class QuarantinedRow(NamedTuple):
    """Labelled row that violates a guard of its model and waits for a decision of an operator."""

    number: int
    at: float
    id: str | None
    subject: str | None
    reason: str
    body: bytes


class EarlyLabel(NamedTuple):
    """Label from a topic that waits for its row, or that was refused for the given reason."""

    id: str
    at: float
    label: Any
    reason: str | None = None
