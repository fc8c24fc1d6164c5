"""What a client, a neighbour or a bad moment may do without a promise being broken."""

from __future__ import annotations

import gzip
import logging
import time

import pytest

from steelyard.exceptions import DataError, FileAccessError, ParameterError
from steelyard.service import SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Learn, Put, Tick, Unavailable
from steelyard.service.http import Limits, app, bodies, make_app
from steelyard.service.http.keys import Keys
from tests.service.data import SPEC, Clock, records, spec
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch
from tests.service.test_guarantees import fresh
from tests.service.test_wire import MODEL, is_problem, unlabelled


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


# -- the writer goes on -----------------------------------------------------------------------------


def test_who_gives_up_before_it_began_is_left_out_and_nobody_can_afterwards(session):
    gone, stays = Learn("m", batch(records(10))), Learn("m", batch(records(10, first=50)))
    assert gone.future.cancel()
    session.writer.process([gone, stays])
    assert stays.future.result(0)["learned"] == 10
    assert not stays.future.cancel()
    assert session.model().n_rows == session.again().model().n_rows == 10


def test_a_request_that_breaks_something_does_not_harm_its_neighbours(session, monkeypatch):
    learn = session.writer._sessions["m"].engine.__class__.learn

    def learn_unless_poisoned(self, add, **more):
        if add.n_rows == 7:
            raise KeyError("a secret value")
        return learn(self, add, **more)

    monkeypatch.setattr(session.writer._sessions["m"].engine.__class__, "learn", learn_unless_poisoned)
    good, bad = Learn("m", batch(records(5))), Learn("m", batch(records(7, first=50)))
    last = Learn("m", batch(records(5, first=90)))
    session.writer.process([good, bad, last])
    assert good.future.result(0)["learned"] == last.future.result(0)["learned"] == 5
    with pytest.raises(Unavailable):
        bad.future.result(0)
    assert session.model().n_rows == session.again().model().n_rows == 10


def test_a_recovery_that_fails_is_tried_again_and_the_writer_lives(session, monkeypatch):
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


def test_what_cannot_be_published_is_acknowledged_all_the_same(session, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(session.writer, "_publish", _failing)
        assert session.do(Learn("m", batch(records(10))))["learned"] == 10
    session.do(Learn("m", batch(records(10, first=50))))
    assert session.model().n_rows == session.again().model().n_rows == 20


def test_a_listener_that_fails_keeps_no_answer_back(session):
    session.writer.listeners.append(_failing)
    assert session.do(Learn("m", batch(records(10))))["learned"] == 10


def test_time_passes_also_while_requests_keep_coming(session, monkeypatch):
    monkeypatch.setattr(session.writer, "_next_tick", 0.0)
    session.writer.submit(Learn("m", batch(records(10))))
    assert [type(request) for request in session.writer._next_group()] == [Tick]
    assert [type(request) for request in session.writer._next_group()] == [Learn]


def test_learning_many_rows_pauses_between_its_steps_only_while_the_model_is_asked(session, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    session.do(Learn("m", batch(records(300))))
    assert not pauses
    session.model().ask(batch([{"amount": 1.0, "country": "DE"}]))
    session.do(Learn("m", batch(records(10, first=500))))
    assert not pauses  # few rows are soon learned
    session.do(Learn("m", batch(records(300, first=1000))))
    assert len(pauses) >= 4
    assert session.model().facts() == session.again().model().facts()


def test_large_bodies_are_read_aside_only_while_the_model_is_asked(http, monkeypatch):
    aside = []

    async def noting(work, *args, **more):
        aside.append(work)
        return work(*args, **more)

    monkeypatch.setattr(app, "_SOON_READ_WHILE_ASKED", 100)
    monkeypatch.setattr(app, "run_in_threadpool", noting)
    rows = records(20, first=500)
    assert http.post(f"{MODEL}/learn", json={"rows": rows[:10]}).json()["learned"] == 10
    assert not aside
    http.post(f"{MODEL}/predict", json={"rows": unlabelled(rows[:1])})
    assert http.post(f"{MODEL}/learn", json={"rows": rows[10:]}).json()["learned"] == 10
    assert aside == [wire.from_body]
    bad = [{**row, "amount": "x"} for row in records(10, first=900)]
    is_problem(http.post(f"{MODEL}/learn", json={"rows": bad}), 422)
    assert len(aside) == 2


def test_who_waits_when_the_writer_stops_is_carried_out_and_who_comes_later_is_sent_away(session):
    waits = session.writer.submit(Learn("m", batch(records(10))))
    session.writer._line.close()
    with pytest.raises(Unavailable):
        session.writer.submit(Learn("m", batch(records(10, first=50))))
    session.writer._run()
    assert waits.future.result(0)["learned"] == 10
    assert session.again().model().n_rows == 10


def test_who_waits_when_a_follower_stops_is_sent_away(session):
    waits = session.writer.submit(Learn("m", batch(records(10))))
    session.writer._line.close()
    session.writer._leads = session.writer.may_learn = False
    session.writer._run()
    with pytest.raises(Unavailable):
        waits.future.result(0)


def test_a_store_has_one_writer(tmp_path):
    first, second = SQLiteStore(tmp_path / "store.db"), SQLiteStore(tmp_path / "store.db")
    first.claim()
    with pytest.raises(FileAccessError, match="another process"):
        second.claim()
    first.close()
    second.claim()
    second.close()


def test_a_log_says_where_and_never_what(session, monkeypatch, caplog):
    def failing(*_args):
        raise ValueError("the row of customer c7")

    monkeypatch.setattr(session.store, "append", failing)
    with caplog.at_level(logging.ERROR, "steelyard.service"), pytest.raises(Unavailable):
        session.do(Learn("m", batch(records(10))))
    assert "ValueError in failing" in caplog.text
    assert "c7" not in caplog.text


# -- once -------------------------------------------------------------------------------------------


def test_a_prediction_with_a_key_gets_its_first_answer_again_in_every_form(http):
    once = {"Idempotency-Key": "p1"}
    body = {"rows": unlabelled(records(3, seed=5)), "remember": True}
    first = http.post(f"{MODEL}/predict", json=body, headers=once).json()
    http.post(f"{MODEL}/learn", json={"rows": records(60, seed=9, first=200)})
    assert http.post(f"{MODEL}/predict", json=body, headers=once).json() == first
    table = http.post(f"{MODEL}/predict", json=body, headers={**once, "accept": "text/csv"}).text
    assert [float(line.split(",")[2]) for line in table.splitlines()[1:]] == first["scores"]
    assert http.get(MODEL).json()["waiting_for_labels"] == 3


def test_a_key_with_another_query_is_another_request(http):
    once = {"Idempotency-Key": "p2", "content-type": "application/x-ndjson"}
    row = b'{"amount": 1.0, "country": "DE", "customer": "c1"}'
    assert http.post(f"{MODEL}/predict?remember=true", content=row, headers=once).status_code == 200
    other = http.post(f"{MODEL}/predict?remember=1", content=row, headers=once)
    is_problem(other, 409)


# -- rows that wait ---------------------------------------------------------------------------------


def test_remembered_rows_have_different_ids(http):
    row = {"amount": 1.0, "country": "DE", "customer": "c1", "row": "same"}
    is_problem(http.post(f"{MODEL}/predict", json={"rows": [row, row], "remember": True}), 422)
    assert http.get(MODEL).json()["waiting_for_labels"] == 0


def test_a_row_without_an_id_keeps_the_one_it_was_given(http):
    row = {"amount": 1.0, "country": "DE", "customer": "c1", "row": None}
    ids = http.post(f"{MODEL}/predict", json={"rows": [row], "remember": True}).json()["ids"]
    assert http.post(f"{MODEL}/labels", json={"labels": {ids[0]: 1}}).json()["labelled"] == 1
    assert http.post(f"{MODEL}/forget", json={"ids": ids}).json()["forgotten"] == 1


def test_a_remembered_row_has_a_time_with_which_it_can_be_learned(http):
    path = "/v1/models/timed"
    http.put(path, json={"target": "y", "time": "at"})
    http.post(f"{path}/learn", json={"rows": [{"a": k, "at": 100 + k, "y": k % 2} for k in range(9)]})
    wrong = http.post(f"{path}/predict", json={"rows": [{"a": 1, "at": "soon"}], "remember": True})
    assert is_problem(wrong, 422)["column"] == "at"
    rows = [{"a": 1, "at": None}, {"a": 2, "at": 120}]
    ids = http.post(f"{path}/predict", json={"rows": rows, "remember": True}).json()["ids"]
    assert http.post(f"{path}/labels", json={"labels": dict.fromkeys(ids, 1)}).json()["labelled"] == 2


def test_a_version_that_is_not_there_yet_has_no_answer(http):
    rows = unlabelled(records(2))
    http.post(f"{MODEL}/forget", json={"ids": ["r1"]})
    http.post(f"{MODEL}/learn", json={"rows": records(9, first=300)})
    for as_of in (99, 10**30, "9" * 5000):
        answer = http.post(f"{MODEL}/predict", json={"rows": rows, "as_of": as_of})
        assert answer.status_code in {404, 422}
    answer = http.post(f"{MODEL}/predict", json={"rows": rows, "as_of": "2999-01-01"}).json()
    assert answer["version"] == http.get(MODEL).json()["version"]


# -- keys -------------------------------------------------------------------------------------------


def test_a_key_for_one_model_sees_nothing_of_another(tmp_path):
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


# -- limits -----------------------------------------------------------------------------------------


def test_many_rows_that_all_have_columns_of_their_own_take_no_memory(http):
    is_problem(http.post(f"{MODEL}/learn", json={"rows": [{f"c{k}": 1} for k in range(1_000)]}), 413)
    wide = [{f"c{k % 45}": 1} for k in range(1_900)]
    assert "values" in is_problem(http.post(f"{MODEL}/learn", json={"rows": wide}), 413)["detail"]


def test_what_is_packed_is_not_unpacked(http):
    packed = gzip.compress(b"amount,country,customer,row,fraud\n" + b"1,DE,c1,x,1\n" * 5)
    kinds = ("text/csv", "application/vnd.apache.arrow.stream")
    for kind in kinds:
        is_problem(http.post(f"{MODEL}/learn", content=packed, headers={"content-type": kind}), 422)
    long = b"amount,country,customer,row,fraud\n" + b"1,DE,c1,x,1\n" * 3_000
    is_problem(http.post(f"{MODEL}/learn", content=long, headers={"content-type": "text/csv"}), 413)


def test_a_body_that_does_not_come_is_given_up(http, monkeypatch):
    monkeypatch.setattr(bodies, "_SLOWEST", 0.2)

    def half_a_body():
        yield b'{"rows": ['
        time.sleep(0.6)
        yield b"]}"

    is_problem(http.post(f"{MODEL}/learn", content=half_a_body()), 408)
    assert http.post(f"{MODEL}/learn", json={"rows": records(3, first=1_000)}).status_code == 200


def test_a_number_beyond_all_doubles_is_refused(http):
    body = '{"rows": [{"amount": %s, "country": "DE", "customer": "c1", "row": "x", "fraud": 1}]}' % (
        "9" * 400
    )
    is_problem(http.post(f"{MODEL}/learn", content=body.encode()), 422)


# -- forgetting and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[{"amount": 1.0, "country": "DE"}], [{"fraud": 1}]])
def test_rows_that_lack_something_cannot_be_forgotten_and_harm_nobody(tmp_path, rows):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(rows="none")))
    with pytest.raises(DataError, match="0 count now"):
        session.do(Forget("m", batch=wire.from_records(rows)))
    session.do(Learn("m", batch(records(20))))
    before = session.model().facts()["digest"]
    with pytest.raises(DataError, match="missing"):
        session.do(Forget("m", batch=wire.from_records(rows)))
    assert session.model().facts()["digest"] == before


def test_rows_that_were_not_kept_cannot_be_kept_later(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(rows="none")))
    session.do(Learn("m", batch(records(20))))
    with pytest.raises(ParameterError, match="could not be found"):
        session.do(Put("m", spec(rows="window")))


def test_rows_that_are_not_to_be_kept_any_more_leave_the_store(session):
    session.do(Learn("m", batch(records(20))))
    session.do(Put("m", spec(rows="none")))
    assert session.store.chunks("m") == []
    session.do(Learn("m", batch(records(20, first=50))))
    assert session.again().model().facts() == session.model().facts()


@pytest.mark.parametrize("memory", ["drift", {"half_life": 50}])
def test_another_kind_of_memory_is_refused(session, memory):
    with pytest.raises(ParameterError, match="memory cannot change"):
        session.do(Put("m", spec(memory=memory)))


def test_a_changed_penalty_reaches_the_learner_inside_a_fading_memory(tmp_path):
    rows, changes = records(60), {"memory": {"half_life": 50}}
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(**changes)))
    session.do(Learn("m", batch(rows)))
    session.do(Put("m", spec(learner={"class": "ProximalSVC", "C": 0.01}, **changes)))
    expected = fresh(rows, learner={"class": "ProximalSVC", "C": 0.01}, **changes).published()
    asked = batch(unlabelled(records(5, seed=3)))
    assert session.model().ask(asked)[0].scores == pytest.approx(expected.ask(asked)[0].scores)
    assert session.again().model().ask(asked)[0].scores == pytest.approx(expected.ask(asked)[0].scores)


def test_a_narrower_window_lets_go_at_once(tmp_path):
    session, rows = ModelSession(tmp_path / "store.db"), records(60)
    session.do(Put("m", spec(memory=50)))
    session.do(Learn("m", batch(rows)))
    session.do(Put("m", spec(memory=20)))
    assert session.model().n_rows == session.again().model().n_rows == 20
    assert session.model().facts()["classes"] == fresh(rows[-20:]).published().facts()["classes"]


def test_rows_that_come_too_late_for_a_window_of_time_do_not_count(tmp_path):
    session = ModelSession(tmp_path / "store.db", Clock(10_000.0))
    session.do(Put("m", spec(time="at", memory="1h")))
    new = [{**row, "at": 9_000 + k} for k, row in enumerate(records(20))]
    late = [{**row, "at": 9_000 - 3_600 + k} for k, row in enumerate(records(20, seed=4, first=50))]
    session.do(Learn("m", batch(new)))
    session.do(Learn("m", batch(late)))
    assert session.model().n_rows == session.again().model().n_rows == 20
    assert session.model().facts()["digest"] == session.again().model().facts()["digest"]


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
def test_a_spec_that_could_never_learn_is_refused_at_once(odd):
    with pytest.raises(ParameterError):
        spec(**odd)
