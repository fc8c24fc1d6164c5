"""Full disks, failing syncs and clock jumps: acknowledged requests survive, and each counts once.

The n-th write or sync fails, once or permanently, for n = 1, 2, 3 and so on until a run without a failure.
Afterwards every request is repeated with its key. The model must then equal that of a store without failures.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from itertools import count

import apsw
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.exceptions import SteelyardError
from steelyard.service import SQLiteStore, Writer
from steelyard.service.commands import Forget, Label, Learn, Put, Remember, Tick
from steelyard.service.stored_rows import pack
from steelyard.service.stores import PendingRow
from tests.service import torture
from tests.service.data import Clock, records, spec
from tests.service.processes import Process
from tests.service.sessions import ModelSession, batch

EVERY = (
    1 if os.environ.get("STEELYARD_FAULTS") == "all" else 9
)  # interval between the writes that are tested; every sync is tested


class Fault:
    """Fault of the n-th operation of a kind, once or permanently."""

    def __init__(self, kind, n, *, lasting):
        self.kind, self.n, self.lasting, self.seen, self.is_hit = kind, n, lasting, 0, False

    def strike(self, kind):
        if kind != self.kind:
            return
        self.seen += 1
        if self.seen == self.n or (self.lasting and self.seen > self.n):
            self.is_hit = True
            raise apsw.FullError("disk full") if kind == "write" else apsw.IOError("sync failed")


class FaultyFile(apsw.VFSFile):
    def __init__(self, fault, name, flags):
        self._fault = fault
        super().__init__("", name, flags)

    def excepthook(self, *_):
        return

    def xWrite(self, data, offset):
        self._fault.strike("write")
        super().xWrite(data, offset)

    def xSync(self, flags):
        self._fault.strike("sync")
        super().xSync(flags)


class FaultyVFS(apsw.VFS):
    """Virtual file system with one fault."""

    def __init__(self, fault):
        self.fault, self.name = fault, f"faulty-{id(fault)}-{os.getpid()}"
        super().__init__(self.name, "")

    def excepthook(self, *_):
        return

    def xOpen(self, name, flags):
        return FaultyFile(self.fault, name, flags)


def requests():
    """Return requests of every kind, each with its own key."""
    rows = records(70)
    yield Put("m", spec())
    yield Learn("m", batch(rows[:40]), key="a", fingerprint="a")
    bare = [{k: v for k, v in row.items() if k != "fraud"} for row in rows[40:44]]
    answer = {"label": 0, "scores": [0.0, 0.0], "classes": [0, 1]}
    waiting = [PendingRow(row["row"], 0.0, row["customer"], pack(batch([row]), answer)) for row in bare]
    yield Remember("m", waiting, key="b", fingerprint="b")
    yield Label("m", {row["row"]: row["fraud"] for row in rows[40:44]}, key="c", fingerprint="c")
    yield Forget("m", subject="c3", key="d", fingerprint="d")
    yield Learn("m", batch(rows[44:]), key="e", fingerprint="e")
    yield Forget("m", ids=["r1", "r50"], key="f", fingerprint="f")


@pytest.fixture(scope="module")
def expected():
    writer = Writer(SQLiteStore(":memory:"), clock=Clock())
    for request in requests():
        writer.process([request])
        request.future.result(0)
    return writer.published["m"].summary()


def run(path, fault):
    """Process all requests on a store with a fault; return the acknowledged requests."""
    vfs, acknowledged = FaultyVFS(fault), []
    with suppress(SteelyardError, apsw.Error):
        store = SQLiteStore(path, vfs=vfs.name)
        writer = Writer(store, clock=Clock())
        for number, request in enumerate(requests()):
            writer.process([request])
            if request.future.exception(0) is not None:
                break  # the following requests depend on the failed one
            acknowledged.append(number)
        with suppress(apsw.Error):
            store.close()
    vfs.unregister()
    return acknowledged


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # closing the file can fail
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_failing_write_or_sync_neither_loses_nor_repeats_requests(tmp_path, kind, lasting, expected):
    n_hit = 0
    for n in count(1, EVERY if kind == "write" else 1):
        path, fault = tmp_path / f"{n}.db", Fault(kind, n, lasting=lasting)
        acknowledged = run(path, fault)
        if not fault.is_hit:
            break
        n_hit += 1
        session = ModelSession(path)  # no further faults
        for number, request in enumerate(requests()):
            if number in acknowledged:  # an acknowledged request is durable before it is repeated
                assert "m" in session.writer.published
                assert request.key is None or session.store.responses_to("m", [request.key])
        for request in requests():
            session.do(request)
        assert session.model().summary() | {"learned": 0} == expected | {"learned": 0}
        assert session.again().model().summary()["digest"] == expected["digest"]
        for part in tmp_path.glob(f"{n}.db*"):
            part.unlink()
    assert n_hit > 3, "more than three faults occurred"


def test_commit_with_unknown_outcome_is_reported_as_unknown(tmp_path):
    fault = Fault("sync", 10**9, lasting=True)
    vfs = FaultyVFS(fault)
    writer = Writer(SQLiteStore(tmp_path / "s.db", vfs=vfs.name), clock=Clock())
    writer.process([Put("m", spec())])
    fault.n = fault.seen + 1
    request = Learn("m", batch(records(5)))
    writer.process([request])
    assert "not known" in str(request.future.exception(0))
    fault.n = 10**9
    again = Learn("m", batch(records(5)))
    writer.process([again])
    assert again.future.result(0)["learned"] == 5
    writer.store.close()
    vfs.unregister()


# -- a real process on a disk that is full ----------------------------------------------------------


def full(store, start):
    """Send requests until the disk is full, and restart with free space.

    Then compare the model with the ledger, the record of the acknowledged rows.
    """
    clients, opener = [torture.Client(k, seed=3) for k in range(3)], torture.Client(99, 3)
    first = [opener._row() for _ in range(50)]
    with start() as service, httpx.Client(base_url=service.url, timeout=120) as http:
        assert http.put("/v1/models/m", json=torture.SPEC).status_code == 201
        assert http.post("/v1/models/m/learn", json={"rows": first}).status_code == 200
        refused = _until_refused(clients, http)
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        bare = [{"a": 1.0, "b": 2.0}]
        assert http.post("/v1/models/m/predict", json={"rows": bare}).status_code == 200
    with Process(store) as healed, httpx.Client(base_url=healed.url, timeout=120) as http:
        for client in clients:
            if client.pending is not None:
                assert client.send(http, again=True)
        found = http.get("/v1/models/m").json()
        assert (found["digest"], found["rows"]) == torture.expected_digest(first, clients)


def _until_refused(clients, http):
    """Send large learn requests until one is refused. Return its response; the request is repeated later."""
    for number in count():
        client = clients[number % len(clients)]
        rows = [client._row() for _ in range(400)]
        key = f"large-{number}"
        client.pending = ("learn", key, {"rows": rows}, {"learned": rows})
        answer = http.post("/v1/models/m/learn", json={"rows": rows}, headers={"Idempotency-Key": key})
        if answer.status_code != 200:
            return answer
        client._note({"learned": rows}, answer.json())
        client.pending = None
        assert number < 2_000, "the disk was never full"
    return None


def test_file_size_limit_refuses_requests_and_loses_no_acknowledged_rows(tmp_path):
    store = tmp_path / "store.db"

    def start():
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, most[1]))  # inherited by the child process
        try:
            return Process(store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)

    full(store, start)


def test_full_disk_refuses_requests_and_loses_no_acknowledged_rows(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "steelyard-test", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted (this needs root and the right to mount)")
    try:
        full(disk / "store.db", lambda: _Growing(disk))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


class _Growing(Process):
    """Service on a small disk that is enlarged when the service ends."""

    def __init__(self, disk):
        self.disk = disk
        super().__init__(disk / "store.db")

    def __exit__(self, *_):
        super().__exit__()
        subprocess.run(["mount", "-o", "remount,size=64m", str(self.disk)], check=True)


# -- a clock that jumps -----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(
        st.tuples(
            st.sampled_from(["learn", "learn", "tick", "forget"]),
            st.sampled_from([0.0, 1.0, -1.0, 1_800.0, -5_000.0, 4e9, -4e9]),
        ),
        min_size=1,
        max_size=8,
    ),
    memory=st.sampled_from(["all", "1h", 25]),
)
def test_clock_jumps_lose_no_rows_and_recovery_restores_same_model(tmp_path_factory, history, memory):
    path = tmp_path_factory.mktemp("clock") / "s.db"
    session = ModelSession(path, Clock(1e9))
    session.do(Put("m", spec(memory=memory)))
    version = 0
    for number, (kind, jump) in enumerate(history):
        session.clock.now += jump
        if kind == "learn":
            answer = session.do(Learn("m", batch(records(10, seed=number, first=100 * number))))
            assert answer["version"] > version
            version = answer["version"]
        elif kind == "tick":
            session.do(Tick(""))
            session.writer._publish(["m"])
        else:
            session.do(Forget("m", before=session.clock.now))
        version = max(version, session.model().version)
        found = session.again()
        assert found.model().version == session.model().version
        assert found.model().summary() == session.model().summary()
        found.store.close()
        ModelSession.opened.remove(found.store)
    if memory == "all":
        learned = sum(10 for kind, _ in history if kind == "learn")
        if not any(kind == "forget" for kind, _ in history):
            assert session.model().n_rows == learned
    session.store.close()
    ModelSession.opened.remove(session.store)


def test_idempotency_keys_survive_clock_that_runs_backwards(tmp_path):
    session = ModelSession(tmp_path / "s.db", Clock(1e9))
    session.do(Put("m", spec()))
    first = session.do(Learn("m", batch(records(10)), key="k", fingerprint="k"))
    session.clock.now -= 30 * 86_400.0
    session.do(Tick(""))
    assert session.do(Learn("m", batch(records(10)), key="k", fingerprint="k")) == first


def test_writer_thread_survives_clock_jumps(tmp_path):
    clock = Clock(1e9)
    writer = Writer(SQLiteStore(tmp_path / "s.db"), clock=clock)
    writer.start()
    try:
        for number, now in enumerate((1e9, 5e8, 3e9, 1e9)):
            clock.now = now
            request = Put("m", spec()) if number == 0 else Learn("m", batch(records(5, first=10 * number)))
            assert writer.submit(request).future.result(120)
        assert writer.is_alive
    finally:
        writer.close()
        writer.store.close()
