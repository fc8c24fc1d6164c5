"""Writer without a thread, for tests: every request is processed by the caller."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from steelyard.service import SQLiteStore, Writer, open_store
from steelyard.service import rows as wire
from tests.service.data import Clock


def batch(rows):
    return wire.from_records(rows, ["customer", "row"])


class ModelSession:
    """Writer on a store that processes one request at a time."""

    opened: ClassVar[list] = []  # stores to close after the test

    def __init__(self, where, clock=None):
        self.where, self.clock = str(where), clock or Clock()
        self.store = open_store(self.where)
        if not self.is_file:
            assert self.store.acquire_write_lock()
        self.opened.append(self.store)
        self.writer = Writer(self.store, clock=self.clock)

    @property
    def is_file(self):
        return isinstance(self.store, SQLiteStore)

    def do(self, request):
        self.writer.process([request])
        return request.future.result(0)

    def model(self, name="m"):
        return self.writer.published[name]

    def again(self):
        """Return a new session on the same store. In PostgreSQL it takes over the write lock."""
        if not self.is_file:
            self.store.close()
        return ModelSession(self.where, self.clock)

    def bytes(self):
        """Return the bytes of all files of the store, without the write-ahead log of PostgreSQL."""
        if self.is_file:
            path = Path(self.where)
            return b"".join(part.read_bytes() for part in path.parent.glob(path.name + "*"))
        import psycopg

        with psycopg.connect(self.where, autocommit=True) as db:
            db.execute("CHECKPOINT")
            folder = Path(db.execute("SHOW data_directory").fetchone()[0]) / "base"
            number = db.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        return b"".join(part.read_bytes() for part in (folder / str(number[0])).iterdir())
