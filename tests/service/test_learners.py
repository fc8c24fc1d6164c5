"""Several writer threads and several processes that learn different models."""

from __future__ import annotations

import threading

import pytest

from steelyard.service import Writer, open_store
from steelyard.service.commands import Adopt, Delete, Forget, Learn, Put, Rename
from steelyard.service.errors import Conflict, NotFoundError, Unavailable
from steelyard.service.http import make_app
from steelyard.service.http.keys import Keys
from steelyard.service.queue import GroupTimes
from tests.service.data import Clock, records, spec
from tests.service.processes import until
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch


@pytest.fixture(autouse=True)
def high_limit_for_slow_models(monkeypatch):
    """Raise the limit for slow models, so that a busy machine does not make a model slow.

    Only models given to ``find_slow`` are then slow.
    """
    monkeypatch.setattr("steelyard.service.queue._SLOW_SECONDS", 10.0)


@pytest.fixture
def writer(store):
    writer = Writer(store, clock=Clock())
    writer.start()
    yield writer
    writer.close()


def do(writer, request):
    return writer.submit(request).future.result(120)


class Slow:
    """Replacement for the learn method of an engine that waits until the test lets it continue."""

    def __init__(self, engine):
        self.learn, self.started, self.go_on = engine.learn, threading.Event(), threading.Event()
        engine.learn = self

    def __call__(self, *args, **more):
        self.started.set()
        assert self.go_on.wait(120)
        return self.learn(*args, **more)


class FixedTimes(GroupTimes):
    """Replacement for GroupTimes in which the given models are slow."""

    def __init__(self, *slow):
        super().__init__()
        self.slow = set(slow)

    def is_slow(self, model, others, *, was_slow=False):
        return model in self.slow


def find_slow(writer, name, first=900):
    writer.group_times = FixedTimes(name)
    do(writer, Learn(name, batch(records(5, first=first))))


def hand_over(writer, name, first=900):
    """Make the writer classify the model as slow and move it to the second thread."""
    find_slow(writer, name, first)
    until(lambda: name in writer.slow_models)


def group_times(**seconds):
    times = GroupTimes()
    for name, of_groups in seconds.items():
        for each in of_groups:
            times.add(name, each)
    return times


def test_model_with_slow_groups_is_slow():
    names = ["m", "n", "wide"]
    assert group_times(wide=[90.0] * 5, m=[2.0] * 5, n=[3.0] * 5).is_slow("wide", names)
    assert not group_times(wide=[90.0] * 5, m=[2.0] * 5, n=[80.0] * 5).is_slow("wide", names)
    assert not group_times(wide=[90.0] * 5).is_slow("wide", names)


@pytest.mark.parametrize("pause", range(5))
def test_model_with_one_slow_group_is_not_slow(pause):
    seconds = [12.0] * 5
    seconds[pause] = 900.0  # the first request imports modules, or the machine was busy
    assert not group_times(a=seconds, b=[12.0] * 5).is_slow("a", ["a", "b"])
    assert not group_times(a=seconds[: pause + 1], b=[12.0] * 5).is_slow("a", ["a", "b"])


def test_slow_model_stays_slow_until_its_time_is_less_than_twice_that_of_others():
    times = group_times(a=[36.0] * 5, b=[12.0] * 5)
    assert not times.is_slow("a", ["a", "b"])
    assert times.is_slow("a", ["b"], was_slow=True)
    assert not group_times(a=[20.0] * 5, b=[12.0] * 5).is_slow("a", ["b"], was_slow=True)


def test_creation_of_other_models_does_not_make_a_model_slow():
    assert not group_times(a=[12.0] * 5, b=[0.001]).is_slow("a", ["a", "b"])
    assert not group_times(a=[12.0] * 5, b=[0.001, *[12.0] * 4]).is_slow("a", ["a", "b"])


def test_other_model_can_learn_while_slow_model_learns(writer, where):
    for name in ("wide", "m"):
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    do(writer, Learn("wide", batch(records(5, first=20))))
    slow = Slow(writer._slow_writer.sessions["wide"].engine)
    waits = writer.submit(Learn("wide", batch(records(5, first=30))))
    assert slow.started.wait(120)
    assert do(writer, Learn("m", batch(records(5, first=20))))["learned"] == 5
    assert writer.can_answer("wide", changes=True)
    assert not waits.future.done()
    slow.go_on.set()
    assert waits.future.result(120)["learned"] == 5
    do(writer, Forget("wide", ids=["r30"]))
    expected = {name: model.summary() for name, model in writer.published.items()}
    assert (expected["wide"]["rows"], expected["m"]["rows"]) == (34, 25)
    writer.close()
    writer.store.close()
    again = ModelSession(where)
    assert {name: model.summary() for name, model in again.writer.published.items()} == expected


def test_model_that_is_no_longer_slow_returns_to_first_thread(writer, where):
    for name in ("wide", "m"):
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    writer.group_times.slow.clear()
    do(writer, Learn("wide", batch(records(5, first=30))))
    until(lambda: "wide" in writer.sessions)
    assert not writer.slow_models
    assert do(writer, Learn("wide", batch(records(5, first=40))))["learned"] == 5
    expected = writer.published["wide"].summary()
    assert expected["rows"] == 35
    writer.close()
    writer.store.close()
    assert ModelSession(where).writer.published["wide"].summary() == expected


def test_failed_commit_of_slow_model_is_recovered_in_its_thread(writer, monkeypatch):
    for name in ("wide", "m"):
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    before = writer.published["wide"].summary()

    def failing(*_args):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(writer._slow_writer.store, "add_chunk", failing)
        with pytest.raises(Unavailable, match="disk full"):
            do(writer, Learn("wide", batch(records(5, first=30))))
        assert writer.problem == "disk full"
    assert writer.published["wide"].summary() == before
    assert do(writer, Learn("wide", batch(records(5, first=30))))["learned"] == 5
    assert writer.problem is None


@pytest.mark.parametrize("n_models", [2, 3])
def test_rename_and_delete_of_slow_model_keep_request_order(writer, where, n_models):
    for name in ("wide", "m", "n")[:n_models]:
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    with pytest.raises(Conflict, match="there is a model"):
        do(writer, Rename("m", "wide"))
    requests = [
        Learn("wide", batch(records(5, first=30))),
        Rename("wide", "broad"),
        Learn("wide", batch(records(5, first=40))),
        Learn("broad", batch(records(5, first=50))),
    ]
    for request in requests[:3]:
        writer.submit(request)
    assert requests[1].future.result(120)["name"] == "broad"
    do(writer, requests[3])
    assert isinstance(requests[2].future.exception(30), NotFoundError)
    assert writer.published["broad"].n_rows == 35
    assert "wide" not in writer.published
    hand_over(writer, "broad", first=950)
    do(writer, Delete("broad"))
    assert "broad" not in writer.published
    assert do(writer, Put("broad", spec()))["made"]
    do(writer, Learn("broad", batch(records(5))))
    expected = {name: model.summary() for name, model in writer.published.items()}
    assert expected["broad"]["rows"] == 5
    entries, _ = writer.audit.read(model="wide")
    assert [entry.verb for entry in reversed(entries)][-3:] == ["learn", "rename", "learn"]
    assert not any(entry.verb == "adopt" for entry in entries)
    writer.close()
    writer.store.close()
    again = ModelSession(where)
    assert {name: model.summary() for name, model in again.writer.published.items()} == expected


def n_commits(writer):
    """Return the number of measured commits."""
    samples = next(iter(writer.statistics.commit_seconds.collect())).samples
    return next(sample.value for sample in samples if sample.name.endswith("_count"))


def test_writer_statistics_include_slow_models(writer):
    for name in ("wide", "m"):
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    before = n_commits(writer)
    do(writer, Learn("wide", batch(records(5, first=30))))
    assert n_commits(writer) > before
    assert set(writer.waiting_labels()) == {"wide", "m"}


def test_rename_to_name_of_a_model_of_another_process_is_refused(cluster):
    url = cluster.empty()
    first = ModelSession(url)
    first.do(Put("m", spec()))
    with open_store(url) as store:
        assert store.acquire_write_lock()
        other = Writer(store, clock=Clock())
        request = Put("n", spec())
        other.process([request])
        assert request.future.result(0)["made"]
        request = Rename("n", "m")
        other.process([request])
        assert isinstance(request.future.exception(0), Conflict)
        first.do(Delete("m"))
        assert not first.store.holds_lease("m")
        request = Rename("n", "m")
        other.process([request])
        assert request.future.result(0)["name"] == "m"
        assert store.holds_lease("m")
        assert not store.holds_lease("n")


def test_requests_with_idempotency_keys_are_grouped_and_learned_once(where):
    session = ModelSession(where)
    session.do(Put("m", spec()))
    session.do(Learn("m", batch(records(20))))

    def learn(key, first, fingerprint=None):
        return Learn("m", batch(records(2, first=first)), key=key, fingerprint=fingerprint or key)

    group = [learn("a", 100), learn("b", 200), learn("c", 300)]
    session.writer.process(group)
    answers = [request.future.result(0) for request in group]
    assert {answer["version"] for answer in answers} == {2}
    group = [learn("a", 100), learn("d", 400), learn("b", 200, "other"), learn("e", 500)]
    session.writer.process(group)
    assert group[0].future.result(0) == answers[0]
    assert group[1].future.result(0)["learned"] == group[3].future.result(0)["learned"] == 2
    assert isinstance(group[2].future.exception(0), Conflict)
    group = [learn("f", 600), learn("f", 600), learn("g", 700)]  # "f" is repeated before its first response
    session.writer.process(group)
    assert group[0].future.result(0) == group[1].future.result(0)
    assert session.model().n_rows == 20 + 2 * 7
    assert session.again().model().summary() == session.model().summary()


def test_model_of_stopped_learner_process_is_taken_over_at_next_request(cluster):
    url = cluster.empty()
    first = ModelSession(url)
    first.do(Put("m", spec()))
    first.do(Learn("m", batch(records(20))))
    with open_store(url) as store:
        assert store.acquire_write_lock()
        other = Writer(store, clock=Clock())
        assert "m" not in other.published
        refused = Learn("m", batch(records(5, first=50)))
        other.process([refused])
        assert isinstance(refused.future.exception(0), Unavailable)
        assert store.find_learner("m") == (True, first.store.address)
        first.store.close()
        for request in (Learn("m", batch(records(5, first=50))), Put("m", spec())):
            other.process([request])
            assert request.future.result(0)["version"] == 2
        assert other.published["m"].n_rows == 25
        assert store.find_learner("unknown") == (False, None)


def test_learner_process_hands_over_models_to_process_with_fewer_models(cluster):
    url = cluster.empty()
    first = ModelSession(url)
    for name in ("a", "b", "c", "d"):
        first.do(Put(name, spec()))
    with open_store(url) as store:
        assert store.acquire_write_lock()
        other = Writer(store, clock=Clock())
        assert not other.published
        first.writer._rebalance()
        assert len(first.writer.published) == 2
        other._rebalance()
        assert {*first.writer.published, *other.published} == {"a", "b", "c", "d"}
        assert len(other.published) == 2
        first.writer._rebalance()
        assert set(first.writer.owners) == set(other.published)


def test_request_without_key_is_refused_before_it_is_forwarded(cluster, tmp_path):
    url, keys = cluster.empty(), Keys(_key_file(tmp_path))
    first = ModelSession(url)
    first.do(Put("m", spec()))
    with open_store(url) as store:
        store.acquire_write_lock()
        with serving(make_app(Writer(store, clock=Clock()), keys=keys)) as http:
            assert http.get("/v1/models/m").status_code == 401
            assert http.post("/v1/models/m/learn", json={"rows": records(1)}).status_code == 401


def _key_file(folder):
    Keys.add(folder / "keys.toml", ["admin"])
    return folder / "keys.toml"


def test_slow_model_leased_by_another_process_is_released(cluster):
    url = cluster.empty()
    with open_store(url) as store, open_store(url) as other:
        assert store.acquire_write_lock()
        assert other.acquire_write_lock()
        writer = Writer(store, clock=Clock())
        writer.start()
        for name in ("wide", "m"):
            do(writer, Put(name, spec()))
            do(writer, Learn(name, batch(records(20))))
        release = store.release_leases

        def release_and_lose(names):
            release(names)
            assert other.acquire_leases(names, 1) == names

        store.release_leases = release_and_lose
        find_slow(writer, "wide")
        until(lambda: "wide" not in writer.published)
        assert not writer.can_answer("wide", changes=True)
        assert do(writer, Learn("m", batch(records(5, first=50))))["learned"] == 5
        writer.close()


def test_model_handed_back_is_not_forwarded_to_the_second_thread_again(writer):
    for name in ("wide", "m"):
        do(writer, Put(name, spec()))
        do(writer, Learn(name, batch(records(20))))
    hand_over(writer, "wide")
    do(writer, Learn("wide", batch(records(5, first=30))))
    handed_back = Adopt("wide", writer._slow_writer.sessions["wide"])  # "wide" is still among the slow models
    assert writer._own_requests([handed_back]) == [handed_back]
