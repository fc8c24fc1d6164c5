"""Records of the writer: the audit log (without contents of rows), and statistics of commits and labels."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
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
        self._unwritten: deque[AuditEntry] = deque(maxlen=_MAX_UNWRITTEN)
        self._n_in_transaction = 0

    def add(self, entry: AuditEntry) -> None:
        """Add the entry of a request without a transaction; the next transaction stores it. Thread-safe."""
        self._unwritten.append(entry)

    def add_failed(self, requests: Iterable[Request], outcome: str, now: float) -> None:
        for one in (request for request in requests if not request.is_internal):
            self.add(AuditEntry(now, one.model, type(one).__name__.lower(), *_values(one, outcome, {})))

    def write(self, outcomes: Sequence[tuple[Request, Any]], now: float) -> None:
        """Store the outcomes of requests committed together. Adjacent requests of one kind share a record."""
        unwritten = list(self._unwritten)
        self._n_in_transaction = len(unwritten)
        records: list[tuple[float, str, str, list[tuple[Any, ...]]]] = []
        records += [(entry.at, entry.model, entry.verb, [tuple(entry[3:])]) for entry in unwritten]
        last: tuple[str, type[Request]] | None = None
        for request, outcome in outcomes:
            kind = type(request)
            if kind.is_internal:
                continue
            if last != (request.model, kind):
                last = (request.model, kind)
                records.append((now, request.model, kind.__name__.lower(), []))
            if isinstance(outcome, Exception):
                values = _values(request, type(outcome).__name__, {})
            else:
                values = _values(request, "repeated" if request.is_repeated else "done", outcome)
            records[-1][3].append(values)
        if records:
            encode = msgspec.json.encode
            self._store.add_audit([(at, m, verb, encode(body).decode()) for at, m, verb, body in records])

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


def _values(request: Request, outcome: str, response: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of an entry that follow the time, the model and the verb."""
    key, address, request_id = request.origin or _NO_ORIGIN
    n_rows = next((response[name] for name in _COUNTS if name in response), 0)
    return key, address, request_id, outcome, n_rows, response.get("version")


class WriterStatistics:
    """Counters of one writer. The writer thread changes them, and other threads read them."""

    def __init__(self) -> None:
        self.commit_seconds = Histogram(
            "steelyard_commit_seconds",
            "Time to make a group of requests durable.",
            buckets=_COMMIT_SECONDS,
            registry=None,
        )
        self.write_failures: Counter[str] = Counter()  # number of failed transactions for each kind of error
        self.erase_failures = 0
        # Callback with the name of the model and the delays in seconds.
        self.on_labels: Callable[[str, list[float]], None] | None = None
