"""Store in one SQLite file. One thread writes at a time, and every commit is synced to disk."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import apsw

from steelyard.exceptions import FileAccessError, FileFormatError
from steelyard.service.stores import BackgroundWork, CommitOutcomeUnknown
from steelyard.service.stores.schema import ADDITIONS, RELEASED_SCHEMA, RELEASED_VERSION, SCHEMA_VERSION
from steelyard.service.stores.sql import Store

_APPLICATION_ID = 0x53746C79  # "Stly" in ASCII
# Older versions have a bug by which a checkpoint during a read can lose a commit.
_MIN_SQLITE = (3, 51, 3)
_POLL_SECONDS = 0.2  # interval at which a follower checks for changes of another process
_BUSY_MILLISECONDS = 10_000  # maximum time that a statement waits for the lock of another process
_ERASE_MILLISECONDS = 300  # maximum time that erasing waits for readers of the write-ahead log
_PAGE_BYTES = 16_384
_CHECKPOINT_PAGES = 1_000  # length of the write-ahead log at which SQLite starts a checkpoint


def _check_sqlite() -> None:
    found = tuple(map(int, apsw.sqlite_lib_version().split(".")[:3]))
    if found < _MIN_SQLITE:
        raise FileAccessError(
            f"SQLite {apsw.sqlite_lib_version()} has a bug that can lose committed data; "
            f"{'.'.join(map(str, _MIN_SQLITE))} or newer is needed.",
            hint="pip install --upgrade apsw",
        )


def _create_private(path: str | Path) -> None:
    """Create an empty file that only its owner can read. An existing file keeps its mode.

    SQLite gives its write-ahead log the mode of the database file.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


class SQLiteStore(Store):
    """Store in one SQLite file.

    Parameters
    ----------
    path : path or ":memory:"
        The file. It is created if it does not exist.
    vfs : str, optional
        Name of an apsw virtual file system, for tests that simulate failing disks.
    """

    errors: tuple[type[Exception], ...] = (apsw.Error, OSError)

    def __init__(self, path: str | Path, *, vfs: str | None = None) -> None:
        _check_sqlite()
        super().__init__()
        self.path, self._vfs = str(path), vfs
        self._is_private = vfs is not None or self.path == ":memory:"  # other processes cannot open it
        self._lock_file: IO[bytes] | None = None
        # Store of the first writer thread if this is the store of the second writer thread, otherwise None.
        self._owner: SQLiteStore | None = None
        self._turn = threading.RLock()  # held by the writer thread that is in a transaction
        self._must_begin = False  # whether the transaction begins with its first write
        # The writer thread has its own connection, and all request threads share another connection. A
        # private store has one connection, so readers wait for the end of a transaction to see only committed
        # data.
        self._reader_lock = self._turn if self._is_private else threading.RLock()
        self._writer_lock = self._turn if self._is_private else nullcontext()
        try:
            if not self._is_private:
                _create_private(self.path)
            self._db = apsw.Connection(self.path, vfs=vfs)
            self._configure(exclusive=vfs is not None)
            self._check_schema()
            self._reader = (
                self._db if self._is_private else apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            )
        except FileAccessError:
            raise
        except OSError as error:
            raise FileAccessError.from_os_error("opened", error, self.path) from error
        except (apsw.Error, CommitOutcomeUnknown) as error:
            raise FileAccessError(f"{error}.", source=self.path) from error

    def _configure(self, *, exclusive: bool) -> None:
        self._db.set_busy_timeout(_BUSY_MILLISECONDS)
        if exclusive:  # the virtual file systems of the tests have no shared memory
            self._db.pragma("locking_mode", "EXCLUSIVE")
        # Large pages need fewer writes per batch of rows. An existing file keeps its page size.
        self._db.pragma("page_size", _PAGE_BYTES)
        self._db.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
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
                    f"SQLite did not accept {name}={value} (got {got!r}), which durability requires.",
                    source=self.path,
                    hint="network file systems often do not support it; put the store on a local disk",
                )

    def _check_schema(self) -> None:
        application, version = self._db.pragma("application_id"), self._db.pragma("user_version")
        if application == 0 and not list(self._db.execute("SELECT 1 FROM sqlite_schema LIMIT 1")):
            with self.transaction():
                self._db.execute(RELEASED_SCHEMA)
                self._db.pragma("application_id", _APPLICATION_ID)
                self._upgrade()
        elif application != _APPLICATION_ID:
            raise FileFormatError("this database is not a store of the service.", source=self.path)
        elif version == RELEASED_VERSION:
            with self.transaction():
                if self._db.pragma("user_version") == version:  # no other process has upgraded it meanwhile
                    self._upgrade()
        else:
            self._check_version(version)

    def _upgrade(self) -> None:
        self._db.execute(ADDITIONS)
        self.index_old_responses()
        self._db.pragma("user_version", SCHEMA_VERSION)

    @contextmanager
    def transaction(self, background: BackgroundWork | None = None) -> Iterator[None]:
        """Commit all changes or none. Changes are on disk when the context manager returns.

        The store of the second writer thread begins its transactions with the first write, so that the first
        writer thread does not wait while rows are learned.
        """
        self._must_begin = True
        try:
            if self._owner is None:
                self._begin()
            yield
            self._commit_during(background, self._commit)
        except BaseException:
            self._key_indexes = {}  # the indexes may contain keys that were not committed
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        finally:
            if not self._must_begin:
                self._turn.release()
            self._must_begin = False

    def _begin(self) -> None:
        self._turn.acquire()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._turn.release()
            raise
        self._must_begin = False

    def _commit(self) -> None:
        if self._must_begin:
            return  # nothing was changed
        try:
            self._db.execute("COMMIT")
        except self.errors as error:  # the log may be complete on disk even if the sync failed
            raise CommitOutcomeUnknown(type(error).__name__) from error

    @contextmanager
    def read_snapshot(self) -> Iterator[None]:
        with self._writer_lock:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")

    @property
    def holds_write_lock(self) -> bool:
        holder = self._owner or self
        return holder._lock_file is not None or self._is_private

    def sibling(self) -> SQLiteStore | None:
        """Return a store for a second writer thread of this process. Both stores share the write lock."""
        if self._is_private:
            return None
        other = SQLiteStore(self.path)
        other._owner, other._turn = self, self._turn
        return other

    def wait_for_changes(self, seconds: float) -> None:
        end, known = time.monotonic() + seconds, self._db.pragma("data_version")
        while self._db.pragma("data_version") == known and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def acquire_write_lock(self) -> bool:
        if self.holds_write_lock:
            return True
        import fcntl

        # The lock has its own file, because closing a descriptor of the database releases SQLite's locks.
        _create_private(self.path + "-writer")
        lock_file = Path(self.path + "-writer").open("ab")  # noqa: SIM115  closed by close()
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock_file.close()
            raise FileAccessError(
                "another process writes to this store; only one process can write to a SQLite store.",
                source=self.path,
                hint="stop the other service, or use another store",
            ) from error
        self._lock_file = lock_file
        return True

    def close(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        if self._reader is not self._db:
            self._reader.close()
        self._committer.shutdown()
        self._db.close()

    def _do(self, sql: str, *values: Any) -> list[Any]:
        if self._must_begin and not sql.startswith("SELECT"):
            self._begin()
        with self._writer_lock:
            return list(self._db.execute(sql, values))

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        if self._must_begin:
            self._begin()
        with self._writer_lock:
            self._db.executemany(sql, rows)

    def _read(self, sql: str, *values: Any) -> list[Any]:
        with self._reader_lock:
            return list(self._reader.execute(sql, values))

    # -- maintenance of the file --------------------------------------------------------------------

    def erase(self) -> bool:
        """Remove deleted data from the write-ahead log. In the main file, ``secure_delete`` overwrites it."""
        if self.path == ":memory:":
            return True
        with self._turn:
            self._db.set_busy_timeout(_ERASE_MILLISECONDS)  # learning can be delayed by this time
            try:
                busy, _, _ = next(iter(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
            finally:
                self._db.set_busy_timeout(_BUSY_MILLISECONDS)
        if not busy:
            return True
        raise FileAccessError(
            "a reader keeps the write-ahead log open, so deleted data may still be in it.",
            source=self.path,
            hint="close other programs that read the store; the service tries again every 30 seconds",
        )

    def n_bytes(self) -> int:
        if self.path == ":memory:":
            with self._reader_lock:
                return int(self._db.pragma("page_count")) * int(self._db.pragma("page_size"))
        parts = (Path(self.path + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(part.stat().st_size for part in parts if part.exists())

    def free_bytes(self) -> int | None:
        if self.path == ":memory:":
            return None
        return shutil.disk_usage(Path(self.path).resolve().parent).free

    def check_writable(self) -> None:
        with self.transaction():
            if self._must_begin:
                self._begin()
            self._db.pragma("user_version", SCHEMA_VERSION)  # rewrites a page of the file

    def backup(self, path: str | Path) -> None:
        """Copy the store to another file that only its owner can read."""
        _create_private(path)
        with apsw.Connection(str(path)) as target, target.backup("main", self._reader, "main") as copy:
            while not copy.done:
                copy.step(1000)
