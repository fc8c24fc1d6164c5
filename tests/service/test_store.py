"""Interface of a store, tested with SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import apsw
import pytest

from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError
from steelyard.service import SQLiteStore, open_store
from steelyard.service.stores import ERASED_RESPONSE, Event, PendingRow, QuarantinedRow, Snapshot, sqlite
from steelyard.service.stores.schema import RELEASED_SCHEMA


def snapshot(version, at=0.0):
    return Snapshot(version, at, f"digest {version}", b"\x00body\xff" * version)


def test_failed_transaction_changes_nothing(store):
    with store.transaction():
        store.put_model("m", "{}", 1.0)
    with pytest.raises(KeyError):
        _write_and_fail(store)
    assert store.models() == [("m", "{}")]
    assert list(store.events_after("m", 0)) == []


def _write_and_fail(store):
    with store.transaction():
        store.put_model("n", "{}", 2.0)
        store.append("m", Event(1, 2.0, "learn", b"x"))
        raise KeyError


def test_events_are_ordered_and_can_be_deleted_up_to_a_version(store):
    with store.transaction():
        for version in (1, 2, 3):
            store.append("m", Event(version, float(version), "learn", bytes([version])))
        store.append("other", Event(9, 9.0, "learn", b"o"))
    assert [event.body for event in store.events_after("m", 1)] == [b"\x02", b"\x03"]
    assert store.last_versions()["m"] == 3
    with store.transaction():
        store.drop_events("m", 2)
    assert [event.version for event in store.events_after("m", 0)] == [3]


def test_store_finds_snapshots_by_version_or_time_and_keeps_newest(store):
    with store.transaction():
        for version in (2, 5, 9):
            store.put_snapshot("m", snapshot(version, at=10.0 * version), keep=2)
        store.put_snapshot("m", snapshot(9, at=91.0), keep=2)
    assert store.snapshot("m") == store.snapshot("m", committed=False) == snapshot(9, at=91.0)
    assert store.snapshot("m", version=8) == store.snapshot("m", at=60.0) == snapshot(5, at=50.0)
    assert store.snapshot("m", version=4) is None
    assert store.last_versions()["m"] == 9


def test_rows_are_found_by_many_ids_and_by_subject(store):
    ids = [f"r{k}" for k in range(1200)]
    with store.transaction():
        chunk = store.add_chunk("m", 1200, b"rows")
        store.index_rows("m", chunk, ids, ["c1" if k % 3 else None for k in range(1200)])
        empty = store.add_chunk("m", 1, b"one")
        store.retire_rows(chunk, 7)
    n_rows = {chunk: len(positions) for chunk, positions in store.find_rows("m", ids=ids).items()}
    assert sum(n_rows.values()) == len(store.known_ids("m", ids)) == 1200
    assert sum(map(len, store.find_rows("m", subject="c1").values())) == 800
    assert store.find_rows("n", subject="c1") == {}
    assert store.chunks("m") == [(chunk, 1200, 7), (empty, 1, 0)]
    with store.transaction():
        store.replace_chunk(chunk, 1, b"fewer")
        store.drop_chunks([empty])
    assert store.chunk(chunk) == b"fewer"
    assert store.known_ids("m", ids) == []
    with pytest.raises(FileFormatError, match="not in the store"):
        store.chunk(empty)


def test_pending_rows_are_unique_and_dropped_by_id_subject_or_time(store):
    def waiting(row_id, at, subject=None, body=b"row"):
        return PendingRow(row_id, at, subject, body)

    with store.transaction():
        store.put_pending(
            "m", [waiting("a", 1.0, "c1"), waiting("b", 2.0, "c2"), waiting("c", 3.0), waiting("d", 9.0)]
        )
        store.put_pending("m", [waiting("a", 5.0, "c1", b"newer")])
    assert store.n_pending("m") == 4
    assert store.pending("m", ["a", "zzz"]) == [waiting("a", 5.0, "c1", b"newer")]
    with store.transaction():
        assert store.drop_pending("m", before=3.5) == 2
        assert store.drop_pending("m", subject="c1") == 1
        assert store.drop_pending("m", ids=["d", "a"]) == 1
    assert store.n_pending("m") == 0


def test_stored_responses_that_mention_given_rows_are_erased(store):
    with store.transaction():
        store.put_responses(
            "m", [("k1", "f1", '{"ids": ["a", "b"]}')], at=1.0, rows=[("a", "c1"), ("b", "c2")]
        )
        store.put_responses("m", [("k2", "f2", '{"ids": ["x"]}')], at=2.0, rows=[("x", "c1")])
        store.put_responses("m", [("k3", "f3", '{"learned": 3}')], at=2.0)
        assert store.erase_responses("m", ids=["b"]) == 1
        assert store.erase_responses("m", subject="c1") == 1
        assert store.erase_responses("m", before=10.0) == 0
    assert store.responses_to("m", ["k1"]).get("k1") == ("f1", ERASED_RESPONSE)
    assert store.responses_to("m", ["k2"]).get("k2") == ("f2", ERASED_RESPONSE)
    assert store.responses_to("m", ["k3"]).get("k3") == ("f3", '{"learned": 3}')
    with store.transaction():
        store.drop_responses("m", 1.5)
    assert store.responses_to("m", ["k1"]).get("k1") is None


def test_metric_points_and_certificates_are_returned_in_order(store):
    with store.transaction():
        store.add_points("m", [{"at": float(k % 3), "row": k, "g_mean": None} for k in range(10)])
        for version in (1, 2, 3):
            store.add_certificate("m", version, 0.0, f'{{"version": {version}}}')
    assert [point["row"] for point in store.points("m", None, 4)] == [6, 7, 8, 9]
    assert [point["row"] for point in store.points("m", 2.0, 100)] == [2, 5, 8]
    assert [certificate["version"] for certificate in store.certificates("m", 2)] == [3, 2]


def test_drop_model_deletes_data_of_that_model_only(store):
    with store.transaction():
        for name in ("m", "n"):
            store.put_model(name, "{}", 0.0)
            store.append(name, Event(1, 0.0, "learn", b"e"))
            store.index_rows(name, store.add_chunk(name, 1, b"c"), ["r"], ["s"])
            store.put_pending(name, [PendingRow("w", 0.0, None, b"")])
        store.drop_model("m")
    assert store.models() == [("n", "{}")]
    assert (store.chunks("m"), store.n_pending("m")) == ([], 0)
    assert (store.last_versions(), len(store.chunks("n")), store.n_pending("n")) == ({"n": 1}, 1, 1)


def test_readers_see_only_committed_data(store):
    with store.transaction():
        store.put_pending("m", [PendingRow("w", 0.0, None, b"")])
        assert store.n_pending("m") == 0
    assert store.n_pending("m") == 1


def test_write_lock_and_leases_are_exclusive_and_can_be_taken_over(where):
    first, second = open_store(where), open_store(where)
    assert first.acquire_write_lock()
    assert first.holds_write_lock
    assert first.acquire_leases(["m", "n"], 1) == ["m"]
    if isinstance(second, SQLiteStore):
        with pytest.raises(FileAccessError, match="another process"):
            second.acquire_write_lock()
    else:
        with pytest.raises(FileAccessError, match="write lock"), second.transaction():
            pass
        assert second.acquire_write_lock()
        assert second.acquire_leases(["m", "n"], 2) == ["n"]
        assert (second.holds_lease("m"), second.holds_lease("n")) == (False, True)
        found = second.learners(["m", "n", "o"])
        assert found.owners == {"m": first.address, "n": second.address}
        assert found.n_leases == {first.address: 1, second.address: 1}
    first.close()
    assert second.acquire_write_lock()
    assert second.acquire_leases(["m"], 1) == ["m"]
    second.close()


def test_store_of_version_0_2_is_upgraded_and_indexes_its_responses(tmp_path):
    with apsw.Connection(str(tmp_path / "old.db")) as db:
        db.execute(RELEASED_SCHEMA)
        db.execute("""INSERT INTO answers VALUES ('m', 'k', 'f', '{"ids": ["a"]}', 1.0)""")
        db.execute("INSERT INTO chunks (model, n, retired, body) VALUES ('m', 1, 0, x'00')")
        db.pragma("application_id", sqlite._APPLICATION_ID)
        db.pragma("user_version", 1)
    with SQLiteStore(tmp_path / "new.db") as new, SQLiteStore(tmp_path / "old.db") as store:
        schema = "SELECT name, sql FROM sqlite_schema ORDER BY name"
        assert store._do(schema) == new._do(schema)
        assert store._db.pragma("user_version") == new._db.pragma("user_version")
        with store.transaction():
            assert store.erase_responses("m", ids=["a"]) == 1
            assert store.former_version("m") == -1
            chunk = store.add_chunk("m", 2, b"y", 5.0)
            store.index_batches("m", chunk, ["a", "b"])
            assert store.chunks_of_batch("m", "b") == [chunk]
            store.drop_chunks([chunk])
            assert store.chunks_of_batch("m", "b") == []
            assert [n for _, n, _ in store.chunks("m")] == [1]


def test_postgres_store_finds_chunks_by_batch_and_time(cluster):
    store = open_store(cluster.empty())
    store.acquire_write_lock()
    with store.transaction():
        store.add_chunk("m", 1, b"x")
        store.add_chunk("m", 1, b"y", 5.0, "k")
        assert [n for _, n, _ in store.chunks("m")] == [1, 1]
        assert len(store.chunks_of_batch("m", "k")) == 1
        assert store.chunks_of_batch("m", "k") == store.chunks_learned("m", 4.0, 5.0)
    store.close()


def test_store_of_newer_schema_is_refused(tmp_path):
    SQLiteStore(tmp_path / "new.db").close()
    with apsw.Connection(str(tmp_path / "new.db")) as db:
        db.pragma("user_version", 99)
    with pytest.raises(FileFormatError, match="version 99"):
        SQLiteStore(tmp_path / "new.db")


def test_unreachable_database_error_hides_password():
    pytest.importorskip("psycopg", reason="psycopg, the client of PostgreSQL, is not installed")
    with pytest.raises(FileAccessError) as refused:
        open_store("postgresql://me:secret-word@127.0.0.1:1/nothing")
    assert "secret-word" not in str(refused.value)
    with pytest.raises((FileAccessError, ParameterError)):
        open_store("postgresql://host:not-a-port-:/")


def test_responses_stored_by_another_process_are_found_after_lease_change(cluster):
    where = cluster.empty()
    with open_store(where) as first, open_store(where) as second:
        for store in (first, second):
            assert store.acquire_write_lock()
        assert second.responses_to("m", ["k"]).get("k") is None  # read without a lease
        assert first.acquire_leases(["m"], 1) == ["m"]
        with first.transaction():
            first.put_responses("m", [("k", "f", "{}")], at=1.0)
        first.release_leases(["m"])
        assert second.acquire_leases(["m"], 1) == ["m"]
        assert second.responses_to("m", ["k"]).get("k") == ("f", "{}")


def test_idempotency_keys_of_failed_transaction_are_not_stored(store):
    def fail():
        with store.transaction():
            store.put_responses("m", [("k", "f", "{}")], at=1.0)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert store.responses_to("m", ["k"]).get("k") is None
    with store.transaction():
        store.put_responses("m", [(f"k{n}", "f", str(n)) for n in range(300)], at=1.0)
    assert store.responses_to("m", ["k", "k7", "k299"]) == {"k7": ("f", "7"), "k299": ("f", "299")}
    with store.transaction():
        store.rename_model("m", "n")
        store.erase_response("n", "k7")
    assert store.responses_to("m", ["k7"]).get("k7") is None
    assert store.responses_to("n", ["k7"]).get("k7") == ("f", ERASED_RESPONSE)
    assert store.responses_to("n", ["k8"]).get("k8") == ("f", "8")


@pytest.mark.parametrize("read", ["n_bytes", "quarantine_sizes"])
def test_store_in_memory_can_be_read_while_a_statement_runs(read):
    entered, leave = threading.Event(), threading.Event()

    def pause():
        entered.set()
        return leave.wait(30)

    with SQLiteStore(":memory:") as store, ThreadPoolExecutor(2) as threads:
        store._db.create_scalar_function("pause", pause, 0)
        statement = threads.submit(store._do, "SELECT pause()")
        assert entered.wait(30)
        result = threads.submit(getattr(store, read))
        # If a connection is busy in another thread, apsw raises ThreadingViolationError after 0.33 s.
        wait([result], 0.5)
        leave.set()
        assert statement.result(30)
        assert result.result(30) is not None


def test_reader_of_store_in_memory_does_not_see_rows_that_are_rolled_back():
    with SQLiteStore(":memory:") as store, ThreadPoolExecutor(1) as reader:
        results = []
        with pytest.raises(KeyError):
            _write_read_and_fail(store, reader, results)
        assert results[0].result(30) == {}


def _write_read_and_fail(store, reader, results):
    with store.transaction():
        store.add_quarantined("m", [QuarantinedRow(0, 1.0, None, None, "range", b"row")])
        results.append(reader.submit(store.quarantine_sizes))
        wait(results, 0.1)
        raise KeyError
