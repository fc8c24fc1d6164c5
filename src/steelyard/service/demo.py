"""Demonstration: a client that sends the built-in payments to the service, to show the web page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any

from steelyard.exceptions import SteelyardError
from steelyard.service.client import Client
from steelyard.streams import Payments

_NAME = "payments"
_SPEC = {
    "target": "kind",
    "time": "time",
    "subject": "customer",
    "missing": "mean",
    "learner": {"class": "StreamClassifier", "threshold": {"alarms": 0.025}},
}
_BATCH_ROWS = 50
_BATCH_SECONDS = 0.1
_HISTORY_BATCHES = 100  # number of first batches that are sent with their labels
_BATCHES_PER_DELETION = 500
_ROWS_PER_SEED = 1_000_000
# Columns of text, which have some missing values.
_TEXT_COLUMNS = ("customer", "category", "channel", "country", "device")

Row = dict[str, Any]


def feed(url: str) -> threading.Thread:
    """Start a thread that sends payments to the service until the process exits."""
    thread = threading.Thread(target=_feed, args=(url,), name="steelyard-demo", daemon=True)
    thread.start()
    return thread


def _feed(url: str) -> None:
    with Client(url, retry_seconds=5.0) as client:
        try:
            client.put(_NAME, _SPEC)
            for seed in count():
                _send(client, Payments(_ROWS_PER_SEED, chunk=_BATCH_ROWS, seed=seed))
        except SteelyardError:  # the service has stopped
            return


def _send(client: Client, stream: Payments) -> None:
    """Predict payments in the order of time, and send each label when the stream makes it known."""
    # Pairs of the time at which labels become known, and the labels by row id.
    unlabelled: deque[tuple[float, dict[str, str]]] = deque()
    for number, (rows, labels) in enumerate(_batches(stream)):
        if number < _HISTORY_BATCHES:
            target = _SPEC["target"]
            client.learn(_NAME, [{**row, target: label} for row, label in zip(rows, labels, strict=True)])
            continue
        ids = client.predict(_NAME, rows, remember=True)["ids"]
        unlabelled.append(
            (rows[-1]["time"] + stream.label_delay_seconds, dict(zip(ids, labels, strict=True)))
        )
        while unlabelled and unlabelled[0][0] <= rows[0]["time"]:
            client.label(_NAME, unlabelled.popleft()[1])
        if number % _BATCHES_PER_DELETION == 0:  # simulated deletion request
            client.forget(_NAME, subject=rows[0]["customer"])
        time.sleep(_BATCH_SECONDS)


def _batches(stream: Payments) -> Iterator[tuple[list[Row], list[str]]]:
    names = ("time", *stream.feature_names, *_TEXT_COLUMNS)
    for columns in stream.tables():
        values = zip(*(columns[name].tolist() for name in names), strict=True)
        yield [dict(zip(names, row, strict=True)) for row in values], columns["label"].tolist()
