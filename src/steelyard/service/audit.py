"""Records of the writer: the audit log (without contents of rows), and statistics of commits and labels."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from prometheus_client import Histogram

from steelyard.service.commands import Origin, Request
from steelyard.service.stores.sql import Store

_MAX_UNWRITTEN = 10_000
_READ_ENTRIES = 500  # number of stored records that a query reads at a time
_NO_ORIGIN = Origin(None, None, "")
# Upper bounds of the histogram of commit times.
_COMMIT_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_COUNTS = ("released", "learned", "labelled", "forgotten", "rows")  # response fields that count rows


class AuditEntry(NamedTuple):
    """One change, or one refused change."""

    at: float
    model: str
    verb: str
    key: str | None
    address: str | None
    request_id: str
    outcome: str  # "done", "repeated", or the kind of error
    rows: int
    version: int | None


class AuditLog:
    """Audit log in the store. Requests that are committed together share one record, which is faster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Audit entries of requests that were not part of a committed transaction.
        self._unwritten: deque[tuple[Any, ...]] = deque(maxlen=_MAX_UNWRITTEN)
        self._n_in_transaction = 0

    def add(self, entry: AuditEntry) -> None:
        """Add the entry of a request without a transaction; the next transaction stores it. Thread-safe."""
        self._unwritten.append(entry)

    def add_failed(self, requests: Iterable[Request], outcome: str, now: float) -> None:
        self._unwritten += [_entry(one, outcome, {}, now) for one in requests if not one.is_internal]

    def write(self, outcomes: Iterable[tuple[Request, Any]], now: float) -> None:
        """Store the outcomes of requests committed together. Adjacent requests of one kind share a record."""
        entries = list(self._unwritten)
        self._n_in_transaction = len(entries)
        for request, outcome in outcomes:
            if request.is_internal:
                continue
            if isinstance(outcome, Exception):
                entries.append(_entry(request, type(outcome).__name__, {}, now))
            else:
                entries.append(_entry(request, "repeated" if request.is_repeated else "done", outcome, now))
        records = [
            (at, model, verb, msgspec.json.encode([entry[3:] for entry in same]).decode())
            for (at, model, verb), same in groupby(entries, key=itemgetter(0, 1, 2))
        ]
        if records:
            self._store.add_audit(records)

    def committed(self) -> None:
        """Remove the entries that were stored by the last transaction."""
        for _ in range(min(self._n_in_transaction, len(self._unwritten))):
            self._unwritten.popleft()
        self._n_in_transaction = 0

    def read(
        self,
        *,
        model: str | None = None,
        since: float = -math.inf,
        until: float = math.inf,
        before: int | None = None,
        limit: int = 100,
        **equal: Any,
    ) -> tuple[list[AuditEntry], int | None]:
        """Return entries, newest first, and the value of ``before`` for the next page (None at the end).

        ``equal`` selects entries by verb, key, address, request_id or outcome. ``since`` and ``until`` are
        times in seconds. A result can have more entries than ``limit``, because records are not split.
        """
        found: list[AuditEntry] = []
        number = 2**62 if before is None else before
        while len(found) < limit:
            records = self._store.audit(
                model=model, since=since, until=until, before=number, limit=_READ_ENTRIES
            )
            for number, at, name, verb, body in records:
                entries = [AuditEntry(at, name, verb, *values) for values in msgspec.json.decode(body)]
                found += [e for e in reversed(entries) if all(getattr(e, k) == v for k, v in equal.items())]
                if len(found) >= limit:
                    return found, number
            if len(records) < _READ_ENTRIES:
                return found, None
        return found, number


def _entry(request: Request, outcome: str, response: dict[str, Any], now: float) -> tuple[Any, ...]:
    """Return the fields of an :class:`AuditEntry` as a tuple, which is created faster."""
    n_rows = next((response[name] for name in _COUNTS if name in response), 0)
    verb, origin = type(request).__name__.lower(), request.origin or _NO_ORIGIN
    return now, request.model, verb, *origin, outcome, n_rows, response.get("version")


def _commit_histogram() -> Histogram:
    text = "Time to make a group of requests durable."
    return Histogram("steelyard_commit_seconds", text, buckets=_COMMIT_SECONDS, registry=None)


@dataclass
class WriterStatistics:
    """Counters of one writer. The writer thread changes them, and other threads read them."""

    commit_seconds: Histogram = field(default_factory=_commit_histogram)
    write_failures: Counter[str] = field(default_factory=Counter)  # failed transactions by kind of error
    erase_failures: int = 0
    # Callback with the name of the model and the delays in seconds.
    on_labels: Callable[[str, list[float]], None] | None = None
