"""Cubes of rows that lie elsewhere: partitions of Dask and Spark, and groups that a database sums up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import DataTypeError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.sql.pushing import CannotPush, look, take_sums
from steelyard.tables.columns import Columns
from steelyard.tables.databases import DatabaseSource

if TYPE_CHECKING:
    from steelyard.sql.cube import StatisticsCube

__all__ = ["added", "cell_names", "pushed"]

_FIRST = 1000  # rows that settle columns and grid for all workers
Options = Sequence[str]


def cell_names(values: list[str | None]) -> list[str]:
    """Values of a column that a cube is cut by; rows without one are a cell, too."""
    return ["(none)" if value is None else value for value in values]


def added(
    cube: StatisticsCube, frame: Any, engine: str, features: Options | None, drop: Options
) -> StatisticsCube:
    """The cube with the rows of a data frame of Dask or Spark.

    The first rows settle columns and grid; every partition is then a cube on that grid, and these add up.
    """
    if not hasattr(frame, "mapInPandas" if engine == "pyspark" else "to_delayed"):
        raise DataTypeError(f"expected a data frame; got {type(frame).__name__}.", who="StatisticsCube")
    if cube.n_rows:
        start = cube.empty()
    else:
        first = frame.limit(_FIRST).toPandas() if engine == "pyspark" else frame.head(_FIRST, npartitions=-1)
        first.attrs.clear()  # what Spark says of its plan, which no Arrow table can hold
        start = cube._twin().add(first, features=features, drop=drop).empty()
    total = cube._twin() if cube.n_rows else start
    for message in (_spark if engine == "pyspark" else _dask)(frame, to_bytes(start)):
        total = total.merge(from_bytes(message))
    return total


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


def pushed(
    cube: StatisticsCube, source: DatabaseSource, features: Options | None, drop: Options
) -> StatisticsCube:
    """The cube with rows whose sums a database takes, cell by cell."""
    if cube.time is not None or cube.folds:
        source.close()
        raise CannotPush(
            "buckets of time and folds are made of rows that are read.",
            who="StatisticsCube",
            hint='how="auto" reads them',
        )
    twin = cube._twin()
    encoder = twin._encoder
    settled = "columns_" in vars(encoder)
    chosen = tuple(encoder.columns_) if settled else None if features is None else tuple(features)
    columns = Columns(
        cube.target,
        None,
        chosen,
        () if settled else (*cube.by, *drop),
        tuple(encoder.categorical_) if settled else (),
    )
    grid = None if twin._statistics is None else twin._statistics.grid
    try:
        with source.connection.reading():
            looked = look(source, columns, encoder, grid=grid, cells=tuple(cube.by))
            statistics = take_sums(
                looked, name_of=lambda cells, label: json.dumps([*cell_names(cells), 0, label])
            )
    finally:
        source.close()
    twin._check_memory_of(statistics)
    if twin._statistics is not None:
        statistics = twin._statistics.grow(statistics.n_features).merge(statistics)
    twin._encoder, twin._statistics = looked.encoder, statistics
    return twin
