"""Throughput of a model fed by a broker, compared with a bare consumer of the same client in the same run.

    python benchmarks/speed/bench_brokers.py [--quick] [--only nats|redis|kafka] [--memory SECONDS]

1. Arrow messages of 1,000 rows of 30 numbers: a bare consumer that reads the columns and calls `partial_fit`.
2. JSON messages of one row of 30 numbers: a bare consumer that parses them, and learns nothing.

The model of the service evaluates, learns and stores every row durably. Servers run in their own processes
(the mock cluster of Kafka in this one); rounds alternate. `--memory` feeds Arrow messages for this time
instead and prints the resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard import ProximalSVC

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.brokers import servers
from tests.brokers.feeding import FedModel

D, ROWS = 30, 1_000
READ_MESSAGES = {"arrow": 32, "json": 1_000}  # messages that a bare consumer reads at once
TARGET = 0.5


def payloads(kind: str, n_messages: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(min(n_messages, 50 if kind == "arrow" else 2_000)):
        n_rows = ROWS if kind == "arrow" else 1
        y = (rng.random(n_rows) < 0.1).astype(float)
        X = rng.normal(size=(n_rows, D)) + 0.5 * y[:, None]
        if kind == "arrow":
            frame, sink = pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": y}), io.BytesIO()
            with pa.ipc.new_stream(sink, frame.schema) as writer:
                writer.write_table(frame)
            made.append(sink.getvalue())
        else:
            values = {f"x{j}": round(float(X[0, j]), 6) for j in range(D)}
            made.append(json.dumps({**values, "y": int(y[0])}).encode())
    return [made[k % len(made)] for k in range(n_messages)]


def raw_nats(server: Any, topic: str, n_messages: int, size: int) -> Iterator[list[bytes]]:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    client = run(nats.connect(f"nats://127.0.0.1:{server.port}"))
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    reader = run(client.jetstream().pull_subscribe(topic, config=config))
    n_read = 0
    while n_read < n_messages:
        found = run(reader.fetch(min(size, n_messages - n_read), timeout=5))
        n_read += len(found)
        yield [one.data for one in found]
    run(client.close())
    loop.close()


def raw_redis(server: Any, topic: str, n_messages: int, size: int) -> Iterator[list[bytes]]:
    n_read, last = 0, "0-0"
    with server.client() as client:
        while n_read < n_messages:
            found = client.xread({topic: last}, count=size, block=5000)
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))
            entries = entries[0] if entries and isinstance(entries[0], list) else entries
            last, n_read = entries[-1][0], n_read + len(entries)
            yield [fields[b"payload"] for _, fields in entries]


def raw_kafka(server: Any, topic: str, n_messages: int, size: int) -> Iterator[list[bytes]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    config = {"bootstrap.servers": f"127.0.0.1:{server.port}", "group.id": "bare", "log_level": 0}
    client = Consumer({**config, "enable.auto.commit": False})
    client.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(4)])
    n_read = 0
    while n_read < n_messages:
        found = client.consume(min(size, n_messages - n_read), timeout=0.05)
        n_read += len(found)
        yield [one.value() for one in found]
    client.close()


RAW = {"nats": raw_nats, "redis": raw_redis, "kafka": raw_kafka}


def bare_seconds(server: Any, kind: str, topic: str, n_messages: int) -> float:
    begin, model = time.perf_counter(), ProximalSVC()
    for messages in RAW[server.scheme](server, topic, n_messages, READ_MESSAGES[kind]):
        for payload in messages:
            if kind == "json":
                json.loads(payload)
            else:
                frame = pa.ipc.open_stream(payload).read_all()
                columns = [frame.column(j).to_numpy() for j in range(D)]
                y = frame.column(D).to_numpy().astype(int)
                model.partial_fit(np.column_stack(columns), y, classes=[0, 1])
    return time.perf_counter() - begin


def fed_seconds(server: Any, topic: str, n_rows: int, folder: Path) -> float:
    settings = {"target": "y", "rows": "until labelled", "source": {"address": server.address(topic)}}
    begin = time.perf_counter()
    model = FedModel(folder / f"{time.monotonic_ns()}.db", settings)
    while model.n_rows < n_rows:
        time.sleep(0.005)
        assert model.source.state in {"waiting", "reads"}, model.source.describe()
    seconds = time.perf_counter() - begin
    model.stop()
    return seconds


def compare(server: Any, kind: str, n_messages: int, folder: Path, n_rounds: int) -> None:
    topic = f"bench{kind}"
    server.create(topic)
    server.send(topic, payloads(kind, n_messages))
    n_rows = n_messages * (ROWS if kind == "arrow" else 1)
    ratios, rates = [], []
    for _ in range(n_rounds):
        bare, fed = bare_seconds(server, kind, topic, n_messages), fed_seconds(server, topic, n_rows, folder)
        ratios.append(bare / fed)
        rates.append(n_rows / fed)
    ratio = statistics.median(ratios)
    verdict = "met" if ratio >= TARGET else "MISSED"
    print(
        f"{server.scheme:6} {kind:6} {statistics.median(rates):>10,.0f} rows/s, {ratio:.2f} of a bare "
        f"consumer ({min(ratios):.2f} to {max(ratios):.2f}); target {TARGET}: {verdict}",
        flush=True,
    )


def resident_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def memory(server: Any, seconds: float, folder: Path) -> None:
    """Feed at full speed and print the memory over time; the topic is emptied as it is read."""
    topic = "memory"
    server.create(topic)
    some, begin, found = payloads("arrow", 50), time.monotonic(), []
    settings = {"target": "y", "rows": "until labelled", "source": {"address": server.address(topic)}}
    server.send(topic, some)
    model = FedModel(folder / "memory.db", settings)
    n_sent = len(some)
    while time.monotonic() - begin < seconds:
        if n_sent - model.source.n_messages < 200:
            server.send(topic, some)
            n_sent += len(some)
        else:
            time.sleep(0.01)
        if time.monotonic() - begin > seconds * (len(found) + 1) / 10:
            found.append(resident_megabytes())
    rows = model.n_rows
    model.stop()
    print(f"{server.scheme:6} {rows:,} rows in {seconds:.0f} s; MB over time: {[round(mb) for mb in found]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=list(RAW))
    parser.add_argument("--memory", type=float, metavar="SECONDS")
    said = parser.parse_args()
    for kind in RAW if said.only is None else [said.only]:
        reason = servers.missing(kind)
        if reason is not None:
            print(f"{kind}: skipped, because {reason}")
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            servers.running(kind, Path(folder) / "broker") as server,
        ):
            if said.memory:
                memory(server, said.memory, Path(folder))
                continue
            scale = 4 if said.quick else 1
            n_arrow = 64 if kind == "kafka" else 600 // scale  # the mock keeps 5 MB of each partition
            compare(server, "arrow", n_arrow, Path(folder), 3)
            compare(server, "json", 40_000 // scale, Path(folder), 3)


if __name__ == "__main__":
    main()
