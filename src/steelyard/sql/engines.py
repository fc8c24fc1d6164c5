"""Cubes computed by other engines: partitions of Dask and Spark, and GROUP BY in a database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataTypeError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.sql.pushdown import PushdownNotSupported, execute, plan_pushdown
from steelyard.tables.columns import Columns
from steelyard.tables.databases import DatabaseSource

if TYPE_CHECKING:
    from steelyard.sql.cube import StatisticsCube

# Number of first rows that determine the columns and the quantizer for all workers.
_N_CALIBRATION_ROWS = 1000
Options = Sequence[str]


def add_partitions(
    cube: StatisticsCube, frame: Any, engine: str, features: Options | None, drop: Options
) -> None:
    """Add the rows of a Dask or Spark data frame to a cube.

    The first rows determine the columns and the quantizer. Each worker fills a cube of its partition, and the
    cubes are merged.
    """
    if not hasattr(frame, "mapInPandas" if engine == "pyspark" else "to_delayed"):
        raise DataTypeError(f"expected a data frame; got {type(frame).__name__}.", source="StatisticsCube")
    start = cube.empty()
    if not cube.n_rows:
        first = (
            frame.limit(_N_CALIBRATION_ROWS).toPandas()
            if engine == "pyspark"
            else frame.head(_N_CALIBRATION_ROWS, npartitions=-1)
        )
        first.attrs.clear()  # Spark stores its query plan in attrs, which cannot be converted to Arrow
        start = start.add(first, features=features, drop=drop).empty()
        cube._statistics = None  # the cube starts without the calibration rows
        cube._merge(start)
    for message in (_spark if engine == "pyspark" else _dask)(frame, to_bytes(start)):
        cube._merge(from_bytes(message))


def _filled(message: bytes, part: Any) -> bytes:
    """Return the cube of one partition, filled from an empty one. This function runs in a worker."""
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
    """Add rows to a cube by push-down: the database computes the sums of every cell."""
    if cube.time is not None or cube.folds:
        source.close()
        raise PushdownNotSupported(
            "time buckets and folds cannot be computed by push-down.",
            source="StatisticsCube",
            hint='use how="auto", which reads the rows',
        )
    encoder = cube._encoder
    columns = Columns.of(cube.target, features=features, drop=(*cube.by, *drop))
    if encoder.is_fitted:
        columns = encoder.roles(cube.target)
    quantizer = None if cube._statistics is None else cube._statistics.quantizer
    try:
        with source.connection.reading():
            plan = plan_pushdown(source, columns, encoder, quantizer=quantizer, cells=tuple(cube.by))
            statistics = execute(plan, name_of=lambda cells, label: json.dumps([*cells, 0, label]))
    finally:
        source.close()
    cube._check_memory(map(str, statistics.classes), statistics.n_features)
    if cube._statistics is not None:
        statistics = cube._statistics.grow(statistics.n_features).merge(statistics)
    cube._encoder, cube._statistics = plan.encoder, statistics
