"""Training on Spark: one pass over a DataFrame, a small reduction, one solution on the client.

Only the DataFrame interface is used (``mapInArrow``), so it works through Spark Connect as well. Executors
need this package in their Python.
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
    Kind,
    Message,
    Models,
    Pass,
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

_BUCKET = 32  # partitions whose statistics are added on the executors before the client sees them
_MESSAGES = "bucket int, place int, kind int, part binary, trouble string"


def fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Forget all, then learn the rows of a DataFrame: the same models as ``fit`` on one machine gives.

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        Several models learn from one pass over the rows; those that differ only in C, weights or
        thresholds share all the work.
    df : pyspark.sql.DataFrame
        The rows, of a classic session or of Spark Connect.
    features : sequence of str or str
        Numeric columns, whose names the models remember, or the one column of vectors or arrays. Sparse
        vectors stay sparse.
    label : str, default="y"
        Column of the labels.
    weight : str, optional
        Column that says how often each row counts.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.

    Raises
    ------
    DataError
        With the partition and the column, when a value is missing or not finite. No model is changed.
    """
    return _run(models, "fit", [_Side(df, _columns(df, features, label, weight, "fit"), "fit")])


def partial_fit(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Learn these rows too. For the parameters see :func:`fit`."""
    return _run(
        models,
        "partial_fit",
        [_Side(df, _columns(df, features, label, weight, "partial_fit"), "partial_fit")],
    )


def forget(
    models: Models, df: Any, *, features: Features, label: str = "y", weight: str | None = None
) -> Models:
    """Unlearn rows that were learned before. For the parameters see :func:`fit`."""
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
    """Learn some rows and unlearn others in one job: a window that slides, on many machines.

    Every partition sends one message, the statistics of its rows; all models change, or none. It is
    algorithm 4 of the paper on the distributed incremental wLPSVM, except that both sums are sent instead of
    their difference.

    Parameters
    ----------
    models : ProximalSVC or sequence of ProximalSVC
        As for :func:`fit`; they have learned rows before.
    add, retire : pyspark.sql.DataFrame, optional
        Rows to learn, and rows that were learned before and are to go, with the same columns. A row may be
        in both.
    features, label, weight
        As for :func:`fit`.

    Returns
    -------
    ProximalSVC or sequence of ProximalSVC
        ``models``, changed in place.

    Raises
    ------
    DataError
        With the partition and the column, when a value is missing or not finite, or when rows are to retire
        that were never learned. No model is changed.
    """
    if add is None and forget is None:
        raise ParameterError("give rows to add, rows to retire, or both.", source="update")
    sides = [
        _Side(df, _columns(df, features, label, weight, f"update ({name})"), f"update ({name})", leaving)
        for name, df, leaving in (("add", add, False), ("forget", forget, True))
        if df is not None
    ]
    return _run(models, "update", sides)


def predict(model: ProximalSVC, df: Any, *, features: Features, output: str = "prediction") -> Any:
    """The DataFrame with a column of labels behind, computed when it is asked for.

    Parameters
    ----------
    model : ProximalSVC
        What it has learned by now is what counts, whatever it learns later.
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
            f"there is a column {output!r} already.",
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
    """Measure a model on rows that it has not seen, for all folds in one pass over the rows.

    Rows fall into folds by their values, so equal rows share a fold. The model itself stays as it is.

    Parameters
    ----------
    model : ProximalSVC
        The model; with ``C="auto"``, C is chosen anew for each fold, from the other folds.
    df, features, label, weight
        As for :func:`fit`.
    folds : int, default=5
        Number of folds.

    Returns
    -------
    dict of str to ndarray of shape (folds,)
        See :func:`steelyard.proximal.model_selection.validate_folds` for what is exact among the measures.
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
    """Rows that come, or rows that leave."""

    df: Any
    columns: Columns
    method: str  # who speaks when something is wrong with them
    leaving: bool = False

    @property
    def rows(self) -> Any:
        return self.df.select(*map(_quoted, self.columns.names))

    def messages(self, kinds: Sequence[Kind]) -> Any:
        """A DataFrame of the messages of all partitions; the kinds of rows that leave follow the others."""
        work = partial(
            _statistics,
            kinds=kinds,
            columns=self.columns,
            method=self.method,
            bucket=_BUCKET,
            first=len(kinds) if self.leaving else 0,
        )
        return self.rows.mapInArrow(work, _MESSAGES)


def _run(models: Any, method: str, sides: Sequence[_Side]) -> Any:
    work = Pass(models, method)
    work.settle_maps(lambda: _first_rows(sides[0].rows, sides[0].columns))
    messages = (
        reduce(lambda a, b: a.union(b), (side.messages(work.kinds) for side in sides))
        .repartition("bucket")
        .sortWithinPartitions("bucket", "kind", "place")  # one order of adding, so one result
        .mapInArrow(_add_up, _MESSAGES)
    )
    arrived = sorted(messages.collect(), key=lambda row: (row["kind"], row["bucket"]))
    troubles = [row for row in arrived if row["trouble"] is not None]
    if troubles:
        raise DataError(**json.loads(min(troubles, key=lambda row: row["place"])["trouble"]))
    by_kind: list[list[FoldedStatistics]] = [[] for _ in range(len(work.kinds) * work.n_sides)]
    for row in arrived:
        by_kind[row["kind"]].append(FoldedStatistics.from_bytes(bytes(row["part"])))
    work.finish([add_up(messages) for messages in by_kind])
    return models


def _first_rows(rows: Any, columns: Columns) -> Any:
    """The first rows there are, with the names that they have on the executors; None if there are none."""
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
    """A column name that may hold dots."""
    return "`" + name.replace("`", "``") + "`"


# -- on the executors -----------------------------------------------------------------------------------


def _statistics(
    batches: Iterable[Any], *, kinds: Sequence[Kind], columns: Columns, method: str, bucket: int, first: int
) -> Iterator[Any]:
    """The messages of one partition, their kinds counted from `first` on.

    Bad rows are an answer, not an error: trying again would not help.
    """
    from pyspark import TaskContext

    place = TaskContext.get().partitionId()
    learners = [kind.learner() for kind in kinds]
    seen = 0
    for batch in batches:
        where = f"{method}: partition {place}" + (f", after its first {seen} rows" if seen else "")
        try:
            data = columns.rows(batch), columns.labels(batch), columns.weights(batch)
            learn_rows(learners, *data, where)
        except SteelyardError as error:
            for _ in batches:  # Spark's writer wants to be heard out
                pass
            yield _message(place // bucket, place, first, trouble=_trouble(error, where))
            return
        seen += batch.num_rows
    for kind, learner in enumerate(learners, start=first):
        message = message_of(learner)
        if message is not None:
            yield _message(place // bucket, place, kind, part=message.to_bytes())


def _add_up(batches: Iterable[Any]) -> Iterator[Any]:
    """One message for each bucket and kind; troubles pass through."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for (bucket, kind), group in groupby(rows, key=lambda row: (row["bucket"], row["kind"])):
        total: Message = None
        for row in group:
            if row["trouble"] is not None:
                yield _message(**row)
            else:
                total = add_up([total, FoldedStatistics.from_bytes(row["part"])])
        if total is not None:
            yield _message(bucket, 0, kind, part=total.to_bytes())


def _message(
    bucket: int, place: int, kind: int, part: bytes | None = None, trouble: str | None = None
) -> Any:
    import pyarrow as pa

    columns = {
        "bucket": pa.array([bucket], pa.int32()),
        "place": pa.array([place], pa.int32()),
        "kind": pa.array([kind], pa.int32()),
        "part": pa.array([part], pa.binary()),
        "trouble": pa.array([trouble], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _trouble(error: SteelyardError, where: str) -> str:
    return json.dumps({"who": where, "sentence": error.message, "hint": error.hint})


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
            answers = learner.predict(columns.rows(batch))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(answers.tolist())], [*batch.schema.names, output]
            )
