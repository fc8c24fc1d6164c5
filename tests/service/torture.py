"""Repeated kill -9 under load: `python -m tests.service.torture --kills 300 --seed 1 [--store URL]`.

Clients learn, forget, predict and label. Each request has its own key. The clients keep a ledger, the record
of the rows that the model must contain. The process is killed at a random moment and restarted on the same
store, and requests without a response are repeated with their keys. Then the model must be bit-identical to a
model that learned exactly the rows of the ledger: no acknowledged request is lost, counted twice or applied
partially.

Further clients send large batches without keys to a second model, which learns them speculatively. A request
without a key cannot be repeated, so the second model must equal a model with or without the rows of such a
request.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
import uuid
from itertools import compress, product
from pathlib import Path

import httpx

from steelyard.brokers import consumer  # noqa: F401  loaded before the first fork
from steelyard.cli import main as steelyard_command
from steelyard.cli import serve as _serve_module  # noqa: F401
from steelyard.service import Engine, Spec
from steelyard.service import rows as wire
from steelyard.service.http import app, protocol  # noqa: F401
from steelyard.service.stores import postgres  # noqa: F401

SPEC = {
    "target": "kind",
    "id": "row",
    "subject": "customer",
    "columns": {"a": "number", "b": "number"},
}
BULK = {"target": "kind", "columns": {"a": "number", "b": "number"}}
BULK_ROWS = 250  # number of rows per request to the second model
WINDOW = 400  # number of rows that a client learns before it forgets some


class Forked:
    """`steelyard serve` in a forked child, which has all modules loaded, so that a start is fast."""

    def __init__(self, store: str) -> None:
        seen, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(seen)
            self._serve(store, said)
        os.close(said)
        self._lines = os.fdopen(seen)
        line = self._lines.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"the service did not start: {line}{self._lines.read()}"
        self.url = found.group(0)

    @staticmethod
    def _serve(store: str, said: int) -> None:
        code = 1
        try:
            sys.stderr = io.TextIOWrapper(os.fdopen(said, "wb"), line_buffering=True)
            steelyard_command(["serve", "--store", store, "--port", "0"], standalone_mode=False)
            code = 0
        finally:
            os._exit(code)  # the exit handlers of the parent must not run

    def kill(self) -> None:
        if self._lines.closed:
            return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._lines.close()


class Client:
    """Client that sends one request at a time and records the rows that the model must contain."""

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.rng, self.model = number, random.Random(f"{seed}-{number}"), "m"
        self.rows: dict[str, dict] = {}  # acknowledged rows by id (the ledger)
        self.waiting: dict[str, dict] = {}  # predicted rows without labels, by id
        # Request without a response: verb, key, body and its effect on the ledger.
        self.pending: tuple[str, str, dict, dict] | None = None
        self.n_made = self.n_answers = self.n_repeated = 0
        self.trouble = ""

    def _row(self) -> dict:
        self.n_made += 1
        kind = int(self.rng.random() < 0.2)
        return {
            "row": f"{self.number}-{self.n_made}",
            "customer": f"c{self.rng.randrange(50)}",
            "a": round(self.rng.gauss(kind, 1), 6),
            "b": round(self.rng.gauss(-kind, 2), 6),
            "kind": kind,
        }

    def _wish(self) -> tuple[str, dict, dict]:
        choice = self.rng.random()
        if self.waiting and choice < 0.2:
            done = self.rng.sample(sorted(self.waiting), min(2, len(self.waiting)))
            return "labels", {"labels": {i: self.waiting[i]["kind"] for i in done}}, {"labelled": done}
        if choice < 0.3:
            rows = [self._row() for _ in range(self.rng.randint(1, 3))]
            bare = [{k: v for k, v in row.items() if k != "kind"} for row in rows]
            return "predict", {"rows": bare, "remember": True}, {"remembered": rows}
        if len(self.rows) > WINDOW or (choice < 0.35 and len(self.rows) > 10):
            ids = self.rng.sample(sorted(self.rows), min(len(self.rows), self.rng.randint(1, 60)))
            return "forget", {"ids": ids}, {"forgotten": ids}
        rows = [self._row() for _ in range(self.rng.randint(1, 8))]
        return "learn", {"rows": rows}, {"learned": rows}

    def send(self, http: httpx.Client, *, again: bool = False) -> bool:
        """Send the next request, or repeat the unanswered request; return whether a response arrived."""
        if self.pending is None:
            verb, body, effect = self._wish()
            self.pending = (verb, uuid.uuid4().hex, body, effect)
        verb, key, body, effect = self.pending
        try:
            answer = http.post(f"/v1/models/{self.model}/{verb}", json=body, headers={"Idempotency-Key": key})
        except httpx.TransportError as error:
            self.trouble = f"{type(error).__name__} at {verb}"
            return False
        assert answer.status_code == 200, f"{verb}: {answer.text}"
        self._note(effect, answer.json())
        self.pending = None
        self.n_answers += 1
        self.n_repeated += again
        return True

    def _note(self, effect: dict, said: dict) -> None:
        for row in effect.get("learned", ()):
            self.rows[row["row"]] = row
        if "learned" in effect:
            assert said["learned"] == len(effect["learned"])
        for row in effect.get("remembered", ()):
            self.waiting[row["row"]] = row
        for row_id in effect.get("labelled", ()):
            self.rows[row_id] = self.waiting.pop(row_id)
        if "labelled" in effect:
            assert said["labelled"] == len(effect["labelled"]), said
        for row_id in effect.get("forgotten", ()):
            del self.rows[row_id]
        if "forgotten" in effect:
            assert said["forgotten"] == len(effect["forgotten"]), said

    def run(self, url: str, stop: threading.Event) -> None:
        with httpx.Client(base_url=url, timeout=300) as http:
            while not stop.is_set() and self.send(http):
                pass


class BulkClient:
    """Client that sends large batches and records which were acknowledged and which are in doubt."""

    def __init__(self, number: int, seed: int) -> None:
        self.rng = random.Random(f"{seed}-bulk-{number}")
        self.acknowledged: list[list[dict]] = []
        self.in_doubt: list[dict] | None = None
        self.n_answers = 0

    def rows(self) -> list[dict]:
        kinds = [int(self.rng.random() < 0.2) for _ in range(BULK_ROWS)]
        return [{"a": self.rng.gauss(k, 1), "b": self.rng.gauss(-k, 2), "kind": k} for k in kinds]

    def run(self, url: str, stop: threading.Event) -> None:
        with httpx.Client(base_url=url, timeout=300) as http:
            while not stop.is_set():
                rows = self.rows()
                try:
                    answer = http.post("/v1/models/bulk/learn", json={"rows": rows})
                except httpx.ConnectError:
                    return  # the request was never sent
                except httpx.TransportError:
                    self.in_doubt = rows
                    return
                assert answer.status_code == 200, answer.text
                self.acknowledged.append(rows)
                self.n_answers += 1


class BulkLedger:
    """Expected state of the second model."""

    def __init__(self, first: list[dict]) -> None:
        self.engine = Engine("bulk", Spec.from_mapping(BULK))
        self._learn(self.engine, first)

    @staticmethod
    def _learn(engine: Engine, rows: list[dict]) -> None:
        engine.learn(wire.from_records(rows), at=0.0)

    def compare(self, http: httpx.Client, clients: list[BulkClient], when: str) -> None:
        """Check that the model contains all acknowledged requests, and one in doubt fully or not at all."""
        for rows in [rows for client in clients for rows in client.acknowledged]:
            self._learn(self.engine, rows)
        found = http.get("/v1/models/bulk").json()
        doubtful = [client.in_doubt for client in clients if client.in_doubt is not None]
        for client in clients:
            client.acknowledged, client.in_doubt = [], None
        for counts in product([False, True], repeat=len(doubtful)):
            engine = Engine.from_state("bulk", self.engine.state())
            for rows in compress(doubtful, counts):
                self._learn(engine, rows)
            if (engine.digest(), engine.n_rows) == (found["digest"], found["rows"]):
                self.engine = engine
                return
        raise AssertionError(f"after {when} the second model differs from all possible models")


def expected_digest(first: list[dict], clients: list[Client]) -> tuple[str, int]:
    """Return the digest of a model that learned only the rows of the ledger."""
    engine = Engine("m", Spec.from_mapping(SPEC))
    engine.learn(wire.from_records(first, ["row", "customer"]), at=0.0)
    rows = [row for client in clients for row in client.rows.values()]
    if rows:
        engine.learn(wire.from_records(rows, ["row", "customer"]), at=0.0)
    return engine.digest(), engine.n_rows


def torture(store: str, kills: int, seed: int, *, n_clients: int = 4, longest: float = 0.5) -> dict[str, int]:
    """Kill the process ``kills`` times; return counts."""
    rng, clients = random.Random(seed), [Client(k, seed) for k in range(n_clients)]
    opener = Client(99, seed)
    first = [opener._row() for _ in range(50)]
    bulk = [BulkClient(k, seed) for k in range(3)]
    second = bulk[0].rows()
    track_rows = BulkLedger(second)
    server = Forked(store)
    try:
        with httpx.Client(base_url=server.url, timeout=300) as http:
            assert http.put("/v1/models/m", json=SPEC).status_code == 201
            assert http.post("/v1/models/m/learn", json={"rows": first}).status_code == 200
            assert http.put("/v1/models/bulk", json=BULK).status_code == 201
            assert http.post("/v1/models/bulk/learn", json={"rows": second}).status_code == 200
        for number in range(kills):
            _load_and_kill(server, clients, bulk, longest * rng.random())
            server, when = Forked(store), f"kill {number + 1} of seed {seed}"
            _wait_for_leases(server)
            _compare(server, clients, first, when)
            with httpx.Client(base_url=server.url, timeout=300) as http:
                track_rows.compare(http, bulk, when)
    finally:
        server.kill()  # even if a comparison has failed
    return {
        "kills": kills,
        "answers": sum(client.n_answers for client in clients),
        "repeated": sum(client.n_repeated for client in clients),
        "rows": sum(client.n_made for client in clients),
        "rows in requests of many": BULK_ROWS * sum(client.n_answers for client in bulk),
    }


def _load_and_kill(server: Forked, clients: list[Client], bulk: list[BulkClient], pause: float) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(server.url, stop)) for client in [*clients, *bulk]]
    answered = sum(client.n_answers for client in clients)
    for thread in threads:
        thread.start()
    while sum(client.n_answers for client in clients) < answered + len(clients) and any(
        thread.is_alive() for thread in threads
    ):
        time.sleep(0.005)  # while requests are being processed
    time.sleep(pause)
    server.kill()
    stop.set()
    for thread in threads:
        thread.join()


def _wait_for_leases(server: Forked, seconds: float = 20.0) -> None:
    """Wait until the service learns both models.

    PostgreSQL releases the leases of a killed process when it notices the closed connection. Until then,
    requests for the models get status 503.
    """
    deadline = time.monotonic() + seconds
    with httpx.Client(base_url=server.url, timeout=300) as http:
        for name in ("m", "bulk"):
            while (
                answer := http.get(f"/v1/models/{name}")
            ).status_code == 503 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert answer.status_code == 200, answer.text


def _compare(server: Forked, clients: list[Client], first: list[dict], when: str) -> None:
    """Repeat requests without a response, then compare the model with the ledger."""
    with httpx.Client(base_url=server.url, timeout=300) as http:
        for client in clients:
            if client.pending is not None:
                assert client.send(http, again=True), f"no answer after {when}: {client.trouble}"
        found = http.get("/v1/models/m").json()
        assert (found["digest"], found["rows"]) == expected_digest(first, clients), (
            f"after {when} the model differs from a model of the rows in the ledger"
        )
        assert found["waiting_for_labels"] == sum(len(client.waiting) for client in clients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", help="address of an empty store; a new file by default")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = torture(said.store or str(Path(folder) / "store.db"), said.kills, said.seed)
    summary = ", ".join(f"{n:,} {what}" for what, n in counted.items())
    sys.stdout.write(f"{summary}: no request lost or counted twice\n")


if __name__ == "__main__":
    main()
