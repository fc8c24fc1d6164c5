"""Demonstration: a model that learns from the built-in stream, for the web page."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid

import numpy as np

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.spec import Spec
from steelyard.service.writer import Writer
from steelyard.streams import demo_stream
from steelyard.tables.columns import ColumnBatch

__all__ = ["feed"]

_NAME = "payments"
_BATCH_ROWS = 50
_BATCH_SECONDS = 0.05
_N_SUBJECTS = 400


def feed(writer: Writer) -> threading.Thread:
    """Start a thread that feeds the model until the process ends."""
    spec = Spec.from_mapping({"target": "kind", "subject": "customer", "memory": 4000})
    thread = threading.Thread(target=_feed, args=(writer, spec), name="steelyard-demo", daemon=True)
    writer.process([Put(_NAME, spec)])
    thread.start()
    return thread


def _feed(writer: Writer, spec: Spec) -> None:
    rng = np.random.default_rng(0)
    seed = 0
    with contextlib.suppress(SteelyardError, RuntimeError):  # the service has stopped
        while True:
            for number, chunk in enumerate(demo_stream(60_000, chunk=_BATCH_ROWS, seed=seed)):
                columns = {f"x{k}": chunk.X[:, k].copy() for k in range(chunk.X.shape[1])}
                customers = np.empty(len(chunk), dtype=object)
                customers[:] = [f"c{k}" for k in rng.integers(0, _N_SUBJECTS, size=len(chunk))]
                columns["customer"] = customers
                columns[spec.target] = np.where(np.asarray(chunk.y) == 1, "fraud", "ok").astype(object)
                writer.submit(Learn(_NAME, ColumnBatch(columns, len(chunk))))
                if number % 200 == 199:  # a customer asks to be forgotten
                    writer.submit(
                        Forget(_NAME, subject=f"c{rng.integers(0, _N_SUBJECTS)}", key=uuid.uuid4().hex)
                    )
                time.sleep(_BATCH_SECONDS)
            seed += 1
