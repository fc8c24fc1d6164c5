"""Federated models over HTTP, and their recovery after a power loss."""

from __future__ import annotations

import gc
from contextlib import suppress

import apsw
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.federated import Hub, Service, Site
from steelyard.persistence import from_bytes
from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.commands import Drop, Publish, Put
from steelyard.service.http import Limits, make_app
from steelyard.service.http.keys import Keys
from tests.federated.data import OPEN, agreed_site, numbers, open_site, table
from tests.service.data import Clock
from tests.service.server import serving
from tests.service.test_simulation import Disk, DiskVFS, PowerLoss
from tests.service.test_wire import is_problem

SPEC = {"target": "ill", "sites": True}
MODEL = "/v1/models/heart"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "hub.db"


@pytest.fixture
def http(path):
    app = make_app(Writer(SQLiteStore(path)), limits=Limits(body=200_000, columns=50))
    with serving(app) as client:
        client.put(MODEL, json=SPEC)
        yield client


def put(http, site_update, **more):
    return http.put(f"{MODEL}/sites/{site_update.site}", content=site_update.to_bytes(), **more)


def test_site_updates_are_acknowledged_and_form_pooled_model(http):
    hub = Hub()
    for number, name in enumerate(("a", "b")):
        site_update = agreed_site(name, numbers(60, number)).publish()
        hub.receive(site_update)
        answer = put(http, site_update).json()
    assert answer == {
        "site": "b",
        "epoch": 1,
        "version": 1,
        "news": True,
        "rows": 60,
        "model_version": 2,
        "digest": hub.digest(),
    }
    about = http.get(MODEL).json()
    assert (about["rows"], about["digest"]) == (120, hub.digest())
    assert about["columns"] == {"age": "number", "pressure": "number"}
    probe = numbers(30, 9)
    rows = probe.drop(columns="ill").to_dict("records")
    scores = np.concatenate([a.scores[:, 1] for _, a in hub.model().predictions(probe.drop(columns="ill"))])
    answer = http.post(f"{MODEL}/predict", json={"rows": rows}).json()
    np.testing.assert_allclose(answer["scores"], scores, rtol=1e-12)
    model = from_bytes(http.get(f"{MODEL}/pooled").content)
    np.testing.assert_array_equal(model.estimator.coef_, hub.model().estimator.coef_)


def test_repeated_site_update_changes_nothing_and_older_one_is_refused(http):
    site = agreed_site("a", numbers(60, 0))
    first, second = site.publish(), site.publish()
    assert put(http, second).json()["news"]
    again = put(http, second).json()
    assert not again["news"]
    assert again["model_version"] == 1
    problem = is_problem(put(http, first), 409)
    assert (problem["reason"], problem["epoch"], problem["version"]) == ("stale", 1, 2)
    site.learn(numbers(10, 1))
    site.version -= 1
    problem = is_problem(put(http, site.publish()), 409)
    assert "another update as epoch 1, version 2" in problem["detail"]
    assert "reason" not in problem
    assert http.get(f"{MODEL}/sites/a").content == second.to_bytes()


def test_invalid_site_update_is_refused_and_changes_nothing(http):
    site_update = agreed_site("a", numbers(60, 0)).publish()
    put(http, site_update)
    before = http.get(f"{MODEL}/sites").json()
    damaged = bytearray(site_update.to_bytes())
    damaged[200] ^= 1
    is_problem(http.put(f"{MODEL}/sites/b", content=bytes(damaged)), 422)
    is_problem(http.put(f"{MODEL}/sites/b", content=b""), 422)
    assert (
        "sent as 'b'"
        in is_problem(http.put(f"{MODEL}/sites/b", content=site_update.to_bytes()), 422)["detail"]
    )
    other = open_site("b", numbers(50, 1).rename(columns={"age": "years"})).publish()
    assert "columns of site 'b'" in is_problem(put(http, other), 422)["detail"]
    wide = numbers(50, 1).assign(**{f"x{k}": 1.0 for k in range(60)})
    is_problem(put(http, open_site("b", wide).publish()), 413)
    is_problem(http.put(f"{MODEL}/sites/b", content=bytes(300_000)), 413)
    is_problem(put(http, site_update, headers={"content-type": "text/csv"}), 415)
    is_problem(http.put(f"{MODEL}/sites/{'n' * 201}", content=b"x"), 422)
    sick = Site("b", "sick", policy=OPEN)
    sick.learn(numbers(50, 1).rename(columns={"ill": "sick"}))
    assert "target of the site update is 'sick'" in is_problem(put(http, sick.publish()), 422)["detail"]
    assert http.get(f"{MODEL}/sites").json() == before


def test_federated_model_refuses_rows_and_other_models_refuse_site_updates(http):
    rows = {"rows": numbers(5, 0).to_dict("records")}
    for verb, body in (("learn", rows), ("forget", rows), ("forget", {"subject": "c1"})):
        assert "is federated" in is_problem(http.post(f"{MODEL}/{verb}", json=body), 409)["detail"]
    is_problem(http.post(f"{MODEL}/predict", json={**rows, "remember": True}), 422)
    site_update = agreed_site("a", numbers(60, 0)).publish()
    put(http, site_update)
    is_problem(http.post(f"{MODEL}/predict", json={**rows, "remember": True}), 409)
    is_problem(http.post(f"{MODEL}/predict", json={**rows, "as_of": 0}), 410)
    http.put("/v1/models/plain", json={"target": "ill"})
    for answer in (
        http.put("/v1/models/plain/sites/a", content=site_update.to_bytes()),
        http.get("/v1/models/plain/sites"),
        http.delete("/v1/models/plain/sites/a"),
    ):
        assert "is not federated" in is_problem(answer, 409)["detail"]
    is_problem(http.put("/v1/models/none/sites/a", content=site_update.to_bytes()), 404)


@pytest.mark.parametrize(
    "odd",
    [
        {"learner": {"class": "KOIL"}},
        {"learner": {"class": "ProximalSVC", "C": "auto"}},
        {"learner": {"class": "ProximalSVC", "features": 30}},
        {"memory": 100},
        {"rows": "window"},
        {"subject": "customer"},
        {"columns": {"age": "number"}},
        {"sites": "yes"},
    ],
    ids=str,
)
def test_spec_of_federated_model_rejects_row_settings(http, odd):
    is_problem(http.put("/v1/models/odd", json={**SPEC, **odd}), 422)


def test_federated_model_with_changed_C_keeps_site_updates(http, path):
    for number, name in enumerate(("a", "b")):
        put(http, agreed_site(name, numbers(60, number)).publish())
    before = from_bytes(http.get(f"{MODEL}/pooled").content)
    spec = {**SPEC, "learner": {"class": "ProximalSVC", "C": 0.01}}
    assert http.put(MODEL, json=spec).status_code == 200
    after = from_bytes(http.get(f"{MODEL}/pooled").content)
    assert after.estimator.C == 0.01
    assert after.estimator.digest() == before.estimator.digest()
    assert not np.array_equal(after.estimator.coef_, before.estimator.coef_)
    is_problem(http.put(MODEL, json={"target": "ill"}), 422)
    again = Writer(SQLiteStore(path)).published["heart"]
    assert again.learner.C == 0.01
    assert again.version == 3


# -- keys -----------------------------------------------------------------------------------------------


def test_api_key_of_site_is_refused_for_other_sites(tmp_path, path):
    file = tmp_path / "keys.toml"
    tokens = {
        "north": Keys.add(file, ["site"], ["heart"], sites=["north"])[1],
        "hub": Keys.add(file, ["admin"])[1],
        "reader": Keys.add(file, ["predict", "learn"])[1],
    }
    with serving(make_app(Writer(SQLiteStore(path)), keys=Keys(file))) as http:
        as_ = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}
        http.put(MODEL, json=SPEC, headers=as_["hub"])
        north, south = (agreed_site(name, numbers(60, 0)).publish() for name in ("north", "south"))
        is_problem(put(http, north), 401)
        is_problem(put(http, north, headers=as_["reader"]), 403)
        assert put(http, north, headers=as_["north"]).status_code == 200
        is_problem(put(http, south, headers=as_["north"]), 403)
        assert put(http, south, headers=as_["hub"]).status_code == 200
        for address, source in (("sites", "hub"), ("sites/north", "north"), ("pooled", "north")):
            assert http.get(f"{MODEL}/{address}", headers=as_[source]).status_code == 200, address
        for address in ("sites", "sites/south"):
            is_problem(http.get(f"{MODEL}/{address}", headers=as_["north"]), 403)
        is_problem(http.delete(f"{MODEL}/sites/south", headers=as_["north"]), 403)
        with Service(f"{http.base_url}{MODEL}", key=tokens["north"]) as own:
            own.drop("north")
        assert [row["site"] for row in http.get(f"{MODEL}/sites", headers=as_["hub"]).json()["sites"]] == [
            "south"
        ]


# -- leaving --------------------------------------------------------------------------------------------


def test_dropped_site_is_erased_from_model_and_store(http, path):
    others = [open_site(name, table(60, seed)).publish() for name, seed in (("a", 0), ("c", 2))]
    secret = "Atlantis-of-b"
    leaving = open_site("b", table(50, 1, (secret,))).publish()
    put(http, others[0])
    put(http, others[1])
    never = http.get(f"{MODEL}/sites").json()["digest"]
    put(http, leaving)
    written = leaving.to_bytes()
    needles = [
        written[30:90],
        written[-200:-100],
    ]  # the schema names the category, and the statistics have a column for it
    assert all(needle in file_bytes(path) for needle in needles), "control: the file contains the names"
    answer = http.delete(f"{MODEL}/sites/b", headers={"idempotency-key": "k"}).json()
    assert answer["certificate"]["after"]["digest"] == http.get(MODEL).json()["digest"]
    assert answer["certificate"]["forgotten"] == 50
    assert http.get(f"{MODEL}/sites").json()["digest"] == never
    assert not any(needle in file_bytes(path) for needle in needles)
    assert secret not in http.get(f"{MODEL}/pooled").text
    assert http.delete(f"{MODEL}/sites/b", headers={"idempotency-key": "k"}).json() == answer
    is_problem(http.delete(f"{MODEL}/sites/b"), 404)
    problem = is_problem(put(http, leaving), 409)
    assert "left with epoch 1" in problem["detail"]
    again = Writer(SQLiteStore(path)).published["heart"]
    assert again.hub.digest() == never
    assert again.hub.gone == {"b": leaving.age}


def file_bytes(path):
    return b"".join(part.read_bytes() for part in path.parent.glob(path.name + "*"))


def test_pooled_model_is_not_found_after_last_site_left(http):
    put(http, agreed_site("a", numbers(60, 0)).publish())
    http.delete(f"{MODEL}/sites/a")
    about = http.get(MODEL).json()
    assert (about["rows"], about["classes"]) == (0, {})
    is_problem(http.get(f"{MODEL}/pooled"), 404)
    is_problem(http.post(f"{MODEL}/predict", json={"rows": [{"age": 1.0, "pressure": 2.0}]}), 422)


# -- power loss -------------------------------------------------------------------------------------------


def requests(history):
    """Return requests that publish and drop sites, with increasing epochs and versions."""
    for number, (kind, name, n) in enumerate(history):
        if kind == "publish":
            site = agreed_site(name, numbers(n + 5, number), epoch=number + 1)
            yield Publish("heart", site.publish())
        else:
            yield Drop("heart", name)


def facts_of(writer):
    hub = writer.published["heart"].hub
    return (
        hub.digest() if hub.sites else None,
        tuple(sorted(hub.gone.items())),
        writer.published["heart"].version,
    )


def carried_out(writer, history):
    """Process requests; return the state after each request and the number of acknowledged requests."""
    found, done = [], 0
    for request in [Put("heart", Spec.from_mapping(SPEC)), *requests(history)]:
        with suppress(Exception):
            writer.process([request])
        if not request.future.done():
            break
        refused = request.future.exception(0)
        if refused is not None and "there is no site" not in str(refused):
            break
        found.append(facts_of(writer))
        done += 1
    return found, done


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(
        st.tuples(
            st.sampled_from(["publish", "publish", "publish", "drop"]),
            st.sampled_from("abc"),
            st.integers(1, 9),
        ),
        min_size=1,
        max_size=6,
    ),
    crash_at=st.integers(1, 40),
    seed=st.integers(0, 2**16),
)
def test_acknowledged_site_updates_survive_any_power_loss(history, crash_at, seed):
    expected, _ = carried_out(Writer(SQLiteStore(":memory:"), clock=Clock()), history)
    disk = Disk(crash_at, seed)
    crashed, n_done = DiskVFS(disk), 0
    with suppress(PowerLoss, apsw.Error, OSError):
        n_done = carried_out(Writer(SQLiteStore("store", vfs=crashed.name), clock=Clock()), history)[1]
    gc.collect()
    disk.heal()
    crashed.unregister()
    vfs = DiskVFS(disk)
    writer = Writer(SQLiteStore("store", vfs=vfs.name), clock=Clock())
    if n_done:
        assert facts_of(writer) in expected[n_done - 1 : n_done + 1]
    elif "heart" in writer.published:
        assert facts_of(writer) == expected[0]
    writer.store.close()  # before the simulated disk is removed
    vfs.unregister()
