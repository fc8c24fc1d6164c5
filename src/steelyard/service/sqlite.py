"""The embedded store: one SQLite file, written by one thread, synced before anything is acknowledged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import apsw

from steelyard.exceptions import FileAccessError, FileFormatError
from steelyard.service.store import Event, Snapshot, Waiting

__all__ = ["SQLiteStore", "check_sqlite"]

_APPLICATION = 0x53746C79  # "Stly"
_SCHEMA_VERSION = 1
_SAFE_SQLITE = (3, 51, 3)  # before it a checkpoint could reset the log under a reader and lose a commit
_MANY = 500  # parameters of one statement
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
CREATE TABLE points (model TEXT NOT NULL, at REAL NOT NULL, row INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX points_by_time ON points (model, at);
CREATE TABLE certificates (
  model TEXT NOT NULL, version INTEGER NOT NULL, at REAL NOT NULL, body TEXT NOT NULL) STRICT;
"""


def check_sqlite() -> None:
    """Refuse a SQLite that can lose commits."""
    found = tuple(map(int, apsw.sqlite_lib_version().split(".")[:3]))
    if found < _SAFE_SQLITE:
        raise FileAccessError(
            f"SQLite {apsw.sqlite_lib_version()} has a fault that can lose what was committed; "
            f"{'.'.join(map(str, _SAFE_SQLITE))} or newer is needed.",
            hint="pip install --upgrade apsw",
        )


class SQLiteStore:
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
        # The scribe's thread writes, the threads of requests read: one connection each way, each with a lock.
        self._reading = threading.Lock()
        try:
            self._db = apsw.Connection(self.path, vfs=vfs)
            self._settle(exclusive=vfs is not None)
            self._check_schema()
            own = self.path == ":memory:" or vfs is not None
            self._reader = self._db if own else apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
        except apsw.Error as error:
            raise FileAccessError(f"{error}.", who=self.path) from error

    def _settle(self, *, exclusive: bool) -> None:
        self._db.set_busy_timeout(10_000)
        if exclusive:  # a file layer without shared memory
            self._db.pragma("locking_mode", "EXCLUSIVE")
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
                    who=self.path,
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
            raise FileFormatError("this is a database, but not a store of the service.", who=self.path)
        elif version != _SCHEMA_VERSION:
            raise FileFormatError(
                f"the store has version {version}; this library reads version {_SCHEMA_VERSION}.",
                who=self.path,
                hint="update the library",
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside or nothing; on disk when it returns."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def claim(self) -> None:
        """Be the only writer of this file; refused while another process is."""
        if self._vfs is not None or self.path == ":memory:" or self._claim is not None:
            return
        import fcntl

        # A file beside it: closing the store's own file elsewhere would let go SQLite's locks.
        claim = Path(self.path + "-writer").open("ab")  # noqa: SIM115  held until the store is closed
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            claim.close()
            raise FileAccessError(
                "another process writes this store; two writers would lose what they acknowledged.",
                who=self.path,
                hint="stop the other service, or give this one a store of its own",
            ) from error
        self._claim = claim

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        if self._reader is not self._db:
            self._reader.close()
        self._db.close()

    def _read(self, sql: str, *values: Any) -> list[Any]:
        """For whoever is not the scribe."""
        with self._reading:
            return list(self._reader.execute(sql, values))

    # -- models, events, snapshots ------------------------------------------------------------------

    def models(self) -> list[tuple[str, str]]:
        return list(self._db.execute("SELECT name, spec FROM models ORDER BY name"))

    def put_model(self, name: str, spec: str, at: float) -> None:
        self._db.execute(
            "INSERT INTO models VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET spec = excluded.spec",
            (name, spec, at),
        )

    def drop_model(self, name: str) -> None:
        for table in (
            "events",
            "snapshots",
            "chunks",
            "row_index",
            "waiting",
            "answers",
            "points",
            "certificates",
        ):
            self._db.execute(f"DELETE FROM {table} WHERE model = ?", (name,))  # noqa: S608  names are ours
        self._db.execute("DELETE FROM models WHERE name = ?", (name,))

    def append(self, model: str, event: Event) -> None:
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            (model, event.version, event.at, event.kind, event.body),
        )

    def events_after(self, model: str, version: int) -> Iterator[Event]:
        sql = "SELECT version, at, kind, body FROM events WHERE model = ? AND version > ? ORDER BY version"
        for row in self._db.execute(sql, (model, version)):
            yield Event(*row)

    def drop_events(self, model: str, until: int) -> None:
        self._db.execute("DELETE FROM events WHERE model = ? AND version <= ?", (model, until))

    def put_snapshot(self, model: str, snapshot: Snapshot, keep: int) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)",
            (model, snapshot.version, snapshot.at, snapshot.digest, snapshot.body),
        )
        self._db.execute(
            "DELETE FROM snapshots WHERE model = ?1 AND version NOT IN "
            "(SELECT version FROM snapshots WHERE model = ?1 ORDER BY version DESC LIMIT ?2)",
            (model, keep),
        )

    def snapshot(self, model: str, *, version: int | None = None, at: float | None = None) -> Snapshot | None:
        found = self._read(
            "SELECT version, at, digest, body FROM snapshots WHERE model = ?1 "
            "AND (?2 IS NULL OR version <= ?2) AND (?3 IS NULL OR at <= ?3) ORDER BY version DESC LIMIT 1",
            model,
            version,
            at,
        )
        return Snapshot(*found[0]) if found else None

    # -- rows ---------------------------------------------------------------------------------------

    def add_chunk(self, model: str, n_rows: int, body: bytes) -> int:
        self._db.execute(
            "INSERT INTO chunks (model, n, retired, body) VALUES (?, ?, 0, ?)", (model, n_rows, body)
        )
        return self._db.last_insert_rowid()

    def chunk(self, chunk: int) -> bytes:
        found = list(self._db.execute("SELECT body FROM chunks WHERE chunk = ?", (chunk,)))
        if not found:
            raise FileFormatError(f"the rows of chunk {chunk} are not in the store.", who=self.path)
        return bytes(found[0][0])

    def replace_chunk(self, chunk: int, n_rows: int, body: bytes) -> None:
        self._db.execute(
            "UPDATE chunks SET n = ?, retired = 0, body = ? WHERE chunk = ?", (n_rows, body, chunk)
        )
        self._db.execute("DELETE FROM row_index WHERE chunk = ?", (chunk,))

    def retire_rows(self, chunk: int, begin: int) -> None:
        self._db.execute("UPDATE chunks SET retired = ? WHERE chunk = ?", (begin, chunk))

    def drop_chunks(self, chunks: Iterable[int]) -> None:
        gone = [(chunk,) for chunk in chunks]
        self._db.executemany("DELETE FROM chunks WHERE chunk = ?", gone)
        self._db.executemany("DELETE FROM row_index WHERE chunk = ?", gone)

    def chunks(self, model: str) -> list[tuple[int, int]]:
        """Chunks and how many of their first rows no longer count."""
        return list(
            self._db.execute("SELECT chunk, retired FROM chunks WHERE model = ? ORDER BY chunk", (model,))
        )

    def index_rows(
        self, model: str, chunk: int, ids: Sequence[str | None], subjects: Sequence[str | None]
    ) -> None:
        self._db.executemany(
            "INSERT INTO row_index VALUES (?, ?, ?, ?, ?)",
            (
                (model, row_id, subject, chunk, position)
                for position, (row_id, subject) in enumerate(zip(ids, subjects, strict=True))
                if row_id is not None or subject is not None
            ),
        )

    def find_rows(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None
    ) -> list[tuple[int, int]]:
        if subject is not None:
            sql = "SELECT chunk, position FROM row_index WHERE model = ? AND subject = ?"
            return list(self._db.execute(sql, (model, subject)))
        found: list[tuple[int, int]] = []
        for some in _pieces(ids):
            marks = ",".join("?" * len(some))
            sql = f"SELECT chunk, position FROM row_index WHERE model = ? AND id IN ({marks})"  # noqa: S608
            found += self._db.execute(sql, (model, *some))
        return found

    def known_ids(self, model: str, ids: Sequence[str]) -> list[str]:
        known: list[str] = []
        for some in _pieces(ids):
            marks = ",".join("?" * len(some))
            sql = f"SELECT id FROM row_index WHERE model = ? AND id IN ({marks})"  # noqa: S608
            known += [row[0] for row in self._db.execute(sql, (model, *some))]
        return known

    # -- rows that wait for labels ------------------------------------------------------------------

    def wait(self, model: str, waiting: Sequence[Waiting]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?)",
            [(model, w.id, w.at, w.subject, w.body) for w in waiting],
        )

    def waiting(self, model: str, ids: Sequence[str]) -> list[Waiting]:
        found: list[Waiting] = []
        for some in _pieces(ids):
            marks = ",".join("?" * len(some))
            sql = f"SELECT id, at, subject, body FROM waiting WHERE model = ? AND id IN ({marks})"  # noqa: S608
            found += [Waiting(*row) for row in self._db.execute(sql, (model, *some))]
        return found

    def drop_waiting(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None, before: float | None = None
    ) -> int:
        start = self._db.total_changes()
        if subject is not None:
            self._db.execute("DELETE FROM waiting WHERE model = ? AND subject = ?", (model, subject))
        if before is not None:
            self._db.execute("DELETE FROM waiting WHERE model = ? AND at < ?", (model, before))
        self._db.executemany(
            "DELETE FROM waiting WHERE model = ? AND id = ?", [(model, row_id) for row_id in ids]
        )
        return self._db.total_changes() - start

    def n_waiting(self, model: str) -> int:
        return int(self._read("SELECT count(*) FROM waiting WHERE model = ?", model)[0][0])

    # -- answers that were given, measures, certificates --------------------------------------------

    def answer_to(self, model: str, key: str) -> tuple[str, str] | None:
        sql = "SELECT fingerprint, body FROM answers WHERE model = ? AND key = ?"
        found = list(self._db.execute(sql, (model, key)))
        return found[0] if found else None

    def keep_answer(self, model: str, key: str, fingerprint: str, body: str, at: float) -> None:
        self._db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (model, key, fingerprint, body, at))

    def drop_answers(self, before: float) -> None:
        self._db.execute("DELETE FROM answers WHERE at < ?", (before,))

    def add_points(self, model: str, points: Sequence[dict[str, Any]]) -> None:
        self._db.executemany(
            "INSERT INTO points VALUES (?, ?, ?, ?)",
            [(model, point["at"], point["row"], json.dumps(point)) for point in points],
        )

    def points(self, model: str, since: float | None, limit: int) -> list[dict[str, Any]]:
        found = self._read(
            "SELECT body FROM (SELECT rowid, body FROM points WHERE model = ?1 AND (?2 IS NULL OR at >= ?2) "
            "ORDER BY rowid DESC LIMIT ?3) ORDER BY rowid",
            model,
            since,
            limit,
        )
        return [json.loads(row[0]) for row in found]

    def add_certificate(self, model: str, version: int, at: float, body: str) -> None:
        self._db.execute("INSERT INTO certificates VALUES (?, ?, ?, ?)", (model, version, at, body))

    def certificates(self, model: str, limit: int) -> list[dict[str, Any]]:
        sql = "SELECT body FROM certificates WHERE model = ? ORDER BY version DESC LIMIT ?"
        return [json.loads(row[0]) for row in self._read(sql, model, limit)]

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
            who=self.path,
            hint="it goes with the next write; close other programs that read the store",
        )

    def backup(self, path: str | Path) -> None:
        """A copy of the whole store as it is now."""
        with apsw.Connection(str(path)) as target, target.backup("main", self._reader, "main") as copy:
            while not copy.done:
                copy.step(1000)


def _pieces(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(ids), _MANY):
        yield ids[begin : begin + _MANY]
