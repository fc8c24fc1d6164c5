"""Base class of the stores: models, events, rows and snapshots, in SQL for both SQLite and PostgreSQL."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import FileFormatError
from steelyard.service.stores import (
    ERASED_RESPONSE,
    BackgroundWork,
    EarlyLabel,
    Event,
    Learners,
    PendingRow,
    QuarantinedRow,
    RowReference,
    Snapshot,
)
from steelyard.service.stores.schema import SCHEMA_VERSION

_MAX_PARAMETERS = 500  # maximum number of parameters in one statement
_MAX_DROPPED = 5_000  # maximum number of responses deleted in one transaction, which takes about 20 ms
_MAX_DELETED = 10_000  # maximum number of deleted groups in a key index before its arrays are cleaned up
Hashes = NDArray[np.uint64]
_TABLES_BY_MODEL = (
    *("events", "snapshots", "chunks", "row_index", "waiting", "answers", "answer_index", "answer_groups"),
    *("points", "certificates", "quarantine", "chunk_keys", "positions", "early_labels"),
)


@functools.cache
def _insert_sql(table: str, columns: str, replace: str) -> str:
    names = columns.split(", ")
    sql = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608  constants
    if replace:
        changes = [f"{name} = excluded.{name}" for name in names if name not in replace.split(", ")]
        sql += f" ON CONFLICT ({replace}) DO UPDATE SET {', '.join(changes)}"
    return sql


class Store:
    """Durable storage of the service.

    A process with the write lock changes the models of which it holds a lease, inside :meth:`transaction`.
    With SQLite there is one such process, with PostgreSQL there can be several. Other processes follow with
    ``wait_for_changes`` and read a consistent state inside ``read_snapshot``.
    """

    path: str  # name of the store in error messages
    errors: tuple[type[Exception], ...]  # errors that are raised when the disk or the database server fails
    has_leases = False  # whether several processes can learn different models

    def __init__(self) -> None:
        # Thread that commits while the writer thread learns. It starts on first use.
        self._committer = ThreadPoolExecutor(1, "steelyard-commit")
        # Key indexes of the models that this process has leased. They are discarded after a rollback.
        self._key_indexes: dict[str, KeyIndex] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- abstract methods of each database ---------------------------------------------------------------

    def transaction(self, background: BackgroundWork | None = None) -> AbstractContextManager[None]:
        """Commit all changes or none.

        ``background`` is called before the commit. If it returns a function, this function runs in the
        thread of the caller while another thread commits.
        """
        raise NotImplementedError

    def _check_version(self, found: int) -> None:
        if found != SCHEMA_VERSION:
            raise FileFormatError(
                f"the store has version {found}; this library reads version {SCHEMA_VERSION}.",
                source=self.path,
                hint="update the library",
            )

    def _commit_during(self, background: BackgroundWork | None, commit: Callable[[], None]) -> None:
        """Commit in another thread while the background work runs, or in this thread if there is none."""
        work = None if background is None else background()
        if work is None:
            commit()
            return
        committed = self._committer.submit(commit)
        try:
            work()
        finally:
            committed.result()

    def read_snapshot(self) -> AbstractContextManager[None]:
        """Let the writer thread read from one consistent snapshot."""
        raise NotImplementedError

    @property
    def holds_write_lock(self) -> bool:
        """Whether this process holds the write lock."""
        raise NotImplementedError

    def acquire_write_lock(self) -> bool:
        """Acquire or confirm the write lock; return False or raise an error if another process holds it."""
        raise NotImplementedError

    def holds_lease(self, model: str) -> bool:  # noqa: ARG002
        """Whether this process may change the model."""
        return True

    def acquire_leases(self, models: Sequence[str], limit: int) -> list[str]:
        """Acquire at most ``limit`` leases of models that no other process learns; return the model names."""
        acquired = list(models)[:limit]
        self._drop_key_indexes(acquired)
        return acquired

    def release_leases(self, models: Sequence[str]) -> None:
        """Allow other processes, or another writer thread of this process, to change ``models``."""
        self._drop_key_indexes(models)

    def _drop_key_indexes(self, models: Iterable[str]) -> None:
        """Discard the key indexes of ``models``. They are loaded again when they are needed."""
        for model in models:
            self._key_indexes.pop(model, None)

    def learners(self, models: Sequence[str]) -> Learners | None:  # noqa: ARG002
        """Return the processes that learn ``models``, or None if this process learns all of them."""
        return None

    def find_learner(self, model: str) -> tuple[bool, str | None]:  # noqa: ARG002
        """Return whether a model exists, and the address of the process that learns it. Thread-safe."""
        return False, None

    @property
    def address(self) -> str:
        """Address under which :meth:`learners` lists this process."""
        return ""

    def advertise(self, url: str) -> None:
        """Publish the HTTP address at which other processes can reach this process."""

    def sibling(self) -> Store | None:
        """Return a store for a second writer thread of this process, or None if only one is supported."""
        raise NotImplementedError

    def wait_for_changes(self, seconds: float) -> None:
        """Wait until another process commits, at most for ``seconds``."""
        raise NotImplementedError

    def erase(self) -> bool:
        """Remove deleted data from the files of the database.

        Returns False if the data stays in freed space until the space is reused. Raises FileAccessError if
        another program currently prevents the removal.
        """
        raise NotImplementedError

    def rewrite_tables(self) -> None:
        """Remove the bytes of all deleted rows from the disk. Readers and writers may have to wait."""
        self.erase()

    def check_writable(self) -> None:
        """Test whether the store can be written; raise one of ``errors`` if the disk or the server fails."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections and release the write lock."""
        raise NotImplementedError

    def n_bytes(self) -> int:
        """Return the size of the store on disk, including its log."""
        raise NotImplementedError

    def free_bytes(self) -> int | None:
        """Return the free space on the disk of the store, or None if the store is on another machine."""
        return None

    def _do(self, sql: str, *values: Any) -> list[Any]:
        """Execute one statement on the connection of the writer; ``?`` is a placeholder."""
        raise NotImplementedError

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for many rows on the connection of the writer."""
        raise NotImplementedError

    def _read(self, sql: str, *values: Any) -> list[Any]:
        """Run a query on the connection of the readers, which sees only committed data."""
        raise NotImplementedError

    def _insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]], replace: str = "") -> None:
        """Insert rows; overwrite stored rows that have the same values in the columns ``replace``."""
        self._do_many(_insert_sql(table, columns, replace), rows)

    # -- models, events, snapshots ------------------------------------------------------------------

    def models(self) -> list[tuple[str, str]]:
        return self._do("SELECT name, spec FROM models ORDER BY name")

    def spec_of(self, name: str) -> str | None:
        """Return the stored spec of a model, or None if the model does not exist."""
        found = self._do("SELECT spec FROM models WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def put_model(self, name: str, spec: str, at: float) -> None:
        sql = (
            "INSERT INTO models (name, spec, at) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET spec = excluded.spec"
        )
        self._do(sql, name, spec, at)

    def drop_model(self, name: str) -> None:
        for table in _TABLES_BY_MODEL:
            self._do(f"DELETE FROM {table} WHERE model = ?", name)  # noqa: S608  a constant name
        self._do("DELETE FROM models WHERE name = ?", name)
        self._drop_key_indexes([name])

    def rename_model(self, name: str, new_name: str) -> None:
        for table in _TABLES_BY_MODEL:
            self._do(f"UPDATE {table} SET model = ? WHERE model = ?", new_name, name)  # noqa: S608  constant
        self._do("UPDATE models SET name = ? WHERE name = ?", new_name, name)
        self._drop_key_indexes([name, new_name])

    def put_former_version(self, name: str, version: int) -> None:
        """Store the last version of a deleted or renamed model, so that no version of this name is reused."""
        self._insert("former_models", "name, version", [(name, version)], replace="name")

    def former_version(self, name: str) -> int:
        """Return the last version of a deleted or renamed model, or -1 if there was none."""
        found = self._do("SELECT version FROM former_models WHERE name = ?", name)
        return int(found[0][0]) if found else -1

    def append(self, model: str, event: Event) -> None:
        self._insert("events", "model, version, at, kind, body", [(model, *event)])

    def events_after(self, model: str, version: int) -> Iterator[Event]:
        sql = "SELECT version, at, kind, body FROM events WHERE model = ? AND version > ? ORDER BY version"
        for row in self._do(sql, model, version):
            yield Event(*row)

    def drop_events(self, model: str, until: int) -> None:
        self._do("DELETE FROM events WHERE model = ? AND version <= ?", model, until)

    def put_snapshot(
        self, model: str, snapshot: Snapshot, keep: int, replaced_version: int | None = None
    ) -> None:
        """Store a snapshot and delete all but the ``keep`` newest ones.

        The snapshot replaces the snapshots of the same version and of ``replaced_version``.
        """
        versions = (snapshot.version, snapshot.version if replaced_version is None else replaced_version)
        self._do("DELETE FROM snapshots WHERE model = ? AND version IN (?, ?)", model, *versions)
        self._insert("snapshots", "model, version, at, digest, body", [(model, *snapshot)])
        sql = (
            "DELETE FROM snapshots WHERE model = ? AND version NOT IN "
            "(SELECT version FROM snapshots WHERE model = ? ORDER BY version DESC LIMIT ?)"
        )
        self._do(sql, model, model, keep)

    def last_versions(self) -> dict[str, int]:
        """Return the version of the newest event or snapshot of every model that has any."""
        sql = (
            "SELECT model, max(version) FROM ("
            "SELECT model, max(version) AS version FROM events GROUP BY model "
            "UNION ALL SELECT model, max(version) AS version FROM snapshots GROUP BY model) AS latest "
            "GROUP BY model"
        )
        return dict(self._do(sql))

    def snapshot(
        self, model: str, *, version: int | None = None, at: float | None = None, committed: bool = True
    ) -> Snapshot | None:
        """Return the newest snapshot up to a version or time.

        Without ``committed``, uncommitted changes of the writer are included.
        """
        sql = "SELECT version, at, digest, body FROM snapshots WHERE model = ?"
        values: list[Any] = [model]
        for column, limit in (("version", version), ("at", at)):
            if limit is not None:
                sql, values = f"{sql} AND {column} <= ?", [*values, limit]
        run = self._read if committed else self._do
        found = run(f"{sql} ORDER BY version DESC LIMIT 1", *values)
        return Snapshot(*found[0]) if found else None

    def snapshots(self, model: str, limit: int) -> list[tuple[int, float, str, int]]:
        """Return version, time, digest and size in bytes of the latest snapshots, newest first."""
        sql = (
            "SELECT version, at, digest, length(body) FROM snapshots WHERE model = ? "
            "ORDER BY version DESC LIMIT ?"
        )
        return self._read(sql, model, limit)

    # -- stored rows --------------------------------------------------------------------------------

    def add_chunk(
        self, model: str, n_rows: int, body: bytes, at: float | None = None, batch: str | None = None
    ) -> int:
        """Store rows with their arrival time and the idempotency key of their request; return the chunk."""
        columns = "model, n, retired, body, at, batch"
        sql = f"INSERT INTO chunks ({columns}) VALUES (?, ?, 0, ?, ?, ?) RETURNING chunk"  # noqa: S608
        return int(self._do(sql, model, n_rows, body, at, batch)[0][0])

    def chunks_of_batch(self, model: str, batch: str) -> list[int]:
        """Return the chunks that may contain rows of a request. Several requests can share a chunk."""
        found = self._do("SELECT chunk FROM chunks WHERE model = ? AND batch = ?", model, batch)
        shared = KeyIndex()
        shared.add(self._do("SELECT chunk, keys FROM chunk_keys WHERE model = ?", model))
        return [*(chunk for (chunk,) in found), *shared.groups_of(key_hashes([batch]))]

    def index_batches(self, model: str, chunk: int, batches: Sequence[str]) -> None:
        """Store the idempotency keys of the requests that share a chunk."""
        if batches:
            self._insert("chunk_keys", "chunk, model, keys", [(chunk, model, key_hashes(batches))])

    def chunks_learned(self, model: str, since: float, until: float) -> list[int]:
        """Return the chunks that arrived from ``since`` to ``until`` (inclusive)."""
        sql = "SELECT chunk FROM chunks WHERE model = ? AND at >= ? AND at <= ?"
        return [chunk for (chunk,) in self._do(sql, model, since, until)]

    def chunk(self, chunk: int) -> bytes:
        found = self._do("SELECT body FROM chunks WHERE chunk = ?", chunk)
        if not found:
            raise FileFormatError(f"the rows of chunk {chunk} are not in the store.", source=self.path)
        return bytes(found[0][0])

    def replace_chunk(self, chunk: int, n_rows: int, body: bytes) -> None:
        self._do("UPDATE chunks SET n = ?, retired = 0, body = ? WHERE chunk = ?", n_rows, body, chunk)
        self._do("DELETE FROM row_index WHERE chunk = ?", chunk)
        self._do("DELETE FROM chunk_keys WHERE chunk = ?", chunk)

    def retire_rows(self, chunk: int, begin: int) -> None:
        self._do("UPDATE chunks SET retired = ? WHERE chunk = ?", begin, chunk)

    def drop_chunks(self, chunks: Iterable[int]) -> None:
        parameters = [(chunk,) for chunk in chunks]
        for table in ("chunks", "row_index", "chunk_keys"):
            self._do_many(f"DELETE FROM {table} WHERE chunk = ?", parameters)  # noqa: S608  a constant name

    def chunks(self, model: str) -> list[tuple[int, int, int]]:
        """Return chunk, number of rows and number of expired rows at its start, oldest chunk first."""
        return self._do("SELECT chunk, n, retired FROM chunks WHERE model = ? ORDER BY chunk", model)

    def index_rows(
        self, model: str, chunk: int, ids: Sequence[str | None], subjects: Sequence[str | None]
    ) -> None:
        rows = [
            (model, row_id, subject, chunk, position)
            for position, (row_id, subject) in enumerate(zip(ids, subjects, strict=True))
            if row_id is not None or subject is not None
        ]
        self._insert("row_index", "model, id, subject, chunk, position", rows)

    def find_rows(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None
    ) -> dict[int, list[int]]:
        """Return the positions of the rows in each chunk."""
        sql = "SELECT chunk, position FROM row_index WHERE model = ? AND (selection)"
        positions: dict[int, list[int]] = {}
        for chunk, position in self._do_selected(sql, model, ids=ids, subject=subject):
            positions.setdefault(chunk, []).append(position)
        return positions

    def known_ids(self, model: str, ids: Sequence[str]) -> list[str]:
        found = self._do_in("SELECT id FROM row_index WHERE model = ? AND id IN (...)", model, ids)
        return [row[0] for row in found]

    def _do_in(self, sql: str, model: str, ids: Sequence[Any]) -> list[Any]:
        """Execute a statement with ``IN (...)`` in slices, for any number of ids."""
        found: list[Any] = []
        for begin in range(0, len(ids), _MAX_PARAMETERS):
            some = ids[begin : begin + _MAX_PARAMETERS]
            found += self._do(sql.replace("...", ",".join("?" * len(some))), model, *some)
        return found

    def _do_selected(
        self,
        sql: str,
        model: str,
        *,
        ids: Sequence[str] = (),
        subject: str | None = None,
        before: float | None = None,
    ) -> list[Any]:
        """Execute a statement whose ``(selection)`` is replaced by a condition on its rows.

        The rows are selected by exactly one of subject, before (their time) and ids.
        """
        if subject is not None:
            return self._do(sql.replace("(selection)", "subject = ?"), model, subject)
        if before is not None:
            return self._do(sql.replace("(selection)", "at < ?"), model, before)
        return self._do_in(sql.replace("(selection)", "id IN (...)"), model, ids)

    # -- pending rows -------------------------------------------------------------------------------

    def put_pending(self, model: str, rows: Sequence[PendingRow]) -> None:
        values = [(model, *row) for row in rows]
        self._insert("waiting", "model, id, at, subject, body", values, replace="model, id")

    def pending(self, model: str, ids: Sequence[str]) -> list[PendingRow]:
        sql = "SELECT id, at, subject, body FROM waiting WHERE model = ? AND id IN (...)"
        return [PendingRow(*row) for row in self._do_in(sql, model, ids)]

    def drop_pending(self, model: str, *, table: str = "waiting", **selection: Any) -> int:
        """Delete pending rows, or those of the table "quarantine", selected by ids, subject or before.

        Returns the number of deleted rows.
        """
        sql = f"DELETE FROM {table} WHERE model = ? AND (selection) RETURNING 1"  # noqa: S608  a constant name
        return len(self._do_selected(sql, model, **selection))

    def n_pending(self, model: str, *, committed: bool = True) -> int:
        """Return the number of pending rows as of the last commit, or with the changes of the writer."""
        run = self._read if committed else self._do
        return int(run("SELECT count(*) FROM waiting WHERE model = ?", model)[0][0])

    # -- quarantine ---------------------------------------------------------------------------------

    def add_quarantined(self, model: str, rows: Sequence[QuarantinedRow]) -> None:
        values = [(model, *row[1:]) for row in rows]  # the database numbers the rows
        self._insert("quarantine", "model, at, id, subject, reason, body", values)

    def quarantined(self, model: str, after: int, limit: int) -> list[QuarantinedRow]:
        """Return committed rows in quarantine, oldest first."""
        sql = (
            "SELECT number, at, id, subject, reason, body FROM quarantine "
            "WHERE model = ? AND number > ? ORDER BY number LIMIT ?"
        )
        return [QuarantinedRow(*row) for row in self._read(sql, model, after, limit)]

    def take_quarantined(self, model: str, numbers: Sequence[int]) -> list[QuarantinedRow]:
        """Delete rows from quarantine; return them in the order of their arrival."""
        sql = (
            "DELETE FROM quarantine WHERE model = ? AND number IN (...) "
            "RETURNING number, at, id, subject, reason, body"
        )
        found = (QuarantinedRow(*row) for row in self._do_in(sql, model, numbers))
        return sorted(found, key=lambda row: row.number)

    def count_quarantined(self, model: str) -> int:
        """Return the number of rows in quarantine, including uncommitted changes of the writer."""
        return int(self._do("SELECT count(*) FROM quarantine WHERE model = ?", model)[0][0])

    def quarantine_sizes(self) -> dict[str, int]:
        """Return the number of rows in quarantine for each model that has any."""
        return dict(self._read("SELECT model, count(*) FROM quarantine GROUP BY model"))

    # -- audit log ----------------------------------------------------------------------------------

    def add_audit(self, rows: Sequence[tuple[float, str, str, str]]) -> None:
        """Store audit entries: time, model, verb, and a JSON list of the requests."""
        self._insert("audit", "at, model, verb, body", rows)

    def audit(
        self, *, model: str | None, since: float, until: float, before: int, limit: int
    ) -> list[tuple[int, float, str, str, str]]:
        """Return audit entries with numbers below ``before``, newest first."""
        sql = "SELECT number, at, model, verb, body FROM audit WHERE number < ? AND at >= ? AND at <= ?"
        values: list[Any] = [before, since, until]
        if model is not None:
            sql, values = f"{sql} AND model = ?", [*values, model]
        return self._read(f"{sql} ORDER BY number DESC LIMIT ?", *values, limit)

    def drop_audit(self, before: float) -> None:
        self._do("DELETE FROM audit WHERE at < ?", before)

    # -- responses to requests with an idempotency key ----------------------------------------------

    def responses_to(self, model: str, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return fingerprint and body of the stored responses, keyed by idempotency key."""
        sql, wanted = "SELECT key, fingerprint, body FROM answers WHERE model = ? AND key IN (...)", set(keys)
        found = {key: (fingerprint, body) for key, fingerprint, body in self._do_in(sql, model, keys)}
        for number in self._key_index(model).groups_of(key_hashes(keys)):
            for key, fingerprint, body in self._response_group(number):
                if key in wanted:
                    found[key] = fingerprint, body
        return found

    def _key_index(self, model: str) -> KeyIndex:
        if model not in self._key_indexes:
            index = self._key_indexes[model] = KeyIndex()
            index.add(self._do("SELECT number, keys FROM answer_groups WHERE model = ?", model))
        return self._key_indexes[model]

    def _response_group(self, number: int) -> list[list[str]]:
        """Return key, fingerprint and body of the responses in a record; empty if the record is deleted."""
        found = self._do("SELECT body FROM answer_groups WHERE number = ?", number)
        return msgspec.msgpack.decode(found[0][0]) if found else []

    def put_responses(
        self,
        model: str,
        responses: Sequence[tuple[str, str, str]],
        *,
        at: float,
        rows: Sequence[RowReference] = (),
    ) -> None:
        """Store responses as (key, fingerprint, body), in one record.

        A single response that mentions ``rows`` has its own record, which is erased if a row is forgotten.
        """
        if rows:
            ((key, *response),) = responses
            self._insert("answers", "model, key, fingerprint, body, at", [(model, key, *response, at)])
            self._insert("answer_index", "model, key, id, subject", [(model, key, *row) for row in rows])
            return
        hashes = key_hashes(key for key, _, _ in responses)
        sql = "INSERT INTO answer_groups (model, at, n, keys, body) VALUES (?, ?, ?, ?, ?) RETURNING number"
        body, index = msgspec.msgpack.encode(responses), self._key_index(model)
        ((number,),) = self._do(sql, model, at, len(responses), hashes, body)
        index.add([(number, hashes)])

    def erase_responses(self, model: str, **selection: Any) -> int:
        """Overwrite stored responses, selected by the ids or the subject of their rows or by a time before.

        Returns the number of overwritten responses.
        """
        sql = (
            "SELECT DISTINCT a.key FROM answers AS a JOIN answer_index AS i "
            "ON i.model = a.model AND i.key = a.key WHERE a.model = ? AND (selection)"
        )
        keys = sorted({key for (key,) in self._do_selected(sql, model, **selection)})
        self._do_many(
            "UPDATE answers SET body = ? WHERE model = ? AND key = ?",
            [(ERASED_RESPONSE, model, k) for k in keys],
        )
        self._do_many("DELETE FROM answer_index WHERE model = ? AND key = ?", [(model, k) for k in keys])
        return len(keys)

    def erase_response(self, model: str, key: str) -> None:
        """Overwrite the stored response to one request."""
        self._do("UPDATE answers SET body = ? WHERE model = ? AND key = ?", ERASED_RESPONSE, model, key)
        for number in self._key_index(model).groups_of(key_hashes([key])):
            group = [
                [k, f, ERASED_RESPONSE if k == key else body] for k, f, body in self._response_group(number)
            ]
            sql = "UPDATE answer_groups SET body = ? WHERE number = ?"
            self._do(sql, msgspec.msgpack.encode(group), number)

    def drop_responses(self, model: str, before: float, limit: int = _MAX_DROPPED) -> bool:
        """Delete up to about ``limit`` old responses of a model; return whether there may be more."""
        sql = (
            "DELETE FROM answers WHERE model = ? AND key IN "
            "(SELECT key FROM answers WHERE model = ? AND at < ? ORDER BY at LIMIT ?) RETURNING model, key"
        )
        dropped = self._do(sql, model, model, before, limit)
        self._do_many("DELETE FROM answer_index WHERE model = ? AND key = ?", dropped)
        limit -= len(dropped)
        sql = "SELECT number, n FROM answer_groups WHERE model = ? AND at < ? ORDER BY at, number LIMIT ?"
        numbers = []
        for number, n in self._do(sql, model, before, max(limit, 0)):
            if limit <= 0:
                break
            limit -= n
            numbers.append((number,))
        self._do_many("DELETE FROM answer_groups WHERE number = ?", numbers)
        if model in self._key_indexes:
            self._key_indexes[model].delete(number for (number,) in numbers)
        return limit <= 0

    def index_old_responses(self) -> None:
        """Build the index of responses in a store of schema version 1, which has no such index."""
        for model, key, body in self._do("SELECT model, key, body FROM answers"):
            response = json.loads(body)
            ids = [*response.get("ids", ()), *response.get("unknown", ())]
            rows = [(model, key, row_id, None) for row_id in ids]
            self._insert("answer_index", "model, key, id, subject", rows)

    # -- topics of message brokers ------------------------------------------------------------------

    def positions(self, model: str, topic: str, *, committed: bool = True) -> dict[str, str]:
        """Return the position in each partition of a topic as of the last commit, or of the writer."""
        run = self._read if committed else self._do
        return dict(run("SELECT part, position FROM positions WHERE model = ? AND topic = ?", model, topic))

    def put_positions(self, model: str, topic: str, positions: Mapping[str, str]) -> None:
        rows = [(model, topic, part, position) for part, position in positions.items()]
        self._insert("positions", "model, topic, part, position", rows, replace="model, topic, part")

    def put_early_labels(self, model: str, labels: Sequence[EarlyLabel]) -> None:
        rows = [(model, label.id, label.at, json.dumps(label.label), label.reason) for label in labels]
        self._insert("early_labels", "model, id, at, label, reason", rows, replace="model, id")

    def early_labels(self, model: str, ids: Sequence[str]) -> dict[str, Any]:
        """Return the stored labels that wait for the rows ``ids``."""
        sql = "SELECT id, label FROM early_labels WHERE model = ? AND reason IS NULL AND id IN (...)"
        return {row_id: json.loads(label) for row_id, label in self._do_in(sql, model, ids)}

    def unused_labels(self, model: str, before: float, limit: int) -> list[EarlyLabel]:
        """Return labels that were refused, or that arrived before a time and still have no row."""
        found = self._read(
            "SELECT id, at, label, reason FROM early_labels WHERE model = ? "
            "AND (reason IS NOT NULL OR at < ?) ORDER BY at, id LIMIT ?",
            model,
            before,
            limit,
        )
        return [EarlyLabel(row_id, at, json.loads(label), reason) for row_id, at, label, reason in found]

    def drop_early_labels(self, model: str, ids: Sequence[str]) -> None:
        self._do_many(
            "DELETE FROM early_labels WHERE model = ? AND id = ?", [(model, row_id) for row_id in ids]
        )

    # -- quality over time, certificates ------------------------------------------------------------

    def add_points(self, model: str, points: Sequence[dict[str, Any]]) -> None:
        rows = [(model, point["at"], point["row"], json.dumps(point)) for point in points]
        self._insert("points", "model, at, row, body", rows)

    def points(self, model: str, since: float | None, limit: int) -> list[dict[str, Any]]:
        later, values = ("", []) if since is None else (" AND at >= ?", [since])
        found = self._read(
            f"SELECT body FROM (SELECT rowid AS place, body FROM points WHERE model = ?{later} "  # noqa: S608
            "ORDER BY rowid DESC LIMIT ?) AS latest ORDER BY place",
            model,
            *values,
            limit,
        )
        return [json.loads(row[0]) for row in found]

    def add_certificate(self, model: str, version: int, at: float, body: str) -> None:
        self._insert("certificates", "model, version, at, body", [(model, version, at, body)])

    def certificates(self, model: str, limit: int) -> list[dict[str, Any]]:
        sql = "SELECT body FROM certificates WHERE model = ? ORDER BY version DESC, at DESC LIMIT ?"
        return [json.loads(row[0]) for row in self._read(sql, model, limit)]


# -- index of idempotency keys ------------------------------------------------------------------------


def key_hashes(keys: Iterable[str]) -> bytes:
    """Return the 64-bit hashes of keys, 8 bytes each."""
    return b"".join(hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys)


class KeyIndex:
    """Hashes of the keys of a model and the groups that contain them, 16 bytes per key.

    A group is one record with the responses to requests that were committed together. In a database index,
    each random key would change a different page, and a group of 64 requests would write a megabyte. This
    index keeps sorted arrays and merges arrays of about the same length. Because different keys can have the
    same hash, a group that the index returns need not contain the key.
    """

    def __init__(self) -> None:
        self._arrays: list[tuple[Hashes, NDArray[np.int64]]] = []  # sorted hashes, and the group of each hash
        self._deleted: set[int] = set()  # deleted groups that are still in the arrays

    def add(self, groups: Iterable[tuple[int, bytes]]) -> None:
        """Add groups, each with the hashes of its keys."""
        numbers: list[int] = []
        hashes = []
        for number, part in groups:
            hashes.append(part)
            numbers += [number] * (len(part) // 8)
        added = np.frombuffer(b"".join(hashes), dtype="<u8")
        self._arrays.append(_sorted(added, np.array(numbers, dtype=np.int64)))
        while len(self._arrays) > 1 and len(self._arrays[-2][0]) <= 2 * len(self._arrays[-1][0]):
            self._arrays[-2:] = [_merged(self._arrays[-2:])]

    def delete(self, groups: Iterable[int]) -> None:
        self._deleted.update(groups)
        if len(self._deleted) > _MAX_DELETED:
            hashes, numbers = _merged(self._arrays)
            keep = ~np.isin(numbers, list(self._deleted))
            self._arrays, self._deleted = [(hashes[keep], numbers[keep])], set()

    def groups_of(self, hashes: bytes) -> list[int]:
        """Return the groups that may contain one of the keys with the given hashes."""
        wanted = np.frombuffer(hashes, dtype="<u8")
        found: set[int] = set()
        for known, groups in self._arrays:
            begins, ends = known.searchsorted(wanted, "left"), known.searchsorted(wanted, "right")
            for k in np.flatnonzero(begins < ends).tolist():
                found.update(groups[begins[k] : ends[k]].tolist())
        return sorted(found - self._deleted)


def _merged(arrays: Iterable[tuple[Hashes, NDArray[np.int64]]]) -> tuple[Hashes, NDArray[np.int64]]:
    hashes, groups = zip(*arrays, strict=True)
    return _sorted(np.concatenate(hashes), np.concatenate(groups))


def _sorted(hashes: Hashes, groups: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64]]:
    order = np.argsort(hashes, kind="stable")  # linear time if the array consists of two sorted parts
    return hashes[order], groups[order]
