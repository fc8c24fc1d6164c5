"""What every way between sites and hub keeps: memory, a folder, a service."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest

from steelyard.exceptions import DataError, FileAccessError, FileFormatError, ParameterError
from steelyard.federated import Folder, Hub, Memory, Service, collect
from tests.federated.data import agreed_site, numbers, open_site, table
from tests.service.server import serving

starlette = pytest.importorskip("starlette", reason="a service needs the extra 'service'")

SPEC = {"target": "ill", "sites": True}


@pytest.fixture(params=["memory", "folder", "service"])
def exchange(request, tmp_path):
    """Each of them, empty."""
    if request.param == "memory":
        yield Memory()
    elif request.param == "folder":
        yield Folder(tmp_path / "shared")
    else:
        with hub_service(tmp_path / "hub.db") as service:
            yield service


@contextmanager
def hub_service(path):
    from steelyard.service import SQLiteStore, Writer
    from steelyard.service.http import make_app

    with serving(make_app(Writer(SQLiteStore(path)))) as http:
        http.put("/v1/models/heart", json=SPEC)
        with Service(f"{http.base_url}/v1/models/heart") as service:
            yield service


def collected(exchange):
    hub = Hub()
    collect(exchange, hub)
    return hub


def test_the_last_word_of_every_site_arrives_whole(exchange):
    north, south = agreed_site("north", numbers(60, 0)), agreed_site("south/1 ä?", numbers(40, 1))
    first = north.publish()
    assert exchange.put(first)
    assert exchange.put(south.publish())
    north.learn(numbers(30, 2))
    second = north.publish()
    assert exchange.put(second)
    assert exchange.sites() == ["north", "south/1 ä?"]
    found = exchange.find("north")
    assert (found.age, found.schema, found.to_bytes()) == (second.age, second.schema, second.to_bytes())
    assert exchange.find("west") is None
    hub = Hub()
    assert collect(exchange, hub) == 2
    assert collect(exchange, hub) == 0, "nothing is new"
    assert hub.statistics.n_rows == 130


def test_twice_and_late_change_nothing(exchange):
    site = agreed_site("a", numbers(60, 0))
    first = site.publish()
    site.learn(numbers(20, 1))
    second = site.publish()
    assert exchange.put(second)
    assert not exchange.put(second), "twice"
    assert not exchange.put(first), "late"
    assert collected(exchange).statistics.n_rows == 80


def test_a_new_life_of_a_site_replaces_the_old_one(exchange):
    old = agreed_site("a", numbers(60, 0), epoch=1)
    for _ in range(3):
        assert exchange.put(old.publish())
    assert exchange.put(agreed_site("a", numbers(10, 5), epoch=2).publish())
    assert collected(exchange).statistics.n_rows == 10


def test_a_site_that_left_leaves_no_trace_in_the_sum_and_late_copies_do_not_bring_it_back(exchange):
    site = open_site("b", table(50, 1, ("NZ",)))
    last = site.publish()
    for name, seed in (("a", 0), ("c", 2)):
        exchange.put(open_site(name, table(60, seed)).publish())
    following = collected(exchange)
    never = following.digest()
    exchange.put(last)
    collect(exchange, following)
    assert following.digest() != never
    exchange.drop("b")
    assert not exchange.put(last), "a late copy"
    assert exchange.find("b") is None
    assert exchange.sites() == ["a", "c"]
    assert exchange.gone() == {"b": last.age}
    assert collect(exchange, following) == 1, "a hub that follows hears of it"
    assert following.digest() == never
    assert collected(exchange).digest() == never
    assert not following.receive(last)
    assert exchange.put(site.publish()), "a newer bulletin may come back"
    assert exchange.gone() == {}
    with pytest.raises(DataError, match="there is no"):
        exchange.drop("west")


# -- a folder ---------------------------------------------------------------------------------------


def test_a_folder_keeps_one_bulletin_a_site_and_refuses_one_that_lies(tmp_path):
    folder = Folder(tmp_path)
    site = open_site("north", table(50, 0))
    folder.put(site.publish())
    folder.put(site.publish())
    (only,) = folder.path.iterdir()
    other = only.with_name(only.name.replace("north", "south"))
    other.write_bytes(only.read_bytes())
    with pytest.raises(FileFormatError, match="do not agree"):
        folder.find("south")
    other.write_bytes(only.read_bytes()[:-20])
    folder.put(open_site("west", table(40, 3)).publish())
    hub = Hub()
    with pytest.raises(FileFormatError, match="south"):
        collect(folder, hub)
    assert hub.sites == ["north", "west"], "what is damaged keeps no other out"


def test_a_folder_that_changes_while_it_is_read_gives_whole_bulletins(tmp_path):
    folder, site = Folder(tmp_path), agreed_site("a", numbers(30, 0))
    folder.put(site.publish())
    done = threading.Event()

    def publish():
        for _ in range(60):
            folder.put(site.publish())
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    versions = []
    while not done.is_set():
        versions.append(folder.find("a").version)
    thread.join()
    assert versions == sorted(versions)
    assert versions


def test_a_folder_that_cannot_be_used_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileAccessError, match="cannot be made"):
        Folder(tmp_path / "file" / "shared").write("x", b"")
    with pytest.raises(FileAccessError, match="cannot be read"):
        Folder(tmp_path / "file" / "shared").sites()
    assert Folder(tmp_path / "nobody").sites() == []
    assert not (tmp_path / "nobody").exists()  # to look is not to make
    with pytest.raises(DataError, match="no room"):
        Folder(tmp_path).put(open_site("x" * 201, table(20, 0)).publish())


# -- a service --------------------------------------------------------------------------------------


def test_the_service_gives_the_pooled_model_and_the_table(tmp_path):
    frames = {"a": numbers(80, 0), "b": numbers(60, 1)}
    hub = Hub()
    with hub_service(tmp_path / "hub.db") as service:
        for name, frame in frames.items():
            site_update = agreed_site(name, frame).publish()
            service.put(site_update)
            hub.receive(site_update)
        table_there, model = service.table(), service.model()
    assert table_there["digest"] == hub.digest()
    assert [row["site"] for row in table_there["sites"]] == ["a", "b"]
    for row, standing in zip(table_there["sites"], hub.compare(), strict=True):
        assert row["auc"] == standing.auc
        assert row["squared_error"] == standing.squared_error
    np.testing.assert_array_equal(model.estimator.coef_, hub.model().estimator.coef_)


def test_an_address_that_is_none_and_a_service_that_is_away_are_told():
    for address in ("ftp://hub/heart", "http://hub:8471v1/models/heart"):
        with pytest.raises(ParameterError, match="begins with http"):
            Service(address)
    with (
        Service("http://127.0.0.1:9/v1/models/heart", timeout=0.2) as away,
        pytest.raises(FileAccessError, match="no answer came"),
    ):
        away.find("a")
    assert "secret" not in repr(Service("http://127.0.0.1:9/v1/models/heart", key="sy_secret"))
