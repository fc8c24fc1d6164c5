"""Throughput of a model fed by a broker, compared with a bare consumer of the same client in the same run.

    python benchmarks/speed/bench_brokers.py [--quick] [--only nats|redis|kafka] [--memory MINUTES]

1. Arrow messages of 1,000 rows of 30 numbers, compared with a bare consumer that reads the columns and calls
   `partial_fit`.
2. JSON messages of one row of 30 numbers, compared with a bare consumer that parses them and learns nothing.

The model of the service evaluates and learns every row, durably and exactly once. It does not keep learned
rows. Servers run in their own processes, except the mock cluster of Kafka, which runs in this process. Rounds
alternate. Ratios are given in elapsed time, and in processor time of this process, which other jobs disturb
less.

`--memory MINUTES` feeds Arrow messages for this time instead, and prints the resident memory ten times.
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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard import ProximalSVC

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.brokers import servers
from tests.brokers.feeding import FedModel

D, ROWS = 30, 1_000
READ_MESSAGES = {"arrow": 32, "json": 1_000}  # number of messages that a bare consumer reads at once
TARGET = 0.5
SENT_MESSAGES, MAX_WAITING_MESSAGES = (
    50,
    200,
)  # memory test: number of messages sent together, and maximum number of messages that are not learned yet


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


class Seconds(NamedTuple):
    wall: float
    processor: float


def clocks() -> Seconds:
    return Seconds(time.perf_counter(), time.process_time())


def since(begin: Seconds) -> Seconds:
    return Seconds(*(now - then for now, then in zip(clocks(), begin, strict=True)))


def bare_seconds(server: Any, kind: str, topic: str, n_messages: int) -> Seconds:
    begin, model = clocks(), ProximalSVC()
    for messages in RAW[server.scheme](server, topic, n_messages, READ_MESSAGES[kind]):
        for payload in messages:
            if kind == "json":
                json.loads(payload)
            else:
                frame = pa.ipc.open_stream(payload).read_all()
                columns = [frame.column(j).to_numpy() for j in range(D)]
                y = frame.column(D).to_numpy().astype(int)
                model.partial_fit(np.column_stack(columns), y, classes=[0, 1])
    return since(begin)


def fed_seconds(server: Any, topic: str, n_rows: int, folder: Path) -> Seconds:
    settings = {"target": "y", "rows": "until labelled", "source": {"address": server.address(topic)}}
    model = FedModel(folder / f"{time.monotonic_ns()}.db", settings, reads=False)
    begin = clocks()
    model.read()
    while model.n_rows < n_rows:
        time.sleep(0.005)
        assert model.source.state in {"waiting", "reads"}, model.source.describe()
    seconds = since(begin)
    model.stop()
    return seconds


def compare(server: Any, kind: str, n_messages: int, folder: Path, n_rounds: int) -> None:
    topic = f"bench{kind}"
    server.create(topic)
    server.send(topic, payloads(kind, n_messages))
    n_rows = n_messages * (ROWS if kind == "arrow" else 1)
    rounds = []
    for _ in range(n_rounds):
        bare, fed = bare_seconds(server, kind, topic, n_messages), fed_seconds(server, topic, n_rows, folder)
        rounds.append((bare.wall / fed.wall, bare.processor / fed.processor, n_rows / fed.wall))
    walls, processors, rates = zip(*rounds, strict=True)
    ratio = statistics.median(walls)
    verdict = "met" if ratio >= TARGET else "MISSED"
    print(
        f"{server.scheme:6} {kind:6} {statistics.median(rates):>10,.0f} rows/s, {ratio:.2f} of a bare "
        f"consumer ({min(walls):.2f} to {max(walls):.2f}), {statistics.median(processors):.2f} in processor "
        f"time ({min(processors):.2f} to {max(processors):.2f}); target {TARGET}: {verdict}",
        flush=True,
    )


def resident_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def memory(server: Any, minutes: float, folder: Path) -> None:
    """Feed a model at full speed and print the memory over time. Learned messages are deleted."""
    topic = "memory"
    server.create(topic)
    some, begin, found = payloads("arrow", SENT_MESSAGES), time.monotonic(), []
    settings = {"target": "y", "rows": "until labelled", "source": {"address": server.address(topic)}}
    server.send(topic, some)
    model = FedModel(folder / "memory.db", settings)
    n_sent = len(some)
    while (elapsed := (time.monotonic() - begin) / 60) < minutes:
        if n_sent - model.source.n_messages < MAX_WAITING_MESSAGES:
            server.send(topic, some)
            server.trim(topic, 2 * MAX_WAITING_MESSAGES)
            n_sent += len(some)
        else:
            time.sleep(0.01)
        if elapsed > minutes * (len(found) + 1) / 10:
            found.append(round(resident_megabytes()))
    found.append(round(resident_megabytes()))
    rows = model.n_rows
    model.stop()
    print(
        f"{server.scheme:6} {rows:,} rows in {minutes:g} minutes; MB after each tenth of the time: {found}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=list(RAW))
    parser.add_argument("--memory", type=float, metavar="MINUTES")
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
            # The mock of Kafka keeps the last 5 MB of each partition.
            n_arrow, n_json = (64, 20_000) if kind == "kafka" else (600, 40_000)
            compare(server, "arrow", n_arrow if kind == "kafka" else n_arrow // scale, Path(folder), 3)
            compare(server, "json", n_json // scale, Path(folder), 3)


if __name__ == "__main__":
    main()
