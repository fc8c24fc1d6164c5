"""Demonstration: a model that learns from the built-in stream, to show the web page."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from itertools import count

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.spec import Spec
from steelyard.service.writer import Writer
from steelyard.streams import Payments
from steelyard.tables.columns import ColumnBatch

__all__ = ["feed"]

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
_BATCHES_PER_DELETION = 500
_ROWS_PER_SEED = 1_000_000
# These columns have some missing values.
_TEXT_COLUMNS = ("customer", "category", "channel", "country", "device")


def feed(writer: Writer) -> threading.Thread:
    """Start a thread that feeds the model until the process exits."""
    spec = Spec.from_mapping(_SPEC)
    thread = threading.Thread(target=_feed, args=(writer, spec), name="steelyard-demo", daemon=True)
    writer.process([Put(_NAME, spec)])
    thread.start()
    return thread


def _feed(writer: Writer, spec: Spec) -> None:
    with contextlib.suppress(SteelyardError, RuntimeError):  # raised when the service has stopped
        for seed in count():
            stream = Payments(_ROWS_PER_SEED, chunk=_BATCH_ROWS, seed=seed)
            for number, columns in enumerate(stream.tables()):
                batch = {name: columns[name] for name in ("time", *stream.feature_names, *_TEXT_COLUMNS)}
                batch[spec.target] = columns["label"].astype(object)
                writer.submit(Learn(_NAME, ColumnBatch(batch, len(columns["label"]))))
                if number % _BATCHES_PER_DELETION == _BATCHES_PER_DELETION - 1:  # simulated deletion request
                    writer.submit(Forget(_NAME, subject=columns["customer"][0], key=uuid.uuid4().hex))
                time.sleep(_BATCH_SECONDS)
