"""Throughput, latency and recovery of the service, compared with minimal alternatives in the same run.

    python benchmarks/speed/bench_service.py [--quick] [--only learn|single|keyed|predict|neighbours|recover]

1. Learning: durable Arrow batches of 1,000 x 30 over HTTP, compared with `partial_fit` and a synced append of
   the same bytes to a file.
2. Single rows: 64 clients with one row per request, compared with one synced append per request, and with an
   echo application of the same framework. If a sync of the disk is faster than a request of the framework,
   group commit has no effect. Therefore the run is repeated with 1, 2 and 5 ms added to each sync of both.
   Requests with one idempotency key each are compared with requests without keys.
3. Predictions: the 99th percentile of the latency while another client sends rows to learn, compared with an
   idle service. The latency of a small model while a model with 1,000 columns learns, compared with the
   latency without that model, and with the latency while a process outside the service does the same work.
   The second comparison shows what the service itself adds to the shared processor caches and cores.
4. Recovery: the time to load a model of 1,000,000 rows from its snapshot and events.

With ``--store URL`` of a PostgreSQL database: the throughput of two learner processes, compared with one.

Service and echo run in their own processes, and the clients are the same for both. Rounds alternate. Each
line says whether its target is met. Lines about processor time compare the time of the server processes
alone, which other programs on the same machine change little.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from steelyard import ProximalSVC
from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.commands import Learn, Put
from steelyard.tables.columns import ColumnBatch

D = 30
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
JSON = {"content-type": "application/json"}
SPEC = {"target": "y"}
ECHO = """
import socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def echo(request):
    return Response(await request.body(), media_type="application/json")
config = uvicorn.Config(Starlette(routes=[Route("/", echo, methods=["POST"])]), port=0, log_level="warning",
                        access_log=False)
bound = config.bind_socket()
bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
bound.listen(2048)
print(f"http://127.0.0.1:{bound.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(config).run(sockets=[bound])
"""


def table(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    y = (rng.random(n_rows) < 0.1).astype(float)
    return rng.normal(size=(n_rows, D)) + 0.5 * y[:, None], y


def arrow(X: np.ndarray, y: np.ndarray) -> bytes:
    frame = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, frame.schema) as writer:
        writer.write_table(frame)
    return sink.getvalue()


def row_body(x: np.ndarray, y: float | None) -> bytes:
    fields = ",".join(f'"x{j}":{value:.6g}' for j, value in enumerate(x))
    label = "" if y is None else f',"y":{y:g}'
    return f'{{"rows":[{{{fields}{label}}}]}}'.encode()


@contextmanager
def process(*command: str) -> Iterator[str]:
    """Start a server process; yield its address."""
    with process_with_pid(*command) as (url, _):
        yield url


@contextmanager
def process_with_pid(*command: str) -> Iterator[tuple[str, int]]:
    """Start a server process; yield its address and its process number."""
    running = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    try:
        log = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log)):
            line = running.stderr.readline()
            if not line:
                raise SystemExit(f"the server did not start: {log}")
            log += line
        yield found.group(0), running.pid
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


# The service on a slower disk: a delay is added to every commit.
SLOWER = """
import sys, time
from steelyard.service import SQLiteStore
from steelyard.cli import main
commit, delay = SQLiteStore._commit, float(sys.argv.pop(1))
def slow_commit(store):
    commit(store)
    time.sleep(delay)
SQLiteStore._commit = slow_commit
main()
"""


def service_with_pid(store: Path, *, delay: float = 0.0) -> contextmanager[tuple[str, int]]:
    begin = ["-c", SLOWER, str(delay)] if delay else ["-m", "steelyard"]
    return process_with_pid(*begin, "serve", "--store", str(store), "--port", "0")


@contextmanager
def service(store: Path) -> Iterator[str]:
    with service_with_pid(store) as (url, _):
        yield url


class Pipe:
    """Minimal HTTP connection: one request at a time, with little work for the client."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\n{lines}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", answered).group(1))  # type: ignore[union-attr]
        answer = await self._reader.readexactly(length)
        if not answered.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        return answer

    def close(self) -> None:
        self._writer.close()


async def send_all(
    url: str, path: str, bodies: list[bytes], headers: dict[str, str], n_clients: int, *, keyed: bool = False
) -> float:
    """Return the seconds until all bodies are answered. The clients share the bodies.

    If ``keyed`` is true, each request has its own idempotency key.
    """
    pipes = [Pipe(url) for _ in range(n_clients)]
    for pipe in pipes:
        await pipe.open()
    left = iter(bodies)

    async def client(pipe: Pipe) -> None:
        for body in left:
            key = {"idempotency-key": uuid.uuid4().hex} if keyed else {}
            await pipe.post(path, body, {**headers, **key})

    begin = time.perf_counter()
    await asyncio.gather(*(client(pipe) for pipe in pipes))
    seconds = time.perf_counter() - begin
    for pipe in pipes:
        pipe.close()
    return seconds


def synced_appends(
    path: Path, bodies: list[bytes], model: ProximalSVC | None = None, batches: list = (), delay: float = 0.0
) -> float:
    """Return the seconds of appending and syncing each body, with `partial_fit` if a model is given."""
    with path.open("ab") as log:
        begin = time.perf_counter()
        for place, body in enumerate(bodies):
            if model is not None:
                model.partial_fit(*batches[place])
            log.write(body)
            log.flush()
            os.fsync(log.fileno())
            if delay:
                time.sleep(delay)
        return time.perf_counter() - begin


def line(what: str, ratio: float, target: float, *, most: bool = False, detail: str = "") -> None:
    met = "met" if (ratio <= target if most else ratio >= target) else "MISSED"
    print(
        f"{what:66s} {ratio:7.2f}  (target {'<=' if most else '>='} {target:g}: {met})  {detail}", flush=True
    )


def bench_learning(folder: Path, rounds: int, n_batches: int) -> None:
    rng = np.random.default_rng(0)
    batches = [table(rng, 1_000) for _ in range(n_batches)]
    bodies = [arrow(X, y) for X, y in batches]
    with service(folder / "learn.db") as url:
        httpx.put(f"{url}/v1/models/m", json=SPEC).raise_for_status()
        httpx.post(f"{url}/v1/models/m/learn", content=bodies[0], headers=ARROW).raise_for_status()
        model = ProximalSVC().partial_fit(*batches[0])
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(asyncio.run(send_all(url, "/v1/models/m/learn", bodies, ARROW, 4)))
            theirs.append(synced_appends(folder / "learn.log", bodies, model, batches))
    rows = 1_000 * n_batches
    line(
        "learning in Arrow batches of 1,000 x 30 / partial_fit and sync",
        min(theirs) / min(ours),
        0.5,
        detail=f"{rows / min(ours):,.0f} against {rows / min(theirs):,.0f} rows per second",
    )


def bench_single_rows(folder: Path, rounds: int, n_requests: int) -> None:
    rng = np.random.default_rng(1)
    X, y = table(rng, n_requests)
    bodies = [row_body(*row) for row in zip(X, y, strict=True)]
    few = bodies[:500]

    cpu: dict[str, list[float]] = {"service": [], "echo": []}

    def timed(name: str, pid: int, url: str, path: str) -> float:
        before = cpu_seconds([pid])
        seconds = asyncio.run(send_all(url, path, bodies, JSON, 64))
        cpu[name].append(cpu_seconds([pid]) - before)
        return seconds

    def rates(echo: str, echo_pid: int, delay: float) -> tuple[float, float, float]:
        """Return the best rates, in requests per second, of the service, the echo and single syncs."""
        ours, echoes, syncs = [], [], []
        with service_with_pid(folder / f"single-{delay}.db", delay=delay) as (url, pid):
            httpx.put(f"{url}/v1/models/m", json=SPEC).raise_for_status()
            first = arrow(*table(rng, 1_000))
            httpx.post(f"{url}/v1/models/m/learn", content=first, headers=ARROW).raise_for_status()
            for _ in range(rounds):
                ours.append(timed("service", pid, url, "/v1/models/m/learn"))
                echoes.append(timed("echo", echo_pid, echo, "/"))
                syncs.append(synced_appends(folder / "single.log", few, delay=delay) / len(few))
        return n_requests / min(ours), n_requests / min(echoes), 1.0 / min(syncs)

    with process_with_pid("-c", ECHO) as (echo, echo_pid):
        for delay in (0.0, 0.001, 0.002, 0.005):
            ours, echoed, synced = rates(echo, echo_pid, delay)
            line(
                f"64 clients, single rows / one sync per request ({1e3 / synced:.2f} ms per sync)",
                ours / synced,
                10,
                detail=f"{ours:,.0f} against {synced:,.0f} requests per second; "
                f"the echo, which stores nothing: {echoed / synced:.1f}",
            )
            if delay == 0.0:
                line(
                    "64 clients, single rows / echo of the framework",
                    ours / echoed,
                    0.4,
                    detail=f"{ours:,.0f} against {echoed:,.0f} requests per second",
                )
    microseconds = {name: 1e6 * min(seconds) / n_requests for name, seconds in cpu.items()}
    line(
        "processor time per request, echo / service",
        microseconds["echo"] / microseconds["service"],
        0.4,
        detail=f"{microseconds['echo']:.0f} against {microseconds['service']:.0f} microseconds",
    )


def bench_keyed_rows(folder: Path, rounds: int, n_requests: int) -> None:
    rng = np.random.default_rng(1)
    bodies = [row_body(*row) for row in zip(*table(rng, n_requests), strict=True)]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    with service_with_pid(folder / "keyed.db") as (url, pid):
        httpx.put(f"{url}/v1/models/m", json=SPEC).raise_for_status()
        first = arrow(*table(rng, 1_000))
        httpx.post(f"{url}/v1/models/m/learn", content=first, headers=ARROW).raise_for_status()
        for _ in range(rounds):
            for keyed, times in seconds.items():
                before = cpu_seconds([pid])
                times.append(asyncio.run(send_all(url, "/v1/models/m/learn", bodies, JSON, 64, keyed=keyed)))
                cpu[keyed].append(cpu_seconds([pid]) - before)
    rates = {keyed: n_requests / min(times) for keyed, times in seconds.items()}
    line(
        "64 clients, single rows with idempotency keys / without",
        rates[True] / rates[False],
        0.7,
        detail=f"{rates[True]:,.0f} against {rates[False]:,.0f} requests per second",
    )
    microseconds = {keyed: 1e6 * min(times) / n_requests for keyed, times in cpu.items()}
    line(
        "processor time per request, without keys / with keys",
        microseconds[False] / microseconds[True],
        0.7,
        detail=f"{microseconds[False]:.0f} against {microseconds[True]:.0f} microseconds",
    )


async def predict_often(url: str, body: bytes, n_requests: int) -> np.ndarray:
    pipe = Pipe(url)
    await pipe.open()
    times = np.empty(n_requests)
    for place in range(n_requests):
        begin = time.perf_counter()
        await pipe.post("/v1/models/m/predict", body, JSON)
        times[place] = time.perf_counter() - begin
        await asyncio.sleep(0.002)
    pipe.close()
    return times


TEACHER = """
import sys, time, httpx
url, path, pause = sys.argv[1:4]
body = open(path, "rb").read()
with httpx.Client(base_url=url) as http:
    while True:
        http.post("/v1/models/m/learn", content=body,
                  headers={"content-type": "application/vnd.apache.arrow.stream"}).raise_for_status()
        time.sleep(float(pause))
"""


def bench_predictions(folder: Path, rounds: int, n_requests: int) -> None:
    rng = np.random.default_rng(2)
    X, y = table(rng, 1_000)
    (folder / "batch").write_bytes(arrow(X, y))
    question = row_body(X[0], None)
    idle, busy = [], []
    with service(folder / "predict.db") as url:
        httpx.put(f"{url}/v1/models/m", json={**SPEC, "memory": 100_000}).raise_for_status()
        httpx.post(f"{url}/v1/models/m/learn", content=arrow(X, y), headers=ARROW).raise_for_status()
        asyncio.run(predict_often(url, question, 200))
        for _ in range(rounds):
            idle.append(np.quantile(asyncio.run(predict_often(url, question, n_requests)), 0.99))
            teacher = subprocess.Popen([sys.executable, "-c", TEACHER, url, str(folder / "batch"), "0.02"])
            try:
                time.sleep(1.0)
                busy.append(np.quantile(asyncio.run(predict_often(url, question, n_requests)), 0.99))
            finally:
                teacher.kill()
                teacher.wait()
    line(
        "p99 of predictions while 1,000 rows are learned every 20 ms / idle",
        min(busy) / min(idle),
        2,
        most=True,
        detail=f"{1e3 * min(busy):.2f} against {1e3 * min(idle):.2f} ms",
    )


async def time_often(url: str, path: str, bodies: list[bytes]) -> np.ndarray:
    """Return the seconds of each request of one client that pauses shortly after each request."""
    pipe = Pipe(url)
    await pipe.open()
    times = np.empty(len(bodies))
    for place, body in enumerate(bodies):
        begin = time.perf_counter()
        await pipe.post(path, body, JSON)
        times[place] = time.perf_counter() - begin
        await asyncio.sleep(0.005)
    pipe.close()
    return times


WIDE = """
import sys, httpx, random
url, width = sys.argv[1], int(sys.argv[2])
with httpx.Client(base_url=url, timeout=300) as http:
    while True:
        row = {f"x{j}": random.gauss(0, 1) for j in range(width)}
        rows = {"rows": [{**row, "y": int(random.random() < .3)}]}
        http.post("/v1/models/wide/learn", json=rows).raise_for_status()
"""


# The work of a model with many columns in a process outside the service.
UNRELATED = """
import sys
import numpy as np
from steelyard import ProximalSVC
rng, width = np.random.default_rng(0), int(sys.argv[2])
model = ProximalSVC().partial_fit(rng.normal(size=(100, width)), np.arange(100) % 2)
while True:
    row = rng.normal(size=(1, width))
    model.partial_fit(row, [0]).predict(row)
"""


def bench_neighbours(folder: Path, rounds: int, n_requests: int, width: int) -> None:
    rng = np.random.default_rng(4)
    X, y = table(rng, n_requests)
    requests = {
        "learn": [row_body(*row) for row in zip(X, y, strict=True)],
        "predict": [row_body(x, None) for x in X],
    }
    loads = {"alone": None, "unrelated": UNRELATED, "wide": WIDE}
    medians: dict[tuple[str, str], list[float]] = {}
    tails: dict[tuple[str, str], list[float]] = {}
    with service(folder / "neighbours.db") as url:
        for name in ("m", "wide"):
            httpx.put(f"{url}/v1/models/{name}", json=SPEC).raise_for_status()
        httpx.post(f"{url}/v1/models/m/learn", content=arrow(X, y), headers=ARROW).raise_for_status()
        X_wide = rng.normal(size=(100, width))
        body = arrow(X_wide, (np.arange(100) % 2).astype(float))
        httpx.post(f"{url}/v1/models/wide/learn", content=body, headers=ARROW, timeout=300).raise_for_status()
        for _ in range(rounds):
            for load, code in loads.items():
                other = (
                    [] if code is None else [subprocess.Popen([sys.executable, "-c", code, url, str(width)])]
                )
                try:
                    time.sleep(2.0 if other else 0.0)
                    for verb, bodies in requests.items():
                        times = asyncio.run(time_often(url, f"/v1/models/m/{verb}", bodies))
                        medians.setdefault((verb, load), []).append(float(np.median(times)))
                        tails.setdefault((verb, load), []).append(float(np.quantile(times, 0.99)))
                finally:
                    for process_ in other:
                        process_.kill()
                        process_.wait()
    for measure, found in (("", medians), (", p99", tails)):
        for verb in requests:
            beside = min(found[verb, "wide"])
            for load, words in (("alone", "alone"), ("unrelated", "beside another process")):
                compared = min(found[verb, load])
                line(
                    f"{verb}{measure} while {width:,} columns learn / {words}",
                    beside / compared,
                    2,
                    most=True,
                    detail=f"{1e3 * beside:.2f} against {1e3 * compared:.2f} ms",
                )


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time of processes so far."""
    ticks = 0
    for pid in pids:
        if not Path(f"/proc/{pid}/stat").exists():  # the process has ended
            continue
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def database_processes(store: str) -> list[int]:
    """Return the processes of a PostgreSQL server that runs on this machine."""
    import psycopg

    with psycopg.connect(store) as db:
        found = [pid for (pid,) in db.execute("SELECT pid FROM pg_stat_activity")]
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


class ModelLoad:
    """Eight models of a store and clients that send rows to them.

    Rows have ten columns, which a feature map turns into ``n_features`` features. Two clients per model keep
    the queues of two learner processes filled.

    Parameters
    ----------
    store : str
        URL of a PostgreSQL database.
    n_batches : int
        Number of requests of each client.
    n_features : int
        Number of random features of each model.
    """

    n_rows, n_clients = 50, 2

    def __init__(self, store: str, n_batches: int, n_features: int) -> None:
        self.store, self.n_batches = store, n_batches
        self.names = [f"bench-{uuid.uuid4().hex[:8]}" for _ in range(8)]
        self.settings = {**SPEC, "learner": {"class": "ProximalSVC", "features": n_features}}
        rng, y = np.random.default_rng(5), (np.arange(self.n_rows) % 9 == 0) * 1.0
        self.bodies = [arrow(rng.normal(size=(self.n_rows, 10)), y) for _ in range(8)]

    def create(self, url: str) -> None:
        """Create the models, and wait until the process has all of them."""
        for name in self.names:
            httpx.put(f"{url}/v1/models/{name}", json=self.settings, timeout=30).raise_for_status()
        while len(self.models_of(url)) < len(self.names):
            time.sleep(0.1)

    def delete(self, url: str) -> None:
        """Delete the models."""
        for name in self.names:
            httpx.delete(f"{url}/v1/models/{name}", timeout=30).raise_for_status()

    def models_of(self, url: str) -> set[str]:
        """Return the models that a process learns."""
        found = httpx.get(f"{url}/v1/models", headers={"x-steelyard-forwarded": "1"}, timeout=30).json()
        return {model["name"] for model in found["models"]} & set(self.names)

    async def client(self, name: str, url: str) -> None:
        """Send all requests of one client."""
        pipe = Pipe(url)
        await pipe.open()
        for number in range(self.n_batches):
            await pipe.post(f"/v1/models/{name}/learn", self.bodies[number % len(self.bodies)], ARROW)
        pipe.close()

    async def send(self, homes: dict[str, str]) -> float:
        """Send the requests of all clients; return the seconds."""
        begin = time.perf_counter()
        clients = (self.client(*home) for home in homes.items() for _ in range(self.n_clients))
        await asyncio.gather(*clients)
        return time.perf_counter() - begin

    def measure(self, urls: list[str], pids: list[int]) -> tuple[float, float]:
        """Return rows per second, and the share of all cores that learners, database and client used.

        The first of two runs is not counted: it determines the columns, fills caches and imports modules.
        """
        homes = {name: url for url in urls for name in self.models_of(url)}
        asyncio.run(self.send(homes))
        pids = [*pids, *database_processes(self.store)]
        before = cpu_seconds(pids) + time.process_time()
        seconds = asyncio.run(self.send(homes))
        used = cpu_seconds(pids) + time.process_time() - before
        n_all = self.n_clients * self.n_rows * self.n_batches * len(self.names)
        return n_all / seconds, used / (seconds * len(os.sched_getaffinity(0)))


def bench_learners(store: str, rounds: int, n_batches: int, n_features: int) -> None:
    """Measure the throughput of two learner processes of a PostgreSQL store relative to one.

    All processes share the cores of this machine. One learner process uses more than one core, because it
    reads requests and commits while its writer thread learns. The share of all cores that one process, the
    database and the client use limits the gain of a second process.
    """
    load, one, two = ModelLoad(store, n_batches, n_features), [], []
    serve = ("-m", "steelyard", "serve", "--store", store, "--port", "0")
    for _ in range(rounds):
        with process_with_pid(*serve) as (first, pid):
            load.create(first)
            one.append(load.measure([first], [pid]))
            with process_with_pid(*serve) as (second, other):
                while {len(load.models_of(first)), len(load.models_of(second))} != {len(load.names) // 2}:
                    time.sleep(0.1)
                two.append(load.measure([first, second], [pid, other]))
                load.delete(first)
    (rate_one, busy_one), (rate_two, busy_two) = max(one), max(two)
    line(
        f"two learner processes of a PostgreSQL store / one, {n_features} features",
        rate_two / rate_one,
        1.7,
        detail=f"{rate_two:,.0f} against {rate_one:,.0f} rows per second; cores busy: {busy_two:.0%} with "
        f"two processes, {busy_one:.0%} with one, so at most {1 / busy_one:.2f}",
    )


def bench_recovery(folder: Path, n_rows: int) -> None:
    rng = np.random.default_rng(3)
    store = SQLiteStore(folder / "recover.db")
    writer = Writer(store)
    writer.process([Put("m", Spec.from_mapping(SPEC))])
    # The worst case: a snapshot is written every 50,000 rows, and the next batch would trigger one.
    for n in [10_000] * (n_rows // 10_000) + [5_000] * 9:
        X, y = table(rng, n)
        columns = {**{f"x{j}": X[:, j].copy() for j in range(D)}, "y": y}
        request = Learn("m", ColumnBatch(columns, len(y)))
        writer.process([request])
        request.future.result()
    digest = writer.published["m"].summary()["digest"]
    store.close()
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        again = SQLiteStore(folder / "recover.db")
        found = Writer(again).published["m"]
        best = min(best, time.perf_counter() - begin)
        assert found.summary()["digest"] == digest
        again.close()
    detail = "45,000 of them after the last snapshot; the digest is equal"
    line(f"recovery of {n_rows + 45_000:,} rows, seconds", best, 5, most=True, detail=detail)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller rounds")
    parser.add_argument("--only", choices=["learn", "single", "keyed", "predict", "neighbours", "recover"])
    parser.add_argument(
        "--store", help="URL of an empty PostgreSQL database, to compare two learner processes with one"
    )
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else 5
    jobs = {
        "learn": lambda folder: bench_learning(folder, rounds, 50 if arguments.quick else 100),
        "single": lambda folder: bench_single_rows(folder, rounds, 2_000 if arguments.quick else 5_000),
        "keyed": lambda folder: bench_keyed_rows(folder, rounds, 2_000 if arguments.quick else 5_000),
        "predict": lambda folder: bench_predictions(folder, rounds, 300 if arguments.quick else 1_000),
        "neighbours": lambda folder: bench_neighbours(folder, rounds, 100 if arguments.quick else 500, 1_000),
        "recover": lambda folder: bench_recovery(folder, 200_000 if arguments.quick else 1_000_000),
    }
    if arguments.store:
        for n_features in (500, 1_000):
            bench_learners(arguments.store, rounds, 30 if arguments.quick else 100, n_features)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, job in jobs.items():
            if arguments.only in {None, name}:
                job(Path(folder))


if __name__ == "__main__":
    main()
