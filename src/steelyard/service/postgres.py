"""The store in PostgreSQL, for when one machine is outgrown: one process learns, any number follow it.

The session that holds the right to write (an advisory lock) is the session that writes. Whoever commits
therefore still holds the lock: a learner that was cut off cannot write behind the back of its successor.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import conninfo

from steelyard.exceptions import FileAccessError, FileFormatError
from steelyard.service.sql_store import SQLStore
from steelyard.service.store import CommitOutcomeUnknown, Meanwhile

__all__ = ["PostgresStore"]

_SCHEMA_VERSION = 2  # as of SQLite's
_LOCK = 0x53746C79  # "Stly": who holds it writes
_SETTING_UP = _LOCK + 1
_CHANNEL = "steelyard"
_PATIENCE = 5  # seconds to connect
# A machine that vanishes without a word is noticed by the server within half a minute.
_ALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS steelyard;
CREATE TABLE steelyard.about (version INTEGER NOT NULL);
CREATE TABLE steelyard.models (name TEXT PRIMARY KEY, spec TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);
CREATE TABLE steelyard.events (
  model TEXT NOT NULL, version BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL,
  body BYTEA NOT NULL, PRIMARY KEY (model, version));
CREATE TABLE steelyard.snapshots (
  model TEXT NOT NULL, version BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, digest TEXT NOT NULL,
  body BYTEA NOT NULL, PRIMARY KEY (model, version));
CREATE TABLE steelyard.chunks (
  chunk BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, model TEXT NOT NULL, n INTEGER NOT NULL,
  retired INTEGER NOT NULL, body BYTEA NOT NULL);
CREATE INDEX chunks_by_model ON steelyard.chunks (model);
CREATE TABLE steelyard.row_index (
  model TEXT NOT NULL, id TEXT, subject TEXT, chunk BIGINT NOT NULL, position INTEGER NOT NULL);
CREATE UNIQUE INDEX rows_by_id ON steelyard.row_index (model, id) WHERE id IS NOT NULL;
CREATE INDEX rows_by_subject ON steelyard.row_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX rows_by_chunk ON steelyard.row_index (chunk);
CREATE TABLE steelyard.waiting (
  model TEXT NOT NULL, id TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, subject TEXT, body BYTEA NOT NULL,
  PRIMARY KEY (model, id));
CREATE INDEX waiting_by_subject ON steelyard.waiting (model, subject) WHERE subject IS NOT NULL;
CREATE TABLE steelyard.answers (
  model TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL,
  at DOUBLE PRECISION NOT NULL, PRIMARY KEY (model, key));
CREATE TABLE steelyard.answer_index (model TEXT NOT NULL, key TEXT NOT NULL, id TEXT, subject TEXT);
CREATE INDEX answers_by_id ON steelyard.answer_index (model, id);
CREATE INDEX answers_by_subject ON steelyard.answer_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX answers_by_key ON steelyard.answer_index (model, key);
CREATE TABLE steelyard.points (
  rowid BIGINT GENERATED ALWAYS AS IDENTITY, model TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  row BIGINT NOT NULL, body TEXT NOT NULL);
CREATE INDEX points_by_time ON steelyard.points (model, at);
CREATE TABLE steelyard.certificates (
  model TEXT NOT NULL, version BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, body TEXT NOT NULL);
-- Rows are packed already, and what is packed twice is only slower.
ALTER TABLE steelyard.chunks ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE steelyard.snapshots ALTER COLUMN body SET STORAGE EXTERNAL;
"""
_WITH_ROWS = ("chunks", "row_index", "waiting", "events", "snapshots", "answers", "answer_index")


class PostgresStore(SQLStore):
    """A store in the schema ``steelyard`` of a database.

    Parameters
    ----------
    url : str
        Such as ``postgresql://learner@db.example/payments``; a password comes better from a file of
        passwords or from the environment, as PostgreSQL's own programs take it.
    """

    faults: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    def __init__(self, url: str) -> None:
        self._url = url
        self.path = _shown(url)
        self._reading = threading.Lock()
        self._db: psycopg.Connection[Any] | None = None
        self._reader: psycopg.Connection[Any] | None = None
        self._claimed: psycopg.Connection[Any] | None = None  # the session that may write
        self._news = False  # something was written that others follow
        try:
            self._check_schema(self._session())
        except psycopg.Error as error:
            self.close()
            raise FileAccessError(f"{_first_line(error)}.", source=self.path) from error

    # -- sessions -----------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        said = conninfo.conninfo_to_dict(self._url)
        options = f"{said.pop('options', '')} {_ALIVE} -c search_path=steelyard"
        settings: dict[str, Any] = {"connect_timeout": _PATIENCE, "application_name": "steelyard", **said}
        db = psycopg.connect(conninfo.make_conninfo(**settings, options=options), autocommit=True)
        if db.execute("SHOW fsync").fetchone() == ("off",):
            db.close()
            raise FileAccessError(
                "the server runs with fsync=off, so that nothing it says is safe.",
                source=self.path,
                hint="set fsync = on in postgresql.conf",
            )
        if db.execute("SHOW synchronous_commit").fetchone() in {("off",), ("local",)}:
            db.execute("SET synchronous_commit = on")
        return db

    def _session(self) -> psycopg.Connection[Any]:
        """The scribe's session; a new one where the last is broken."""
        if self._db is None or self._db.closed:
            self._claimed = None
            self._db = self._connect()
            self._db.execute(f"LISTEN {_CHANNEL}")
        return self._db

    def _check_schema(self, db: psycopg.Connection[Any]) -> None:
        there = "SELECT to_regclass('steelyard.about') IS NOT NULL"
        if db.execute(there).fetchone() == (False,):
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(%s)", (_SETTING_UP,))
                if db.execute(there).fetchone() == (False,):  # nobody else was faster
                    db.execute(_SCHEMA)
                    db.execute("INSERT INTO steelyard.about VALUES (%s)", (_SCHEMA_VERSION,))
        found = db.execute("SELECT version FROM steelyard.about").fetchone()
        if found != (_SCHEMA_VERSION,):
            raise FileFormatError(
                f"the store has version {found and found[0]}; this library reads version {_SCHEMA_VERSION}.",
                source=self.path,
                hint="update the library",
            )

    def close(self) -> None:
        if self._db is not None and self.is_claimed:
            with suppress(psycopg.Error):  # at once, not when the server notices that the session has ended
                self._db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        for db in (self._reader, self._db):
            if db is not None:
                with suppress(psycopg.Error):
                    db.close()
        self._claimed = None

    # -- the right to write -------------------------------------------------------------------------

    @property
    def is_claimed(self) -> bool:
        """Whether this process is the one that writes, as far as it knows without asking."""
        return self._claimed is not None and self._claimed is self._db and not self._db.closed

    def claim(self) -> bool:
        """Be the only writer, where no other process is; asks the server each time."""
        db = self._session()
        if self.is_claimed:
            db.execute("SELECT 1")  # a session that has died is noticed here
            return True
        if db.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() == (True,):
            self._claimed = db
        return self.is_claimed

    def wait_for_news(self, seconds: float) -> None:
        """Until another process has written, or not longer than that: notices can get lost."""
        for _ in self._session().notifies(timeout=seconds, stop_after=1):
            pass

    # -- statements ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, meanwhile: Meanwhile | None = None) -> Iterator[None]:  # noqa: ARG002
        """Everything inside or nothing; on the server's disk when it returns."""
        db = self._db
        if db is None or not self.is_claimed:
            raise FileAccessError("this process has not, or no longer, the right to write.", source=self.path)
        db.execute("BEGIN")
        self._news = False
        try:
            yield
            if self._news:
                db.execute(f"NOTIFY {_CHANNEL}")
            self._commit(db)
        except BaseException:
            with suppress(psycopg.Error):  # a session that is gone has rolled back already
                db.execute("ROLLBACK")
            raise

    @staticmethod
    def _commit(db: psycopg.Connection[Any]) -> None:
        try:
            db.execute("COMMIT")
        except psycopg.OperationalError as error:  # it may have been done before the line was cut
            raise CommitOutcomeUnknown(type(error).__name__) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside belongs to one moment."""
        db = self._session()
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg.Error):
                db.execute("ROLLBACK")

    def _do(self, sql: str, *values: Any) -> list[Any]:
        cursor = self._session().execute(_marked(sql), values)
        if cursor.description is not None:
            return cursor.fetchall()
        self._news = True
        return []

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._session().cursor() as cursor:
            cursor.executemany(_marked(sql), rows)
        self._news = True

    def _read(self, sql: str, *values: Any) -> list[Any]:
        with self._reading:
            try:
                return self._ask(sql, values)
            except psycopg.OperationalError:  # the server was started again: a new line, once
                return self._ask(sql, values)

    def _ask(self, sql: str, values: Sequence[Any]) -> list[Any]:
        if self._reader is None or self._reader.closed:
            self._reader = self._connect()
        return self._reader.execute(_marked(sql), values).fetchall()

    # -- erasing ------------------------------------------------------------------------------------

    def erase(self) -> None:
        """After deletions were committed: the tables are written anew without what was deleted.

        What stood in the server's own write-ahead log goes when the server recycles it.
        """
        db = self._session()
        for _ in range(3):
            left: list[int] = []
            noted = _Noted(left)
            db.add_notice_handler(noted)
            try:
                for table in _WITH_ROWS:
                    db.execute(f"VACUUM (FULL, VERBOSE) steelyard.{table}")
            finally:
                db.remove_notice_handler(noted)
            if not any(left):
                return
        raise FileAccessError(
            "another session of the database still sees what was deleted, so that it cannot be erased yet.",
            source=self.path,
            hint="end transactions that stay open, then forget again",
        )


class _Noted:
    """Hears from VACUUM how many dead rows must stay because somebody may still see them."""

    def __init__(self, left: list[int]) -> None:
        self._left = left

    def __call__(self, said: Any) -> None:
        found = re.search(r"\d+", said.message_detail or "")  # the first number, in any language
        if found:
            self._left.append(int(found.group()))


def _marked(sql: str) -> str:
    return sql.replace("?", "%s")


def _shown(url: str) -> str:
    """The address without what is secret."""
    try:
        said = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise FileAccessError(
            "this is not an address of a PostgreSQL database.",
            source="the store",
            hint="for example postgresql://learner@db.example/payments",
        ) from error
    return f"postgresql://{said.get('host', '')}/{said.get('dbname', '')}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
