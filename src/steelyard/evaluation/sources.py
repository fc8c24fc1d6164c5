"""Conversion of arrays, data frames, files and records to streams."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.tables.columns import Columns
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.source import LABEL, RecordSource
from steelyard.tables.table_stream import TableStream, open_stream

_DEFAULT_CHUNK_ROWS = 100


def as_stream(data: Any, y: Any = None, *, target: str | None = None, chunk: int | None = None) -> Any:
    """Return a stream of chunks from the arguments of :func:`prequential`."""
    if y is not None and target is not None:
        raise ParameterError("labels are either y or the column target; got both.", source="prequential")
    if y is not None:
        return _of_rows_and_labels(data, y, chunk or _DEFAULT_CHUNK_ROWS)
    if target is not None:
        return open_stream(data, target, chunk=chunk or _DEFAULT_CHUNK_ROWS, unlabelled="keep")
    if isinstance(data, RowStream):
        if chunk is not None:
            raise ParameterError("a stream has its own chunk size; chunk must be None.", source="prequential")
        return data
    if isinstance(data, str | os.PathLike) or hasattr(data, "columns"):
        raise ParameterError(
            "a file or table needs target, the name of the column that holds the labels; got None.",
            source="prequential",
        )
    if isinstance(data, Iterable) and not isinstance(data, Mapping):
        return _of_items(data, chunk)
    raise DataTypeError(
        "expected a stream, rows with labels y, a table or file with target, or pairs of a mapping and a "
        f"label; got {type(data).__name__}.",
        source="prequential",
    )


def _of_rows_and_labels(X: Any, y: Any, chunk: int) -> RowStream:
    if not hasattr(X, "columns"):
        return ArrayStream(X, y, chunk=chunk)
    if LABEL in X.columns:
        raise DataError(
            f"X must not have a column {LABEL!r} if the labels are passed as y.",
            source="prequential",
            hint=f"use target={LABEL!r} instead of y, or rename the column",
        )
    columns = {str(name): X[name] for name in X.columns}
    return open_stream({**columns, LABEL: y}, LABEL, chunk=chunk, unlabelled="keep")


def _of_items(items: Iterable[Any], chunk: int | None) -> Any:
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        return ()
    all_items = chain([first], iterator)
    if isinstance(first, Chunk):
        return all_items
    if isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], Mapping):
        source = RecordSource(all_items, type(items).__name__)
        return TableStream(source, Columns(LABEL), encoder=TableEncoder(), chunk=chunk or _DEFAULT_CHUNK_ROWS)
    raise DataTypeError(
        f"expected chunks, or pairs of a mapping and a label; got {type(first).__name__}.",
        source="prequential",
        hint="an array needs labels: prequential(model, X, y)",
    )
