"""What every store must do, asked of SQLite and of PostgreSQL."""

from __future__ import annotations

import apsw
import pytest

from steelyard.exceptions import FileAccessError, FileFormatError, ParameterError
from steelyard.service import SQLiteStore, open_store
from steelyard.service.store import Event, Snapshot, Waiting


def snapshot(version, at=0.0):
    return Snapshot(version, at, f"digest {version}", b"\x00body\xff" * version)


def test_a_transaction_that_fails_leaves_nothing(store):
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


def test_events_come_back_in_order_and_go_up_to_a_version(store):
    with store.transaction():
        for version in (1, 2, 3):
            store.append("m", Event(version, float(version), "learn", bytes([version])))
        store.append("other", Event(9, 9.0, "learn", b"o"))
    assert [event.body for event in store.events_after("m", 1)] == [b"\x02", b"\x03"]
    assert store.last_version("m") == 3
    with store.transaction():
        store.drop_events("m", 2)
    assert [event.version for event in store.events_after("m", 0)] == [3]


def test_snapshots_are_found_by_version_and_time_and_only_so_many_are_kept(store):
    with store.transaction():
        for version in (2, 5, 9):
            store.put_snapshot("m", snapshot(version, at=10.0 * version), keep=2)
        store.put_snapshot("m", snapshot(9, at=91.0), keep=2)
    assert store.snapshot("m") == store.last_snapshot("m") == snapshot(9, at=91.0)
    assert store.snapshot("m", version=8) == store.snapshot("m", at=60.0) == snapshot(5, at=50.0)
    assert store.snapshot("m", version=4) is None
    assert store.last_version("m") == 9


def test_rows_are_found_by_many_ids_and_by_subject(store):
    ids = [f"r{k}" for k in range(1200)]
    with store.transaction():
        chunk = store.add_chunk("m", 1200, b"rows")
        store.index_rows("m", chunk, ids, ["c1" if k % 3 else None for k in range(1200)])
        empty = store.add_chunk("m", 1, b"one")
        store.retire_rows(chunk, 7)
    assert len(store.find_rows("m", ids=ids)) == len(store.known_ids("m", ids)) == 1200
    assert len(store.find_rows("m", subject="c1")) == 800
    assert store.find_rows("n", subject="c1") == []
    assert store.chunks("m") == [(chunk, 1200, 7), (empty, 1, 0)]
    with store.transaction():
        store.replace_chunk(chunk, 1, b"fewer")
        store.drop_chunks([empty])
    assert store.chunk(chunk) == b"fewer"
    assert store.known_ids("m", ids) == []
    with pytest.raises(FileFormatError, match="not in the store"):
        store.chunk(empty)


def test_rows_wait_once_each_and_go_by_id_subject_or_time(store):
    def waiting(row_id, at, subject=None, body=b"row"):
        return Waiting(row_id, at, subject, body)

    with store.transaction():
        store.wait(
            "m", [waiting("a", 1.0, "c1"), waiting("b", 2.0, "c2"), waiting("c", 3.0), waiting("d", 9.0)]
        )
        store.wait("m", [waiting("a", 5.0, "c1", b"newer")])
    assert store.n_waiting("m") == 4
    assert store.waiting("m", ["a", "zzz"]) == [waiting("a", 5.0, "c1", b"newer")]
    assert sorted(store.waiting_ids("m", ["a", "b", "zzz"])) == ["a", "b"]
    with store.transaction():
        assert store.drop_waiting("m", before=3.5) == 2
        assert store.drop_waiting("m", subject="c1") == 1
        assert store.drop_waiting("m", ids=["d", "a"]) == 1
    assert store.n_waiting("m") == 0


def test_kept_answers_can_be_written_over_by_the_rows_they_speak_of(store):
    with store.transaction():
        store.keep_answer("m", "k1", "f1", '{"ids": ["a", "b"]}', at=1.0, about=[("a", "c1"), ("b", "c2")])
        store.keep_answer("m", "k2", "f2", '{"ids": ["x"]}', at=2.0, about=[("x", "c1")])
        store.keep_answer("m", "k3", "f3", '{"learned": 3}', at=2.0)
        assert store.blank_answers("m", "gone", ids=["b"]) == 1
        assert store.blank_answers("m", "gone", subject="c1") == 1
        assert store.blank_answers("m", "gone", before=10.0) == 0
    assert store.answer_to("m", "k1") == ("f1", "gone")
    assert store.answer_to("m", "k2") == ("f2", "gone")
    assert store.answer_to("m", "k3") == ("f3", '{"learned": 3}')
    with store.transaction():
        store.drop_answers(1.5)
    assert store.answer_to("m", "k1") is None


def test_points_and_certificates_come_back_in_their_order(store):
    with store.transaction():
        store.add_points("m", [{"at": float(k % 3), "row": k, "g_mean": None} for k in range(10)])
        for version in (1, 2, 3):
            store.add_certificate("m", version, 0.0, f'{{"version": {version}}}')
    assert [point["row"] for point in store.points("m", None, 4)] == [6, 7, 8, 9]
    assert [point["row"] for point in store.points("m", 2.0, 100)] == [2, 5, 8]
    assert [certificate["version"] for certificate in store.certificates("m", 2)] == [3, 2]


def test_a_model_that_is_dropped_takes_everything_with_it_and_nothing_of_others(store):
    with store.transaction():
        for name in ("m", "n"):
            store.put_model(name, "{}", 0.0)
            store.append(name, Event(1, 0.0, "learn", b"e"))
            store.index_rows(name, store.add_chunk(name, 1, b"c"), ["r"], ["s"])
            store.wait(name, [Waiting("w", 0.0, None, b"")])
        store.drop_model("m")
    assert store.models() == [("n", "{}")]
    assert (store.last_version("m"), store.chunks("m"), store.n_waiting("m")) == (0, [], 0)
    assert (store.last_version("n"), len(store.chunks("n")), store.n_waiting("n")) == (1, 1, 1)


def test_readers_see_only_what_is_committed(store):
    with store.transaction():
        store.wait("m", [Waiting("w", 0.0, None, b"")])
        assert store.n_waiting("m") == 0
    assert store.n_waiting("m") == 1


def test_one_process_has_the_right_to_write_and_it_passes_on(where):
    first, second = open_store(where), open_store(where)
    assert first.claim()
    assert first.is_claimed
    if isinstance(second, SQLiteStore):
        with pytest.raises(FileAccessError, match="another process"):
            second.claim()
    else:
        assert not second.claim()
        with pytest.raises(FileAccessError, match="right to write"), second.transaction():
            pass
    first.close()
    assert second.claim()
    second.close()


def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path):
    store = SQLiteStore(tmp_path / "old.db")
    with store.transaction():
        store.keep_answer("m", "k", "f", '{"ids": ["a"]}', at=1.0)
        store._do("DROP TABLE answer_index")
        store._db.pragma("user_version", 1)
    store.close()
    again = SQLiteStore(tmp_path / "old.db")
    with again.transaction():
        assert again.blank_answers("m", "gone", ids=["a"]) == 1
    again.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    SQLiteStore(tmp_path / "new.db").close()
    with apsw.Connection(str(tmp_path / "new.db")) as db:
        db.pragma("user_version", 99)
    with pytest.raises(FileFormatError, match="version 99"):
        SQLiteStore(tmp_path / "new.db")


def test_an_address_that_leads_nowhere_is_told_without_its_password():
    pytest.importorskip("psycopg", reason="psycopg speaks to PostgreSQL; it is not installed")
    with pytest.raises(FileAccessError) as refused:
        open_store("postgresql://me:secret-word@127.0.0.1:1/nothing")
    assert "secret-word" not in str(refused.value)
    with pytest.raises((FileAccessError, ParameterError)):
        open_store("postgresql://host:not-a-port-:/")
