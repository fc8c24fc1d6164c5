"""Training on Spark: one pass over a DataFrame, a reduction on the executors, and one solution on the client.

Only the DataFrame interface is used (``mapInArrow``), so it also works with Spark Connect. Executors need
this package in their Python environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from typing import Any

from steelyard.distributed.arrow_columns import Columns
from steelyard.distributed.partitions import (
    MAP_ROWS,
    Message,
    Models,
    Pass,
    StatisticsConfig,
    add_up,
    check_fitted,
    fold_probe,
    learn_rows,
    message_of,
)
from steelyard.exceptions import DataError, DataTypeError, ParameterError, SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import FoldedStatistics, ProximalSVC

__all__ = ["cross_validate", "fit", "forget", "partial_fit", "predict", "update"]

Features = Sequence[str] | str

_PARTITIONS_PER_BUCKET = 32  # partitions whose messages are added on an executor
_MESSAGES = "bucket int, partition int, config int, message binary, error string"


def fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Fit models on the rows of a DataFrame; the result equals ``fit`` on one machine.

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        Models to train in one pass over the rows. Models that differ only in C, weights or thresholds share
        the statistics.
    df : pyspark.sql.DataFrame
        The rows, of a classic session or Spark Connect.
    features : sequence of str or str
        Numeric columns, whose names the models remember, or one column of vectors or arrays. Sparse vectors
        stay sparse.
    label : str, default="y"
        Label column.
    weight : str, optional
        Column of sample weights.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.

    Raises
    ------
    DataError
        If a value is missing or not finite; the message names partition and column. No model is changed.
    """
    return _run(models, "fit", [_Side(df, _columns(df, features, label, weight, "fit"), "fit")])


def partial_fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Learn more rows. Parameters as for :func:`fit`."""
    return _run(
        models,
        "partial_fit",
        [_Side(df, _columns(df, features, label, weight, "partial_fit"), "partial_fit")],
    )


def forget(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Unlearn rows that were learned before. Parameters as for :func:`fit`."""
    return _run(models, "forget", [_Side(df, _columns(df, features, label, weight, "forget"), "forget")])


def update(
    models: Models,
    *,
    add: Any = None,
    forget: Any = None,
    features: Features,
    label: str = "y",
    weight: str | None = None,
) -> Models:
    """Learn some rows and unlearn others in one job, atomically for all models.

    Every partition sends one message per sum: the rows to add and the rows to forget are summed separately.
    (Algorithm 4 of the paper on the distributed incremental wLPSVM sends their difference.)

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        As for :func:`fit`; they must be fitted.
    add, forget : pyspark.sql.DataFrame, optional
        Rows to learn and rows to unlearn, with the same columns. A row may be in both.
    features, label, weight
        As for :func:`fit`.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.

    Raises
    ------
    DataError
        If a value is missing or not finite, or rows to forget were never learned; the message names partition
        and column. No model is changed.
    """
    if add is None and forget is None:
        raise ParameterError(
            "rows to add, rows to forget, or both are required; got neither.", source="update"
        )
    sides = [
        _Side(df, _columns(df, features, label, weight, f"update ({name})"), f"update ({name})", is_forgotten)
        for name, df, is_forgotten in (("add", add, False), ("forget", forget, True))
        if df is not None
    ]
    return _run(models, "update", sides)


def predict(model: ProximalSVC, df: Any, *, features: Features, output: str = "prediction") -> Any:
    """Return the DataFrame with an additional column of predicted labels, computed lazily.

    Parameters
    ----------
    model : ProximalSVC
        Its current state is used; later changes of the model have no effect.
    df : pyspark.sql.DataFrame
        Rows; all columns are kept.
    features : sequence of str or str
        As for :func:`fit`.
    output : str, default="prediction"
        Name of the new column.

    Returns
    -------
    pyspark.sql.DataFrame
    """
    from pyspark.sql import types

    check_fitted(model, "predict")
    columns = _columns(df, features, None, None, "predict")
    if output in df.columns:
        raise ParameterError(
            f"the DataFrame already has a column {output!r}.",
            source="predict",
            hint='choose another name: output="..."',
        )
    sql_type = {"i": types.LongType, "u": types.LongType, "b": types.BooleanType, "f": types.DoubleType}.get(
        model.classes_.dtype.kind, types.StringType
    )
    schema = types.StructType([*df.schema.fields, types.StructField(output, sql_type())])
    return df.mapInArrow(partial(_predictions, to_bytes(model), columns, output), schema)


def cross_validate(
    model: ProximalSVC,
    df: Any,
    *,
    features: Features,
    label: str = "y",
    weight: str | None = None,
    folds: int = 5,
) -> dict[str, Any]:
    """Cross-validate a model in one pass over the rows.

    A hash of the row selects its fold, so equal rows share a fold. The model is not changed.

    Parameters
    ----------
    model : ProximalSVC
        The model; with ``C="auto"``, C is chosen separately for each fold from the other folds.
    df, features, label, weight
        As for :func:`fit`.
    folds : int, default=5
        Number of folds.

    Returns
    -------
    dict of str to ndarray of shape (folds,)
        Metrics per fold; see :meth:`steelyard.ProximalSVC.cross_validate`.
    """
    probe = fold_probe(model, folds)
    fit(probe, df, features=features, label=label, weight=weight)
    return model.cross_validate(probe.statistics())


# -- on the client --------------------------------------------------------------------------------------


def _columns(df: Any, features: Features, label: str | None, weight: str | None, method: str) -> Columns:
    if not hasattr(df, "mapInArrow"):
        raise DataTypeError(f"expected a Spark DataFrame; got {type(df).__name__}.", source=method)
    columns = Columns(features if isinstance(features, str) else tuple(features), label, weight)
    if not columns.features:
        raise ParameterError("the list of feature columns is empty.", source=method)
    missing = [name for name in columns.names if name not in df.columns]
    if missing:
        raise DataError(
            f"the DataFrame has no column {missing[0]!r}; it has {', '.join(df.columns[:10])}"
            f"{', ...' if len(df.columns) > 10 else ''}.",
            source=method,
        )
    return columns


@dataclass(frozen=True)
class _Side:
    """Rows to add or rows to forget."""

    df: Any
    columns: Columns
    method: str  # name of the method, for error messages
    is_forgotten: bool = False

    @property
    def rows(self) -> Any:
        return self.df.select(*map(_quoted, self.columns.names))

    def messages(self, configs: Sequence[StatisticsConfig]) -> Any:
        """Return a DataFrame with the messages of all partitions.

        Configuration numbers of forgotten rows follow those of added rows.
        """
        work = partial(
            _statistics,
            configs=configs,
            columns=self.columns,
            method=self.method,
            bucket=_PARTITIONS_PER_BUCKET,
            first=len(configs) if self.is_forgotten else 0,
        )
        return self.rows.mapInArrow(work, _MESSAGES)


def _run(models: Any, method: str, sides: Sequence[_Side]) -> Any:
    work = Pass(models, method)
    work.fit_maps(lambda: _first_rows(sides[0].rows, sides[0].columns))
    messages = (
        reduce(lambda a, b: a.union(b), (side.messages(work.configs) for side in sides))
        .repartition("bucket")
        .sortWithinPartitions(
            "bucket", "config", "partition"
        )  # a fixed order of additions gives a reproducible result
        .mapInArrow(_add_up, _MESSAGES)
    )
    received = sorted(messages.collect(), key=lambda row: (row["config"], row["bucket"]))
    failed = [row for row in received if row["error"] is not None]
    if failed:
        raise DataError(**json.loads(min(failed, key=lambda row: row["partition"])["error"]))
    by_config: list[list[FoldedStatistics]] = [[] for _ in range(len(work.configs) * work.n_sides)]
    for row in received:
        by_config[row["config"]].append(FoldedStatistics.from_bytes(bytes(row["message"])))
    work.finish([add_up(messages) for messages in by_config])
    return models


def _first_rows(rows: Any, columns: Columns) -> Any:
    """Return the first rows with their column names, or None if there are none."""
    packed = rows.limit(MAP_ROWS).mapInArrow(partial(_pack_rows, columns), "rows binary").collect()
    if not packed:
        return None
    import numpy as np

    X = np.concatenate([decode(bytes(row["rows"])) for row in packed])
    if isinstance(columns.features, str):
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(columns.features))


def _quoted(name: str) -> str:
    """Quote a column name, which may contain dots."""
    return "`" + name.replace("`", "``") + "`"


# -- on the executors -----------------------------------------------------------------------------------


def _statistics(
    batches: Iterable[Any],
    *,
    configs: Sequence[StatisticsConfig],
    columns: Columns,
    method: str,
    bucket: int,
    first: int,
) -> Iterator[Any]:
    """Yield the messages of one partition, with configurations numbered from ``first``.

    Invalid rows are returned as a message instead of raised, because Spark would retry the task.
    """
    from pyspark import TaskContext

    partition = TaskContext.get().partitionId()
    learners = [config.learner() for config in configs]
    seen = 0
    for batch in batches:
        where = f"{method}: partition {partition}" + (f", after its first {seen} rows" if seen else "")
        try:
            data = columns.rows(batch), columns.labels(batch), columns.weights(batch)
            learn_rows(learners, *data, where)
        except SteelyardError as error:
            for _ in batches:  # Spark requires that the input is consumed
                pass
            yield _message(partition // bucket, partition, first, error=_serialized(error, where))
            return
        seen += batch.num_rows
    for config, learner in enumerate(learners, start=first):
        message = message_of(learner)
        if message is not None:
            yield _message(partition // bucket, partition, config, message=message.to_bytes())


def _add_up(batches: Iterable[Any]) -> Iterator[Any]:
    """Add the messages of each bucket and configuration; forward errors."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for (bucket, config), group in groupby(rows, key=lambda row: (row["bucket"], row["config"])):
        total: Message = None
        for row in group:
            if row["error"] is not None:
                yield _message(**row)
            else:
                total = add_up([total, FoldedStatistics.from_bytes(row["message"])])
        if total is not None:
            yield _message(bucket, 0, config, message=total.to_bytes())


def _message(
    bucket: int, partition: int, config: int, message: bytes | None = None, error: str | None = None
) -> Any:
    import pyarrow as pa

    columns = {
        "bucket": pa.array([bucket], pa.int32()),
        "partition": pa.array([partition], pa.int32()),
        "config": pa.array([config], pa.int32()),
        "message": pa.array([message], pa.binary()),
        "error": pa.array([error], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _serialized(error: SteelyardError, where: str) -> str:
    return json.dumps({"source": where, "message": error.message, "hint": error.hint})


def _pack_rows(columns: Columns, batches: Iterable[Any]) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        X = columns.rows(batch)
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([encode(dense)], pa.binary())})


def _predictions(model: bytes, columns: Columns, output: str, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    learner = from_bytes(model)
    for batch in batches:
        if batch.num_rows:
            labels = learner.predict(columns.rows(batch))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(labels.tolist())], [*batch.schema.names, output]
            )
