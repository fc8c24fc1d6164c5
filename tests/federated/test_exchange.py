"""The Exchange protocol, tested with all implementations: memory, a folder, a service."""

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
    """Return an empty exchange of each kind."""
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


def test_collect_receives_latest_update_of_every_site(exchange):
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


def test_put_duplicate_or_late_update_returns_false(exchange):
    site = agreed_site("a", numbers(60, 0))
    first = site.publish()
    site.learn(numbers(20, 1))
    second = site.publish()
    assert exchange.put(second)
    assert not exchange.put(second), "twice"
    assert not exchange.put(first), "late"
    assert collected(exchange).statistics.n_rows == 80


def test_put_update_of_new_epoch_replaces_old_epoch(exchange):
    old = agreed_site("a", numbers(60, 0), epoch=1)
    for _ in range(3):
        assert exchange.put(old.publish())
    assert exchange.put(agreed_site("a", numbers(10, 5), epoch=2).publish())
    assert collected(exchange).statistics.n_rows == 10


def test_drop_removes_site_from_sum_and_rejects_late_copies(exchange):
    site = open_site("b", table(50, 1, ("NZ",)))
    last = site.publish()
    for name, seed in (("a", 0), ("c", 2)):
        exchange.put(open_site(name, table(60, seed)).publish())
    subscriber = collected(exchange)
    without_b = subscriber.digest()
    exchange.put(last)
    collect(exchange, subscriber)
    assert subscriber.digest() != without_b
    exchange.drop("b")
    assert not exchange.put(last), "a late copy"
    assert exchange.find("b") is None
    assert exchange.sites() == ["a", "c"]
    assert exchange.gone() == {"b": last.age}
    assert collect(exchange, subscriber) == 1, "the subscribed hub drops the site"
    assert subscriber.digest() == without_b
    assert collected(exchange).digest() == without_b
    assert not subscriber.receive(last)
    assert exchange.put(site.publish()), "a newer update is accepted"
    assert exchange.gone() == {}
    with pytest.raises(DataError, match="there is no"):
        exchange.drop("west")


# -- a folder ---------------------------------------------------------------------------------------


def test_folder_keeps_one_update_per_site_and_rejects_renamed_or_damaged_file(tmp_path):
    folder = Folder(tmp_path)
    site = open_site("north", table(50, 0))
    folder.put(site.publish())
    folder.put(site.publish())
    (only,) = folder.path.iterdir()
    other = only.with_name(only.name.replace("north", "south"))
    other.write_bytes(only.read_bytes())
    with pytest.raises(FileFormatError, match="does not match"):
        folder.find("south")
    other.write_bytes(only.read_bytes()[:-20])
    folder.put(open_site("west", table(40, 3)).publish())
    hub = Hub()
    with pytest.raises(FileFormatError, match="south"):
        collect(folder, hub)
    assert hub.sites == ["north", "west"], "damaged files do not block other sites"


def test_folder_find_while_files_change_returns_complete_updates(tmp_path):
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


def test_folder_without_access_rights_raises_file_access_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileAccessError, match="cannot be created"):
        Folder(tmp_path / "file" / "shared").write("x", b"")
    with pytest.raises(FileAccessError, match="cannot be read"):
        Folder(tmp_path / "file" / "shared").sites()
    assert Folder(tmp_path / "missing").sites() == []
    assert not (tmp_path / "missing").exists()  # reading does not create the folder
    with pytest.raises(DataError, match="too long"):
        Folder(tmp_path).put(open_site("x" * 201, table(20, 0)).publish())


# -- a service --------------------------------------------------------------------------------------


def test_service_model_and_table_equal_those_of_hub(tmp_path):
    frames = {"a": numbers(80, 0), "b": numbers(60, 1)}
    hub = Hub()
    with hub_service(tmp_path / "hub.db") as service:
        for name, frame in frames.items():
            site_update = agreed_site(name, frame).publish()
            service.put(site_update)
            hub.receive(site_update)
        remote_table, model = service.table(), service.model()
    assert remote_table["digest"] == hub.digest()
    assert [row["site"] for row in remote_table["sites"]] == ["a", "b"]
    for row, summary in zip(remote_table["sites"], hub.compare(), strict=True):
        assert row["auc"] == summary.auc
        assert row["squared_error"] == summary.squared_error
    np.testing.assert_array_equal(model.estimator.coef_, hub.model().estimator.coef_)


def test_service_with_invalid_url_or_no_server_raises():
    for address in ("ftp://hub/heart", "http://hub:8471v1/models/heart"):
        with pytest.raises(ParameterError, match="must begin with http"):
            Service(address)
    with (
        Service("http://127.0.0.1:9/v1/models/heart", timeout=0.2) as away,
        pytest.raises(FileAccessError, match="no response"),
    ):
        away.find("a")
    assert "secret" not in repr(Service("http://127.0.0.1:9/v1/models/heart", key="sy_secret"))
