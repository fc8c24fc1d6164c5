"""Whatever holds rows and labels, as a stream of chunks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.streams.chunks import ArrayStream, Chunk, RowStream
from steelyard.tables.columns import Columns
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.records import LABEL, RecordSource
from steelyard.tables.table_stream import TableStream, open_stream

__all__ = ["as_stream"]

DEFAULT_CHUNK = 100


def as_stream(data: Any, y: Any = None, *, target: str | None = None, chunk: int | None = None) -> Any:
    """Chunks of rows, from arrays, a data frame, a file, records or what gives chunks already.

    Parameters
    ----------
    data : stream, array-like, table, path or iterable
        With ``y`` or ``target`` rows; otherwise something that gives chunks, or pairs of a mapping and a
        label, as river's data sets do.
    y : array-like, optional
        Labels of the rows.
    target : str, optional
        The column of a table or file that holds the labels.
    chunk : int, optional
        Rows in a chunk; 100 by default.
    """
    if y is not None and target is not None:
        raise ParameterError("labels come from y or from the column target; got both.", source="prequential")
    if y is not None:
        return _of_rows_and_labels(data, y, chunk or DEFAULT_CHUNK)
    if target is not None:
        return open_stream(data, target, chunk=chunk or DEFAULT_CHUNK)
    if isinstance(data, RowStream):
        if chunk is not None:
            raise ParameterError("a stream has chunks of its own; chunk must be None.", source="prequential")
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
            f"X has a column {LABEL!r}.",
            source="prequential",
            hint=f"then say target={LABEL!r} and give no y",
        )
    columns = {str(name): X[name] for name in X.columns}
    return open_stream({**columns, LABEL: y}, LABEL, chunk=chunk)


def _of_items(items: Iterable[Any], chunk: int | None) -> Any:
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        return ()
    whole = chain([first], iterator)
    if isinstance(first, Chunk):
        return whole
    if isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], Mapping):
        source = RecordSource(whole, type(items).__name__)
        return TableStream(source, Columns(LABEL), encoder=TableEncoder(), chunk=chunk or DEFAULT_CHUNK)
    raise DataTypeError(
        f"expected chunks, or pairs of a mapping and a label; got {type(first).__name__}.",
        source="prequential",
        hint="rows of an array need their labels too: prequential(model, X, y)",
    )
