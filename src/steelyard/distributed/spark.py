"""Training on Spark: executors compute and add statistics, and the client solves for the model.

Only the DataFrame interface is used (``mapInArrow``), so it also works with Spark Connect. Executors need
this package in their Python environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby
from typing import Any

from steelyard._validation import check_started
from steelyard.distributed.partitions import (
    Message,
    Models,
    Pass,
    StatisticsConfig,
    add_up,
    fold_probe,
    learn_rows,
    message_of,
    no_rows_error,
)
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
from steelyard.distributed.spark_streaming import ModelCheckpoint, learn_keyed, learn_sample
from steelyard.ensemble import StreamClassifier
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.keyed import KeyedClassifier
from steelyard.params import Integer
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import FoldedStatistics, ProximalSVC

__all__ = [
    "cross_validate",
    "fit",
    "forget",
    "load_stream",
    "partial_fit",
    "predict",
    "stream",
    "update",
]

Features = Sequence[str] | str

_PARTITIONS_PER_BUCKET = 32  # number of partitions whose messages one executor adds


def fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Fit models on the rows of a DataFrame. The result equals ``fit`` on one machine.

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
        If a value is missing or not finite; the message names the partition and column. No model is changed.
    """
    return _run(models, "fit", {"fit": df}, (features, label, weight))


def partial_fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Learn more rows, with the parameters of :func:`fit`; ``models`` may also be a KeyedClassifier.

    The rows of a :class:`~steelyard.KeyedClassifier` are partitioned by key, and every partition sends the
    sums of its keys. ``features`` are the numeric columns without the key.
    """
    if isinstance(models, KeyedClassifier):
        columns = _columns(df, features, label, weight, "partial_fit", model=models)
        learn_keyed(models, df, columns, "partial_fit")
        return models
    return _run(models, "partial_fit", {"partial_fit": df}, (features, label, weight))


def forget(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Forget rows that were learned before; the parameters are those of :func:`fit`."""
    return _run(models, "forget", {"forget": df}, (features, label, weight))


def update(
    models: Models,
    *,
    add: Any = None,
    forget: Any = None,
    features: Features,
    label: str = "y",
    weight: str | None = None,
) -> Models:
    """Learn some rows and forget others in one job, atomically for all models.

    Every partition sends the sums of its rows to add and, separately, the sums of its rows to forget.
    (Algorithm 4 of Zhu et al., "Distributed Incremental wLPSVM Learning", sends their difference.)

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        As for :func:`fit`; they must be fitted.
    add, forget : pyspark.sql.DataFrame, optional
        Rows to learn and rows to forget, with the same columns. A row may be in both.
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
        raise no_rows_error()
    sides = {"update (add)": add, "update (forget)": forget}
    return _run(models, "update", sides, (features, label, weight))


def stream(
    model: ProximalSVC | StreamClassifier | KeyedClassifier,
    df: Any,
    *,
    features: Features,
    label: str = "y",
    weight: str | None = None,
    checkpoint: str,
    max_rows: int = 100_000,
    trigger: Mapping[str, Any] | None = None,
) -> Any:
    """Learn the rows of a streaming DataFrame, each micro-batch exactly once; return the running query.

    The model is saved in the checkpoint together with the id of its last micro-batch, in one file that is
    replaced atomically. A query that is started again with the same checkpoint continues where it stopped.

    Parameters
    ----------
    model : ProximalSVC, StreamClassifier or KeyedClassifier
        The model; it is changed in place after each micro-batch. If the checkpoint contains a model, its
        state replaces that of ``model``.
    df : pyspark.sql.DataFrame
        Streaming rows, such as those of ``spark.readStream``.
    features, label, weight
        As for :func:`fit`. The key column of a KeyedClassifier is not a feature.
    checkpoint : str
        Folder of the checkpoint, in a file system that the driver accesses by local paths.
    max_rows : int, default=100_000
        For a StreamClassifier: at most about this number of rows of the most frequent class, sampled by their
        hashes, are sent to the driver for each micro-batch; all rows of the other classes are sent.
    trigger : mapping, optional
        Arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.

    Returns
    -------
    pyspark.sql.streaming.StreamingQuery
        The query; ``awaitTermination()`` waits for its end.

    Raises
    ------
    ParameterError
        If the workers run another version of Python, or the checkpoint belongs to another model.
    """
    learnable = (ProximalSVC, StreamClassifier, KeyedClassifier)
    if not isinstance(model, learnable):
        names = ", ".join(kind.__name__ for kind in learnable)
        raise DataTypeError(f"expected one of {names}; got {type(model).__name__}.", source="stream")
    if not Integer(1).accepts(max_rows):
        raise ParameterError(f"max_rows must be {Integer(1).description}; got {max_rows!r}.", source="stream")
    columns = _columns(df, features, label, weight, "stream", model=model)
    if not df.isStreaming:
        raise DataTypeError(
            "expected a streaming DataFrame; got a static DataFrame.",
            source="stream",
            hint="read the rows with spark.readStream, or call partial_fit() for a static DataFrame",
        )
    saved = ModelCheckpoint.open(checkpoint, model)
    # Raises an error if the workers lack required packages.
    collect(df.sparkSession.range(1).mapInArrow(_unchanged, "id long"))

    def learn_batch(target: ModelCheckpoint, rows: Any) -> None:
        if isinstance(model, StreamClassifier):
            learn_sample(target, rows, columns, max_rows)
        else:
            partial_fit(target.model, rows, features=features, label=label, weight=weight)

    writer = df.writeStream.foreachBatch(lambda rows, number: saved.learn(rows, number, learn_batch))
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.option("checkpointLocation", checkpoint).start()


def load_stream(checkpoint: str) -> Any:
    """Return the model after the last micro-batch from the checkpoint of a streaming query.

    Parameters
    ----------
    checkpoint : str
        The folder that was given to :func:`stream`.

    Returns
    -------
    ProximalSVC, StreamClassifier or KeyedClassifier
    """
    return ModelCheckpoint.open(checkpoint).model


def predict(
    model: ProximalSVC | StreamClassifier | KeyedClassifier,
    df: Any,
    *,
    features: Features,
    output: str = "prediction",
    score: str | None = None,
) -> Any:
    """Return the DataFrame with an additional column of predicted labels, computed lazily.

    Parameters
    ----------
    model : ProximalSVC, StreamClassifier or KeyedClassifier
        The model. Its current state is used; later changes of the model have no effect.
    df : pyspark.sql.DataFrame
        Rows, also of a stream; all columns are kept.
    features : sequence of str or str
        As for :func:`fit`. The key column of a KeyedClassifier is not a feature.
    output : str, default="prediction"
        Name of the new column.
    score : str, optional
        Name of a further column with the scores of the decision function; only with two classes.

    Returns
    -------
    pyspark.sql.DataFrame
    """
    from pyspark.sql import types

    check_started(model, "predict")
    columns = _columns(df, features, None, None, "predict", model=model)
    added = [output, *filter(None, [score])]
    taken = [name for name in added if name in df.columns]
    if taken:
        raise ParameterError(
            f"the DataFrame already has a column {taken[0]!r}.",
            source="predict",
            hint='choose another name: output="..."',
        )
    if score is not None and len(model.classes_) != 2:
        raise ParameterError(
            f"a column of scores needs a model of two classes; this model has {len(model.classes_)}.",
            source="predict",
        )
    sql_type = {"i": types.LongType, "u": types.LongType, "b": types.BooleanType, "f": types.DoubleType}.get(
        model.classes_.dtype.kind, types.StringType
    )
    fields = [types.StructField(output, sql_type())]
    fields += [types.StructField(name, types.DoubleType()) for name in added[1:]]
    schema = types.StructType([*df.schema.fields, *fields])
    return df.mapInArrow(partial(_predictions, to_bytes(model), columns, added), schema)


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


# -- functions that run on the client ----------------------------------------------------------------


def _columns(
    df: Any, features: Features, label: str | None, weight: str | None, method: str, *, model: Any = None
) -> SparkColumns:
    if not hasattr(df, "mapInArrow"):
        raise DataTypeError(f"expected a Spark DataFrame; got {type(df).__name__}.", source=method)
    key: Any = None
    if isinstance(model, KeyedClassifier):
        key = model.key
        if not isinstance(key, str) or isinstance(features, str) or key in features:
            raise ParameterError(
                "a KeyedClassifier on Spark needs the name of its key column and a list of other columns as "
                f"features; got key={key!r} and features={features!r}.",
                source=method,
            )
    columns = SparkColumns(features if isinstance(features, str) else tuple(features), label, weight, key)
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


def _run(models: Any, method: str, sides: Mapping[str, Any], names: tuple[Features, str, str | None]) -> Any:
    """Run a method on DataFrames (or None) by their name in error messages. The second one is forgotten."""
    sources = {side: (df, _columns(df, *names, side)) for side, df in sides.items() if df is not None}
    work = Pass(models, method)
    work.fit_maps(lambda: first_rows(*next(iter(sources.values()))))
    messages = []
    for side, (df, columns) in sources.items():
        first = len(work.configs) * [*sides].index(side)
        learn = partial(_statistics, configs=work.configs, columns=columns, method=side, first=first)
        messages.append(df.select(*map(quoted, columns.names)).mapInArrow(learn, PARTS))
    sums = (
        reduce(lambda a, b: a.union(b), messages)
        .selectExpr("*", f"partition div {_PARTITIONS_PER_BUCKET} as bucket")
        .repartition("bucket")
        .sortWithinPartitions("bucket", "position", "partition")  # the fixed order makes sums reproducible
        .mapInArrow(_add_up, PARTS)
    )
    by_config: list[list[FoldedStatistics]] = [[] for _ in range(len(work.configs) * len(sides))]
    for row in checked_parts(collect(sums)):
        by_config[row["position"]].append(FoldedStatistics.from_bytes(bytes(row["content"])))
    work.finish([add_up(messages) for messages in by_config])
    return models


# -- functions that run on the executors -------------------------------------------------------------


def _statistics(
    batches: Iterable[Any],
    *,
    configs: Sequence[StatisticsConfig],
    columns: SparkColumns,
    method: str,
    first: int,
) -> Iterator[Any]:
    """Yield the messages of one partition. Configurations are numbered from ``first``."""
    learners = [config.learner() for config in configs]

    def learn(batch: Any) -> None:
        learn_rows(learners, columns.rows(batch), columns.labels(batch), columns.weights(batch), method)

    errors = list(run_batches(learn, method, batches))
    yield from errors
    if errors:
        return
    for config, learner in enumerate(learners, start=first):
        message = message_of(learner)
        if message is not None:
            yield make_part(partition_id(), config, message.to_bytes())


def _add_up(batches: Iterable[Any]) -> Iterator[Any]:
    """Add the messages of each bucket and configuration. Errors are passed on."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for (bucket, config), group in groupby(rows, key=lambda row: (row["bucket"], row["position"])):
        total: Message = None
        for row in group:
            if row["error"]:
                yield make_part(row["partition"], config, row["content"], error=True)
            else:
                total = add_up([total, FoldedStatistics.from_bytes(row["content"])])
        if total is not None:
            yield make_part(bucket, config, total.to_bytes())


def _unchanged(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _predictions(
    model: bytes, columns: SparkColumns, added: list[str], batches: Iterable[Any]
) -> Iterator[Any]:
    import pyarrow as pa

    learner = from_bytes(model)
    for batch in batches:
        if batch.num_rows:
            rows = columns.rows(batch)
            results = [pa.array(learner.predict(rows).tolist())]
            if len(added) > 1:
                results.append(pa.array(learner.decision_function(rows)))
            yield pa.RecordBatch.from_arrays([*batch.columns, *results], [*batch.schema.names, *added])
