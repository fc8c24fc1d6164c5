"""A real process, killed without warning while it learns: nothing that it acknowledged is lost or doubled."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest

from tests.service.data import SPEC, records

ROUNDS = int(os.environ.get("STEELYARD_KILLS", "2"))  # many more by `make torture`


class Process:
    """`steelyard serve` on a free port."""

    def __init__(self, store):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "steelyard", "serve", "--store", str(store), "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        self.url = found.group(0)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()


def _send(url, rows, acknowledged, stop):
    """Rows one by one; ids of those that were acknowledged are noted, a lost answer ends it."""
    with httpx.Client(base_url=url, timeout=10) as http:
        for row in rows:
            if stop.is_set():
                return
            try:
                answer = http.post("/v1/models/m/learn", json={"rows": [row]})
            except httpx.TransportError:
                return
            assert answer.status_code == 200, answer.text
            acknowledged.append(row["row"])


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path, round_):
    store = tmp_path / "store.db"
    process = Process(store)
    with httpx.Client(base_url=process.url, timeout=10) as http:
        assert http.put("/v1/models/m", json=SPEC).status_code == 201
    acknowledged, stop = [], threading.Event()
    threads = [
        threading.Thread(
            target=_send,
            args=(process.url, records(2000, seed=k, first=10_000 * k), acknowledged, stop),
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3 + 0.23 * round_)
    process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    process = Process(store)
    try:
        with httpx.Client(base_url=process.url, timeout=30) as http:
            n_rows = http.get("/v1/models/m").json()["rows"]
            assert len(acknowledged) <= n_rows <= len(acknowledged) + len(threads)
            gone = http.post("/v1/models/m/forget", json={"ids": acknowledged}).json()
            assert gone["forgotten"] == len(acknowledged)
    finally:
        process.kill()
