"""Failures, limits and misuse of the service that must not break its guarantees."""

from __future__ import annotations

import gzip
import io
import logging
import os
import time

import numpy as np
import pyarrow as pa
import pytest

from steelyard.exceptions import DataError, FileAccessError, ParameterError
from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Label, Learn, Put, Tick
from steelyard.service.engine import Engine
from steelyard.service.errors import Unavailable
from steelyard.service.http import Limits, make_app
from steelyard.service.http import service as http_service
from steelyard.service.http.keys import Keys
from steelyard.tables.columns import ColumnBatch
from tests.service.data import SPEC, Clock, records, spec
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch
from tests.service.test_guarantees import fresh
from tests.service.test_wire import MODEL, is_problem, unlabelled

JSON = {"content-type": "application/json"}


@pytest.fixture
def session(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec()))
    return session


@pytest.fixture
def http(tmp_path):
    limits = Limits(body=400_000, rows=2_000, columns=50, values=20_000)
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")), limits=limits)) as client:
        client.put(MODEL, json=SPEC)
        client.post(f"{MODEL}/learn", json={"rows": records(60)})
        yield client


# -- writer -----------------------------------------------------------------------------------------


def test_cancelled_request_is_skipped_and_running_one_cannot_be_cancelled(session):
    gone, stays = Learn("m", batch(records(10))), Learn("m", batch(records(10, first=50)))
    assert gone.future.cancel()
    session.writer.process([gone, stays])
    assert stays.future.result(0)["learned"] == 10
    assert not stays.future.cancel()
    assert session.model().n_rows == session.again().model().n_rows == 10


def test_failing_request_does_not_affect_others_of_its_group(session, monkeypatch):
    learn = session.writer.sessions["m"].engine.__class__.learn

    def learn_unless_poisoned(self, add, **more):
        if add.n_rows == 7:
            raise KeyError("a secret value")
        return learn(self, add, **more)

    monkeypatch.setattr(session.writer.sessions["m"].engine.__class__, "learn", learn_unless_poisoned)
    good, bad = Learn("m", batch(records(5))), Learn("m", batch(records(7, first=50)))
    last = Learn("m", batch(records(5, first=90)))
    session.writer.process([good, bad, last])
    assert good.future.result(0)["learned"] == last.future.result(0)["learned"] == 5
    with pytest.raises(Unavailable):
        bad.future.result(0)
    assert session.model().n_rows == session.again().model().n_rows == 10


def test_failed_recovery_is_retried(session, monkeypatch):
    session.do(Learn("m", batch(records(10))))
    with monkeypatch.context() as broken:
        broken.setattr(session.store, "append", _failing)
        broken.setattr(session.store, "models", _failing)
        with pytest.raises(Unavailable):
            session.do(Learn("m", batch(records(10, first=50))))
    assert session.do(Learn("m", batch(records(10, first=50))))["version"] == 2
    assert session.model().n_rows == session.again().model().n_rows == 20


def _failing(*_args):
    raise OSError("the disk is gone")


def test_failed_publish_still_acknowledges_request(session, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(session.writer, "_publish", _failing)
        assert session.do(Learn("m", batch(records(10))))["learned"] == 10
    session.do(Learn("m", batch(records(10, first=50))))
    assert session.model().n_rows == session.again().model().n_rows == 20


def test_failing_listener_does_not_block_response(session):
    session.writer.listeners.append(_failing)
    assert session.do(Learn("m", batch(records(10))))["learned"] == 10


def test_periodic_tick_runs_while_requests_are_queued(session, monkeypatch):
    monkeypatch.setattr(session.writer, "next_tick", 0.0)
    session.writer.submit(Learn("m", batch(records(10))))
    assert [type(request) for request in session.writer._next_group()] == [Tick]
    assert [type(request) for request in session.writer._next_group()] == [Learn]


def test_learning_many_rows_yields_to_predictions_only_while_model_is_serving(session, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    session.do(Learn("m", batch(records(300))))
    assert not pauses
    session.model().predict(batch([{"amount": 1.0, "country": "DE"}]))
    session.do(Learn("m", batch(records(10, first=500))))
    assert not pauses  # learning few rows does not yield
    session.do(Learn("m", batch(records(300, first=1000))))
    assert len(pauses) >= 4
    assert session.model().summary() == session.again().model().summary()


def _arrow(rows):
    table, sink = pa.Table.from_pylist(rows), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return {"content": sink.getvalue(), "headers": {"content-type": "application/vnd.apache.arrow.stream"}}


def test_large_arrow_bodies_are_parsed_in_thread_only_while_model_is_serving(http, monkeypatch):
    aside = []

    async def noting(work, *args, **more):
        aside.append(work)
        return work(*args, **more)

    monkeypatch.setattr(http_service, "_MAX_BYTES_ON_LOOP", 100)
    monkeypatch.setattr(http_service, "run_in_threadpool", noting)
    rows = records(20, first=500)
    assert http.post(f"{MODEL}/learn", **_arrow(rows[:10])).json()["learned"] == 10
    assert not aside
    monkeypatch.setattr(http_service, "_MAX_BYTES_ON_LOOP", 100_000)
    http.post(f"{MODEL}/predict", json={"rows": unlabelled(rows[:1])})
    monkeypatch.setattr(http_service, "_MAX_BYTES_ON_LOOP", 100)
    assert http.post(f"{MODEL}/learn", **_arrow(rows[10:])).json()["learned"] == 10
    assert len(aside) == 1
    bad = [{**row, "amount": "x"} for row in records(10, first=900)]
    is_problem(http.post(f"{MODEL}/learn", json={"rows": bad}), 422)
    assert len(aside) == 2


def test_closing_writer_processes_queued_and_refuses_new_requests(session):
    waits = session.writer.submit(Learn("m", batch(records(10))))
    session.writer.queue.close()
    with pytest.raises(Unavailable):
        session.writer.submit(Learn("m", batch(records(10, first=50))))
    session.writer._run()
    assert waits.future.result(0)["learned"] == 10
    assert session.again().model().n_rows == 10


def test_closing_follower_rejects_queued_requests(session):
    waits = session.writer.submit(Learn("m", batch(records(10))))
    session.writer.queue.close()
    session.writer.leads = session.writer.may_learn = False
    session.writer._run()
    with pytest.raises(Unavailable):
        waits.future.result(0)


def test_write_lock_on_a_locked_store_raises_until_the_lock_is_released(tmp_path):
    first, second = SQLiteStore(tmp_path / "store.db"), SQLiteStore(tmp_path / "store.db")
    first.acquire_write_lock()
    with pytest.raises(FileAccessError, match="another process"):
        second.acquire_write_lock()
    first.close()
    second.acquire_write_lock()
    second.close()


def test_error_log_contains_function_name_and_no_data_values(session, monkeypatch, caplog):
    def failing(*_args):
        raise ValueError("the row of customer c7")

    monkeypatch.setattr(session.store, "append", failing)
    with caplog.at_level(logging.ERROR, "steelyard.service"), pytest.raises(Unavailable):
        session.do(Learn("m", batch(records(10))))
    assert "ValueError in failing" in caplog.text
    assert "c7" not in caplog.text


# -- idempotency -------------------------------------------------------------------------------------------


def test_repeated_prediction_with_idempotency_key_returns_first_response(http):
    once = {"Idempotency-Key": "p1"}
    body = {"rows": unlabelled(records(3, seed=5)), "remember": True}
    first = http.post(f"{MODEL}/predict", json=body, headers=once).json()
    http.post(f"{MODEL}/learn", json={"rows": records(60, seed=9, first=200)})
    assert http.post(f"{MODEL}/predict", json=body, headers=once).json() == first
    table = http.post(f"{MODEL}/predict", json=body, headers={**once, "accept": "text/csv"}).text
    assert [float(line.split(",")[2]) for line in table.splitlines()[1:]] == first["scores"]
    assert http.get(MODEL).json()["waiting_for_labels"] == 3


def test_idempotency_key_with_another_query_string_conflicts(http):
    once = {"Idempotency-Key": "p2", "content-type": "application/x-ndjson"}
    row = b'{"amount": 1.0, "country": "DE", "customer": "c1"}'
    assert http.post(f"{MODEL}/predict?remember=true", content=row, headers=once).status_code == 200
    other = http.post(f"{MODEL}/predict?remember=1", content=row, headers=once)
    is_problem(other, 409)


# -- pending rows ---------------------------------------------------------------------------------


def test_remember_duplicate_ids_is_refused(http):
    row = {"amount": 1.0, "country": "DE", "customer": "c1", "row": "same"}
    is_problem(http.post(f"{MODEL}/predict", json={"rows": [row, row], "remember": True}), 422)
    assert http.get(MODEL).json()["waiting_for_labels"] == 0


def test_remembered_row_without_id_keeps_generated_id(http):
    row = {"amount": 1.0, "country": "DE", "customer": "c1", "row": None}
    ids = http.post(f"{MODEL}/predict", json={"rows": [row], "remember": True}).json()["ids"]
    assert http.post(f"{MODEL}/labels", json={"labels": {ids[0]: 1}}).json()["labelled"] == 1
    assert http.post(f"{MODEL}/forget", json={"ids": ids}).json()["forgotten"] == 1


def test_remember_refuses_invalid_time_and_fills_missing_time(http):
    path = "/v1/models/timed"
    http.put(path, json={"target": "y", "time": "at"})
    http.post(f"{path}/learn", json={"rows": [{"a": k, "at": 100 + k, "y": k % 2} for k in range(9)]})
    wrong = http.post(f"{path}/predict", json={"rows": [{"a": 1, "at": "soon"}], "remember": True})
    assert is_problem(wrong, 422)["column"] == "at"
    rows = [{"a": 1, "at": None}, {"a": 2, "at": 120}]
    ids = http.post(f"{path}/predict", json={"rows": rows, "remember": True}).json()["ids"]
    assert http.post(f"{path}/labels", json={"labels": dict.fromkeys(ids, 1)}).json()["labelled"] == 2


def test_predict_as_of_future_version_is_refused(http):
    rows = unlabelled(records(2))
    http.post(f"{MODEL}/forget", json={"ids": ["r1"]})
    http.post(f"{MODEL}/learn", json={"rows": records(9, first=300)})
    for as_of in (99, 10**30, "9" * 5000):
        answer = http.post(f"{MODEL}/predict", json={"rows": rows, "as_of": as_of})
        assert answer.status_code in {404, 422}
    answer = http.post(f"{MODEL}/predict", json={"rows": rows, "as_of": "2999-01-01"}).json()
    assert answer["version"] == http.get(MODEL).json()["version"]


# -- keys -------------------------------------------------------------------------------------------


def test_api_key_of_one_model_cannot_access_another_model(tmp_path):
    path = tmp_path / "keys.toml"
    everything = {"Authorization": f"Bearer {Keys.add(path, ['admin'])[1]}"}
    one = {"Authorization": f"Bearer {Keys.add(path, ['predict'], ['mine'])[1]}"}
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")), keys=Keys(path))) as http:
        for name in ("mine", "theirs"):
            http.put(f"/v1/models/{name}", json=SPEC, headers=everything)
            rows = {"rows": records(20)}
            assert http.post(f"/v1/models/{name}/learn", json=rows, headers=everything).status_code == 200
        assert [m["name"] for m in http.get("/v1/models", headers=one).json()["models"]] == ["mine"]
        assert len(http.get("/v1/models", headers=everything).json()["models"]) == 2
        is_problem(http.get("/metrics", headers=one), 403)
        assert "theirs" in http.get("/metrics", headers=everything).text
        for where in ("", "/measures", "/certificates", "/events", "/file"):
            is_problem(http.get(f"/v1/models/theirs{where}", headers=one), 403)
        is_problem(http.get("/v2/models/theirs", headers=one), 403)


def test_keys_add_keeps_owner_and_mode_of_file(tmp_path):
    path = tmp_path / "keys.toml"
    Keys.add(path, ["admin"])
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1235)
    before = path.stat()
    Keys.add(path, ["predict"])
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    Keys.revoke(path, Keys(path).all()[0].id)
    assert path.stat().st_uid == before.st_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_new_key_file_belongs_to_owner_of_folder(tmp_path):
    os.chown(tmp_path, 1234, 1235)
    Keys.add(tmp_path / "keys.toml", ["admin"])
    status = (tmp_path / "keys.toml").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 1235, 0o600)


def test_unreadable_key_file_gives_503_until_it_is_readable_again(tmp_path, caplog):
    path = tmp_path / "keys.toml"
    headers = {"Authorization": f"Bearer {Keys.add(path, ['admin'])[1]}"}
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")), keys=Keys(path))) as http:
        assert http.get("/v1/models", headers=headers).status_code == 200
        path.rename(tmp_path / "moved.toml")
        for _ in range(3):
            is_problem(http.get("/v1/models", headers=headers), 503)
        assert http.get("/health/ready").status_code == 503
        assert caplog.text.count("requests are refused") == 1
        (tmp_path / "moved.toml").rename(path)
        assert http.get("/health/ready").status_code == 200
        assert http.get("/v1/models", headers=headers).status_code == 200


# -- limits -----------------------------------------------------------------------------------------


def test_rows_with_many_different_columns_are_refused(http):
    is_problem(http.post(f"{MODEL}/learn", json={"rows": [{f"c{k}": 1} for k in range(1_000)]}), 413)
    wide = [{f"c{k % 45}": 1} for k in range(1_900)]
    assert "values" in is_problem(http.post(f"{MODEL}/learn", json={"rows": wide}), 413)["detail"]


def test_compressed_bodies_are_refused(http):
    packed = gzip.compress(b"amount,country,customer,row,fraud\n" + b"1,DE,c1,x,1\n" * 5)
    kinds = ("text/csv", "application/vnd.apache.arrow.stream")
    for kind in kinds:
        is_problem(http.post(f"{MODEL}/learn", content=packed, headers={"content-type": kind}), 422)
    long = b"amount,country,customer,row,fraud\n" + b"1,DE,c1,x,1\n" * 3_000
    is_problem(http.post(f"{MODEL}/learn", content=long, headers={"content-type": "text/csv"}), 413)


def test_slow_body_times_out(http, monkeypatch):
    def half_a_body():
        yield b'{"rows": ['
        time.sleep(0.6)
        yield b"]}"

    with monkeypatch.context() as limits:
        limits.setattr(http_service, "_MAX_BODY_SECONDS", 0.2)
        is_problem(http.post(f"{MODEL}/learn", content=half_a_body(), headers=JSON), 408)
    assert http.post(f"{MODEL}/learn", json={"rows": records(3, first=1_000)}).status_code == 200


def test_number_too_large_for_double_is_refused(http):
    body = '{"rows": [{"amount": %s, "country": "DE", "customer": "c1", "row": "x", "fraud": 1}]}' % (
        "9" * 400
    )
    is_problem(http.post(f"{MODEL}/learn", content=body.encode(), headers=JSON), 422)


# -- forgetting and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[{"amount": 1.0, "country": "DE"}], [{"fraud": 1}]])
def test_forget_rows_without_column_raises_and_keeps_state(tmp_path, rows):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(rows="none")))
    with pytest.raises(DataError, match="the model has only 0"):
        session.do(Forget("m", batch=wire.from_records(rows)))
    session.do(Learn("m", batch(records(20))))
    before = session.model().summary()["digest"]
    with pytest.raises(DataError, match="missing"):
        session.do(Forget("m", batch=wire.from_records(rows)))
    assert session.model().summary()["digest"] == before


def test_changing_rows_setting_from_none_to_window_raises(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(rows="none")))
    session.do(Learn("m", batch(records(20))))
    with pytest.raises(ParameterError, match="could not be found"):
        session.do(Put("m", spec(rows="window")))


def test_changing_rows_setting_to_none_deletes_stored_rows(session):
    session.do(Learn("m", batch(records(20))))
    session.do(Put("m", spec(rows="none")))
    assert session.store.chunks("m") == []
    session.do(Learn("m", batch(records(20, first=50))))
    assert session.again().model().summary() == session.model().summary()


@pytest.mark.parametrize("memory", ["drift", {"half_life": 50}])
def test_changing_a_window_to_another_forgetting_mechanism_raises(session, memory):
    with pytest.raises(ParameterError, match="memory cannot change"):
        session.do(Put("m", spec(memory=memory)))


def test_changed_C_reaches_learner_inside_exponential_decay(tmp_path):
    rows, changes = records(60), {"memory": {"half_life": 50}}
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(**changes)))
    session.do(Learn("m", batch(rows)))
    session.do(Put("m", spec(learner={"class": "ProximalSVC", "C": 0.01}, **changes)))
    expected = fresh(rows, learner={"class": "ProximalSVC", "C": 0.01}, **changes).published()
    probe = batch(unlabelled(records(5, seed=3)))
    assert session.model().predict(probe)[0].scores == pytest.approx(expected.predict(probe)[0].scores)
    assert session.again().model().predict(probe)[0].scores == pytest.approx(
        expected.predict(probe)[0].scores
    )


def test_smaller_window_expires_rows_at_once(tmp_path):
    session, rows = ModelSession(tmp_path / "store.db"), records(60)
    session.do(Put("m", spec(memory=50)))
    session.do(Learn("m", batch(rows)))
    session.do(Put("m", spec(memory=20)))
    assert session.model().n_rows == session.again().model().n_rows == 20
    assert session.model().summary()["classes"] == fresh(rows[-20:]).published().summary()["classes"]


def test_rows_older_than_time_window_are_not_counted(tmp_path):
    session = ModelSession(tmp_path / "store.db", Clock(10_000.0))
    session.do(Put("m", spec(time="at", memory="1h")))
    new = [{**row, "at": 9_000 + k} for k, row in enumerate(records(20))]
    late = [{**row, "at": 9_000 - 3_600 + k} for k, row in enumerate(records(20, seed=4, first=50))]
    session.do(Learn("m", batch(new)))
    session.do(Learn("m", batch(late)))
    assert session.model().n_rows == session.again().model().n_rows == 20
    assert session.model().summary()["digest"] == session.again().model().summary()["digest"]


ODD = [
    {"learner": 3},
    {"learner": "x"},
    {"learner": {"class": "ProximalSVC", "C": "much"}},
    {"learner": {"class": "ProximalSVC", "C": -1}},
    {"memory": None},
    {"memory": True},
    {"memory": []},
    {"memory": {"half_life": "x"}},
    {"missing": "guess"},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_spec_with_invalid_learner_raises(odd):
    with pytest.raises(ParameterError):
        spec(**odd)


def test_refused_request_with_missing_value_adds_no_feature():
    engine = Engine("m", Spec.from_mapping({"target": "y", "missing": "indicator"}))
    numbers = {"a": np.array([0.0, 1.0, 2.0, 3.0]), "y": np.array([0.0, 1.0, 0.0, 1.0])}
    engine.learn(ColumnBatch(numbers, 4), at=0.0)
    published = engine.published()
    with pytest.raises(DataError):
        engine.learn(ColumnBatch({"a": np.array([np.nan, 1e308]), "y": np.ones(2)}, 2), at=1.0)
    assert engine.encoder.feature_names == published.encoder.feature_names == ["a"]


def test_integer_labels_stay_integers_if_a_text_label_is_quarantined(tmp_path):
    session = ModelSession(tmp_path / "a.db")
    session.do(Put("m", spec(classes=[0, 1], violations="quarantine")))
    rows = records(20)
    rows[3]["fraud"] = "stolen"
    assert session.do(Learn("m", batch(rows)))["quarantined"] == 1
    assert session.model().learner.classes_.tolist() == [0, 1]


def test_label_can_be_corrected_to_a_listed_class_without_rows(tmp_path):
    session = ModelSession(tmp_path / "a.db")
    session.do(Put("m", spec(classes=[0, 1, 2])))
    session.do(Learn("m", batch(records(20))))
    assert session.do(Label("m", {"r3": 2}, correct=True))["corrected"] == 1
    assert session.model().summary()["classes"]["2"] == 1.0
    with pytest.raises(DataError, match="corrected to 0, 1, 2; got '7'"):
        session.do(Label("m", {"r3": "7"}, correct=True))
