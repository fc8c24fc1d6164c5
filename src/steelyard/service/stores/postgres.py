"""Store in PostgreSQL: several processes learn different models, and any number of processes follow.

A lease of a model is an advisory lock of the database session that writes, so a process that lost its
connection cannot write after another process has taken over the model.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import conninfo

from steelyard.exceptions import FileAccessError
from steelyard.service.stores import BackgroundWork, CommitOutcomeUnknown, Learners
from steelyard.service.stores.schema import SCHEMA_VERSION, postgres_schema
from steelyard.service.stores.sql import Store

# Key of an advisory lock that all learner processes share ("Stly").
_WRITE_LOCK = 0x53746C79
_LEARNERS = """
SELECT (l.classid::bigint << 32) | l.objid::bigint, coalesce(n.url, l.pid::text)
FROM pg_locks AS l LEFT JOIN learners AS n ON n.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_SETUP_LOCK = _WRITE_LOCK + 1
_CHANNEL = "steelyard"
# Minimum time between two commits with NOTIFY, because PostgreSQL runs such commits one at a time.
_MIN_NOTIFY_SECONDS = 0.05
_CONNECT_SECONDS = 5
_ERASE_LOCK_MILLISECONDS = 100
# Maximum number and interval of checks whether the transactions of other sessions have ended, which usually
# takes milliseconds.
_MAX_READER_POLLS, _READER_POLL_SECONDS = 10, 0.02
_N_RESERVED_CHUNKS = 64  # number of chunk numbers that one query reserves
_MAX_REWRITE_BYTES = 8 << 20  # rewriting a table of this size takes about 50 ms
# With these settings, the server notices within half a minute that a client machine has disappeared.
_KEEPALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
_SCHEMA = f"""
CREATE SCHEMA IF NOT EXISTS steelyard;
SET LOCAL search_path = steelyard;
CREATE TABLE about (version INTEGER NOT NULL);
{postgres_schema()}
ALTER TABLE points ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
-- The bodies are compact already; compressing them again only costs time.
ALTER TABLE chunks ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE snapshots ALTER COLUMN body SET STORAGE EXTERNAL;
"""
_TABLES_WITH_ROWS = frozenset(
    {
        "chunks",
        "row_index",
        "waiting",
        "early_labels",
        "quarantine",
        "events",
        "snapshots",
        "answers",
        "answer_index",
    }
)


class PostgresStore(Store):
    """Store in the schema ``steelyard`` of a PostgreSQL database.

    Parameters
    ----------
    url : str
        URL such as ``postgresql://learner@db.example/payments``. Put the password into ``~/.pgpass`` or
        into the environment variable ``PGPASSWORD`` rather than into the URL.
    """

    errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)
    has_leases = True

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.path = _without_password(url)
        self._reader_lock = threading.Lock()
        self._db: psycopg.Connection[Any] | None = None
        self._reader: psycopg.Connection[Any] | None = None
        self._lock_holder: psycopg.Connection[Any] | None = None  # session that holds the write lock
        self._leases: set[str] = set()  # models of which this session holds a lease
        self._url_of_process = ""
        self._notified_at = 0.0
        self._has_changes = False  # whether the transaction must notify followers
        # Statements of the open transaction that are not sent yet, with the parameters of each row. None if
        # no transaction is open. INSERT statements are sent together, because the writer learns nothing while
        # it waits for the result of a statement.
        self._unsent: list[tuple[str, list[Sequence[Any]]]] | None = None
        self._reserved_chunks: list[int] = []  # unused chunk numbers, in descending order
        # Initially this contains all tables, because an earlier process may have deleted rows.
        self._to_erase = set(_TABLES_WITH_ROWS)
        try:
            self._check_schema(self._session())
        except psycopg.Error as error:
            self.close()
            message = str(error).strip().partition("\n")[0].rstrip(".")
            raise FileAccessError(f"{message}.", source=self.path) from error

    # -- database sessions --------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        parameters = conninfo.conninfo_to_dict(self._url)
        options = f"{parameters.pop('options', '')} {_KEEPALIVE} -c search_path=steelyard"
        settings: dict[str, Any] = {
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "steelyard",
            **parameters,
        }
        db = psycopg.connect(conninfo.make_conninfo(**settings, options=options), autocommit=True)
        if db.execute("SHOW fsync").fetchone() == ("off",):
            db.close()
            raise FileAccessError(
                "the server runs with fsync=off, so a commit is not durable.",
                source=self.path,
                hint="set fsync = on in postgresql.conf",
            )
        if db.execute("SHOW synchronous_commit").fetchone() in {("off",), ("local",)}:
            db.execute("SET synchronous_commit = on")
        return db

    def _session(self) -> psycopg.Connection[Any]:
        """Return the session of the writer; reconnect if it is closed."""
        if self._db is None or self._db.closed:
            self._lock_holder = None
            self._leases, self._key_indexes, self._reserved_chunks = set(), {}, []
            self._db = self._connect()
            self._db.execute(f"LISTEN {_CHANNEL}")
        return self._db

    def _check_schema(self, db: psycopg.Connection[Any]) -> None:
        exists = "SELECT to_regclass('steelyard.about') IS NOT NULL"
        if db.execute(exists).fetchone() == (False,):
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
                # The check is repeated, because another process may have created the schema meanwhile.
                if db.execute(exists).fetchone() == (False,):
                    db.execute(_SCHEMA)
                    db.execute("INSERT INTO steelyard.about VALUES (%s)", (SCHEMA_VERSION,))
        (found,) = db.execute("SELECT version FROM steelyard.about").fetchone() or (0,)
        self._check_version(found)

    def close(self) -> None:
        if self._db is not None and self.holds_write_lock:
            # Releases the lock now, because the server may notice the end of the session late.
            with suppress(psycopg.Error):
                self._db.execute("SELECT pg_advisory_unlock_all()")
        self._committer.shutdown()
        for db in (self._reader, self._db):
            if db is not None:
                with suppress(psycopg.Error):
                    db.close()
        self._lock_holder = None

    # -- write lock ---------------------------------------------------------------------------------

    @property
    def holds_write_lock(self) -> bool:
        """Whether this process holds the write lock, according to its last query."""
        return self._lock_holder is not None and self._lock_holder is self._db and not self._db.closed

    def acquire_write_lock(self) -> bool:
        db = self._session()
        if self.holds_write_lock:
            db.execute("SELECT 1")  # raises if the session is broken
            return True
        if db.execute("SELECT pg_try_advisory_lock_shared(%s)", (_WRITE_LOCK,)).fetchone() == (True,):
            self._lock_holder = db
            self._announce(db)
        return self.holds_write_lock

    def sibling(self) -> PostgresStore | None:
        other = PostgresStore(self._url)
        other.advertise(self.address)  # the leases of both stores are then counted for the same process
        return other

    def holds_lease(self, model: str) -> bool:
        return model in self._leases and self.holds_write_lock

    def acquire_leases(self, models: Sequence[str], limit: int) -> list[str]:
        acquired: list[str] = []
        for model in models:
            if len(acquired) >= limit:
                break
            if model in self._leases:
                continue
            if self._do("SELECT pg_try_advisory_lock(?)", _lease_key(model)) == [(True,)]:
                acquired.append(model)
        self._leases.update(acquired)
        self._drop_key_indexes(acquired)
        if acquired:  # another process may have added chunks with larger numbers to these models
            self._reserved_chunks = []
        return acquired

    def release_leases(self, models: Sequence[str]) -> None:
        super().release_leases(models)
        for model in models:
            self._leases.discard(model)
            self._do("SELECT pg_advisory_unlock(?)", _lease_key(model))

    def find_learner(self, model: str) -> tuple[bool, str | None]:
        exists = bool(self._read("SELECT 1 FROM models WHERE name = ?", model))
        held = dict(self._read(_LEARNERS)) if exists else {}
        return exists, held.get(_lease_key(model))

    def learners(self, models: Sequence[str]) -> Learners | None:
        names = {_lease_key(model): model for model in models}
        held = self._session().execute(_LEARNERS).fetchall()
        n_leases = {address: 0 for key, address in held if key == _WRITE_LOCK}
        owners = {names[key]: address for key, address in held if key in names}
        for key, address in held:
            if key not in {_WRITE_LOCK, _SETUP_LOCK} and address in n_leases:
                n_leases[address] += 1
        return Learners(n_leases, owners)

    @property
    def address(self) -> str:
        return self._url_of_process or str(self._db.info.backend_pid if self._db else 0)

    def advertise(self, url: str) -> None:
        self._url_of_process = url
        if self.holds_write_lock:
            self._announce(self._session())

    def _announce(self, db: psycopg.Connection[Any]) -> None:
        """Store the address of this process; delete the addresses of sessions that have ended."""
        db.execute(
            "DELETE FROM learners WHERE pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
        )
        if self._url_of_process:
            db.execute(
                "INSERT INTO learners VALUES (%s, %s) ON CONFLICT (pid) DO UPDATE SET url = excluded.url",
                (db.info.backend_pid, self._url_of_process),
            )

    def wait_for_changes(self, seconds: float) -> None:
        for _ in self._session().notifies(timeout=seconds, stop_after=1):
            pass

    # -- execution of statements --------------------------------------------------------------------

    @contextmanager
    def transaction(self, background: BackgroundWork | None = None) -> Iterator[None]:
        db = self._db
        if db is None or not self.holds_write_lock:
            raise FileAccessError("this process does not hold the write lock.", source=self.path)
        self._unsent = [("BEGIN", [()])]
        self._has_changes = False
        try:
            yield
            self._commit_during(background, partial(self._send_and_commit, db))
        except BaseException:
            self._key_indexes = {}  # the indexes may contain keys that were not committed
            with suppress(psycopg.Error):  # a closed session has already rolled back
                db.execute("ROLLBACK")
            raise
        finally:
            self._unsent = None

        if self._has_changes and time.monotonic() - self._notified_at > _MIN_NOTIFY_SECONDS:
            with suppress(psycopg.Error):  # followers also poll, so a lost notification does no harm
                db.execute(f"NOTIFY {_CHANNEL}")
            self._notified_at = time.monotonic()

    def _send_and_commit(self, db: psycopg.Connection[Any]) -> None:
        self._send()
        try:
            db.execute("COMMIT")
        except psycopg.OperationalError as error:  # the server may have committed before the connection broke
            raise CommitOutcomeUnknown(type(error).__name__) from error

    @contextmanager
    def read_snapshot(self) -> Iterator[None]:
        db = self._session()
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg.Error):
                db.execute("ROLLBACK")

    def _send(self) -> None:
        """Execute the unsent statements in one round trip to the server."""
        if not self._unsent or self._db is None:
            return
        unsent, self._unsent = self._unsent, []
        # Not self._session(): a new session would not hold the leases.
        with self._db.pipeline(), self._db.cursor() as cursor:
            for sql, rows in unsent:
                if len(rows) == 1:
                    cursor.execute(sql, rows[0])
                else:
                    cursor.executemany(sql, rows)

    def _defer(self, sql: str, rows: Iterable[Sequence[Any]]) -> bool:
        """Add an INSERT statement of an open transaction to the unsent ones; return whether this is done."""
        if self._unsent is None or not sql.startswith("INSERT ") or "RETURNING" in sql:
            return False
        if rows := list(rows):
            self._unsent.append((sql.replace("?", "%s"), rows))
            self._has_changes = True
        return True

    def _do(self, sql: str, *values: Any) -> list[Any]:
        if self._defer(sql, [values]):
            return []
        self._send()
        cursor = self._session().execute(sql.replace("?", "%s"), values)
        self._note_deletions(sql, cursor.rowcount)
        if cursor.description is not None:
            return cursor.fetchall()
        self._has_changes = True
        return []

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        if self._defer(sql, rows):
            return
        self._send()
        self._has_changes = True
        with self._session().cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)
            self._note_deletions(sql, cursor.rowcount)

    def add_chunk(
        self, model: str, n_rows: int, body: bytes, at: float | None = None, batch: str | None = None
    ) -> int:
        if not self._reserved_chunks:
            sequence = "pg_get_serial_sequence('steelyard.chunks', 'chunk')"
            sql = f"SELECT nextval({sequence}) FROM generate_series(1, ?)"  # noqa: S608  constants
            numbers = [int(number) for (number,) in self._do(sql, _N_RESERVED_CHUNKS)]
            self._reserved_chunks = sorted(numbers, reverse=True)
        chunk = self._reserved_chunks.pop()
        columns = "chunk, model, n, retired, body, at, batch"
        sql = f"INSERT INTO chunks ({columns}) OVERRIDING SYSTEM VALUE VALUES (?, ?, ?, 0, ?, ?, ?)"  # noqa: S608
        self._do(sql, chunk, model, n_rows, body, at, batch)
        return chunk

    def check_writable(self) -> None:
        with self.transaction():
            self._do("UPDATE about SET version = version")

    def _note_deletions(self, sql: str, n_rows: int) -> None:
        """Record the table of a DELETE or UPDATE statement, because these leave dead rows."""
        if n_rows > 0 and sql.startswith(("DELETE FROM ", "UPDATE ")):
            table = sql.removeprefix("DELETE FROM ").removeprefix("UPDATE ").partition(" ")[0]
            self._to_erase |= {table} & _TABLES_WITH_ROWS

    def _read(self, sql: str, *values: Any) -> list[Any]:
        with self._reader_lock:
            try:
                return self._query(sql, values)
            except psycopg.OperationalError:  # the server may have been restarted, so reconnect once
                return self._query(sql, values)

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        if self._reader is None or self._reader.closed:
            self._reader = self._connect()
        return self._reader.execute(sql.replace("?", "%s"), values).fetchall()

    def n_bytes(self) -> int:
        sql = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'steelyard' AND c.relkind = 'r'"
        )
        return int(self._read(sql)[0][0])

    # -- erasing of deleted rows --------------------------------------------------------------------

    def erase(self) -> bool:
        """Remove deleted rows without blocking other sessions; return whether all are removed from the disk.

        ``VACUUM`` frees the space of deleted rows. A small table is then rewritten, which removes the bytes
        from the disk but needs an exclusive lock. In a larger table, later rows overwrite the freed space,
        and :meth:`rewrite_tables` removes the bytes at once. The server recycles its write-ahead log later.
        """
        db = self._session()
        self._wait_for_readers(db)
        db.execute(f"SET lock_timeout = {_ERASE_LOCK_MILLISECONDS}")  # another VACUUM may be running
        try:
            for table in sorted(self._to_erase):
                db.execute(f"VACUUM steelyard.{table}")
        except psycopg.errors.LockNotAvailable as error:
            raise FileAccessError("another session is cleaning up a table.", source=self.path) from error
        finally:
            db.execute("RESET lock_timeout")
        sizes = "SELECT pg_total_relation_size(('steelyard.' || %s)::regclass)"
        large = {
            table
            for table in self._to_erase
            if (db.execute(sizes, (table,)).fetchone() or (0,))[0] > _MAX_REWRITE_BYTES
        }
        self._rewrite_tables(db, self._to_erase - large, _ERASE_LOCK_MILLISECONDS)
        self._to_erase = set()
        return not large

    def _wait_for_readers(self, db: psycopg.Connection[Any]) -> None:
        """Wait until all earlier transactions have ended; raise FileAccessError if one takes too long."""
        now = db.execute("SELECT pg_current_xact_id()::xid").fetchone()
        older = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND age(backend_xmin) > age(%s::xid)"
        )
        for _ in range(_MAX_READER_POLLS):
            if db.execute(older, now).fetchone() == (0,):
                return
            time.sleep(_READER_POLL_SECONDS)
        raise FileAccessError(
            "a backup or an open transaction still sees the forgotten rows.",
            source=self.path,
            hint="the service removes the rows when the backup or transaction has ended",
        )

    def rewrite_tables(self) -> None:
        self._rewrite_tables(self._session(), _TABLES_WITH_ROWS, 0)

    def _rewrite_tables(
        self, db: psycopg.Connection[Any], tables: Iterable[str], lock_milliseconds: int
    ) -> None:
        """Rewrite tables; raise FileAccessError if another session locks a table or sees deleted rows."""
        db.execute(f"SET lock_timeout = {lock_milliseconds}")  # 0 means no limit
        try:
            used = next((table for table in sorted(tables) if not self._rewrite(db, table)), None)
        finally:
            db.execute("RESET lock_timeout")
        if used is not None:
            raise FileAccessError(
                f"another session uses the table {used!r}, so forgotten rows are still on the disk of the "
                "database.",
                source=self.path,
                hint="the rows are removed when backups and open transactions have ended",
            )

    @staticmethod
    def _rewrite(db: psycopg.Connection[Any], table: str) -> bool:
        """Rewrite a table without its deleted rows; return False if another session uses it."""
        kept: list[int] = []  # numbers of dead rows that VACUUM had to keep

        def count(notice: Any) -> None:
            # The notice is localized, so only its first number, the count, is used.
            kept.extend(map(int, re.findall(r"\d+", notice.message_detail or "")[:1]))

        db.add_notice_handler(count)
        try:
            db.execute(f"VACUUM (FULL, VERBOSE) steelyard.{table}")
        except psycopg.errors.LockNotAvailable:
            return False
        finally:
            db.remove_notice_handler(count)
        return not any(kept)


def _lease_key(model: str) -> int:
    """Return the key of the advisory lock of a model, a signed 64-bit integer."""
    return int.from_bytes(hashlib.blake2b(model.encode(), digest_size=8).digest(), "big", signed=True)


def _without_password(url: str) -> str:
    """Return the URL of a store with only its host and database, for messages."""
    try:
        parameters = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise FileAccessError(
            "this is not the URL of a PostgreSQL database.",
            source="the store",
            hint="for example postgresql://learner@db.example/payments",
        ) from error
    return f"postgresql://{parameters.get('host', '')}/{parameters.get('dbname', '')}"
