"""Faults in operation: damaged data, full disks, file modes, concurrent commands and mistyped input."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import httpx
import pytest

from steelyard.cli import main
from steelyard.exceptions import DataError, FileAccessError, ParameterError
from steelyard.service import SQLiteStore, Writer
from steelyard.service.commands import Forget, Label, Learn, Put, Remember, Tick
from steelyard.service.errors import Conflict, Unavailable
from steelyard.service.http import make_app
from steelyard.service.http.keys import Keys
from steelyard.service.http.responses import problem_of
from steelyard.service.stored_rows import pack
from steelyard.service.stores import PendingRow
from tests.runner import cli_runner
from tests.service.data import SPEC, Clock, records, spec
from tests.service.processes import Process, until
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch
from tests.service.test_faults import Fault, FaultyVFS
from tests.service.test_wire import MODEL, is_problem, unlabelled

# -- keys -------------------------------------------------------------------------------------------


def test_key_added_during_revocation_does_not_restore_revoked_key(tmp_path):
    path = tmp_path / "keys.toml"
    for _ in range(20):
        revoked = Keys.add(path, ["predict"])[0].id
        adding = threading.Thread(target=lambda: [Keys.add(path, ["learn"]) for _ in range(3)])
        adding.start()
        Keys.revoke(path, revoked)
        adding.join()
        assert revoked not in {key.id for key in Keys(path).all()}
    assert len(Keys(path).all()) == 60


# -- pending rows -----------------------------------------------------------------------------------


def pending(row, at=0.0):
    bare = {name: value for name, value in row.items() if name != "fraud"}
    answer = {"label": 0, "scores": [0.25, -0.25], "classes": [0, 1]}
    return PendingRow(row["row"], at, row["customer"], pack(batch([bare]), answer))


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(60))))
    return session


def test_remember_with_id_of_another_pending_row_is_refused(session):
    first = records(1, first=100)[0]
    session.do(Remember("m", [pending(first)]))
    stored = session.store.pending("m", [first["row"]])
    with pytest.raises(Conflict, match="belongs to another row"):
        session.do(Remember("m", [pending({**first, "amount": 99.0})]))
    with pytest.raises(Conflict, match="belongs to another row"):
        session.do(Remember("m", [pending({**first, "customer": "another"})]))
    assert session.do(Remember("m", [pending(first, at=7.0)]))["ids"] == [first["row"]]
    assert session.store.pending("m", [first["row"]]) == stored


def test_remember_with_id_of_learned_row_is_refused(session):
    with pytest.raises(Conflict, match="belongs to another row"):
        session.do(Remember("m", [pending(records(1)[0])]))
    assert session.store.n_pending("m") == 0


# -- forgetting -------------------------------------------------------------------------------------


def test_forget_unknown_id_keeps_snapshots_and_reports_incomplete(session):
    with session.store.transaction():
        session.writer.sessions["m"].snapshot(1.0)
    session.do(Learn("m", batch(records(20, first=60))))
    for choice in ({"ids": ["never-seen"]}, {"subject": "nobody"}):
        certificate = session.do(Forget("m", **choice))["certificate"]
        assert (certificate["forgotten"], certificate["unknown"], certificate["complete"]) == (0, 1, False)
    assert session.store.snapshot("m", version=1) is not None
    assert session.store.certificates("m", 9) == []
    certificate = session.do(Forget("m", ids=["r1", "never-seen"]))["certificate"]
    assert (certificate["forgotten"], certificate["unknown"], certificate["complete"]) == (1, 1, False)
    assert session.store.snapshot("m", version=1) is None
    assert session.do(Forget("m", ids=["r2", "r2"]))["certificate"]["complete"]


def test_forget_of_expired_row_deletes_snapshots_that_may_contain_it(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(memory=20)))
    session.do(Learn("m", batch(records(20))))
    with session.store.transaction():
        session.writer.sessions["m"].snapshot(1.0)
    session.do(Learn("m", batch(records(20, first=20))))
    with session.store.transaction():
        session.writer.sessions["m"].snapshot(2.0)  # deletes the expired rows from the store
    session.do(Forget("m", ids=["r1"]))
    assert session.store.snapshot("m", version=1) is None


def test_forget_erases_text_that_only_the_forgotten_row_had_as_category(session):
    rare = {**records(1, first=100)[0], "country": "Text-of-one-person"}
    session.do(Learn("m", batch([rare])))
    certificate = session.do(Forget("m", ids=["r100"]))["certificate"]
    assert certificate["complete"]
    assert b"Text-of-one-person" not in session.bytes()
    assert session.model().encoder.categories_[-1] == ("country", "(erased 3)")
    assert ("country", "DE") in session.model().encoder.categories_
    again = session.again()
    assert again.model().summary() == session.model().summary()
    again.do(Learn("m", batch([rare])))
    assert again.do(Forget("m", ids=["r100"]))["forgotten"] == 1


def test_forget_without_stored_rows_lists_columns_whose_text_is_kept(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(rows="until labelled")))
    rows = records(30)
    session.do(Learn("m", batch(rows)))
    certificate = session.do(Forget("m", batch=batch(rows[:2])))["certificate"]
    assert (certificate["complete"], certificate["categories_kept"]) == (False, ["country"])


# -- labels -----------------------------------------------------------------------------------------


def test_label_outside_classes_is_refused(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(classes=["fraud", "ok"])))
    rows = [{**row, "fraud": "fraud" if row["fraud"] else "ok"} for row in records(30)]
    session.do(Learn("m", batch(rows)))
    before = session.model().summary()
    with pytest.raises(DataError, match="'fruad' is not one of the classes fraud, ok") as error:
        session.do(Learn("m", batch([{**records(1, first=50)[0], "fraud": "fruad"}])))
    assert error.value.row == 0
    assert "did you mean 'fraud'" in str(error.value)
    session.do(Remember("m", [pending(records(1, first=60)[0])]))
    with pytest.raises(DataError, match="'Ok' is not one"):
        session.do(Label("m", {"r60": "Ok"}))
    assert session.do(Label("m", {"r60": "ok"}))["labelled"] == 1
    assert set(session.model().summary()["classes"]) == set(before["classes"]) == {"fraud", "ok"}


def test_classes_can_grow_but_must_contain_learned_classes(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(classes=[0, 1])))
    session.do(Learn("m", batch(records(30))))
    with pytest.raises(DataError):
        session.do(Learn("m", batch([{**records(1, first=50)[0], "fraud": 2}])))
    with pytest.raises(ParameterError, match="must contain the class '1'"):
        session.do(Put("m", spec(classes=[0, 2])))
    session.do(Put("m", spec(classes=[0, 1, 2])))
    session.do(Learn("m", batch([{**records(1, first=50)[0], "fraud": 2}])))
    assert session.again().model().summary() == session.model().summary()


@pytest.mark.parametrize("classes", [[], ["a"], ["a", "a"], [1, "1"], "ab", [True, False], [0.5, 1]], ids=str)
def test_spec_with_invalid_class_list_raises(classes):
    with pytest.raises(ParameterError, match="classes must be"):
        spec(classes=classes)


# -- damaged data -----------------------------------------------------------------------------------


def damage(path, model):
    with apsw.Connection(str(path)) as db:
        chunk = next(iter(db.execute("SELECT min(chunk) FROM chunks WHERE model = ?", (model,))))[0]
        db.execute("UPDATE chunks SET body = substr(body, 1, length(body) - 9) WHERE chunk = ?", (chunk,))
    return chunk


def test_model_with_damaged_chunk_is_set_aside_and_others_are_served(tmp_path, caplog):
    path = tmp_path / "store.db"
    session = ModelSession(path)
    for name in ("bad", "good"):
        session.do(Put(name, spec()))
        session.do(Learn(name, batch(records(40))))
        session.do(Learn(name, batch(records(25, first=40))))
    session.store.close()
    chunk = damage(path, "bad")
    again = ModelSession(path)
    assert list(again.writer.published) == ["good"]
    assert f"model 'bad', chunk {chunk}" in caplog.text
    assert again.do(Learn("good", batch(records(5, first=100))))["learned"] == 5
    for request in (Learn("bad", batch(records(5, first=100))), Put("bad", spec())):
        with pytest.raises(Unavailable, match="damaged"):
            again.do(request)
    with serving(make_app(again.writer)) as http:
        is_problem(http.get("/v1/models/bad"), 503)
        assert http.get("/v1/models/good").status_code == 200


def test_check_reports_damaged_chunk_and_repair_keeps_readable_rows(tmp_path):
    path = tmp_path / "store.db"
    session = ModelSession(path)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(40))))
    session.do(Learn("m", batch(records(25, first=40))))
    session.store.close()
    chunk = damage(path, "m")

    def check(*more):
        return cli_runner().invoke(main, ["serve", "--store", str(path), "--check", *more])

    found = check()
    assert found.exit_code == 1
    assert f"chunk {chunk}" in found.stderr
    assert "(rows kept: 25, lost: 40)" in check("--repair").stderr
    assert check().exit_code == 0
    again = ModelSession(path)
    expected = ModelSession(tmp_path / "expected.db")
    expected.do(Put("m", spec()))
    expected.do(Learn("m", batch(records(25, first=40))))
    assert again.model().summary()["digest"] == expected.model().summary()["digest"]
    assert again.do(Learn("m", batch(records(40))))["learned"] == 40


def test_damaged_chunk_found_at_tick_sets_aside_only_its_model(tmp_path):
    path = tmp_path / "store.db"
    session = ModelSession(path, Clock(1_000.0))
    for name in ("bad", "good"):
        session.do(Put(name, spec(memory="1h")))
        session.do(Learn(name, batch(records(20))))
        with session.store.transaction():
            session.writer.sessions[name].snapshot(1.0)
    session.store.close()
    damage(path, "bad")
    again = ModelSession(path, Clock(9_000.0))
    again.do(Tick(""))
    assert list(again.writer.published) == ["good"]
    assert again.model("good").n_rows == 0


# -- a full disk, little memory ---------------------------------------------------------------------


def test_service_with_full_disk_reports_not_ready_with_reason_and_recovers(tmp_path, caplog):
    fault = Fault("write", 10**9, lasting=True)
    vfs = FaultyVFS(fault)
    writer = Writer(SQLiteStore(tmp_path / "s.db", vfs=vfs.name), clock=Clock())
    with serving(make_app(writer)) as http:
        http.put(MODEL, json=SPEC)
        assert http.get("/health/ready").status_code == 200
        fault.n = fault.seen + 1
        refused = is_problem(http.post(f"{MODEL}/learn", json={"rows": records(20)}), 503)
        assert "disk full" in refused["detail"]
        ready = http.get("/health/ready")
        assert (ready.status_code, ready.json()["problem"]) == (503, "disk full")
        assert http.get("/health/learner").status_code == 503
        assert "disk full" in caplog.text
        fault.n = 10**9
        until(lambda: http.get("/health/ready").status_code == 200)
        assert http.post(f"{MODEL}/learn", json={"rows": records(20)}).status_code == 200
    vfs.unregister()


def test_memory_error_is_not_reported_as_store_problem(session, monkeypatch):
    def failing(*_args, **_more):
        raise MemoryError

    monkeypatch.setattr(session.writer.sessions["m"].engine, "learn", failing)
    with pytest.raises(Unavailable, match="too little memory") as error:
        session.do(Learn("m", batch(records(5, first=100))))
    assert "disk" not in str(error.value)
    assert session.writer.problem is None


def test_internal_error_response_contains_no_path():
    problem = problem_of(FileAccessError("the disk failed.", source="/var/lib/secret/store.db"))
    assert problem.status == 500
    assert "/var" not in problem.detail


# -- files ------------------------------------------------------------------------------------------


def test_store_and_backup_are_readable_by_owner_only(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.store.acquire_write_lock()
    session.do(Put("m", spec()))
    session.store.backup(tmp_path / "backup.db")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert {"store.db", "store.db-wal", "store.db-writer", "backup.db"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_forget_with_open_reader_completes_later_and_does_not_block_writes(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec()))
    session.do(Learn("m", batch([{**row, "customer": "Customer-of-row"} for row in records(20)])))
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as reader:
        reader.execute("BEGIN")
        assert list(reader.execute("SELECT count(*) FROM chunks")) == [(1,)]
        begin = time.monotonic()
        assert session.do(Forget("m", subject="Customer-of-row"))["erasure_pending"]
        assert time.monotonic() - begin < 9.0  # waiting for the lock would take 10 seconds
        assert session.do(Learn("m", batch(records(5, first=50))))["learned"] == 5
        reader.execute("ROLLBACK")
    session.writer.next_tick = 0.0
    session.writer._next_group()
    assert b"Customer-of-row" not in session.bytes()


def test_old_responses_are_deleted_in_slices_by_index(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    with session.store.transaction():
        for k in range(30):
            session.store.put_responses("m", [(f"k{k}", "f", "{}")], at=float(k))
        assert session.store.drop_responses("m", 25.0, limit=20)
        assert not session.store.drop_responses("m", 25.0, limit=20)
    assert [session.store.responses_to("m", [f"k{k}"]).get(f"k{k}") is None for k in (0, 24, 25)] == [
        True,
        True,
        False,
    ]
    if session.is_file:
        plan = session.store._do(
            "EXPLAIN QUERY PLAN SELECT key FROM answers WHERE model = 'm' AND at < 9 ORDER BY at LIMIT 5"
        )
        assert "answers_by_time" in str(plan)


def test_unlabelled_rows_are_remembered_once_over_http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db"), clock=Clock()))) as http:
        http.put(MODEL, json=SPEC)
        http.post(f"{MODEL}/learn", json={"rows": records(60)})
        row = {**unlabelled(records(1, first=100))[0], "row": "r100"}
        assert http.post(f"{MODEL}/predict", json={"rows": [row], "remember": True}).status_code == 200
        other = {"rows": [{**row, "amount": 7.5}], "remember": True}
        is_problem(http.post(f"{MODEL}/predict", json=other), 409)


# -- the HTTP server --------------------------------------------------------------------------------


def test_requests_to_unknown_routes_are_counted_in_metrics(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db"), clock=Clock()))) as http:
        is_problem(http.get("/v1/nothing"), 404)
        is_problem(http.request("PROPFIND", "/v1/models"), 405)
        text = http.get("/metrics").text
    assert 'steelyard_request_seconds_count{method="GET",route="unknown",status="404"} 1.0' in text
    assert 'steelyard_request_seconds_count{method="other",route="unknown",status="405"} 1.0' in text


def test_shutdown_does_not_wait_for_event_streams(tmp_path):
    with Process(tmp_path / "store.db") as service, ExitStack() as streams:
        httpx.put(f"{service.url}/v1/models/m", json=SPEC, timeout=60)
        for _ in range(20):
            stream = streams.enter_context(
                httpx.stream("GET", f"{service.url}/v1/models/m/events", timeout=120)
            )
            next(stream.iter_lines())
        begin = time.monotonic()
        assert service.end(signal.SIGTERM) == 0
        assert time.monotonic() - begin < 8.0, "the shutdown waits up to 10 s for requests in progress"


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc returns memory on request"
)
def test_memory_of_large_request_is_released(tmp_path):
    def resident(service):
        fields = Path(f"/proc/{service.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGESIZE")

    with Process(tmp_path / "store.db") as service:
        httpx.put(f"{service.url}/v1/models/m", json=SPEC, timeout=60)
        service.post("/v1/models/m/learn", json={"rows": records(20)})
        before = resident(service)
        row = b'{"amount": 1.5, "country": "DE", "customer": "c1"},'
        body = b'{"rows": [' + row * 190_000 + b'{"amount": "x"}]}'
        answer = service.post(
            "/v1/models/m/predict", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422
        until(lambda: resident(service) < before + (60 << 20))
