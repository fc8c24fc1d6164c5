"""Broker servers on free loopback ports, each with a producer and a reader for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

KINDS = ("nats", "redis", "kafka", "mqtt")
DURABLE = ("nats", "redis")  # servers that keep their messages when they are restarted


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A broker in its own process. ``restart`` kills it and starts it again on the same port and folder."""

    scheme = ""
    program = ""

    def __init__(self, folder):
        self.folder, self.port = Path(folder), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = None
        self.start()

    @classmethod
    def path(cls):
        beside = Path(sys.executable).with_name(cls.program)
        return str(beside) if beside.exists() else shutil.which(cls.program, path=_PATH)

    def command(self):
        raise NotImplementedError

    def start(self):
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        end = time.monotonic() + 120
        while True:
            assert self.process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
            assert time.monotonic() < end, "the broker did not start"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.stop()
        self.start()

    def address(self, topic):
        return f"{self.scheme}://127.0.0.1:{self.port}/{topic}"

    def create(self, *topics):
        """Create topics. Some brokers need this before the first message."""

    def send(self, topic, payloads):
        raise NotImplementedError

    def trim(self, topic, n_messages):
        """Delete all messages of a topic but the last ones."""


class Nats(Server):
    scheme, program = "nats", "nats-server"

    def command(self):
        return [self.path(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]

    def _run(self, call):
        import nats

        async def connected():
            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            try:
                return await call(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(connected())

    def create(self, *topics):
        async def add(stream):
            for topic in topics:
                await stream.add_stream(name=topic.upper(), subjects=[topic])

        self._run(add)

    def send(self, topic, payloads):
        async def publish(stream):
            for begin in range(0, len(payloads), 500):
                some = payloads[begin : begin + 500]
                await asyncio.gather(*(stream.publish(topic, payload) for payload in some))

        self._run(publish)

    def trim(self, topic, n_messages):
        self._run(lambda stream: stream.purge_stream(topic.upper(), keep=n_messages))


class Redis(Server):
    scheme, program = "redis", "redis-server"

    def command(self):
        options = ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [self.path(), "--port", str(self.port), "--dir", str(self.folder), *options]

    def client(self):
        import redis

        return redis.Redis(port=self.port)

    def create(self, *topics):
        with self.client() as client:
            for topic in topics:
                client.xdel(topic, client.xadd(topic, {"a": "b"}))

    def send(self, topic, payloads):
        with self.client() as client, client.pipeline(transaction=False) as batch:
            for payload in payloads:
                batch.xadd(topic, {"payload": payload})
            batch.execute()

    def trim(self, topic, n_messages):
        with self.client() as client:
            client.xtrim(topic, maxlen=n_messages, approximate=False)


class Mosquitto(Server):
    scheme, program = "mqtt", "mosquitto"

    def command(self):
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {self.folder}/\nmax_queued_messages 100000\nuser root\n"
        )
        return [self.path(), "-c", str(config)]

    def send(self, topic, payloads):
        from steelyard.brokers import Address, open_sink

        sink = open_sink(Address.parse(self.address(topic)))
        sink.send([(str(number), payload) for number, payload in enumerate(payloads)])
        sink.close()


class KafkaMock:
    """Mock cluster of librdkafka, which runs in a producer of this process and is reachable over TCP."""

    scheme = "kafka"

    def __init__(self, _folder):
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 1}
        )
        broker = next(iter(self._producer.list_topics(timeout=60).brokers.values()))
        self.port = broker.port

    def address(self, topic):
        return f"kafka://127.0.0.1:{self.port}/{topic}"

    def create(self, *topics):
        for topic in topics:
            self._producer.list_topics(topic, timeout=60)

    def send(self, topic, payloads):
        for number, payload in enumerate(payloads):
            self._producer.produce(topic, payload, partition=number % 4)
        assert self._producer.flush(120) == 0

    def trim(self, topic, n_messages):
        """Do nothing: the mock cluster keeps the last 5 MB of a partition."""

    def stop(self):
        self._producer.flush(5)


_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_SERVERS = {"nats": Nats, "redis": Redis, "mqtt": Mosquitto, "kafka": KafkaMock}
_CLIENTS = {"nats": "nats", "redis": "redis", "mqtt": "paho.mqtt", "kafka": "confluent_kafka"}


def missing(kind):
    """Return why this broker cannot be tested on this computer, or None if it can."""
    try:
        importlib.import_module(_CLIENTS[kind])
    except ImportError as error:
        return f"the package {error.name} is not installed"
    server = _SERVERS[kind]
    if server is not KafkaMock and server.path() is None:
        return f"the program {server.program} is not installed"
    return None


@contextlib.contextmanager
def running(kind, folder):
    """Context manager: a running broker. The test is skipped if the broker is not installed."""
    reason = missing(kind)
    if reason is not None:
        pytest.skip(reason)
    server = _SERVERS[kind](folder)
    try:
        yield server
    finally:
        server.stop()


def received(server, topic, n_messages=1, seconds=60.0):
    """Wait until a topic has at least ``n_messages`` messages, and return their payloads."""
    from steelyard.brokers import Address, open_source

    source = open_source(Address.parse(server.address(topic)))
    found, end = [], time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            messages = source.read(1000, 0.3)
            found += [message.payload for message in messages]
            if not messages and len(found) >= n_messages:
                break
    finally:
        source.close()
    return found
