"""Repeated kill -9 of a service that a broker feeds: `python -m tests.brokers.torture --kills 300 --seed 1`.

The service is killed at a random moment while it consumes messages, and is started again on the same store. A
broker that is durable (NATS and Redis, but not the mock cluster of Kafka) is also killed and started again.
After each kill all messages must be learned exactly once: the digest must equal that of a model that learned
the messages of the topic in one call. Three models are fed: one from labelled rows, one from rows whose
labels arrive on another topic, and one from large Arrow messages, for which the store keeps snapshots instead
of rows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from steelyard.brokers import consumer as _consumer_module  # noqa: F401  loaded before the forks
from steelyard.cli import main as steelyard_command
from steelyard.cli import serve as _serve_module  # noqa: F401
from steelyard.service import Engine, Spec
from steelyard.service import rows as wire
from steelyard.service.http import make_app as _make_app  # noqa: F401
from steelyard.tables.columns import ColumnBatch
from tests.brokers import servers

KINDS = ("nats", "redis", "kafka")
ARROW_ROWS, ARROW_COLUMNS = 6_000, 12  # size of a message: more bytes than four times the learned state
COLUMNS = '[columns]\na = "number"\nb = "number"\n'
MAX_SECONDS = 60.0  # after a start all messages must be learned within this time


class Forked:
    """`steelyard serve` with model files in a forked child."""

    def __init__(self, store, models):
        seen, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(seen)
            self._serve(store, models, said)
        os.close(said)
        self._lines = os.fdopen(seen)
        line = self._lines.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"the service did not start: {line}{self._lines.read()}"
        self.url = found.group(0)
        threading.Thread(target=self._read_log, daemon=True).start()

    def _read_log(self):
        self.log = self._lines.read()  # a full pipe would block the service

    @staticmethod
    def _serve(store, models, said):
        code = 1
        try:
            sys.stderr = io.TextIOWrapper(os.fdopen(said, "wb"), line_buffering=True)
            options = [word for model in models for word in ("--model", str(model))]
            steelyard_command(["serve", "--store", store, "--port", "0", *options], standalone_mode=False)
            code = 0
        finally:
            os._exit(code)  # the exit handlers of the parent must not run

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


class Producer:
    """Rows of all models in the order of the topics, and models that learned all of them in one call."""

    def __init__(self, server, seed):
        self.server, self.rng = server, random.Random(f"{seed}-{server.scheme}")
        self.engines = {name: Engine(name, Spec.from_mapping(spec)) for name, spec in SPECS.items()}
        self.numbers = np.random.default_rng(self.rng.randrange(2**32))
        self.n_made = 0

    def _row(self):
        self.n_made += 1
        kind = int(self.rng.random() < 0.2)
        return {"a": round(self.rng.gauss(kind, 1), 6), "b": round(self.rng.gauss(0, 1), 6), "kind": kind}

    def send(self, n_rows):
        """Send messages to all topics. Labels are sent before or after their rows."""
        rows = [self._row() for _ in range(n_rows)]
        self.server.send("rows", [json.dumps(row).encode() for row in rows])
        ids = [{"id": f"i{self.n_made}-{k}", **row} for k, row in enumerate(rows[: n_rows // 4])]
        bare = [json.dumps({k: v for k, v in row.items() if k != "kind"}).encode() for row in ids]
        labels = [json.dumps({"id": row["id"], "kind": row["kind"]}).encode() for row in ids]
        self.rng.shuffle(labels)
        steps = [("bare", bare), ("labels", labels)]
        self.rng.shuffle(steps)
        for topic, payloads in steps:
            self.server.send(topic, payloads)
        self.engines["rows"].learn(wire.from_records(rows), at=0.0)
        if ids:
            self.engines["joined"].learn(wire.from_records(ids, ["id"]), at=0.0)
        self._send_arrow()

    def _send_arrow(self):
        kind = (self.numbers.random(ARROW_ROWS) < 0.2).astype(float)
        columns = {f"x{k}": self.numbers.normal(kind) for k in range(ARROW_COLUMNS)}
        table, body = pa.table({**columns, "kind": kind}), io.BytesIO()
        with pa.ipc.new_stream(body, table.schema) as writer:
            writer.write_table(table)
        self.server.send("arrow", [body.getvalue()])
        self.engines["arrow"].learn(ColumnBatch({**columns, "kind": kind}, ARROW_ROWS), at=0.0)
        self.n_made += ARROW_ROWS


SPECS = {
    "rows": {"target": "kind", "columns": {"a": "number", "b": "number"}, "rows": "none"},
    "joined": {"target": "kind", "id": "id", "columns": {"a": "number", "b": "number"}},
    "arrow": {
        "target": "kind",
        "columns": {f"x{k}": "number" for k in range(ARROW_COLUMNS)},
        "rows": "none",
    },
}


def _write_models(server, folder):
    rows, joined = folder / "rows.toml", folder / "joined.toml"
    source = '[source]\naddress = "{}"\nbatch = 50\n'
    rows.write_text('target = "kind"\nrows = "none"\n' + COLUMNS + source.format(server.address("rows")))
    joined.write_text(
        'target = "kind"\nid = "id"\n'
        + COLUMNS
        + source.format(server.address("bare"))
        + f'[labels]\naddress = "{server.address("labels")}"\n'
    )
    arrow = folder / "arrow.toml"
    columns = "[columns]\n" + "".join(f'x{k} = "number"\n' for k in range(ARROW_COLUMNS))
    arrow.write_text('target = "kind"\nrows = "none"\n' + columns + source.format(server.address("arrow")))
    return [rows, joined, arrow]


def _compare(service, producer, when):
    """Wait until all messages are learned, then compare with models that learned them in one call."""
    end = time.monotonic() + MAX_SECONDS
    with httpx.Client(base_url=service.url, timeout=60) as http:
        for name, engine in producer.engines.items():
            while (found := http.get(f"/v1/models/{name}").json())["rows"] < engine.n_rows:
                assert time.monotonic() < end, f"{when}: {found['rows']} rows; {found['topics']}"
                time.sleep(0.02)
            assert (found["rows"], found["digest"]) == (engine.n_rows, engine.digest()), (
                f"{when}: the model {name!r} differs from a model that learned its topic in one call"
            )


def torture(kind, kills, seed, folder, *, longest=0.3):
    """Kill the service ``kills`` times; return counts."""
    rng = random.Random(f"{seed}-{kind}")
    n_restarts = 0
    with servers.running(kind, folder / "broker") as server:
        server.create("rows", "bare", "labels", "arrow")
        producer, store = Producer(server, seed), str(folder / "store.db")
        models = _write_models(server, folder)
        service = Forked(store, models)
        try:
            for number in range(kills):
                producer.send(rng.randint(50, 400))
                time.sleep(longest * rng.random())  # the service is learning meanwhile
                service.kill()
                if kind in servers.DURABLE and rng.random() < 0.2:
                    server.restart()
                    n_restarts += 1
                service = Forked(store, models)
                if kind in servers.DURABLE and rng.random() < 0.2:  # while the service reads
                    server.restart()
                    n_restarts += 1
                _compare(service, producer, f"{kind}, kill {number + 1} of seed {seed}")
        finally:
            service.kill()
    return {"kills": kills, "restarts of the broker": n_restarts, "rows": producer.n_made}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="kills for each broker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    said = parser.parse_args()
    for kind in KINDS if said.only is None else [said.only]:
        reason = servers.missing(kind)
        if reason is not None:
            sys.stdout.write(f"{kind}: skipped, because {reason}\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            counted = torture(kind, said.kills, said.seed, Path(folder))
        summary = ", ".join(f"{n:,} {what}" for what, n in counted.items())
        sys.stdout.write(f"{kind}: {summary}: no message lost or learned twice\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
