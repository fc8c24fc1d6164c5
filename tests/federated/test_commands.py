"""``steelyard site`` and ``steelyard hub`` with a folder, over HTTP and with masks; output on a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import steelyard
from steelyard.cli import main
from tests.federated.data import table
from tests.runner import cli_runner
from tests.service.server import serving
from tests.terminal import in_terminal

NAMES = ("north", "south", "east", "west")
PUBLISH = ("--target", "ill")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(NAMES):
        frame = table(120, number)
        frame["pressure"] = frame["pressure"].round(2)
        frame.to_csv(f"{name}.csv", index=False)
    return lambda *arguments: cli_runner().invoke(main, list(map(str, arguments)))


def done(result):
    assert result.exit_code == 0, result.stderr
    return result


def digest(result):
    return re.search(r"digest (\w+)", done(result).stderr)[1]


@pytest.fixture(params=["folder", "service"])
def place(request, tmp_path):
    if request.param == "folder":
        yield str(tmp_path / "shared")
        return
    pytest.importorskip("starlette", reason="a service needs the extra 'service'")
    from steelyard.service import SQLiteStore, Writer
    from steelyard.service.http import make_app

    with serving(make_app(Writer(SQLiteStore(tmp_path / "hub.db")))) as http:
        http.put("/v1/models/heart", json={"target": "ill", "sites": True})
        yield f"{http.base_url}/v1/models/heart"


def test_publish_collect_compare_and_drop_update_pooled_model(run, place):
    for name in NAMES[:2]:
        done(run("site", "publish", f"{name}.csv", *PUBLISH, "--name", name, "--to", place))
    two = digest(run("hub", "collect", place, "-o", "two.steelyard"))
    facts = json.loads(
        done(run("site", "publish", "east.csv", *PUBLISH, "--name", "east", "--to", place, "--json")).stdout
    )
    assert (facts["site"], facts["version"], facts["rows"]) == ("east", 1, 120)
    assert digest(run("hub", "collect", place, "-o", "three.steelyard")) != two
    assert steelyard.load("three.steelyard").estimator.statistics_.n_rows == 360
    rows = json.loads(done(run("hub", "compare", place, "--json")).stdout)
    assert [row["site"] for row in rows] == ["east", "north", "south"]
    assert done(run("hub", "compare", place)).stdout.splitlines()[0].split("\t")[:2] == ["site", "rows"]
    done(run("hub", "drop", place, "east"))
    assert digest(run("hub", "collect", place, "-o", "again.steelyard")) == two
    assert run("hub", "drop", place, "east").exit_code == 1
    done(run("site", "leave", "--name", "south", "--to", place))
    assert "1 sites, 120 rows" in done(run("hub", "collect", place, "-o", "one.steelyard")).stderr


def test_publish_small_change_or_small_classes_fails_with_reason(run, place):
    arguments = ("site", "publish", "north.csv", *PUBLISH, "--name", "north", "--to", place)
    done(run(*arguments))
    with Path("north.csv").open("a", encoding="utf-8") as file:
        file.write("50,DE,0.5,1\n")
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert "changed by fewer than 10 rows" in refused.stderr
    held = run("site", "publish", "south.csv", *PUBLISH, "--name", "s", "--to", place, "--min-rows", 500)
    assert "no class has enough rows yet" in held.stderr


def steelyard_process(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "steelyard", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


_FORKS = """
import json, os, sys
import steelyard.federated
from steelyard.cli import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        sys.stderr = open(f"said-{number}", "w")
        try:
            main(arguments, prog_name="steelyard")
        finally:
            sys.stderr.flush()
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in json.loads(sys.argv[1])))
"""


def at_once(commands):
    """Run commands in parallel forked processes that share imports; return the stderr of each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", _FORKS, json.dumps(commands)]
    ended = subprocess.run(arguments, timeout=600, env=environment, check=False)
    said = [Path(f"said-{number}").read_text() for number in range(len(commands))]
    assert ended.returncode == 0, said
    return said


def test_round_of_four_processes_equals_unmasked_sum_and_site_can_leave(run):
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")
    opening = ["hub", "open", "shared", "--round", "w7", "--target", "ill", "--label", 0, "--label", 1]
    opening += ["--number", "age", "--number", "pressure", "--category", "country=DE,FR", "--step", -30]
    done(run(*opening, *(part for name in NAMES for part in ("--site", name))))
    commands = [
        ["site", "publish", f"{name}.csv", "--name", name, "--to", "shared", "--round", "w7", "--wait", "300"]
        for name in NAMES
    ]
    said = at_once(commands)
    assert len({re.search(r"fingerprint (\w+)", errors)[1] for errors in said}) == 1
    masked = digest(run("hub", "collect", "shared", "--round", "w7", "-o", "masked.steelyard"))
    from steelyard.federated import Folder, Hub, ReleasePolicy, Round

    def open_digest(names):
        hub, config = Hub(), Round(Folder("shared"), "w7").config
        for name in names:
            site = config.site(name, ReleasePolicy())
            site.learn(f"{name}.csv")
            hub.receive(site.publish())
        return hub.digest()

    assert masked == open_digest(NAMES)
    assert Path("west.receipt").stat().st_mode & 0o077 == 0, "only the owner can read the receipt"
    done(run("site", "leave", "--name", "west", "--to", "shared", "--receipt", "west.receipt"))
    left = digest(run("hub", "collect", "shared", "--round", "w7", "-o", "left.steelyard"))
    assert left == open_digest(NAMES[:3])
    again = run("site", "publish", "west.csv", "--name", "west", "--to", "shared", "--round", "w7")
    assert again.exit_code == 1
    assert (
        run("site", "publish", "west.csv", "--name", "w", "--to", "http://hub/", "--round", "r").exit_code
        == 1
    )


def test_hub_serve_follows_folder_until_terminated(run, tmp_path):
    hub = steelyard_process("hub", "serve", "shared", "-o", "pooled.steelyard", "--every", 0.05)
    try:
        assert "following" in hub.stderr.readline()
        seen = []
        for name in NAMES[:2]:
            done(run("site", "publish", f"{name}.csv", *PUBLISH, "--name", name, "--to", "shared"))
            seen.append(next_digest(hub))
        (tmp_path / "shared" / "x.00000000000000000001.000000000001.bulletin").write_bytes(b"nothing")
        assert "left out" in hub.stderr.readline()
        done(run("hub", "drop", "shared", "south"))
        assert next_digest(hub) == seen[0]
        assert steelyard.load("pooled.steelyard").estimator.statistics_.n_rows == 120
    finally:
        hub.terminate()  # background jobs of some shells ignore SIGINT
        rest = hub.communicate(timeout=60)[1]
    assert hub.returncode == 0
    assert rest.endswith("stopped\n")


def next_digest(hub):
    for line in hub.stderr:
        if line.startswith("digest "):
            return line.split()[1].rstrip(";")
    raise AssertionError("the hub has stopped")


def test_hub_over_http_keeps_acknowledged_updates_after_kill(run):
    pytest.importorskip("starlette", reason="a service needs the extra 'service'")
    arguments = ("hub", "serve", "--store", "hub.db", "--model", "heart", "--target", "ill", "--port", 0)
    digests = []
    for name in NAMES[:2]:
        hub = steelyard_process(*arguments)
        try:
            address = next(re.search(r"http://\S+", line) for line in hub.stderr if "serving at" in line)[0]
            place = f"{address}v1/models/heart"
            deadline = time.monotonic() + 120
            while (
                said := run("site", "publish", f"{name}.csv", *PUBLISH, "--name", name, "--to", place)
            ).exit_code:
                assert time.monotonic() < deadline, said.stderr
            digests.append(digest(run("hub", "collect", place, "-o", "pooled.steelyard")))
        finally:
            hub.kill()
            hub.communicate(timeout=60)
    assert steelyard.load("pooled.steelyard").estimator.statistics_.n_rows == 240
    assert digests[0] != digests[1]


def test_output_of_compare_and_publish_fits_80_columns(run, tmp_path):
    for name in NAMES:
        done(run("site", "publish", f"{name}.csv", *PUBLISH, "--name", name, "--to", "shared"))
    compared, published = in_terminal(
        ["hub", "compare", "shared"],
        ["site", "publish", "west.csv", *PUBLISH, "--name", "w", "--to", "shared"],
        folder=tmp_path,
    )
    for ended in (compared, published):
        assert ended.exit_code == 0, ended.text
        assert ended.widest <= 80
    assert len(compared.text.strip().splitlines()) == 5
