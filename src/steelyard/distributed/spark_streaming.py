"""Learning with Spark Structured Streaming: the rows of every micro-batch are learned exactly once.

The model and the id of its last micro-batch are in one file, which is replaced atomically. A micro-batch that
Spark repeats after a crash is therefore recognized and skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.base import Label
from steelyard.distributed.spark_rows import (
    PARTS,
    SparkColumns,
    checked_parts,
    collect,
    first_rows,
    make_part,
    partition_id,
    quoted,
    run_batches,
)
from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.keyed import KeyedClassifier
from steelyard.keyed.sums import fitted_quantizer
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.files import write_atomically
from steelyard.persistence.tree import decode, encode
from steelyard.proximal.row_ledger import row_hashes

_FOLDER, _FILE = "steelyard", "model"


@dataclass
class ModelCheckpoint:
    """A model with the id of its last micro-batch, stored in the checkpoint of a streaming query."""

    path: Path
    model: Any  # a ProximalSVC, StreamClassifier or KeyedClassifier
    batch_id: int = -1  # id of the last micro-batch that the model has learned; -1 before the first one
    # Number of rows of each class so far, needed by models that learn a sample of the rows.
    counts: dict[Label, int] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], model: Any = None) -> ModelCheckpoint:
        """Return the checkpoint in a folder, whose state replaces that of ``model``, or a new one."""
        text = os.fspath(folder).removeprefix("file://")
        if "://" in text:
            raise ParameterError(
                f"the checkpoint must be a folder that the driver can write to; got {text!r}.",
                source="stream",
                hint="use a local folder or a mounted volume",
            )
        path = Path(text) / _FOLDER / _FILE
        if not path.exists():
            if model is None:
                raise ParameterError(f"there is no model in the checkpoint {text!r}.", source="load_stream")
            return cls(path, model)
        stored = _read(path)
        if model is not None:
            if type(stored.model) is not type(model):
                raise ParameterError(
                    f"the checkpoint {text!r} contains a {type(stored.model).__name__}; "
                    f"got a {type(model).__name__}.",
                    source="stream",
                    hint="choose another folder for another model",
                )
            if not any((Path(text) / "offsets").glob("[0-9]*")):
                raise ParameterError(
                    f"the checkpoint {text!r} contains a model but no positions of Spark, so rows would be "
                    "learned twice or left out.",
                    source="stream",
                    hint="choose an empty folder, and pass a model that load_stream() returned to continue",
                )
            model.__dict__ = stored.model.__dict__
            stored.model = model
        return stored

    def learn(self, df: Any, batch_id: int, learn_batch: Any) -> None:
        """Learn a micro-batch unless the model has already learned it."""
        if batch_id == self.batch_id:
            return  # Spark repeats the last micro-batch if its commit was interrupted
        if batch_id < self.batch_id:
            raise DataError(
                f"Spark delivered micro-batch {batch_id}, but the model has learned {self.batch_id}: the "
                "checkpoint belongs to another query.",
                source="stream",
            )
        # A copy learns and is saved first, so that a retry after an error starts from the previous state.
        updated = ModelCheckpoint(self.path, from_bytes(to_bytes(self.model)), batch_id, dict(self.counts))
        if not df.isEmpty():
            learn_batch(updated, df)
        updated.save()
        self.model.__dict__ = updated.model.__dict__
        self.batch_id, self.counts = batch_id, updated.counts

    def save(self) -> None:
        """Replace the checkpoint file atomically."""
        labels = list(self.counts)
        content = {
            "batch_id": self.batch_id,
            "labels": labels,
            "counts": [self.counts[label] for label in labels],
            "model": np.frombuffer(to_bytes(self.model), dtype=np.uint8),
        }
        write_atomically(self.path, [encode(content)], source="stream")


def _read(path: Path) -> ModelCheckpoint:
    try:
        content = decode(path.read_bytes())
        counts = dict(zip(content["labels"], map(int, content["counts"]), strict=True))
        model = from_bytes(content["model"].tobytes())
        return ModelCheckpoint(path, model, int(content["batch_id"]), counts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} is not the model of a streaming query: {error}") from error


# -- rows that executors send to the driver ----------------------------------------------------------


def learn_sample(checkpoint: ModelCheckpoint, df: Any, columns: SparkColumns, max_rows: int) -> None:
    """Learn a micro-batch: a sample of the most frequent class, and all rows of the other classes.

    The hash of a row decides whether it is in the sample, so a repeated micro-batch gives the same sample.
    The weights of sampled rows are divided by the sampling rate.
    """
    assert columns.label is not None
    arrived = {row[0]: row[1] for row in collect(df.groupBy(quoted(columns.label)).count())}
    for label, count in arrived.items():
        if label is not None:
            checkpoint.counts[label] = checkpoint.counts.get(label, 0) + count
    counts = checkpoint.counts
    frequent = max(counts, key=lambda label: (counts[label], str(label)), default=None)
    rate = min(1.0, max_rows / max(arrived.get(frequent, 0), 1))
    rows = df.select(*map(quoted, columns.names)).mapInArrow(
        partial(_sampled, columns, frequent, rate), PARTS
    )
    parts = [decode(bytes(row["content"])) for row in checked_parts(collect(rows))]
    X = np.concatenate([part["X"] for part in parts])
    y, weights = (np.concatenate([part[name] for part in parts]) for name in ("y", "weights"))
    if isinstance(columns.features, tuple):
        import pandas as pd

        X = pd.DataFrame(X, columns=list(columns.features))
    checkpoint.model.partial_fit(X, y, sample_weight=None if (weights == 1.0).all() else weights)


def learn_keyed(model: KeyedClassifier, df: Any, columns: SparkColumns, source: str) -> None:
    """Learn rows that are repartitioned by key; each partition sends the sums of its keys to the driver."""
    assert columns.key is not None
    quantizer = model.quantizer
    if quantizer is None:
        if model.__sklearn_is_fitted__():
            quantizer = model.quantizer_
        else:
            rows = first_rows(df, SparkColumns(columns.features))
            quantizer = fitted_quantizer(np.asarray(rows, dtype=np.float64))
    worker = KeyedClassifier(**{**model.get_params(deep=False), "quantizer": quantizer})
    work = partial(_keyed_sums, columns, to_bytes(worker), source)
    parts = df.select(*map(quoted, columns.names)).repartition(quoted(columns.key)).mapInArrow(work, PARTS)
    for row in checked_parts(collect(parts)):
        worker.merge(from_bytes(bytes(row["content"])))
    model.merge(worker)  # one atomic change, so that an error leaves the model unchanged


# -- functions that run on the executors -------------------------------------------------------------


def _sampled(columns: SparkColumns, frequent: Label, rate: float, batches: Iterable[Any]) -> Iterator[Any]:
    def sample(batch: Any) -> bytes:
        X, y = np.asarray(columns.rows(batch), dtype=np.float64), columns.labels(batch)
        weights = columns.weights(batch)
        weights = np.ones(len(y)) if weights is None else weights
        is_frequent = y == frequent
        kept = ~is_frequent | (row_hashes(X) < rate * 2.0**64)
        weights = np.where(is_frequent, weights / rate, weights)
        return encode({"X": X[kept], "y": np.asarray(y[kept].tolist()), "weights": weights[kept]})

    return run_batches(sample, "stream", batches)


def _keyed_sums(columns: SparkColumns, model: bytes, source: str, batches: Iterable[Any]) -> Iterator[Any]:
    learner: KeyedClassifier = from_bytes(model)

    def learn(batch: Any) -> None:
        learner.partial_fit(columns.rows(batch), columns.labels(batch), None, columns.weights(batch))

    errors = list(run_batches(learn, source, batches))
    yield from errors
    if not errors and learner.__sklearn_is_fitted__():
        yield make_part(partition_id(), 0, to_bytes(learner))
