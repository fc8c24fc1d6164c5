"""Simulated power loss at any sync. Afterwards every acknowledged event is in the model exactly once.

The event that was not acknowledged is in the model completely or not at all.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress

import apsw
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.service import SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Learn, Put
from tests.service.data import Clock, records, spec


class PowerLoss(Exception):  # noqa: N818  the event, not an error of the code
    """Raised by a simulated disk when it loses power."""


class Disk:
    """Simulated disk that buffers writes until a sync and loses power at a chosen sync.

    A seed decides for each buffered write whether it is kept, dropped or torn. Reads see all writes.
    """

    def __init__(self, crash_at: int | None, seed: int) -> None:
        self.files: dict[str, bytearray] = {}
        self.waiting: list[tuple[str, int, bytes | None, int]] = []
        self.durable: dict[str, bytearray] = {}
        self.crash_at, self.rng, self.n_syncs = crash_at, np.random.default_rng(seed), 0
        self.is_off = False

    def write(self, name: str, data: bytes, offset: int) -> None:
        self.check()
        _put(self.files.setdefault(name, bytearray()), data, offset)
        self.waiting.append((name, offset, bytes(data), 0))

    def truncate(self, name: str, size: int) -> None:
        self.check()
        del self.files.setdefault(name, bytearray())[size:]
        self.waiting.append((name, 0, None, size))

    def sync(self, name: str) -> None:
        self.check()
        self.n_syncs += 1
        if self.n_syncs == self.crash_at:
            for write in self.waiting:
                fate = self.rng.integers(3)
                if fate == 0 or write[2] is None:
                    self._settle(write, torn=False) if fate == 0 else None
                elif fate == 1:
                    self._settle(write, torn=True)
            self.is_off = True
            raise PowerLoss
        for write in [w for w in self.waiting if w[0] == name]:
            self._settle(write, torn=False)
        self.waiting = [w for w in self.waiting if w[0] != name]

    def _settle(self, write, *, torn: bool) -> None:
        name, offset, data, size = write
        file = self.durable.setdefault(name, bytearray())
        if data is None:
            del file[size:]
        else:
            _put(file, data[: len(data) // 2] if torn else data, offset)

    def check(self) -> None:
        if self.is_off:
            raise PowerLoss

    def heal(self) -> None:
        """Restore power: synced data is readable, and no further power loss is simulated."""
        self.files = {name: bytearray(data) for name, data in self.durable.items()}
        self.waiting, self.crash_at, self.is_off = [], None, False


def _put(file: bytearray, data: bytes, offset: int) -> None:
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


class DiskFile(apsw.VFSFile):
    """One file of the simulated disk. It has no shared memory, so SQLite locks it exclusively."""

    def __init__(self, disk: Disk, name: str) -> None:  # there is no real file
        self._disk, self._name = disk, name
        disk.files.setdefault(name, bytearray())

    def excepthook(self, *_):
        return

    def xRead(self, amount, offset):
        return bytes(self._disk.files[self._name][offset : offset + amount])

    def xWrite(self, data, offset):
        self._disk.write(self._name, data, offset)

    def xTruncate(self, size):
        self._disk.truncate(self._name, size)

    def xSync(self, flags):
        self._disk.sync(self._name)

    def xFileSize(self):
        return len(self._disk.files[self._name])

    def xClose(self):
        return

    def xLock(self, level):
        return

    def xUnlock(self, level):
        return

    def xCheckReservedLock(self):
        return False

    def xFileControl(self, op, ptr):
        return False

    def xSectorSize(self):
        return 512

    def xDeviceCharacteristics(self):
        return 0


class DiskVFS(apsw.VFS):
    """Virtual file system on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.name = disk, f"disk-{id(disk)}-{os.getpid()}"
        super().__init__(self.name, "")

    def excepthook(self, *_):
        return

    def xOpen(self, name, flags):
        text = name.filename() if isinstance(name, apsw.URIFilename) else (name or "temporary")
        return DiskFile(self.disk, text)

    def xDelete(self, name, sync):
        self.disk.check()
        self.disk.files.pop(name, None)
        self.disk.durable.pop(name, None)

    def xAccess(self, name, flags):
        return name in self.disk.files

    def xFullPathname(self, name):
        return name


def _requests(history):
    for number, (kind, n) in enumerate(history):
        if kind == "learn":
            yield Learn(
                "m", wire.from_records(records(n, seed=number, first=100 * number), ["customer", "row"])
            )
        else:
            yield Forget("m", subject=f"c{n % 8}")


def _expected(history):
    """Return the digest of the model after each request, on a store that never fails."""
    writer = Writer(SQLiteStore(":memory:"), clock=Clock())
    writer.process([Put("m", spec())])
    digests = [writer.published["m"].summary()["digest"]]
    for request in _requests(history):
        writer.process([request])
        digests.append(writer.published["m"].summary()["digest"])
    return digests


def _run(disk, history):
    """Process requests until the power loss; return the number of acknowledged requests, including Put."""
    vfs, n_acknowledged = DiskVFS(disk), 0
    with suppress(PowerLoss, apsw.Error, OSError):
        writer = Writer(SQLiteStore("store", vfs=vfs.name), clock=Clock())
        for request in [Put("m", spec()), *_requests(history)]:
            with suppress(Exception):
                writer.process([request])
            if not request.future.done() or request.future.exception(0) is not None:
                break
            n_acknowledged += 1
    return n_acknowledged, vfs


# Closing a file after the power loss fails in a destructor, which Python reports as an unraisable exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(
        st.tuples(st.sampled_from(["learn", "learn", "forget"]), st.integers(1, 12)), min_size=1, max_size=5
    ),
    crash_at=st.integers(1, 40),
    seed=st.integers(0, 2**16),
)
def test_acknowledged_events_survive_any_power_loss(history, crash_at, seed):
    expected = _expected(history)
    disk = Disk(crash_at, seed)
    n_acknowledged, crashed = _run(disk, history)
    gc.collect()
    disk.heal()
    crashed.unregister()
    vfs = DiskVFS(disk)
    writer = Writer(SQLiteStore("store", vfs=vfs.name), clock=Clock())
    found = writer.published.get("m")
    if n_acknowledged == 0:
        assert found is None or found.summary()["digest"] == expected[0]
    else:
        assert found is not None, "an acknowledged model is lost"
        allowed = expected[n_acknowledged - 1 : n_acknowledged + 1]
        assert found.summary()["digest"] in allowed
    writer.store.close()  # before the simulated disk is removed
    vfs.unregister()


def test_simulated_disk_loses_unsynced_writes():
    fates = set()
    for seed in range(30):
        other = Disk(crash_at=1, seed=seed)
        other.write("a", b"abcd", 0)
        with suppress(PowerLoss):
            other.sync("a")
        other.heal()
        fates.add(bytes(other.files.get("a", b"")))
    assert fates == {b"abcd", b"ab", b""}
