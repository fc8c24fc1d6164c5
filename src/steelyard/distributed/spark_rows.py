"""Rows of Spark as arrays, including vector columns, and the messages that executors send to the driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard.distributed.partitions import MAP_ROWS
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.persistence.tree import decode, encode

PARTS = "partition int, position long, content binary, error boolean"  # columns of the messages
_SPARSE = 0  # type code of sparse vectors in Spark (dense vectors have code 1)


@dataclass(frozen=True)
class SparkColumns:
    """Names of the feature, label and weight columns."""

    features: tuple[str, ...] | str  # one column per feature, or one column of vectors or arrays
    label: str | None = None
    weight: str | None = None
    key: str | None = None  # column with the keys of a KeyedClassifier: numbers or text

    @property
    def names(self) -> list[str]:
        """Return the names of all columns to read, without duplicates."""
        features = (self.features,) if isinstance(self.features, str) else self.features
        return list(dict.fromkeys([*features, *filter(None, (self.label, self.weight, self.key))]))

    def rows(self, batch: Any) -> Any:
        """Return the features of a batch as a data frame, an array or a sparse matrix."""
        if isinstance(self.features, str):
            return _vectors(batch.column(self.features), self.features)
        import pandas as pd

        X = np.empty((batch.num_rows, len(self.features)))
        for index, name in enumerate(self.features):
            X[:, index] = _numbers(batch.column(name), name)
        rows = pd.DataFrame(X, columns=list(self.features), copy=False)
        if self.key is not None:
            rows.insert(0, self.key, batch.column(self.key).to_pandas())
        return rows

    def labels(self, batch: Any) -> Any:
        """Return the labels of a batch."""
        assert self.label is not None
        column = batch.column(self.label)
        if column.null_count:
            raise DataError(
                f"the label column {self.label!r} has {column.null_count} missing values; nothing was "
                "changed.",
                source="rows",
                hint="drop rows without a label first",
            )
        return column.to_numpy(zero_copy_only=False)

    def weights(self, batch: Any) -> Any:
        """Return the weights of a batch, or None if there is no weight column."""
        return None if self.weight is None else _numbers(batch.column(self.weight), self.weight)


def quoted(name: str) -> str:
    """Return a column name quoted for Spark. In an unquoted name, a dot means access to a nested field."""
    return "`" + name.replace("`", "``") + "`"


def _numbers(column: Any, name: str) -> Any:
    """Return a column as floats. Missing values become NaN, for which learners raise an error."""
    try:
        return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"column {name!r} of type {column.type} is not numeric; nothing was changed.",
            source="rows",
            hint="convert text to numbers first, for example with StringIndexer",
        ) from error


def _vectors(column: Any, name: str) -> Any:
    """Convert a column of arrays, or of Spark's dense and sparse vectors, to a matrix."""
    if column.null_count:
        raise DataError(
            f"column {name!r} has {column.null_count} missing vectors; nothing was changed.",
            source="rows",
            hint="drop rows with missing vectors first",
        )
    types, sizes, indices, values = _fields(column, name)
    lengths = values.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    sparse = np.zeros(len(column), bool) if types is None else types == _SPARSE
    widths = np.unique(np.where(sparse, sizes, lengths))
    if len(widths) > 1:
        raise DataError(
            f"column {name!r} has vectors of different lengths, {widths[0]} and {widths[-1]}; nothing "
            "was changed.",
            source="rows",
        )
    flat = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    width = int(widths[0]) if len(widths) else 0
    if not sparse.any():
        return flat.reshape(len(column), width)
    row_starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(len(flat)) - np.repeat(row_starts[:-1], lengths)
    columns[np.repeat(sparse, lengths)] = indices.flatten().to_numpy(zero_copy_only=False)
    return sp.csr_matrix((flat, columns, row_starts), shape=(len(column), width))


def _fields(column: Any, name: str) -> tuple[Any, Any, Any, Any]:
    """Return type codes, sizes, indices and values of Spark vectors. Plain arrays have only values."""
    import pyarrow as pa

    if pa.types.is_struct(column.type) and {field.name for field in column.type} >= {"type", "values"}:
        parts = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        sizes = parts["size"].fill_null(0).to_numpy(zero_copy_only=False)
        return parts["type"].to_numpy(zero_copy_only=False), sizes, parts["indices"], parts["values"]
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return None, 0, None, column
    raise DataError(
        f"column {name!r} of type {column.type} does not contain vectors; nothing was changed.",
        source="rows",
        hint="pass a list of numeric columns, or a column of vectors or arrays",
    )


def collect(df: Any) -> list[Any]:
    """Return all rows; if the workers are unsuitable, raise an error that says how to fix them."""
    try:
        rows: list[Any] = df.collect()
    except Exception as error:  # classic sessions and Spark Connect have no common base class of errors
        text = str(error)
        if "PYTHON_VERSION_MISMATCH" in text or "Python in worker has different version" in text:
            versions = re.search(r"Python in worker has different version:? (\S+?) (?:than|from|vs)", text)
            found = f" ({versions[1]})" if versions else ""
            raise ParameterError(
                f"the Spark workers run another version of Python{found} than this process "
                f"({sys.version_info[0]}.{sys.version_info[1]}).",
                source="Spark",
                hint="set PYSPARK_PYTHON to the same Python on all machines before the session starts, for "
                'example os.environ["PYSPARK_PYTHON"] = sys.executable',
            ) from None
        if "No module named 'steelyard'" in text:
            raise ParameterError(
                "the Python of the Spark workers has no package steelyard.",
                source="Spark",
                hint="install it there, or set PYSPARK_PYTHON to a Python with steelyard before the session "
                "starts",
            ) from None
        raise
    return rows


def first_rows(df: Any, columns: SparkColumns) -> Any:
    """Return the first rows as a data frame, or as a matrix for a column of vectors; None without rows."""
    rows = df.select(*map(quoted, columns.names)).limit(MAP_ROWS)
    packed = collect(rows.mapInArrow(partial(_pack_rows, columns), "rows binary"))
    if not packed:
        return None
    X = np.concatenate([decode(bytes(row["rows"])) for row in packed])
    if isinstance(columns.features, str):
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(columns.features))


def _pack_rows(columns: SparkColumns, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        X = columns.rows(batch)
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([encode(dense)], pa.binary())})


# -- messages of executors ----------------------------------------------------------------------------


def run_batches(work: Callable[[Any], bytes | None], source: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of ``work`` for the batches of a partition that are not None.

    An error is sent as a result instead of being raised, because Spark would retry the task.
    """
    failed, n_seen = False, 0
    for position, batch in enumerate(batches):
        if failed or not batch.num_rows:
            continue  # Spark requires that the whole input is consumed
        try:
            content = work(batch)
        except SteelyardError as error:
            failed = True
            where = f"{source}: partition {partition_id()}"
            where += f", after its first {n_seen} rows" if n_seen else ""
            description = encode({"message": error.message, "source": where, "hint": error.hint})
            yield make_part(partition_id(), position, description, error=True)
        else:
            if content is not None:
                yield make_part(partition_id(), position, content)
        n_seen += batch.num_rows


def partition_id() -> int:
    """Return the number of the partition that this executor processes."""
    from pyspark import TaskContext

    return int(TaskContext.get().partitionId())


def make_part(partition: int, position: int, content: bytes, *, error: bool = False) -> Any:
    """Return a batch of one row with content that an executor sends to the driver."""
    import pyarrow as pa

    columns = {
        "partition": pa.array([partition], pa.int32()),
        "position": pa.array([position], pa.int64()),
        "content": pa.array([content], pa.binary()),
        "error": pa.array([error], pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(columns)


def checked_parts(rows: Iterable[Any]) -> list[Any]:
    """Return the parts of all partitions in order; raise the first error that a partition reported."""
    ordered = sorted(rows, key=lambda row: (row["partition"], row["position"]))
    for row in ordered:
        if row["error"]:
            raise DataError(**decode(bytes(row["content"])))
    return ordered
