"""Cubes of rows that lie elsewhere: partitions of Dask and Spark, and groups that a database sums up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataTypeError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.sql.pushdown import PushdownNotSupported, execute, look
from steelyard.tables.columns import Columns
from steelyard.tables.databases import DatabaseSource

if TYPE_CHECKING:
    from steelyard.sql.cube import StatisticsCube

__all__ = ["add_partitions", "add_sums"]

_FIRST = 1000  # rows that settle columns and grid for all workers
Options = Sequence[str]


def add_partitions(
    cube: StatisticsCube, frame: Any, engine: str, features: Options | None, drop: Options
) -> None:
    """Let a cube take in the rows of a data frame of Dask or Spark.

    The first rows settle columns and grid; every partition is then a cube on that grid, and these add up.
    """
    if not hasattr(frame, "mapInPandas" if engine == "pyspark" else "to_delayed"):
        raise DataTypeError(f"expected a data frame; got {type(frame).__name__}.", source="StatisticsCube")
    start = cube.empty()
    if not cube.n_rows:
        first = frame.limit(_FIRST).toPandas() if engine == "pyspark" else frame.head(_FIRST, npartitions=-1)
        first.attrs.clear()  # what Spark says of its plan, which no Arrow table can hold
        start = start.add(first, features=features, drop=drop).empty()
        cube._statistics = None  # that of rows that have all gone
        cube._take_in(start)
    for message in (_spark if engine == "pyspark" else _dask)(frame, to_bytes(start)):
        cube._take_in(from_bytes(message))


def _filled(message: bytes, part: Any) -> bytes:
    """What a worker does: a cube of one partition."""
    return to_bytes(from_bytes(message).add(part) if len(part) else from_bytes(message))


def _dask(frame: Any, message: bytes) -> Iterator[bytes]:
    import dask

    parts = [dask.delayed(_filled)(message, part) for part in frame.to_delayed()]
    yield from dask.compute(*parts)


def _spark(frame: Any, message: bytes) -> Iterator[bytes]:
    def fill(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        cube = from_bytes(message)
        for batch in batches:
            if len(batch):
                cube.add(batch)
        yield pd.DataFrame({"cube": [to_bytes(cube)]})

    rows = frame.mapInPandas(fill, "cube binary").toLocalIterator()
    yield from (bytes(row["cube"]) for row in rows)


def add_sums(cube: StatisticsCube, source: DatabaseSource, features: Options | None, drop: Options) -> None:
    """Let a cube take in rows whose sums a database takes, cell by cell."""
    if cube.time is not None or cube.folds:
        source.close()
        raise PushdownNotSupported(
            "buckets of time and folds are made of rows that are read.",
            source="StatisticsCube",
            hint='how="auto" reads them',
        )
    encoder = cube._encoder
    settled = "columns_" in vars(encoder)
    chosen = tuple(encoder.columns_) if settled else None if features is None else tuple(features)
    columns = Columns(
        cube.target,
        None,
        chosen,
        () if settled else (*cube.by, *drop),
        tuple(encoder.categorical_) if settled else (),
    )
    quantizer = None if cube._statistics is None else cube._statistics.quantizer
    try:
        with source.connection.reading():
            looked = look(source, columns, encoder, quantizer=quantizer, cells=tuple(cube.by))
            statistics = execute(looked, name_of=lambda cells, label: json.dumps([*cells, 0, label]))
    finally:
        source.close()
    cube._check_memory_of(statistics)
    if cube._statistics is not None:
        statistics = cube._statistics.grow(statistics.n_features).merge(statistics)
    cube._encoder, cube._statistics = looked.encoder, statistics
