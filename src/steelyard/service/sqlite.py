"""The embedded store: one SQLite file, written by one thread, synced before anything is acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import apsw

from steelyard.exceptions import FileAccessError, FileFormatError
from steelyard.service.sql_store import SQLStore
from steelyard.service.store import CommitOutcomeUnknown, Meanwhile

__all__ = ["SQLiteStore", "check_sqlite"]

_APPLICATION = 0x53746C79  # "Stly"
_SCHEMA_VERSION = 2
_SAFE_SQLITE = (3, 51, 3)  # before it a checkpoint could reset the log under a reader and lose a commit
_NEWS = 0.2  # seconds between two looks for what another process has written
_SCHEMA = """
CREATE TABLE models (name TEXT PRIMARY KEY, spec TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE TABLE events (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (model, version)) STRICT, WITHOUT ROWID;
CREATE TABLE snapshots (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (model, version)) STRICT;
CREATE TABLE chunks (
  chunk INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, n INTEGER NOT NULL, retired INTEGER NOT NULL,
  body BLOB NOT NULL) STRICT;
CREATE INDEX chunks_by_model ON chunks (model);
CREATE TABLE row_index (
  model TEXT NOT NULL, id TEXT, subject TEXT, chunk INTEGER NOT NULL, position INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX rows_by_id ON row_index (model, id) WHERE id IS NOT NULL;
CREATE INDEX rows_by_subject ON row_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX rows_by_chunk ON row_index (chunk);
CREATE TABLE waiting (
  model TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, subject TEXT, body BLOB NOT NULL,
  PRIMARY KEY (model, id)) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_by_subject ON waiting (model, subject) WHERE subject IS NOT NULL;
CREATE TABLE answers (
  model TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (model, key)) STRICT, WITHOUT ROWID;
CREATE TABLE answer_index (model TEXT NOT NULL, key TEXT NOT NULL, id TEXT, subject TEXT) STRICT;
CREATE INDEX answers_by_id ON answer_index (model, id);
CREATE INDEX answers_by_subject ON answer_index (model, subject) WHERE subject IS NOT NULL;
CREATE INDEX answers_by_key ON answer_index (model, key);
CREATE TABLE points (model TEXT NOT NULL, at REAL NOT NULL, row INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX points_by_time ON points (model, at);
CREATE TABLE certificates (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, body TEXT NOT NULL) STRICT;
"""
_PAGE_BYTES = 16_384
_LOG_PAGES = 1_000  # that the log gathers before they are copied into the file
# What older files lack: version 2 knows whose rows a kept answer speaks of.
_ANSWER_INDEX = _SCHEMA[_SCHEMA.index("CREATE TABLE answer_index") : _SCHEMA.index("CREATE TABLE points")]


def check_sqlite() -> None:
    """Refuse a SQLite that can lose commits."""
    found = tuple(map(int, apsw.sqlite_lib_version().split(".")[:3]))
    if found < _SAFE_SQLITE:
        raise FileAccessError(
            f"SQLite {apsw.sqlite_lib_version()} has a fault that can lose what was committed; "
            f"{'.'.join(map(str, _SAFE_SQLITE))} or newer is needed.",
            hint="pip install --upgrade apsw",
        )


class SQLiteStore(SQLStore):
    """A store in one file.

    Parameters
    ----------
    path : path or ":memory:"
        The file; made if it is not there.
    vfs : str, optional
        A file layer of apsw's; for trials with failing disks.
    """

    faults: tuple[type[Exception], ...] = (apsw.Error, OSError)

    def __init__(self, path: str | Path, *, vfs: str | None = None) -> None:
        check_sqlite()
        self.path, self._vfs = str(path), vfs
        self._claim: IO[bytes] | None = None
        self._hand = ThreadPoolExecutor(1, "steelyard-commit")  # a thread only where it is needed
        # The scribe's thread writes, the threads of requests read: one connection each way, each with a lock.
        self._reading = threading.Lock()
        try:
            self._db = apsw.Connection(self.path, vfs=vfs)
            self._settle(exclusive=vfs is not None)
            self._check_schema()
            self._reader = (
                self._db if self._is_own else apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            )
        except (apsw.Error, CommitOutcomeUnknown) as error:
            raise FileAccessError(f"{error}.", source=self.path) from error

    def _settle(self, *, exclusive: bool) -> None:
        self._db.set_busy_timeout(10_000)
        if exclusive:  # a file layer without shared memory
            self._db.pragma("locking_mode", "EXCLUSIVE")
        # Batches of rows take many pages: larger ones are written by fewer calls. A file keeps its size.
        self._db.pragma("page_size", _PAGE_BYTES)
        self._db.pragma("wal_autocheckpoint", _LOG_PAGES)
        for name, value, expected in (
            ("journal_mode", "WAL", "wal"),
            ("synchronous", "FULL", 2),
            ("secure_delete", "ON", 1),
            ("foreign_keys", "ON", 1),
        ):
            self._db.pragma(name, value)
            got = self._db.pragma(name)
            if got != expected and not (name == "journal_mode" and got == "memory"):
                raise FileAccessError(
                    f"SQLite did not take {name}={value} (it says {got!r}), without which nothing is safe.",
                    source=self.path,
                    hint="network file systems often cannot do this; put the store on a local disk",
                )

    def _check_schema(self) -> None:
        application, version = self._db.pragma("application_id"), self._db.pragma("user_version")
        if application == 0 and not list(self._db.execute("SELECT 1 FROM sqlite_schema LIMIT 1")):
            with self.transaction():
                self._db.execute(_SCHEMA)
                self._db.pragma("application_id", _APPLICATION)
                self._db.pragma("user_version", _SCHEMA_VERSION)
        elif application != _APPLICATION:
            raise FileFormatError("this is a database, but not a store of the service.", source=self.path)
        elif version == 1:
            self._upgrade()
        elif version != _SCHEMA_VERSION:
            raise FileFormatError(
                f"the store has version {version}; this library reads version {_SCHEMA_VERSION}.",
                source=self.path,
                hint="update the library",
            )

    def _upgrade(self) -> None:
        with self.transaction():
            if self._db.pragma("user_version") == 1:  # nobody else was faster
                self._db.execute(_ANSWER_INDEX)
                self.index_old_answers()
                self._db.pragma("user_version", _SCHEMA_VERSION)

    @contextmanager
    def transaction(self, meanwhile: Meanwhile | None = None) -> Iterator[None]:
        """Everything inside or nothing; on disk when it returns."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            work = None if meanwhile is None else meanwhile()
            if work is None:
                self._commit()
            else:
                committed = self._hand.submit(self._commit)
                try:
                    work()
                finally:
                    committed.result()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self._db.execute("COMMIT")
        except self.faults as error:  # a log that was written and not synced may be found whole later
            raise CommitOutcomeUnknown(type(error).__name__) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside belongs to one moment; for the scribe's thread."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    @property
    def is_claimed(self) -> bool:
        """Whether this process is the one that writes."""
        return self._claim is not None or self._is_own

    @property
    def _is_own(self) -> bool:
        return self._vfs is not None or self.path == ":memory:"

    def wait_for_news(self, seconds: float) -> None:
        """Until another process has written, or not longer than that."""
        end, known = time.monotonic() + seconds, self._db.pragma("data_version")
        while self._db.pragma("data_version") == known and time.monotonic() < end:
            time.sleep(_NEWS)

    def claim(self) -> bool:
        """Be the only writer of this file; refused while another process is."""
        if self.is_claimed:
            return True
        import fcntl

        # A file beside it: closing the store's own file elsewhere would let go SQLite's locks.
        claim = Path(self.path + "-writer").open("ab")  # noqa: SIM115  held until the store is closed
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            claim.close()
            raise FileAccessError(
                "another process writes this store; two writers would lose what they acknowledged.",
                source=self.path,
                hint="stop the other service, or give this one a store of its own",
            ) from error
        self._claim = claim
        return True

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        if self._reader is not self._db:
            self._reader.close()
        self._hand.shutdown()
        self._db.close()

    def _do(self, sql: str, *values: Any) -> list[Any]:
        return list(self._db.execute(sql, values))

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, rows)

    def _read(self, sql: str, *values: Any) -> list[Any]:
        with self._reading:
            return list(self._reader.execute(sql, values))

    # -- the file -----------------------------------------------------------------------------------

    def erase(self) -> None:
        """After deletions were committed: nothing of what was deleted stays in the file or its log."""
        if self.path == ":memory:":
            return
        for _ in range(3):
            busy, _, _ = next(iter(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
            if not busy:
                return
        raise FileAccessError(
            "a reader kept the write-ahead log open, so that what was deleted may still stand in it.",
            source=self.path,
            hint="it goes with the next write; close other programs that read the store",
        )

    def backup(self, path: str | Path) -> None:
        """A copy of the whole store as it is now."""
        with apsw.Connection(str(path)) as target, target.backup("main", self._reader, "main") as copy:
            while not copy.done:
                copy.step(1000)
