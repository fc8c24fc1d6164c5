"""One process learns and others follow: equal models everywhere, and no loss when the leader dies."""

from __future__ import annotations

import httpx
import pytest

from steelyard.service import Spec, Writer, open_store
from steelyard.service.commands import Forget, Learn, Publish, Put
from steelyard.service.errors import Unavailable
from tests.federated.data import agreed_site, numbers
from tests.service.data import SPEC, Clock, records, spec
from tests.service.processes import Load, Process, until
from tests.service.sessions import ModelSession, batch


@pytest.fixture
def session(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    return session


@pytest.fixture
def follower(session):
    store = open_store(session.where)
    ModelSession.opened.append(store)
    writer = Writer(store, clock=Clock(), may_learn=False)
    writer.start()
    yield writer
    writer.close()


def level(session, follower):
    until(lambda: follower.published["m"].version == session.model().version)
    return follower.published["m"].summary() == session.model().summary()


def test_follower_equals_leader_after_every_kind_of_change(session, follower):
    session.do(Learn("m", batch(records(60))))
    assert level(session, follower)
    session.do(Learn("m", batch(records(30, first=60))))
    session.do(Put("m", spec(learner={"class": "ProximalSVC", "C": 0.1})))
    assert level(session, follower)
    session.do(Forget("m", subject="c3"))  # this deletes events, so the follower loads the snapshot
    session.do(Learn("m", batch(records(10, first=100))))
    assert level(session, follower)
    assert follower.published["m"].learner.C == 0.1


def test_follower_sees_new_models(session, follower):
    session.do(Put("another", spec()))
    session.do(Learn("another", batch(records(40))))
    until(lambda: "another" in follower.published and follower.published["another"].version == 1)
    assert follower.published["another"].summary() == session.model("another").summary()


def test_follower_replicates_federated_model(session, follower):
    session.do(Put("heart", Spec.from_mapping({"target": "ill", "sites": True})))
    for number, name in enumerate(("a", "b")):
        session.do(Publish("heart", agreed_site(name, numbers(60, number)).publish()))
    until(lambda: "heart" in follower.published and follower.published["heart"].version == 2)
    assert follower.published["heart"].summary() == session.model("heart").summary()


def test_idle_follower_logs_no_errors_and_does_not_reload_models(session, follower, caplog, monkeypatch):
    session.do(Learn("m", batch(records(60))))
    assert level(session, follower)
    n_loads = []
    monkeypatch.setattr("steelyard.service.model_owner.recover_session", lambda *_: n_loads.append(1))
    caplog.clear()
    n_polls, wait_for_changes = [], follower.store.wait_for_changes
    follower.store.wait_for_changes = lambda seconds: n_polls.append(1) or wait_for_changes(seconds)
    monkeypatch.setattr("steelyard.service.writer.POLL_SECONDS", 0.05)
    until(lambda: len(n_polls) > 3)
    assert not caplog.records
    assert not n_loads
    session.do(Learn("m", batch(records(5, first=60))))
    assert level(session, follower)
    assert not n_loads


def test_follower_logs_one_error_per_outage_and_continues_after_it(session, follower, caplog, monkeypatch):
    session.do(Learn("m", batch(records(60))))
    assert level(session, follower)
    n_failures, wait_for_changes = [], follower.store.wait_for_changes

    def failing(_seconds):
        n_failures.append(1)
        raise OSError("the database is not available")

    monkeypatch.setattr("steelyard.service.writer.POLL_SECONDS", 0.05)
    follower.store.wait_for_changes = failing
    until(lambda: len(n_failures) > 3)
    session.do(Learn("m", batch(records(5, first=60))))
    follower.store.wait_for_changes = wait_for_changes
    assert level(session, follower)
    levels = [record.levelname for record in caplog.records if "the leader" in record.message]
    assert levels == ["ERROR", "WARNING"]


def test_follower_refuses_changes_with_hint(session, follower):
    until(lambda: not follower.leads)
    with pytest.raises(Unavailable, match="another process learns"):
        follower.submit(Learn("m", batch(records(5))))
    assert follower.behind < 15


# -- real processes over PostgreSQL -----------------------------------------------------------------


def test_killed_learner_is_replaced_and_no_acknowledged_row_is_lost(cluster):
    url = cluster.empty()
    with Process(url) as learner, Process(url) as other, Process(url, "--role", "predictor") as predictor:
        assert learner.get("/health/learner").status_code == other.get("/health/learner").status_code == 200
        assert predictor.get("/health/learner").status_code == 503
        assert httpx.put(f"{learner.url}/v1/models/m", json=SPEC, timeout=60).status_code == 201
        load = Load(learner.url)
        until(lambda: len(load.acknowledged) > 100)
        learner.kill()
        load.stop()
        until(lambda: other.get("/v1/models/m").status_code == 200)
        found = other.get("/v1/models/m").json()
        n_known = len(load.acknowledged)
        assert n_known <= found["rows"] <= n_known + len(load.in_doubt)
        until(lambda: predictor.get("/v1/models/m").json()["digest"] == found["digest"])
        assert predictor.get("/health/ready").json() == {"ready": True, "role": "predictor"}
        gone = other.post("/v1/models/m/forget", json={"ids": load.acknowledged}).json()
        assert gone["forgotten"] == n_known, "the model contained every acknowledged row once"
        until(lambda: predictor.get("/v1/models/m").json()["version"] == gone["version"])
        assert predictor.get("/v1/models/m").json()["rows"] == found["rows"] - n_known


def test_learner_processes_divide_models_forward_requests_and_take_over(cluster):
    url = cluster.empty()
    names = ["a", "b", "c", "d"]
    with Process(url) as first:
        for name in names:
            assert httpx.put(f"{first.url}/v1/models/{name}", json=SPEC, timeout=60).status_code == 201
            assert first.post(f"/v1/models/{name}/learn", json={"rows": records(20)}).status_code == 200
        with Process(url) as second, open_store(url) as store:
            until(lambda: set(store.learners(names).n_leases.values()) == {2})
            until(lambda: len(store.learners(names).owners) == 4)
            for process in (first, second):  # every process answers requests for every model
                until(lambda p=process: [m["name"] for m in p.get("/v1/models").json()["models"]] == names)
                for name in names:
                    key = {"Idempotency-Key": f"{name}-{process.url}"}
                    rows = {"rows": records(5, first=100 if process is first else 200)}
                    for _ in range(2):
                        answer = process.post(f"/v1/models/{name}/learn", json=rows, headers=key)
                        assert answer.status_code == 200, answer.text
                        assert answer.json()["learned"] == 5
            assert [second.get(f"/v1/models/{name}").json()["rows"] for name in names] == [30] * 4
            bare = {"rows": [{"amount": 1.0, "country": "DE"}]}
            assert all(second.post(f"/v1/models/{name}/predict", json=bare).is_success for name in names)
            assert second.get("/v1/models/unknown").status_code == 404
            first.kill()
            until(lambda: list(store.learners(names).n_leases.values()) == [4])
            until(lambda: all(second.get(f"/v1/models/{name}").is_success for name in names))
            assert [second.get(f"/v1/models/{name}").json()["rows"] for name in names] == [30] * 4


def test_database_outage_keeps_predictions_and_learning_resumes(cluster):
    url = cluster.empty()
    with Process(url) as learner:
        httpx.put(f"{learner.url}/v1/models/m", json=SPEC, timeout=60)
        learner.post("/v1/models/m/learn", json={"rows": records(50)})
        rows = [{"amount": 1.0, "country": "DE"}]
        before = learner.post("/v1/models/m/predict", json={"rows": rows}).json()
        cluster.stop()
        try:
            assert learner.post("/v1/models/m/predict", json={"rows": rows}).json() == before
            refused = learner.post("/v1/models/m/learn", json={"rows": records(5, first=100)})
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/problem+json"
        finally:
            cluster.start()
        until(lambda: learner.get("/health/learner").status_code == 200)
        answer = learner.post("/v1/models/m/learn", json={"rows": records(5, first=100)})
        assert answer.json() == {"learned": 5, "version": 2}
        assert learner.get("/v1/models/m").json()["rows"] == 55


def test_terminated_database_session_cannot_write_after_takeover(cluster):
    import psycopg

    first = ModelSession(cluster.empty())
    first.do(Put("m", spec()))
    with psycopg.connect(first.where, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    second = ModelSession(first.where)
    second.do(Learn("m", batch(records(20))))
    with pytest.raises(Unavailable):
        first.do(Learn("m", batch(records(20, first=50))))
    with pytest.raises(Unavailable, match="could not be written"):
        first.do(Learn("m", batch(records(20, first=50))))
    assert second.again().model().n_rows == 20


def test_server_with_fsync_off_is_refused(cluster):
    import psycopg

    from steelyard.exceptions import FileAccessError

    url = cluster.empty()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET fsync = off")
        db.execute("SELECT pg_reload_conf()")
        try:
            with psycopg.connect(url) as other:
                until(lambda: other.execute("SHOW fsync").fetchone() == ("off",))
            with pytest.raises(FileAccessError, match="fsync=off"):
                open_store(url)
        finally:
            db.execute("ALTER SYSTEM RESET fsync")
            db.execute("SELECT pg_reload_conf()")
    until(lambda: _opens(url))


def _opens(url):
    from steelyard.exceptions import FileAccessError

    try:
        open_store(url).close()
    except FileAccessError:
        return False
    return True
