"""Kill -9 of a real process under load: acknowledged rows are neither lost nor counted twice."""

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
def test_kill_9_under_load_loses_no_acknowledged_row(kind, request):
    # The stress test runs in a separate process, because it forks. `make torture-service` kills more often.
    command = [sys.executable, "-m", "tests.service.torture", "--kills", "3", "--seed", "5"]
    if kind == "postgresql":
        command += ["--store", request.getfixturevalue("cluster").empty()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("3 kills, ")


def test_sigterm_finishes_requests_writes_snapshot_and_exits_with_0(tmp_path):
    with Process(tmp_path / "store.db") as service:
        httpx.put(f"{service.url}/v1/models/m", json=SPEC, timeout=60)
        service.post("/v1/models/m/learn", json={"rows": records(20)})
        assert service.end(signal.SIGTERM) == 0
        assert "all acknowledged rows are saved" in service.log
    store = SQLiteStore(tmp_path / "store.db")
    assert store.snapshot("m", committed=False).version == 1
    store.close()
