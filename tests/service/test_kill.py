"""A real process, killed without warning while it works: nothing that it acknowledged is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys

import httpx
import pytest

from steelyard.service import SQLiteStore
from tests.service.data import SPEC, records
from tests.service.processes import Process


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(kind, request):
    # In a process of its own, because it forks; many more kills by `make torture-service`.
    command = [sys.executable, "-m", "tests.service.torture", "--kills", "3", "--seed", "5"]
    if kind == "postgresql":
        command += ["--store", request.getfixturevalue("cluster").empty()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("3 kills, ")


def test_who_is_asked_to_stop_finishes_writes_a_snapshot_and_ends_well(tmp_path):
    with Process(tmp_path / "store.db") as service:
        httpx.put(f"{service.url}/v1/models/m", json=SPEC)
        service.post("/v1/models/m/learn", json={"rows": records(20)})
        assert service.end(signal.SIGTERM) == 0
        assert "all acknowledged rows are saved" in service.log
    store = SQLiteStore(tmp_path / "store.db")
    assert store.last_snapshot("m").version == 1
    store.close()
