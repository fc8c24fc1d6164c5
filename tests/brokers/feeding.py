"""A model that is fed from topics, and the digest of a model that learned the same rows in one call."""

from __future__ import annotations

import itertools
import json

import numpy as np

from steelyard.brokers.consumer import consumers_of, split_settings
from steelyard.service import Engine, Spec, SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import Put
from tests.service.processes import until

SETTINGS = {"target": "kind", "columns": {"a": "number", "b": "number"}}
_numbers = itertools.count()


def topic():
    """Return a topic name that no other test uses."""
    return f"t{next(_numbers)}"


def records(n_rows, seed=0, *, ids=False):
    rng = np.random.default_rng(seed)
    kinds = (rng.random(n_rows) < 0.3).astype(int)
    rows = [
        {"a": round(float(rng.normal(kind)), 4), "b": round(float(rng.normal()), 4), "kind": int(kind)}
        for kind in kinds
    ]
    return [{"id": f"r{k}", **row} for k, row in enumerate(rows)] if ids else rows


def encoded(rows):
    return [json.dumps(row).encode() for row in rows]


def digest(rows, settings=SETTINGS):
    """Return the digest of a model that learned ``rows`` in one call."""
    engine = Engine("m", Spec.from_mapping(settings))
    if rows:
        engine.learn(wire.from_records(rows, ["id"]), at=0.0)
    return engine.digest()


class FedModel:
    """Writer and consumers of one model, as the service runs them."""

    def __init__(self, path, settings, *, reads=True, **options):
        rest, feed = split_settings(settings)
        self.settings = rest
        self.store = SQLiteStore(path)
        self.store.acquire_write_lock()
        self.writer = Writer(self.store, **options)
        command = Put("m", Spec.from_mapping(rest))
        self.writer.process([command])
        command.future.result()
        self.writer.start()
        self.consumers = consumers_of(self.writer, {"m": feed})
        self._is_stopped = False
        if reads:
            self.read()

    def read(self):
        """Start the consumers."""
        for consumer in self.consumers:
            consumer.start()

    @property
    def source(self):
        return self.consumers[0]

    @property
    def n_rows(self):
        return self.writer.published["m"].n_rows

    @property
    def digest(self):
        return self.writer.published["m"].summary()["digest"]

    def wait_for_rows(self, n_rows):
        try:
            until(lambda: self.n_rows >= n_rows)
        except AssertionError:
            described = [consumer.describe() for consumer in self.consumers]
            raise AssertionError(f"{self.n_rows} of {n_rows} rows: {described}") from None

    def stop(self):
        if not self._is_stopped:
            self._is_stopped = True
            for consumer in self.consumers:
                consumer.stop()
            self.writer.close()
            self.store.close()
