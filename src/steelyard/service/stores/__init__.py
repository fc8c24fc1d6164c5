"""Interface of a store: models, events, rows and snapshots, written in transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "BackgroundWork",
    "CommitOutcomeUnknown",
    "Event",
    "PendingRow",
    "RowReference",
    "Snapshot",
    "Store",
]

# Called when a commit begins; returns work to do during the commit, or None.
BackgroundWork = Callable[[], Callable[[], None] | None]
RowReference = tuple[str | None, str | None]  # id and subject of a row that a stored response mentions


class CommitOutcomeUnknown(Exception):  # noqa: N818  a state, not an error of the caller
    """The store failed during a commit, so the transaction may or may not be durable."""


@dataclass(frozen=True)
class Event:
    """One change of a model; events are ordered by version."""

    version: int
    at: float
    kind: str
    body: bytes


@dataclass(frozen=True)
class Snapshot:
    """The complete state of a model at one version."""

    version: int
    at: float
    digest: str
    body: bytes


@dataclass(frozen=True)
class PendingRow:
    """A predicted row that is stored until its label arrives."""

    id: str
    at: float
    subject: str | None
    body: bytes


class Store(Protocol):
    """Durable storage of the service.

    Only the writer thread of the process that holds the write lock changes a store, inside
    :meth:`transaction`; when the context manager returns, the transaction is durable. Other processes follow
    with ``wait_for_changes`` and read a consistent state inside ``read_snapshot``.
    """

    errors: tuple[type[Exception], ...]  # raised when the disk or the database server fails

    def transaction(self, background: BackgroundWork | None = None) -> AbstractContextManager[None]:
        """Commit all changes or none; a store that commits in a thread runs the background work meanwhile."""
        ...

    def read_snapshot(self) -> AbstractContextManager[None]: ...
    @property
    def holds_write_lock(self) -> bool: ...
    def acquire_write_lock(self) -> bool: ...
    def wait_for_changes(self, seconds: float) -> None: ...
    def close(self) -> None: ...
    def models(self) -> list[tuple[str, str]]: ...
    def put_model(self, name: str, spec: str, at: float) -> None: ...
    def drop_model(self, name: str) -> None: ...
    def append(self, model: str, event: Event) -> None: ...
    def events_after(self, model: str, version: int) -> Iterator[Event]: ...
    def drop_events(self, model: str, until: int) -> None: ...
    def put_snapshot(self, model: str, snapshot: Snapshot, keep: int) -> None: ...
    def last_snapshot(self, model: str) -> Snapshot | None: ...
    def last_versions(self) -> dict[str, int]: ...
    def snapshot(
        self, model: str, *, version: int | None = None, at: float | None = None
    ) -> Snapshot | None: ...
    def add_chunk(self, model: str, n_rows: int, body: bytes) -> int: ...
    def chunk(self, chunk: int) -> bytes: ...
    def replace_chunk(self, chunk: int, n_rows: int, body: bytes) -> None: ...
    def retire_rows(self, chunk: int, begin: int) -> None: ...
    def drop_chunks(self, chunks: Iterable[int]) -> None: ...
    def chunks(self, model: str) -> list[tuple[int, int, int]]: ...
    def index_rows(
        self, model: str, chunk: int, ids: Sequence[str | None], subjects: Sequence[str | None]
    ) -> None: ...
    def find_rows(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None
    ) -> list[tuple[int, int]]: ...
    def known_ids(self, model: str, ids: Sequence[str]) -> list[str]: ...
    def put_pending(self, model: str, rows: Sequence[PendingRow]) -> None: ...
    def pending(self, model: str, ids: Sequence[str]) -> list[PendingRow]: ...
    def drop_pending(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None, before: float | None = None
    ) -> int: ...
    def count_pending(self, model: str) -> int: ...
    def n_pending(self, model: str) -> int: ...
    def response_to(self, model: str, key: str) -> tuple[str, str] | None: ...
    def put_response(
        self,
        model: str,
        key: str,
        fingerprint: str,
        body: str,
        *,
        at: float,
        rows: Sequence[RowReference] = (),
    ) -> None: ...
    def blank_responses(
        self,
        model: str,
        blank: str,
        *,
        ids: Sequence[str] = (),
        subject: str | None = None,
        before: float | None = None,
    ) -> int: ...
    def drop_responses(self, before: float) -> None: ...
    def add_points(self, model: str, points: Sequence[dict[str, Any]]) -> None: ...
    def points(self, model: str, since: float | None, limit: int) -> list[dict[str, Any]]: ...
    def add_certificate(self, model: str, version: int, at: float, body: str) -> None: ...
    def certificates(self, model: str, limit: int) -> list[dict[str, Any]]: ...
    def erase(self) -> None: ...
