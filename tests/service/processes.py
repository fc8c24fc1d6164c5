"""`steelyard serve` as a real process, and clients that put it under load."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time

import httpx

from tests.service.data import records


class Process:
    """`steelyard serve` on a free port."""

    def __init__(self, store, *more):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "steelyard", "serve", "--store", str(store), "--port", "0", *more],
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while not (found := re.search(r"https?://127\.0\.0\.1:\d+", said)):
            line = self.process.stderr.readline()
            said += line
            assert line, f"the service did not start: {said}"
        self.url, self.log = found.group(0), ""
        self._log = threading.Thread(target=self._read_log)
        self._log.start()

    def _read_log(self):
        """Read the log continuously, because a full pipe would block the service."""
        with self.process.stderr as log:
            self.log = log.read()

    def get(self, path):
        return httpx.get(self.url + path, timeout=120)

    def post(self, path, **more):
        return httpx.post(self.url + path, timeout=120, **more)

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, signal_number):
        """Send a signal and wait until the process has ended; return the exit code."""
        self.process.send_signal(signal_number)
        self.process.wait()
        self._log.join()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Load:
    """Clients that send single rows and record the ids of the acknowledged rows.

    A client stops when a response is lost, and adds the id of the unacknowledged row to ``in_doubt``.
    """

    def __init__(self, url, *, n_clients=4, first=0, n_rows=5_000):
        self.acknowledged, self.in_doubt = [], []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._send, args=(url, records(n_rows, seed=first + k, first=first + n_rows * k))
            )
            for k in range(n_clients)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, url, rows):
        with httpx.Client(base_url=url, timeout=10) as http:
            for row in rows:
                if self._stop.is_set():
                    return
                try:
                    answer = http.post("/v1/models/m/learn", json={"rows": [row]})
                except httpx.TransportError:
                    self.in_doubt.append(row["row"])
                    return
                if answer.status_code == 503:
                    self.in_doubt.append(row["row"])
                    return
                assert answer.status_code == 200, answer.text
                self.acknowledged.append(row["row"])

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def until(what, seconds=120.0):
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)
